"""How model families write their attention into config.json, one reader each. No torch here.

A reader turns the config's fields into groups of like layers. What a family does differently
(biases, shared layers, windows, norms on queries and keys) is a row of :data:`FAMILIES`; under
which names it keeps its sizes stands in ``keys.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from attnviz.attention.spec import (
    PROJECTIONS,
    AttentionSpec,
    Buckets,
    Indexer,
    Kind,
    QKNorm,
    check_sizes,
)
from attnviz.errors import ModelError
from attnviz.models.configs.keys import Config, Keys, find, need, optional, positive
from attnviz.models.configs.reach import reaches, rotary

ALL = frozenset(PROJECTIONS["other"])
QKV = frozenset({"w_q", "w_k", "w_v"})
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
    """The spec of one plain layer: MHA, GQA or MQA by the numbers of heads."""
    d_model, heads = need(config, keys, "d_model"), need(config, keys, "heads")
    sizes = check_sizes(
        d_model,
        heads,
        kv_heads=kv_heads or find(config, keys, "kv_heads"),
        head_dim=find(config, keys, "head_dim"),
    )
    kind: Kind = "mha"
    if sizes.kv_heads < heads:
        kind = "mqa" if sizes.kv_heads == 1 else "gqa"
    return AttentionSpec(
        kind=kind,
        d_model=d_model,
        heads=heads,
        kv_heads=sizes.kv_heads,
        head_dim=sizes.head_dim,
        value_dim=sizes.head_dim,
        biases=biases,
        causal=causal,
    )


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
        on = biases
        if bias_field and config.get(bias_field) is not None:
            on = biased if config[bias_field] else biases - ALL
        spec = basic(config, keys, on, causal=True)
        spec = replace(
            spec,
            qk_norm=norm(norms, config),
            extras=normed(spec, norms, config) + ((("sinks", spec.heads),) if sink else ()),
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


def normed(spec: AttentionSpec, norms: Norms, config: Config) -> tuple[tuple[str, int], ...]:
    """The learned weights of norms on queries and keys."""
    width = {
        "": 0,
        "head": 2 * spec.head_dim,
        "all": (spec.heads + spec.kv_heads) * spec.head_dim,
        "qk_layernorm": 4 * spec.head_dim if config.get("qk_layernorm") else 0,
        "use_qk_norm": 2 * spec.head_dim if config.get("use_qk_norm") else 0,
    }[norms]
    return (("norms of Q and K", width),) if width else ()


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
        here = tuple(i for i, seen_by in enumerate(per_layer) if seen_by == reach)
        label = "full attention"
        if size:
            label = f"{reach} {size:,}" + ("" if spec.causal else " each way")
        if here:
            turned = rotary(config, spec.head_dim, windowed=reach != "full")
            seen = replace(spec, window=size, chunked=reach == "chunk", rotary=turned)
            groups.append(LayerGroup(label, here, seen))
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
    own = config.get("relative_attention") and not config.get("share_att_key")
    table = spec.heads * spec.head_dim * (spec.d_model + 1)
    spec = replace(
        spec,
        scale_dim=spec.head_dim * (1 + len(kinds)) if kinds else 0,
        extras=(("position projections", table * len(kinds)),) if own and kinds else (),
    )
    return (LayerGroup("self-attention", tuple(range(need(config, keys, "layers"))), spec),)


def falcon(config: Config, keys: Keys) -> tuple[LayerGroup, ...]:
    """Falcon: one key head in the old form, ``num_kv_heads`` in the new one."""
    heads = need(config, keys, "heads")
    kv_heads = 1 if config.get("multi_query", True) else heads
    if config.get("new_decoder_architecture"):
        kv_heads = find(config, keys, "kv_heads") or heads
    on = ALL if config.get("bias") else NONE
    spec = basic(config, keys, on, causal=True, kv_heads=kv_heads)
    spec = replace(spec, rotary=rotary(config, spec.head_dim, windowed=False))
    return (LayerGroup("self-attention", tuple(range(need(config, keys, "layers"))), spec),)


def gemma3n(config: Config, keys: Keys) -> tuple[LayerGroup, ...]:
    """Gemma 3n: as Gemma 3 without a scale; the last layers borrow keys and values, and their norm.

    A borrowing layer has the keys of the last one before them that sees as far as it does.
    """
    groups = decoder(bias_field="attention_bias", norms="head", every=5)(config, keys)
    layers = need(config, keys, "layers")
    own = layers - (optional(config, "num_kv_shared_layers") or 0)
    if own < 1:
        raise ModelError(f"config.json: num_kv_shared_layers leaves none of {layers} layers")
    read = []
    for group in groups:
        spec, width = replace(group.spec, scaled=False), group.spec.head_dim
        shared = replace(spec, borrowed=True, extras=(("norm of Q", width),))
        for label, like, numbers in (
            (group.label, spec, [i for i in group.layers if i < own]),
            (f"{group.label}, borrowed keys", shared, [i for i in group.layers if i >= own]),
        ):
            if numbers:
                read.append(LayerGroup(label, tuple(numbers), like))
    return tuple(sorted(read, key=lambda group: group.layers[0]))


def latent(config: Config, keys: Keys) -> tuple[LayerGroup, ...]:
    """DeepSeek-V2 to V3.2 and Kimi: multi-head latent attention, with norms on the two latents.

    V3.2 adds an indexer, Kimi Linear leaves out the rotation.
    """
    r, d, d_r, d_v = (
        need(config, keys, what) for what in ("latent", "head_dim", "rope_dim", "value_dim")
    )
    query_latent = optional(config, *keys.query_latent) or 0
    biases = {"w_latent", "w_k_rope", "w_o"} | ({"w_q_latent"} if query_latent else set())
    norms = [("norm of the latent", r)]
    if query_latent:
        norms.append(("norm of the query latent", query_latent))
    heads, layers = need(config, keys, "heads"), need(config, keys, "layers")
    family, indexer = config.get("model_type"), None
    if family == "deepseek_v32":
        sizes = [need(config, keys, f"index_{what}") for what in ("heads", "width", "keep")]
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
    seen = reaches(config, layers)
    attending = tuple(i for i, reach in enumerate(seen) if reach != "none")
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
        own = replace(buckets, own=True)
        first = replace(spec, extras=(("position table", table),), buckets=own)
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


_LLAMA = decoder(bias_field="attention_bias")
_QWEN3 = decoder(bias_field="attention_bias", norms="head", windowed=True)
_BERT = encoder()

FAMILIES: Mapping[str, Reader] = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "electra", "camembert"), _BERT),
    **dict.fromkeys(("vit", "deit", "dinov2", "dinov2_with_registers"), _BERT),
    **dict.fromkeys(("wav2vec2", "hubert", "audio-spectrogram-transformer"), _BERT),
    **dict.fromkeys(("clip_vision_model", "siglip_vision_model", "siglip_text_model"), _BERT),
    "clip_text_model": decoder(ALL),
    "albert": encoder(shared=True),
    "distilbert": _BERT,
    **dict.fromkeys(("gpt2", "bloom"), decoder(ALL)),
    "gptj": decoder(NONE),
    "gpt_neox": decoder(ALL, bias_field="attention_bias"),
    "opt": decoder(ALL, bias_field="enable_bias"),
    "phi": decoder(ALL, norms="qk_layernorm"),
    **dict.fromkeys(("llama", "gemma", "granite", "smollm3", "olmo"), _LLAMA),
    **dict.fromkeys(("mistral", "mixtral", "phi3"), decoder(windowed=True)),
    **dict.fromkeys(("olmo2", "olmo3"), decoder(bias_field="attention_bias", norms="all")),
    "qwen2": decoder(QKV, windowed=True),
    **dict.fromkeys(("qwen3", "qwen3_moe"), _QWEN3),
    **dict.fromkeys(
        ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"),
        decoder(bias_field="attention_bias", norms="head", gated=True),
    ),
    "glm4_moe": decoder(bias_field="attention_bias", biased=QKV, norms="use_qk_norm"),
    "gemma2": decoder(bias_field="attention_bias", every=2),
    "gemma3_text": decoder(bias_field="attention_bias", norms="head", every=6),
    "gemma3n_text": gemma3n,
    "gpt_oss": decoder(ALL, bias_field="attention_bias", every=2, sink=True),
    "llama4_text": _LLAMA,
    **dict.fromkeys(("jamba", "bamba", "granitemoehybrid"), _LLAMA),
    "lfm2": decoder(norms="head"),
    "modernbert": modernbert,
    "deberta-v2": deberta,
    "falcon": falcon,
    **dict.fromkeys(
        ("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_linear"), latent
    ),
    **dict.fromkeys(("t5", "mt5"), t5),
    **dict.fromkeys(("bart", "mbart", "marian", "pegasus", "m2m_100"), two_stacks()),
    "whisper": two_stacks(frozenset({"w_q", "w_v", "w_o"})),
    "transformer": two_stacks(NONE),
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
