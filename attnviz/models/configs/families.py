"""How model families write their attention into config.json, one reader each. No torch here.

A reader turns the config's fields into groups of like layers. What a family does differently
(biases, shared layers, windows, norms on queries and keys) is a row of ``families.json``, with
the names under which it keeps its sizes.

Which layers of a model attend, how far each sees, and what the linear ones of a hybrid keep.

Sizes of what they keep are those of the families' own code: Qwen3-Next and Qwen3.5 update by the
gated delta rule (Yang et al. 2024, arXiv:2412.06464), Kimi Linear by Kimi delta attention
(arXiv:2510.26692). No torch here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from attnviz.attention.spec import (
    PROJECTIONS,
    AttentionSpec,
    Buckets,
    Indexer,
    Kind,
    LinearState,
    QKNorm,
    Rotary,
    check_sizes,
)
from attnviz.errors import ModelError
from attnviz.models.configs.keys import (
    FAMILY_TABLE,
    Config,
    Keys,
    find,
    need,
    optional,
    positive,
    shown,
    whole,
)

KeyMask = Literal["full", "window", "chunk", "none"]
"""All keys, those of a sliding window, those of the query's own chunk; none: no attention."""

LISTS = ("layer_types", "layers_block_type", "layer_block_types")
"""Where configs name every layer's kind."""
_WORDS: Sequence[tuple[str, KeyMask]] = (
    ("linear", "none"),  # before "attention": linear_attention keeps a state, no keys
    ("sliding", "window"),
    ("local", "window"),
    ("chunk", "chunk"),
    ("attention", "full"),
    ("full", "full"),
    ("global", "full"),
    ("hybrid", "full"),  # attention beside a state-space part
)

_PATTERNS: Sequence[tuple[str, KeyMask]] = (
    ("full_attention_interval", "none"),
    ("no_rope_layer_interval", "chunk"),
    ("sliding_window_pattern", "window"),
)
"""Every n-th layer sees everything; the others what stands here."""


def reaches(
    config: Config, layers: int, *, every: int = 0, windowed: bool = False
) -> list[KeyMask]:
    """How far every layer sees, from whatever way its family has of saying so.

    A list of names (``layer_types``, ``layers_block_type``), numbers of the layers that attend
    (``attn_layer_indices``, ``full_attn_idxs``, from 1 Kimi Linear's ``full_attn_layers``), a
    period (Jamba's ``attn_layer_period`` and ``attn_layer_offset``, Qwen3-Next's
    ``full_attention_interval``, ModernBERT's ``global_attn_every_n_layers``), or a pattern of
    windows.
    """
    for name in LISTS:
        if config.get(name) is not None:
            words = config[name]
            if not isinstance(words, list) or len(words) != layers:
                raise ModelError(
                    f"config.json: {name} must be a list of {layers} names, one a layer"
                )
            return [
                next((reach for part, reach in _WORDS if part in str(word).lower()), "none")
                for word in words
            ]
    linear = config.get("linear_attn_config")
    if isinstance(linear, Mapping) and linear.get("full_attn_layers") is not None:
        attending = _numbers(linear, "full_attn_layers", layers, first=1)
        return ["full" if i in attending else "none" for i in range(layers)]
    for name in ("attn_layer_indices", "full_attn_idxs"):
        if config.get(name) is not None:
            attending = _numbers(config, name, layers)
            return ["full" if i in attending else "none" for i in range(layers)]
    period = _count(config, "attn_layer_period")
    if period:
        offset = _count(config, "attn_layer_offset", least=0)
        return ["full" if i % period == offset else "none" for i in range(layers)]
    step = _count(config, "global_attn_every_n_layers")
    if step:
        return ["full" if i % step == 0 else "window" for i in range(layers)]
    for name, otherwise in _PATTERNS:
        step = _count(config, name) or (every if otherwise == "window" else 0)
        if step:
            return ["full" if (i + 1) % step == 0 else otherwise for i in range(layers)]
    if config.get("model_type") == "kimi_linear":  # as transformers fills it in
        return ["full" if i and i % 4 == 0 else "none" for i in range(layers)]
    if config.get("use_sliding_window") and config.get("max_window_layers") is not None:
        first = _count(config, "max_window_layers", least=0)
        return ["window" if i >= first else "full" for i in range(layers)]
    return ["window" if windowed else "full"] * layers


def _numbers(config: Config, name: str, layers: int, first: int = 0) -> frozenset[int]:
    """Return the layers that a list names, from 0, where the list counts from ``first``."""
    numbers, last = config[name], layers - 1 + first
    if not isinstance(numbers, list) or not all(
        isinstance(n, int) and first <= n <= last for n in numbers
    ):
        raise ModelError(
            f"config.json: {name} must list layers from {first} to {last}, got {shown(numbers)}"
        )
    return frozenset(n - first for n in numbers)


def _count(config: Config, name: str, least: int = 1) -> int:
    """Return a whole number, 0 where it is missing or null."""
    value = config.get(name)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ModelError(
            f"config.json: {name} must be a whole number from {least}, got {shown(value)}"
        )
    return value


_SHARES: Mapping[str, float] = {
    family: row["turned"]
    for row in FAMILY_TABLE["known"] if "turned" in row for family in row["families"]
}  # fmt: skip
"""What share of a head turns in families with rotary positions, unless the config says so."""

_LOCAL = {
    **dict.fromkeys(("gemma3_text", "gemma3n_text"), "rope_local_base_freq"),
    "modernbert": "local_rope_theta",
}
_GLOBAL = {"modernbert": "global_rope_theta"}
"""Where layers with a window, and the others, have a base of their own."""


def rotary(config: Config, head_dim: int, *, windowed: bool) -> Rotary | None:
    """Return the rotary positions of a layer; None where it has none."""
    family = str(config.get("model_type") or "")
    if family == "gptj":
        width = optional(config, "rotary_dim") or 64
        return Rotary(min(width, head_dim), positive(config, "rope_theta"), adjacent=True)
    absent = (
        (family == "falcon" and config.get("alibi"))
        or (family == "granitemoehybrid" and config.get("position_embedding_type") != "rope")
        or (family == "llama4_text" and not windowed)
    )
    if family not in _SHARES or absent:
        return None
    named = _parameters(config, windowed)
    share = positive(named, "partial_rotary_factor") or positive(config, "partial_rotary_factor")
    share = share or positive(config, "rotary_pct") or _SHARES[family]
    field = (_LOCAL if windowed else _GLOBAL).get(family, "rope_theta")
    base = positive(named, "rope_theta") or positive(config, field)
    base = base or positive(config, "rotary_emb_base")
    kind = str(named.get("rope_type") or named.get("type") or "default")
    return Rotary(
        int(head_dim * share) // 2 * 2,
        base,
        adjacent=family == "llama4_text",
        scaling="" if kind == "default" else kind,
    )


def _parameters(config: Config, windowed: bool) -> Mapping[str, Any]:
    """``rope_parameters``, of the kind of layer where each has its own; ``rope_scaling`` before."""
    parameters = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(parameters, Mapping):
        return {}
    specific = parameters.get("sliding_attention" if windowed else "full_attention")
    return specific if isinstance(specific, Mapping) else parameters


ATTENTION = "attention"
_MIXERS: Sequence[tuple[str, str]] = (
    ("linear", "linear attention"), ("mamba2", "Mamba-2"), ("mamba", "Mamba"),
    ("conv", "convolution"), ("recurrent", "recurrence"), ("mlp", "MLP alone"),
    ("moe", "MLP alone"),
)  # fmt: skip
"""What a layer without heads is, by a part of its name in the config."""


@dataclass(frozen=True, slots=True)
class StateGroup:
    """Linear layers that are alike: their numbers, from 0, and what one of them keeps."""

    layers: tuple[int, ...]
    state: LinearState


def state_of(config: Config, family: str) -> LinearState | None:
    """Give what a family's linear layer keeps; None for one whose state is not described."""
    read = _READERS.get(family)
    return None if read is None else read(config)


def mixers(config: Config, heads: Sequence[int]) -> tuple[str, ...]:
    """Return what every layer of a stack is; empty where all of them have heads."""
    if all(heads):
        return ()
    lists = (config.get(name) for name in LISTS)
    fitting = (names for names in lists if isinstance(names, Sequence) and len(names) == len(heads))
    names: Sequence[object] = next(fitting, [""] * len(heads))
    family = str(config.get("model_type") or "")
    return tuple(
        ATTENTION if count else _mixer(config, family, str(name).lower())
        for name, count in zip(names, heads, strict=True)
    )


def _mixer(config: Config, family: str, name: str) -> str:
    """Return what a layer without heads is, by its name in the config."""
    kind = next((label for part, label in _MIXERS if part in name), "no attention")
    state = state_of(config, family) if kind == "linear attention" else None
    return state.rule if state is not None else kind


def _gated_delta(config: Config) -> LinearState:
    """Return a state for each value head; queries and keys of fewer heads, repeated."""
    key_heads, heads = (_size(config, f"linear_num_{kind}_heads") for kind in ("key", "value"))
    key, value = (_size(config, f"linear_{kind}_head_dim") for kind in ("key", "value"))
    channels, kernel = 2 * key_heads * key + heads * value, _size(config, "linear_conv_kernel_dim")
    return LinearState("gated delta rule", "α", heads, key, value, channels, kernel)


def _kimi_delta(config: Config) -> LinearState:
    """Read Kimi's sizes: of a released config, or as transformers has them beside others."""
    inner = config.get("linear_attn_config")
    names = ("num_heads", "head_dim", "short_conv_kernel_size")
    usual = ("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim")
    inner = inner if isinstance(inner, Mapping) else {}
    heads, width, kernel = (
        whole(name, inner[name]) if name in inner else _size(config, usual_name)
        for name, usual_name in zip(names, usual, strict=True)
    )
    return LinearState(
        "Kimi delta attention", "Diag(α)", heads, width, width, 3 * heads * width, kernel
    )


_USUAL = {"linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128}
_USUAL |= {"linear_value_head_dim": 128, "linear_conv_kernel_dim": 4}
_USUAL |= {"linear_num_heads": 32, "linear_head_dim": 128}
"""What transformers takes for a field that a config leaves out."""


def _size(config: Config, name: str) -> int:
    return whole(name, config.get(name, _USUAL[name]))


_READERS: Mapping[str, Callable[[Config], LinearState]] = {
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), _gated_delta),
    "kimi_linear": _kimi_delta,
}
"""What reads the linear layers of each ``model_type``."""


ALL = frozenset(PROJECTIONS["other"])
Norms = Literal["", "head", "all", "qk_layernorm", "use_qk_norm"]
NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """Layers that are alike."""

    label: str  # ``decoder self-attention``, ``window 4,096``
    layers: tuple[int, ...]  # their numbers, from 0
    spec: AttentionSpec  # one such layer
    shared: bool = False  # True when all of them use one and the same set of weights (ALBERT)


def basic(
    config: Config, keys: Keys, biases: frozenset[str], *, causal: bool, kv_heads: int | None = None
) -> AttentionSpec:
    """Return the spec of one plain layer: MHA, GQA or MQA by the numbers of heads."""
    sizes = check_sizes(
        need(config, keys, "d_model"),
        need(config, keys, "heads"),
        kv_heads=kv_heads or find(config, keys, "kv_heads"),
        head_dim=find(config, keys, "head_dim"),
    )
    kind: Kind = "mha"
    if sizes.kv_heads < sizes.heads:
        kind = "mqa" if sizes.kv_heads == 1 else "gqa"
    return replace(sizes, kind=kind, biases=biases, causal=causal)


Reader = Callable[[Config, Keys], tuple[LayerGroup, ...]]


def encoder(*, shared: bool = False) -> Reader:
    """BERT and its kin: biases everywhere, no mask but padding."""

    def read(config: Config, keys: Keys) -> tuple[LayerGroup, ...]:
        biases = ALL if config.get("qkv_bias", True) else frozenset({"w_o"})
        spec = basic(config, keys, biases, causal=bool(config.get("is_decoder", False)))
        layers = tuple(range(need(config, keys, "layers")))
        label = "self-attention, one set of weights" if shared else "self-attention"
        return (LayerGroup(label, layers, spec, shared),)

    return read


def decoder(
    biases: frozenset[str] = NONE,
    *,
    bias_field: str = "",
    biased: frozenset[str] = ALL,
    norms: Norms = "",
    every: int = 0,
    windowed: bool = False,
    sink: bool = False,
    gated: bool = False,
) -> Reader:
    """GPT and Llama and their kin: causal self-attention."""

    def read(config: Config, keys: Keys) -> tuple[LayerGroup, ...]:
        applied = biases
        if bias_field and config.get(bias_field) is not None:
            applied = biased if config[bias_field] else biases - ALL
        spec, qk_norm = basic(config, keys, applied, causal=True), norm(norms, config)
        spec = replace(
            spec,
            qk_norm=qk_norm,
            extras=normed(spec, qk_norm) + ((("sinks", spec.heads),) if sink else ()),
            softcap=positive(config, "attn_logit_softcapping"),
            sink=sink,
            gated=gated,
            multiplier=positive(config, "attention_multiplier"),
        )
        under_root = positive(config, "query_pre_attn_scalar")
        if under_root is not None and under_root >= 1 and under_root != spec.head_dim:
            spec = replace(spec, scale_dim=int(under_root))
        return split(config, spec, need(config, keys, "layers"), every=every, windowed=windowed)

    return read


def norm(norms: Norms, config: Config) -> QKNorm | None:
    """How queries and keys are normalized."""
    if norms == "qk_layernorm":
        return QKNorm("LayerNorm", learned=2) if config.get("qk_layernorm") else None
    if norms == "use_qk_norm" and not config.get("use_qk_norm"):
        return None
    return QKNorm("RMSNorm", joint=norms == "all") if norms else None


def normed(spec: AttentionSpec, qk_norm: QKNorm | None) -> tuple[tuple[str, int], ...]:
    """Return the learned weights of norms on queries and keys."""
    if qk_norm is None:
        return ()
    vectors = spec.heads + spec.kv_heads if qk_norm.joint else 2
    return (("norms of Q and K", vectors * spec.head_dim * qk_norm.learned),)


def split(
    config: Config, spec: AttentionSpec, layers: int, *, every: int = 0, windowed: bool = False
) -> tuple[LayerGroup, ...]:
    """Tell layers apart by how far they see, and leave out those that do not attend."""
    window, chunk = optional(config, "sliding_window"), optional(config, "attention_chunk_size")
    local = optional(config, "local_attention")
    if local is not None:  # so many positions in both directions together
        window = local // 2 + 1
    if config.get("use_sliding_window") is False:
        window = None
    sizes = {"window": window, "chunk": chunk, "full": None}
    per_layer = [
        reach if reach == "none" or sizes[reach] else "full"
        for reach in reaches(config, layers, every=every, windowed=windowed)
    ]
    groups = []
    for reach, size in sizes.items():
        members = tuple(i for i, seen_by in enumerate(per_layer) if seen_by == reach)
        label = "full attention"
        if size:
            label = f"{reach} {size:,}" + ("" if spec.causal else " each way")
        if members:
            rotation = rotary(config, spec.head_dim, windowed=reach != "full")
            variant = replace(spec, window=size, chunked=reach == "chunk", rotary=rotation)
            groups.append(LayerGroup(label, members, variant))
    if not groups:
        raise ModelError(f"none of the {layers} layers attends: there is nothing to show")
    if len(groups) == 1 and groups[0].spec.window is None:
        groups = [replace(groups[0], label="self-attention")]
    return tuple(sorted(groups, key=lambda group: group.layers[0]))


def modernbert(config: Config, keys: Keys) -> tuple[LayerGroup, ...]:
    """ModernBERT: no biases unless told, a window each way in all but every third layer."""
    spec = basic(config, keys, ALL if config.get("attention_bias") else NONE, causal=False)
    return split(config, spec, need(config, keys, "layers"))


def deberta(config: Config, keys: Keys) -> tuple[LayerGroup, ...]:
    """DeBERTa-v2 and v3: scores of content with content, and with relative positions.

    Positions are projected by matrices of their own unless they share those of content; each kind
    of score (``c2p``, ``p2c``) widens the scale, 1/√(d · kinds). He et al. 2021 (arXiv:2006.03654).
    """
    spec = basic(config, keys, ALL, causal=False)
    kinds = [kind for kind in ("c2p", "p2c") if kind in (config.get("pos_att_type") or ())]
    separate = config.get("relative_attention") and not config.get("share_att_key")
    table = spec.heads * spec.head_dim * (spec.d_model + 1)
    spec = replace(
        spec,
        scale_dim=spec.head_dim * (1 + len(kinds)) if kinds else 0,
        extras=(("position projections", table * len(kinds)),) if separate and kinds else (),
    )
    return (LayerGroup("self-attention", tuple(range(need(config, keys, "layers"))), spec),)


def falcon(config: Config, keys: Keys) -> tuple[LayerGroup, ...]:
    """Falcon: one key head in the old form, ``num_kv_heads`` in the new one."""
    heads = need(config, keys, "heads")
    kv_heads = 1 if config.get("multi_query", True) else heads
    if config.get("new_decoder_architecture"):
        kv_heads = find(config, keys, "kv_heads") or heads
    biases = ALL if config.get("bias") else NONE
    spec = basic(config, keys, biases, causal=True, kv_heads=kv_heads)
    spec = replace(spec, rotary=rotary(config, spec.head_dim, windowed=False))
    return (LayerGroup("self-attention", tuple(range(need(config, keys, "layers"))), spec),)


def gemma3n(config: Config, keys: Keys) -> tuple[LayerGroup, ...]:
    """Gemma 3n: as Gemma 3 without a scale; the last layers borrow keys and values, and their norm.

    A borrowing layer has the keys of the last one before them that sees as far as it does.
    """
    groups = decoder(bias_field="attention_bias", norms="head", every=5)(config, keys)
    layers = need(config, keys, "layers")
    unshared = layers - (optional(config, "num_kv_shared_layers") or 0)
    if unshared < 1:
        raise ModelError(f"config.json: num_kv_shared_layers leaves none of {layers} layers")
    read = []
    for group in groups:
        spec, width = replace(group.spec, scaled=False), group.spec.head_dim
        shared = replace(spec, borrowed=True, extras=(("norm of Q", width),))
        for label, like, numbers in (
            (group.label, spec, [i for i in group.layers if i < unshared]),
            (f"{group.label}, borrowed keys", shared, [i for i in group.layers if i >= unshared]),
        ):
            if numbers:
                read.append(LayerGroup(label, tuple(numbers), like))
    return tuple(sorted(read, key=lambda group: group.layers[0]))


def latent(config: Config, keys: Keys) -> tuple[LayerGroup, ...]:
    """DeepSeek-V2 to V3.2 and Kimi: multi-head latent attention, with norms on the two latents.

    V3.2 adds an indexer, Kimi Linear leaves out the rotation.
    """
    r, d, d_r, d_v = (
        need(config, keys, size) for size in ("latent", "head_dim", "rope_dim", "value_dim")
    )
    query_latent = optional(config, *keys.query_latent) or 0
    biases = {"w_latent", "w_k_rope", "w_o"} | ({"w_q_latent"} if query_latent else set())
    norms = [("norm of the latent", r)]
    if query_latent:
        norms.append(("norm of the query latent", query_latent))
    heads, layers = need(config, keys, "heads"), need(config, keys, "layers")
    family, indexer = config.get("model_type"), None
    if family == "deepseek_v32":
        sizes = [need(config, keys, f"index_{size}") for size in ("heads", "width", "keep")]
        indexer = Indexer(*sizes)
        norms.append(("norm of the index key", 2 * indexer.width))
    spec = AttentionSpec(
        kind="mla",
        d_model=need(config, keys, "d_model"),
        heads=heads,
        kv_heads=heads,
        head_dim=d,
        value_dim=d_v,
        latent=r,
        rope_dim=d_r,
        query_latent=query_latent,
        biases=frozenset(biases) if config.get("attention_bias") else NONE,
        extras=tuple(norms),
        causal=True,
        indexer=indexer,
        turned=family != "kimi_linear",
    )
    per_layer = reaches(config, layers)
    attending = tuple(i for i, reach in enumerate(per_layer) if reach != "none")
    if not attending:
        raise ModelError(f"none of the {layers} layers attends: there is nothing to show")
    return (LayerGroup("self-attention", attending, spec),)


def t5(config: Config, keys: Keys) -> tuple[LayerGroup, ...]:
    """T5: no biases, no scale, heads of d_kv, a position table in the first layer of each stack."""
    plain = replace(basic(config, keys, NONE, causal=False), scaled=False)
    buckets = Buckets(
        optional(config, "relative_attention_num_buckets") or 32,
        optional(config, "relative_attention_max_distance") or 128,
    )
    table = buckets.count * plain.heads
    groups: list[LayerGroup] = []
    for side, names, causal in (("encoder", keys, False), ("decoder", keys.of_decoder, True)):
        count = need(config, names, "layers")
        spec = replace(plain, causal=causal, buckets=buckets)
        first_buckets = replace(buckets, own=True)
        first = replace(spec, extras=(("position table", table),), buckets=first_buckets)
        groups.append(LayerGroup(f"{side} self-attention, first", (0,), first))
        if count > 1:
            groups.append(LayerGroup(f"{side} self-attention", tuple(range(1, count)), spec))
    cross = replace(plain, kind="cross")
    layers = tuple(range(need(config, keys.of_decoder, "layers")))
    return (*groups, LayerGroup("cross-attention", layers, cross))


def two_stacks(biases: frozenset[str] = ALL) -> Reader:
    """BART, Marian, Whisper and the original transformer: encoder, decoder and cross-attention."""

    def read(config: Config, keys: Keys) -> tuple[LayerGroup, ...]:
        groups = []
        for label, names, causal in (
            ("encoder self-attention", keys, False),
            ("decoder self-attention", keys.of_decoder, True),
            ("cross-attention", keys.of_decoder, False),
        ):
            spec = basic(config, names, biases, causal=causal)
            if label.startswith("cross"):
                spec = replace(spec, kind="cross")
            groups.append(LayerGroup(label, tuple(range(need(config, names, "layers"))), spec))
        return tuple(groups)

    return read


def _reader(name: str, options: Mapping[str, Any] | None = None) -> Reader:
    """Give the reader of that name; those that have options are made with them, lists as sets."""
    if name not in _MAKERS:
        return _READERS_ALONE[name]
    named = {key: frozenset(v) if isinstance(v, list) else v for key, v in (options or {}).items()}
    return _MAKERS[name](**named)


_MAKERS: Mapping[str, Callable[..., Reader]] = {
    "encoder": encoder, "decoder": decoder, "two_stacks": two_stacks,
}  # fmt: skip
_READERS_ALONE: Mapping[str, Reader] = {
    "modernbert": modernbert, "deberta": deberta, "falcon": falcon, "gemma3n": gemma3n,
    "latent": latent, "t5": t5,
}  # fmt: skip
FAMILIES: Mapping[str, Reader] = {
    family: reader
    for row in FAMILY_TABLE["known"]
    for reader in (_reader(row["reader"], row.get("options")),)
    for family in row["families"]
}
"""The reader of each ``model_type``."""

STATE_SPACE: Mapping[str, str] = {
    "mamba": "Mamba",
    "mamba2": "Mamba 2",
    "falcon_mamba": "Falcon Mamba",
    "rwkv": "RWKV",
    "xlstm": "xLSTM",
}
"""Families without attention: they keep a state of fixed size, no keys and values."""
