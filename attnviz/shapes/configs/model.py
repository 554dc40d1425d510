"""A whole model's attention, read from its config.json or from a preset. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attnviz.errors import ModelError, SizeError
from attnviz.shapes.configs.families import FAMILIES, LayerGroup, basic
from attnviz.shapes.configs.keys import GUESS, find, keys_of
from attnviz.shapes.costs.formulas import parameters


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The attention of a whole model.

    Attributes:
        name: what the user called it.
        family: ``model_type`` of its config.
        groups: its layers, like ones together.
        whole: parameters of the whole model, None where nobody said.
        partial: what is not known, as a sentence; empty for a complete answer.
        notes: further sentences for the report.
        source: where the numbers come from.
    """

    name: str
    family: str
    groups: tuple[LayerGroup, ...]
    whole: int | None = None
    partial: str = ""
    notes: tuple[str, ...] = ()
    source: str = ""

    @property
    def attention_parameters(self) -> int:
        """Parameters of all attention layers, shared weights counted once."""
        return sum(group_parameters(group) for group in self.groups)

    @property
    def share(self) -> float | None:
        """Attention's share of the model's parameters."""
        return self.attention_parameters / self.whole if self.whole else None

    @property
    def main(self) -> LayerGroup:
        """The group that stands for the model: the largest self-attention group."""
        own = [group for group in self.groups if group.spec.kind != "cross"]
        return max(own, key=lambda group: (group.spec.causal, len(group.layers)))

    @property
    def cached_groups(self) -> tuple[LayerGroup, ...]:
        """The groups that keep a cache entry for every decoded token."""
        own = tuple(group for group in self.groups if group.spec.causal)
        return own or tuple(group for group in self.groups if group.spec.kind != "cross")


def group_parameters(group: LayerGroup) -> int:
    """Parameters of a group: of one layer times its layers, or once where they are shared."""
    one = parameters(group.spec).total
    return one if group.shared else one * len(group.layers)


def read_config(config: Mapping[str, Any], name: str) -> ModelSpec:
    """Read a transformers config.

    Args:
        config: the fields of config.json.
        name: what to call the model.

    Raises:
        ModelError: no attention fields, with those that were looked for; junk in them.
    """
    family = str(config.get("model_type") or "")
    if family not in FAMILIES:
        for part in ("text_config", "vision_config"):
            inner = config.get(part)
            if isinstance(inner, Mapping) and inner.get("model_type") in FAMILIES:
                found = read_config(inner, name)
                note = f"only {part} of a {family or 'composed'} model was read"
                return ModelSpec(name, found.family, found.groups, partial=note)
    try:
        if family in FAMILIES:
            return ModelSpec(name, family, FAMILIES[family](config, keys_of(family)))
        return _guess(config, name, family)
    except SizeError as error:
        raise ModelError(f"config.json of {name}: {error}") from error


def _guess(config: Mapping[str, Any], name: str, family: str) -> ModelSpec:
    """Sizes under usual names; biases, masks and norms stay unknown, and that is said."""
    shown = f"family {family!r}" if family else "a config without model_type"
    missing = [
        f"{meaning} ({', '.join(getattr(GUESS, what))})"
        for what, meaning in (("d_model", "a model width"), ("heads", "a number of heads"))
        if find(config, GUESS, what) is None
    ]
    if missing:
        raise ModelError(
            f"config.json of {name}: {shown} is not known to attnviz, and the config lacks "
            + " and ".join(missing)
        )
    spec = basic(config, GUESS, frozenset(), causal=False)
    layers = find(config, GUESS, "layers")
    partial = (
        f"partial answer: {shown} is not known to attnviz; widths and heads are the config's, "
        "biases, norms, masks and windows are not known and not counted"
    )
    if layers is None:
        partial += ", nor is the number of layers (1 assumed)"
    group = LayerGroup("self-attention", tuple(range(layers or 1)), spec)
    return ModelSpec(name, family, (group,), partial=partial)
