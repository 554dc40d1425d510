"""From what was computed to what is written: answers with typed parts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from attnviz.attention.costs import cache_elements, crossing, parameters, weights_elements
from attnviz.attention.spec import AttentionSpec, LayerAxes, RunSizes
from attnviz.attention.symbolic import Amount
from attnviz.features.shapes import parts, result

if TYPE_CHECKING:
    from attnviz.features.shapes.table import Printed
    from attnviz.features.shapes.walk.steps import Step, Walk
    from attnviz.features.shapes.walk.verify import Verification
    from attnviz.models.configs.families import LayerGroup
    from attnviz.models.configs.linear import StateGroup
    from attnviz.models.configs.model import ModelSpec


def walk_answer(walk: Walk, printed: Printed, *, explain: bool, layers: int) -> result.WalkAnswer:
    """A fresh layer, step by step."""
    return result.WalkAnswer(**printed._asdict(), **_of_layer(walk, explain=explain, layers=layers))


def model_answer(
    model: ModelSpec, walk: Walk, printed: Printed, *, explain: bool
) -> result.ModelAnswer:
    """A model's layers, and the walk through its main one."""
    return result.ModelAnswer(
        **printed._asdict(), model=_model(model), **_of_layer(walk, explain=explain, layers=1)
    )


def diagram_answer(
    walk: Walk,
    printed: Printed,
    *,
    explain: bool,
    layers: int,
    model: ModelSpec | None = None,
    files: Sequence[Path] = (),
) -> result.DiagramAnswer:
    """A layer that is drawn."""
    return result.DiagramAnswer(
        **printed._asdict(),
        model=None if model is None else _model(model),
        files=tuple(map(str, files)),
        **_of_layer(walk, explain=explain, layers=layers),
    )


def verify_answer(
    verification: Verification,
    printed: Printed,
    *,
    attention: int | None = None,
    whole: int | None = None,
) -> result.VerifyAnswer:
    """The comparisons, and of a model the parameters that were counted."""
    return result.VerifyAnswer(
        **printed._asdict(),
        subject=verification.subject,
        equal=not verification.failures,
        checks=verification.checks,
        attention_parameters=attention,
        whole_parameters=whole,
    )


def layer_sizes(spec: AttentionSpec) -> parts.LayerSizes:
    """A layer; None for what its kind has not."""
    return parts.LayerSizes(
        kind=spec.kind,
        d_model=spec.d_model,
        heads=spec.heads,
        kv_heads=spec.kv_heads,
        head_dim=spec.head_dim,
        value_dim=spec.value_dim,
        latent=spec.latent or None,
        rope_dim=spec.rope_dim if spec.kind == "mla" else None,
        query_latent=spec.query_latent or None,
        biases=tuple(sorted(spec.biases)),
        causal=spec.causal,
        sliding_window=spec.window,
        chunked=spec.chunked,
        sink=spec.sink,
        gated=spec.gated,
        rotary_dim=spec.rotary.width if spec.rotary else None,
        qk_norm=spec.qk_norm.kind if spec.qk_norm else None,
        position_buckets=spec.buckets.count if spec.buckets else None,
        selected_keys=spec.indexer.keep if spec.indexer else None,
        index_heads=spec.indexer.heads if spec.indexer else None,
        index_dim=spec.indexer.width if spec.indexer else None,
        borrowed=spec.borrowed,
    )


def layer_run(run: RunSizes) -> parts.LayerRun:
    """A run, with the dtypes that it is in."""
    return parts.LayerRun(
        batch=run.batch,
        seq=run.seq,
        context_length=run.context_length,
        cache=run.cache,
        dtype=cast(parts.Number, run.number),
        cache_dtype=cast(parts.CachedNumber, run.cached),
    )


def formula(value: Amount) -> parts.Formula:
    """An amount, and how it comes about."""
    return parts.Formula(value.value, value.written("d"))


def _of_layer(walk: Walk, *, explain: bool, layers: int) -> dict[str, Any]:
    """The fields of every answer that walks through one layer."""
    spec, run, learned, flops = walk.spec, walk.run, walk.parameters, walk.flops
    return {
        "layer": layer_sizes(spec),
        "run": layer_run(run),
        "layers": layers,
        "steps": tuple(_step(step, explain=explain) for step in walk.steps),
        "costs": parts.LayerCosts(
            parameters=parts.ParameterCosts(
                weights=learned.weights,
                biases=learned.biases,
                extras=learned.extras,
                total=learned.total,
            ),
            flops=parts.FlopCosts(
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


def _step(step: Step, *, explain: bool) -> parts.StepCosts:
    return parts.StepCosts(
        key=step.key,
        name=step.name,
        symbols=tuple(dim.symbol for dim in step.shape),
        shape=step.sizes,
        operation=step.operation,
        parameters=step.parameters,
        flops=formula(step.flops),
        bytes=None if step.bytes is None else formula(step.bytes),
        why=step.why if explain else None,
    )


def _model(model: ModelSpec) -> parts.ModelLayers:
    return parts.ModelLayers(
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


def _states(group: StateGroup) -> parts.StateLayers:
    state = group.state
    return parts.StateLayers(
        label=state.rule,
        layers=group.layers,
        heads=state.heads,
        key_dim=state.key_dim,
        value_dim=state.value_dim,
        state_elements=state.elements,
        convolution_elements=state.inputs,
    )


def _group(group: LayerGroup) -> parts.LikeLayers:
    from attnviz.models.configs.model import group_parameters

    spec = group.spec
    return parts.LikeLayers(
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
