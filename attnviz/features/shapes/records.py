"""From what was computed to what is written: records take what they describe by its names."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar, cast

from attnviz.attention.costs import cache_elements, crossing, parameters, weights_elements
from attnviz.attention.spec import Amount, AttentionSpec, LayerAxes, RunSizes
from attnviz.features.shapes import result as results

if TYPE_CHECKING:
    from attnviz.attention.walkthrough import Step, Walk
    from attnviz.models.configs.families import LayerGroup
    from attnviz.models.configs.model import ModelSpec

R = TypeVar("R")


def record_of(cls: type[R], source: Any, /, **changed: Any) -> R:
    """Take the fields of a record from what it describes, by their names, but for some."""
    named = [f.name for f in fields(cast(Any, cls)) if hasattr(source, f.name)]
    return cls(**{name: getattr(source, name) for name in named if name not in changed}, **changed)


def formula(value: Amount) -> results.Formula:
    """Write an amount, and how it comes about."""
    return results.Formula(value.value, value.written("d"))


def layer_sizes(spec: AttentionSpec) -> results.LayerSizes:
    """Write a layer; None for what its kind has not."""
    return record_of(
        results.LayerSizes,
        spec,
        latent=spec.latent or None,
        rope_dim=spec.rope_dim if spec.kind == "mla" else None,
        query_latent=spec.query_latent or None,
        biases=tuple(sorted(spec.biases)),
        sliding_window=spec.window,
        rotary_dim=spec.rotary.width if spec.rotary else None,
        qk_norm=spec.qk_norm.kind if spec.qk_norm else None,
        position_buckets=spec.buckets.count if spec.buckets else None,
        selected_keys=spec.indexer.keep if spec.indexer else None,
        index_heads=spec.indexer.heads if spec.indexer else None,
        index_dim=spec.indexer.width if spec.indexer else None,
    )


def layer_run(run: RunSizes) -> results.LayerRun:
    """Write a run, with the dtypes that it is in."""
    return record_of(results.LayerRun, run, dtype=run.number, cache_dtype=run.cached)


def of_layer(walk: Walk, *, explain: bool, layers: int) -> dict[str, Any]:
    """Make the fields of every answer that walks through one layer."""
    spec, run, flops = walk.spec, walk.run, walk.flops
    return {
        "layer": layer_sizes(spec),
        "run": layer_run(run),
        "layers": layers,
        "steps": tuple(_step(step, explain=explain) for step in walk.steps),
        "costs": results.LayerCosts(
            parameters=record_of(results.ParameterCosts, walk.parameters),
            flops=results.FlopCosts(
                projections=formula(flops.projections),
                attention=formula(flops.attention),
                total=formula(flops.total),
            ),
            weights_bytes=formula(weights_elements(LayerAxes(spec, run)) * run.width),
            cache_elements_per_token=cache_elements(spec),
            cache_bytes_per_token=cache_elements(spec) * run.cache_width,
            crossing_length=crossing(spec),
        ),
    }


def _step(step: Step, *, explain: bool) -> results.StepCosts:
    return record_of(
        results.StepCosts,
        step,
        symbols=tuple(dim.symbol for dim in step.shape),
        shape=step.sizes,
        flops=formula(step.flops),
        bytes=None if step.bytes is None else formula(step.bytes),
        why=step.why if explain else None,
    )


def model_layers(model: ModelSpec) -> results.ModelLayers:
    """Write a model's layers, like ones together."""
    return record_of(
        results.ModelLayers,
        model,
        partial=model.partial or None,
        source=model.source or None,
        whole_parameters=model.whole,
        idle_layers=model.idle,
        groups=tuple(map(_group, model.groups)),
        states=tuple(
            record_of(
                results.StateLayers,
                group.state,
                label=group.state.rule,
                layers=group.layers,
                state_elements=group.state.elements,
                convolution_elements=group.state.inputs,
            )
            for group in model.states
        ),
    )


def _group(group: LayerGroup) -> results.LikeLayers:
    from attnviz.models.configs.model import group_parameters

    spec = group.spec
    cached = spec.causal or spec.kind == "cross"
    return record_of(
        results.LikeLayers,
        group,
        layers=tuple(group.layers),
        layer=layer_sizes(spec),
        parameters_per_layer=parameters(spec).total,
        parameters=group_parameters(group),
        cache_elements_per_token=cache_elements(spec) if cached else None,
    )
