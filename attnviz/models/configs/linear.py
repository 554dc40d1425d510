"""The linear layers of a hybrid, from its config: what each keeps instead of keys. No torch here.

Sizes are those of the families' own code: Qwen3-Next and Qwen3.5 update by the gated delta rule
(Yang et al. 2024, arXiv:2412.06464), Kimi Linear by Kimi delta attention (arXiv:2510.26692).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from attnviz.attention.spec import LinearState
from attnviz.models.configs.keys import Config, whole
from attnviz.models.configs.reach import LISTS

ATTENTION = "attention"
_WORDS: Sequence[tuple[str, str]] = (
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
    kind = next((said for part, said in _WORDS if part in name), "no attention")
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
