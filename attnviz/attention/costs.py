"""What an attention layer costs, in closed forms: parameters, FLOPs, memory, KV cache.

FLOPs count 2 per multiply-add and matrix products only, as ``torch.utils.flop_counter`` does:
biases, scaling, masks and softmax are left out. A causal mask skips nothing; with a window a query
is compared with the keys of its window alone, w of them (2·w - 1 where it looks both ways).

Notation: B batch, T queries, S keys, D model width, H heads, G key/value heads, d head width,
r latent and d_r rotary width of MLA. Sources: Vaswani et al. 2017 (arXiv:1706.03762), Shazeer 2019
(MQA, arXiv:1911.02150), Ainslie et al. 2023 (GQA, arXiv:2305.13245), DeepSeek-V2 (MLA,
arXiv:2405.04434).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from attnviz.attention.spec import Amount, AttentionSpec, Dim, LayerAxes, elements

BLOCK_ELEMENTS, BLOCK_ROWS = 1 << 19, 24
"""Weights that ``attend`` shows at a time, and rows at least (a test compares the two)."""

FLOAT32_BYTES = 4


class Projection(NamedTuple):
    """One learned matrix of the layer: [inputs, outputs], and over which tokens it runs."""

    name: str
    inputs: int
    outputs: int
    bias: bool
    over: Literal["queries", "new keys", "all keys"]

    @property
    def weights(self) -> int:
        """Parameters of the matrix."""
        return self.inputs * self.outputs

    @property
    def parameters(self) -> int:
        """Parameters of matrix and bias."""
        return self.weights + (self.outputs if self.bias else 0)

    def flops(self, axes: LayerAxes) -> Amount:
        """2 · B · tokens · inputs · outputs."""
        tokens = {"queries": axes.t, "new keys": axes.new, "all keys": axes.s}[self.over]
        return 2 * elements(axes.b, tokens, self.inputs, self.outputs)


def projections(spec: AttentionSpec) -> tuple[Projection, ...]:
    """Return the learned matrices of a layer, in the order in which they are applied.

    MHA: four of D · D. GQA and MQA: W_K and W_V shrink to D · G·d. MLA: keys and values are rebuilt
    from a latent, D · r and r · H·d twice, beside the rotary key, D · d_r. With a KV cache, MLA
    rebuilds the keys and values of all cached tokens (no weight absorption). An indexer has queries
    of its own, made of the queries' latent, one key a token and a weight for each of its heads.
    """
    width, inner = spec.d_model, spec.heads * spec.value_dim
    queries = spec.heads * spec.score_dim
    rows: list[tuple[str, int, int, Literal["queries", "new keys", "all keys"]]] = []
    if spec.query_latent:
        rows.append(("w_q_latent", width, spec.query_latent, "queries"))
        rows.append(("w_q", spec.query_latent, queries, "queries"))
    else:
        rows.append(("w_q", width, queries, "queries"))
    if spec.kind == "mla" and not spec.borrowed:
        rows.append(("w_latent", width, spec.latent, "new keys"))
        rows.append(("w_k", spec.latent, spec.heads * spec.head_dim, "all keys"))
        rows.append(("w_v", spec.latent, inner, "all keys"))
        if spec.rope_dim:
            rows.append(("w_k_rope", width, spec.rope_dim, "new keys"))
    elif not spec.borrowed:
        rows.append(("w_k", width, spec.kv_heads * spec.head_dim, "new keys"))
        rows.append(("w_v", width, spec.kv_heads * spec.value_dim, "new keys"))
    if spec.indexer is not None:
        index_width = spec.indexer.heads * spec.indexer.width
        rows.append(("w_index_q", spec.query_latent or width, index_width, "queries"))
        rows.append(("w_index_k", width, spec.indexer.width, "new keys"))
        rows.append(("w_index_w", width, spec.indexer.heads, "queries"))
    if spec.gated:
        rows.append(("w_gate", width, inner, "queries"))
    rows.append(("w_o", inner, width, "queries"))
    return tuple(
        Projection(name, inputs, outputs, name in spec.biases, over)
        for name, inputs, outputs, over in rows
    )


class Parameters(NamedTuple):
    """Parameters of one layer: matrices, biases, and whatever else lives in it (norms, tables)."""

    weights: int
    biases: int
    extras: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.weights + self.biases + self.extras


def parameters(spec: AttentionSpec) -> Parameters:
    """Parameters of one layer. MHA: 4·D² and 4·D biases; GQA: 2·D² + 2·D·G·d."""
    matrices = projections(spec)
    return Parameters(
        weights=sum(p.weights for p in matrices),
        biases=sum(p.outputs for p in matrices if p.bias),
        extras=sum(count for _, count in spec.extras),
    )


class Flops(NamedTuple):
    """FLOPs of one layer: the learned matrices, and the products of attention and its indexer."""

    projections: Amount
    attention: Amount

    @property
    def total(self) -> Amount:
        """Both."""
        return self.projections + self.attention


def score_flops(spec: AttentionSpec, axes: LayerAxes) -> Amount:
    """Q Kᵀ: 2·B·H·T·S·d, a window's keys instead of S where there is one."""
    return 2 * elements(axes.b, axes.h, axes.t, axes.seen, spec.score_dim)


def mixing_flops(spec: AttentionSpec, axes: LayerAxes) -> Amount:
    """Weights times V: 2·B·H·T·S·d, with a window as for the scores."""
    return 2 * elements(axes.b, axes.h, axes.t, axes.seen, spec.value_dim)


def index_flops(spec: AttentionSpec, axes: LayerAxes) -> Amount:
    """Return what an indexer compares and adds up, for every key: 2·B·T·S·H_I·(d_I + 1)."""
    if spec.indexer is None:
        return Amount(0)
    return 2 * elements(axes.b, axes.t, axes.s, spec.indexer.heads, spec.indexer.width + 1)


def flops(spec: AttentionSpec, axes: LayerAxes) -> Flops:
    """FLOPs of one layer: O(T·D²) for the projections, O(T·S·D) for attention itself."""
    learned = sum((p.flops(axes) for p in projections(spec)), Amount(0))
    products = score_flops(spec, axes) + mixing_flops(spec, axes)
    return Flops(learned, products if spec.indexer is None else index_flops(spec, axes) + products)


def weights_elements(axes: LayerAxes) -> Amount:
    """How many attention weights there are: B·H·T·S."""
    return elements(axes.b, axes.h, axes.t, axes.s)


def streamed_elements(axes: LayerAxes) -> int | None:
    """Weights held at once when they are handed out in blocks of rows; None while a size is unset.

    At least 24 rows of all heads, 24·B·H·S, and otherwise at most 2¹⁹: linear in S, free of T.
    """
    row, length = elements(axes.b, axes.h, axes.s).value, axes.t.size
    if row is None or length is None:
        return None
    return row * min(length, max(BLOCK_ROWS, BLOCK_ELEMENTS // row))


def cache_elements(spec: AttentionSpec) -> int:
    """Numbers kept per token and layer: 2·G·d, or r + d_r for MLA, and an indexer's key.

    Cross-attention keeps 2·G·d per token of the context, once, whatever is decoded; a layer with
    an earlier one's keys and values keeps none.
    """
    if spec.borrowed:
        return 0
    if spec.kind == "mla":
        return spec.latent + spec.rope_dim + (spec.indexer.width if spec.indexer else 0)
    return spec.kv_heads * (spec.head_dim + spec.value_dim)


def cached_tokens(spec: AttentionSpec, tokens: int) -> int:
    """How many of ``tokens`` a cache has to keep: a window needs no more than itself."""
    return tokens if spec.window is None else min(tokens, spec.window)


def read_elements(spec: AttentionSpec, tokens: int) -> int:
    """Numbers of a layer's cache that one decoded token reads, of a text of so many tokens.

    All that is kept, by this layer or by the one whose keys it borrows; beside an indexer its key
    of every token, and the rest of selected ones.
    """
    if spec.borrowed:
        return cached_tokens(spec, tokens) * spec.kv_heads * (spec.head_dim + spec.value_dim)
    if spec.indexer is None:
        return cached_tokens(spec, tokens) * cache_elements(spec)
    selected = cache_elements(spec) - spec.indexer.width
    return tokens * spec.indexer.width + min(tokens, spec.indexer.keep) * selected


def crossing(spec: AttentionSpec) -> float | None:
    """Return the length T at which attention itself costs as much as the projections (S = T).

    Projections cost 2·T·P for P matrix parameters, attention 2·T²·H·(d + d_v); equal at
    T = P / (H·(d + d_v)), which is 2·D for MHA. Independent of the batch. None where a window ends
    attention's growth before that: it stays the cheaper part at any length. With an indexer
    every key costs H_I·(d_I + 1) more, and beyond k keys no more than that.
    """
    learned, per_token = parameters(spec).weights, spec.heads * (spec.score_dim + spec.value_dim)
    if spec.indexer is not None:
        index, keep = spec.indexer.heads * (spec.indexer.width + 1), spec.indexer.keep
        near = learned / (per_token + index)
        return near if near <= keep else (learned - per_token * keep) / index
    length = learned / per_token
    if spec.window is None:
        return length
    return length if length <= (spec.window if spec.causal else 2 * spec.window - 1) else None


def blocked(spec: AttentionSpec, tokens: int) -> float:
    """Return the share of the T·T scores of a text that causality, a window or an indexer blocks.

    Causal: (T - 1) / 2T. A window w leaves w keys to each query but the first w - 1, and so does
    an indexer that keeps w.
    """
    if spec.indexer is not None and spec.indexer.keep < tokens:
        keep = spec.indexer.keep
        pairs = keep * tokens - keep * (keep - 1) // 2
    elif spec.window is None or spec.window >= tokens:
        pairs = tokens * (tokens + 1) // 2 if spec.causal else tokens * tokens
    elif spec.chunked:
        chunks, remaining = divmod(tokens, spec.window)
        pairs = chunks * spec.window * (spec.window + 1) // 2 + remaining * (remaining + 1) // 2
    else:
        causal = spec.window * tokens - spec.window * (spec.window - 1) // 2
        pairs = causal if spec.causal else 2 * causal - tokens
    return 1 - pairs / (tokens * tokens)


def product(dims: tuple[Dim, ...], width: int) -> Amount:
    """Bytes of a tensor of this shape, at ``width`` bytes a number."""
    return elements(*dims) * width
