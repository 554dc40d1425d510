"""Which heads a model has by its configuration alone: others are refused before it is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnviz.core.heads import Layout, SiteKind
from attnviz.errors import AttnvizError
from attnviz.models.configs.families import FAMILIES, LayerGroup
from attnviz.models.configs.model import read_config, read_towers


def layout_of(config: Mapping[str, Any]) -> Layout | None:
    """The heads of a model of one tower and a known family; None where only loading tells."""
    try:
        towers, model = read_towers(config, ""), read_config(config, "")
    except AttnvizError:  # loading says what is wrong with it
        return None
    if towers or model.partial or model.family not in FAMILIES:
        return None
    if any(group.spec.kind == "cross" for group in model.groups) and _one_stack(config):
        return None
    heads: dict[SiteKind, tuple[int, ...]] = {}
    for kind, groups in _by_kind(model.groups).items():
        counts = {layer: group.spec.heads for group in groups for layer in group.layers}
        heads[kind] = tuple(counts.get(layer, 0) for layer in range(max(counts) + 1))
    return Layout(heads)


def _one_stack(config: Mapping[str, Any]) -> bool:
    """Whether a family of two stacks may have one here, as ``BartForCausalLM`` does."""
    named = " ".join(map(str, config.get("architectures") or ()))
    return config.get("is_encoder_decoder") is False or "CausalLM" in named or "Encoder" in named


def _by_kind(groups: tuple[LayerGroup, ...]) -> dict[SiteKind, list[LayerGroup]]:
    """The groups of each kind of layers."""
    kinds: dict[SiteKind, list[LayerGroup]] = {}
    for group in groups:
        own: SiteKind = "decoder" if group.spec.causal else "encoder"
        kinds.setdefault("cross" if group.spec.kind == "cross" else own, []).append(group)
    return kinds
