"""How a config writes its rotary positions: how much of a head turns, how fast. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnviz.attention.spec import Rotary
from attnviz.models.configs.keys import Config, optional, positive

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
