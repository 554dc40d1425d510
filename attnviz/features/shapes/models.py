"""The answers about a whole model, or about a layer that is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from attnviz.attention.costs import cache_elements, parameters
from attnviz.core.own_names import own_name
from attnviz.features.shapes.parts import LayerSizes
from attnviz.features.shapes.records import layer_sizes, of_layer
from attnviz.features.shapes.result import LayerAnswer

if TYPE_CHECKING:
    from attnviz.features.shapes.table import Printed
    from attnviz.features.shapes.walk.steps import Walk
    from attnviz.models.configs.families import LayerGroup
    from attnviz.models.configs.linear import StateGroup
    from attnviz.models.configs.model import ModelSpec


@dataclass(frozen=True, kw_only=True)
class LikeLayers:
    """Layers of a model that are alike.

    Attributes:
        label: what they are. layers: their numbers.
        shared: whether they share one set of weights.
        layer: one of them.
        parameters_per_layer: of one. parameters: of all, shared ones counted once.
        cache_elements_per_token: numbers kept per token and layer; None in an encoder.
    """

    label: str
    layers: tuple[int, ...]
    shared: bool
    layer: LayerSizes
    parameters_per_layer: int
    parameters: int
    cache_elements_per_token: int | None


@dataclass(frozen=True, kw_only=True)
class StateLayers:
    """Linear layers of a model that are alike: each keeps as much at any length.

    Attributes:
        label: how the state is updated. layers: their numbers.
        heads: states a layer. key_dim, value_dim: the sides of each.
        state_elements: numbers of all heads' states, which transformers keeps in float32.
        convolution_elements: numbers of the short convolution's last inputs.
    """

    label: str
    layers: tuple[int, ...]
    heads: int
    key_dim: int
    value_dim: int
    state_elements: int
    convolution_elements: int


@dataclass(frozen=True, kw_only=True)
class ModelLayers:
    """The attention of a whole model.

    Attributes:
        name: what the user called it. family: the ``model_type`` of its config.
        partial: what is not known; None for a complete answer.
        source: where its sizes were published.
        attention_parameters: of all attention layers. whole_parameters: of the model, where known.
        share: the one of the other.
        dtype: of its weights, where its config says.
        idle_layers: layers without attention.
        groups: its layers, like ones together.
        states: its linear layers whose state is known, like ones together.
    """

    name: str
    family: str
    partial: str | None
    source: str | None
    attention_parameters: int
    whole_parameters: int | None
    share: float | None
    dtype: str | None
    idle_layers: int
    groups: tuple[LikeLayers, ...]
    states: tuple[StateLayers, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ModelAnswer(LayerAnswer):
    """A model's layers, and the walk through its main kind of layer."""

    view: Literal["model"] = "model"
    model: ModelLayers


@dataclass(frozen=True, kw_only=True)
class DiagramAnswer(LayerAnswer):
    """A layer that is drawn, perhaps a model's, perhaps into files."""

    view: Literal["diagram"] = "diagram"
    model: ModelLayers | None = None
    files: tuple[str, ...] = ()


def model_answer(model: ModelSpec, walk: Walk, printed: Printed, *, explain: bool) -> ModelAnswer:
    """A model's layers, and the walk through its main one."""
    return ModelAnswer(
        **printed._asdict(), model=_model(model), **of_layer(walk, explain=explain, layers=1)
    )


def diagram_answer(
    walk: Walk,
    printed: Printed,
    *,
    explain: bool,
    layers: int,
    model: ModelSpec | None = None,
    files: Sequence[Path] = (),
) -> DiagramAnswer:
    """A layer that is drawn."""
    return DiagramAnswer(
        **printed._asdict(),
        model=None if model is None else _model(model),
        files=tuple(own_name(str(name)) for name in files),
        **of_layer(walk, explain=explain, layers=layers),
    )


def _model(model: ModelSpec) -> ModelLayers:
    return ModelLayers(
        name=model.name,
        family=model.family,
        partial=model.partial or None,
        source=model.source or None,
        attention_parameters=model.attention_parameters,
        whole_parameters=model.whole,
        share=model.share,
        dtype=model.dtype,
        idle_layers=model.idle,
        groups=tuple(map(_group, model.groups)),
        states=tuple(map(_states, model.states)),
    )


def _states(group: StateGroup) -> StateLayers:
    state = group.state
    return StateLayers(
        label=state.rule,
        layers=group.layers,
        heads=state.heads,
        key_dim=state.key_dim,
        value_dim=state.value_dim,
        state_elements=state.elements,
        convolution_elements=state.inputs,
    )


def _group(group: LayerGroup) -> LikeLayers:
    from attnviz.models.configs.model import group_parameters

    spec = group.spec
    return LikeLayers(
        label=group.label,
        layers=tuple(group.layers),
        shared=group.shared,
        layer=layer_sizes(spec),
        parameters_per_layer=parameters(spec).total,
        parameters=group_parameters(group),
        cache_elements_per_token=(
            cache_elements(spec) if spec.causal or spec.kind == "cross" else None
        ),
    )
