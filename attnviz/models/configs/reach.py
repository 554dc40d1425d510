"""Which layers of a model attend, how far each sees, and what the linear ones of a hybrid keep.

Sizes of what they keep are those of the families' own code: Qwen3-Next and Qwen3.5 update by the
gated delta rule (Yang et al. 2024, arXiv:2412.06464), Kimi Linear by Kimi delta attention
(arXiv:2510.26692). No torch here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from attnviz.attention.spec import LinearState, Rotary
from attnviz.errors import ModelError
from attnviz.models.configs.keys import Config, optional, positive, shown, whole

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
            return [_reach(word) for word in _names(config, name, layers)]
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
    for name, other in _PATTERNS:
        step = _count(config, name) or (every if other == "window" else 0)
        if step:
            return ["full" if (i + 1) % step == 0 else other for i in range(layers)]
    if config.get("model_type") == "kimi_linear":  # as transformers fills it in
        return ["full" if i and i % 4 == 0 else "none" for i in range(layers)]
    if config.get("use_sliding_window") and config.get("max_window_layers") is not None:
        first = _count(config, "max_window_layers", least=0)
        return ["window" if i >= first else "full" for i in range(layers)]
    return ["window" if windowed else "full"] * layers


def _reach(word: str) -> KeyMask:
    return next((reach for part, reach in _WORDS if part in word.lower()), "none")


def _names(config: Config, name: str, layers: int) -> list[str]:
    words = config[name]
    if not isinstance(words, list) or len(words) != layers:
        raise ModelError(f"config.json: {name} must be a list of {layers} names, one a layer")
    return [str(word) for word in words]


def _numbers(config: Config, name: str, layers: int, first: int = 0) -> frozenset[int]:
    """The layers that a list names, from 0, where the list counts from ``first``."""
    numbers, last = config[name], layers - 1 + first
    if not isinstance(numbers, list) or not all(
        isinstance(n, int) and first <= n <= last for n in numbers
    ):
        raise ModelError(
            f"config.json: {name} must list layers from {first} to {last}, got {shown(numbers)}"
        )
    return frozenset(n - first for n in numbers)


def _count(config: Config, name: str, least: int = 1) -> int:
    """A whole number, 0 where it is missing or null."""
    value = config.get(name)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ModelError(
            f"config.json: {name} must be a whole number from {least}, got {shown(value)}"
        )
    return value


_SHARES: Mapping[str, float] = {
    **dict.fromkeys(("llama", "gemma", "granite", "olmo", "olmo2", "olmo3"), 1.0),
    **dict.fromkeys(("mistral", "mixtral", "phi3", "qwen2", "qwen3", "qwen3_moe"), 1.0),
    **dict.fromkeys(("gemma2", "gemma3_text", "gemma3n_text", "gpt_oss"), 1.0),
    **dict.fromkeys(("llama4_text", "lfm2"), 1.0),
    **dict.fromkeys(("modernbert", "falcon", "granitemoehybrid"), 1.0),
    **dict.fromkeys(("gpt_neox", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), 0.25),
    **dict.fromkeys(("phi", "bamba", "glm4_moe"), 0.5),
}
"""What share of a head turns in families with rotary positions, unless the config says so."""

_LOCAL = {
    **dict.fromkeys(("gemma3_text", "gemma3n_text"), "rope_local_base_freq"),
    "modernbert": "local_rope_theta",
}
_GLOBAL = {"modernbert": "global_rope_theta"}
"""Where layers with a window, and the others, have a base of their own."""


def rotary(config: Config, head_dim: int, *, windowed: bool) -> Rotary | None:
    """The rotary positions of a layer; None where it has none."""
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
    own = parameters.get("sliding_attention" if windowed else "full_attention")
    return own if isinstance(own, Mapping) else parameters


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
    """What a linear layer of this family keeps; None for a family whose state is not described."""
    read = _READERS.get(family)
    return None if read is None else read(config)


def mixers(config: Config, heads: Sequence[int]) -> tuple[str, ...]:
    """What every layer of a stack is; empty where all of them have heads."""
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
    """What a layer without heads is, by its name in the config."""
    kind = next((said for part, said in _MIXERS if part in name), "no attention")
    state = state_of(config, family) if kind == "linear attention" else None
    return state.rule if state is not None else kind


def _gated_delta(config: Config) -> LinearState:
    """A state for each value head; queries and keys of fewer heads, repeated."""
    key_heads, heads = (_size(config, f"linear_num_{kind}_heads") for kind in ("key", "value"))
    key, value = (_size(config, f"linear_{kind}_head_dim") for kind in ("key", "value"))
    channels = 2 * key_heads * key + heads * value
    return LinearState(
        "gated delta rule",
        "α",
        heads,
        key,
        value,
        channels,
        _size(config, "linear_conv_kernel_dim"),
    )


def _kimi_delta(config: Config) -> LinearState:
    """The released config has the sizes in ``linear_attn_config``, transformers beside others."""
    inner = config.get("linear_attn_config")
    names = ("num_heads", "head_dim", "short_conv_kernel_size")
    usual = ("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim")
    inner = inner if isinstance(inner, Mapping) else {}
    heads, width, kernel = (
        whole(name, inner[name]) if name in inner else _size(config, other)
        for name, other in zip(names, usual, strict=True)
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
