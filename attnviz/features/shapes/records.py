"""From what was computed to what is written: answers with typed parts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from attnviz.attention.costs import cache_elements, crossing, parameters, weights_elements
from attnviz.attention.spec import AttentionSpec, LayerAxes, RunSizes
from attnviz.attention.symbolic import Amount
from attnviz.features.shapes import parts, result

if TYPE_CHECKING:
    from attnviz.features.shapes.costs.compare import Comparison, Variant
    from attnviz.features.shapes.costs.sweep import Point, Sweep
    from attnviz.features.shapes.table import Printed
    from attnviz.features.shapes.walk.steps import Step, Walk
    from attnviz.features.shapes.walk.verify import Verification
    from attnviz.features.shapes.worked.by_hand import HeadNumbers, Matrix, NumericWalk
    from attnviz.features.shapes.worked.softmax_scale import Scaling
    from attnviz.models.configs.families import LayerGroup
    from attnviz.models.configs.model import ModelSpec
    from attnviz.models.configs.presets import Preset


def walk_answer(walk: Walk, printed: Printed, *, why: bool, layers: int) -> result.WalkAnswer:
    """A fresh layer, step by step."""
    return result.WalkAnswer(**printed._asdict(), **_of_layer(walk, why=why, layers=layers))


def model_answer(
    model: ModelSpec, walk: Walk, printed: Printed, *, why: bool
) -> result.ModelAnswer:
    """A model's layers, and the walk through its main one."""
    return result.ModelAnswer(
        **printed._asdict(), model=_model(model), **_of_layer(walk, why=why, layers=1)
    )


def diagram_answer(
    walk: Walk,
    printed: Printed,
    *,
    why: bool,
    layers: int,
    model: ModelSpec | None = None,
    file: Path | None = None,
) -> result.DiagramAnswer:
    """A layer that is drawn."""
    return result.DiagramAnswer(
        **printed._asdict(),
        model=None if model is None else _model(model),
        file=None if file is None else str(file),
        **_of_layer(walk, why=why, layers=layers),
    )


def compare_answer(found: Comparison, printed: Printed) -> result.CompareAnswer:
    """Kinds of attention side by side."""
    return result.CompareAnswer(
        **printed._asdict(),
        layer=layer_sizes(found.spec),
        run=layer_run(found.run),
        layers=found.layers,
        tokens=found.tokens,
        memory_bytes=found.memory,
        variants=tuple(map(_variant, found.variants)),
    )


def sweep_answer(found: Sweep, printed: Printed) -> result.SweepAnswer:
    """Costs along one size."""
    first = found.points[0]
    return result.SweepAnswer(
        **printed._asdict(),
        model=found.model,
        layer=layer_sizes(first.spec),
        run=layer_run(first.run),
        variable=found.variable,
        crossing_length=found.crossing,
        points=tuple(map(_point, found.points)),
    )


def presets_answer(known: Mapping[str, Preset], printed: Printed) -> result.PresetsAnswer:
    """Published models."""
    return result.PresetsAnswer(
        **printed._asdict(),
        presets=tuple(
            parts.PresetSizes(
                name=name,
                title=one.title,
                year=one.year,
                source=one.source,
                layer=layer_sizes(one.model.main.spec),
                layers=sum(len(group.layers) for group in one.model.groups),
                attention_parameters=one.model.attention_parameters,
                whole_parameters=one.parameters,
                share=one.model.share,
            )
            for name, one in known.items()
        ),
    )


def verify_answer(
    found: Verification, printed: Printed, *, attention: int | None = None, whole: int | None = None
) -> result.VerifyAnswer:
    """The comparisons, and of a model the parameters that were counted."""
    return result.VerifyAnswer(
        **printed._asdict(),
        subject=found.subject,
        equal=not found.failures,
        checks=tuple(
            parts.Compared(step=c.step, what=c.what, said=c.said, found=c.found, equal=c.equal)
            for c in found.checks
        ),
        attention_parameters=attention,
        whole_parameters=whole,
    )


def numbers_answer(walked: NumericWalk, printed: Printed) -> result.NumbersAnswer:
    """Every number of a tiny layer, in full."""
    given = walked.given
    named = {name: getattr(given, name) for name in ("w_q", "w_k", "w_v", "w_o")}
    return result.NumbersAnswer(
        **printed._asdict(),
        tokens=given.tokens,
        key_tokens=given.key_tokens,
        scale=walked.scale,
        causal=given.causal,
        blocked_rows=walked.blocked,
        x=None if given.x is None else _rows(given.x),
        matrices={name: _rows(matrix) for name, matrix in named.items() if matrix is not None},
        heads=tuple(map(_head, walked.heads)),
        concat=_rows(walked.concat),
        output=_rows(walked.output),
    )


def scaling_answer(found: Scaling, printed: Printed) -> result.ScalingAnswer:
    """What 1/√d does."""
    return result.ScalingAnswer(
        **printed._asdict(),
        keys=found.keys,
        samples=found.samples,
        seed=found.seed,
        rows=found.rows,
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
        window=spec.window,
        chunked=spec.chunked,
        sink=spec.sink,
        gated=spec.gated,
        rotary_dim=spec.rotary.width if spec.rotary else None,
        qk_norm=spec.qk_norm.kind if spec.qk_norm else None,
        position_buckets=spec.buckets.count if spec.buckets else None,
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


def _formula(value: Amount) -> parts.Formula:
    return parts.Formula(value.value, value.written("d"))


def _of_layer(walk: Walk, *, why: bool, layers: int) -> dict[str, Any]:
    """The fields of every answer that walks through one layer."""
    spec, run, learned, flops = walk.spec, walk.run, walk.parameters, walk.flops
    return {
        "layer": layer_sizes(spec),
        "run": layer_run(run),
        "layers": layers,
        "steps": tuple(_step(step, why=why) for step in walk.steps),
        "costs": parts.LayerCosts(
            parameters=parts.ParameterCosts(
                weights=learned.weights,
                biases=learned.biases,
                extras=learned.extras,
                total=learned.total,
            ),
            flops=parts.FlopCosts(
                projections=_formula(flops.projections),
                attention=_formula(flops.attention),
                total=_formula(flops.total),
            ),
            weights_bytes=_formula(weights_elements(LayerAxes(spec, run)) * run.width),
            cache_elements_per_token=cache_elements(spec),
            cache_bytes_per_token=cache_elements(spec) * run.cache_width,
            crossing_length=crossing(spec),
        ),
    }


def _step(step: Step, *, why: bool) -> parts.StepCosts:
    return parts.StepCosts(
        key=step.key,
        name=step.name,
        symbols=tuple(dim.symbol for dim in step.shape),
        shape=step.sizes,
        operation=step.operation,
        parameters=step.parameters,
        flops=_formula(step.flops),
        bytes=None if step.bytes is None else _formula(step.bytes),
        why=step.why if why else None,
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


def _variant(one: Variant) -> parts.VariantCosts:
    return parts.VariantCosts(
        name=one.name,
        layer=layer_sizes(one.spec),
        parameters=one.parameters,
        flops=_formula(one.flops),
        cache_elements_per_token=one.elements,
        cache_bytes_per_token=one.token_bytes,
        cache_bytes_per_sequence=one.sequence_bytes,
        cache_bytes_per_batch=one.batch_bytes,
        ratio_to_mha=one.ratio,
        read_bytes_per_decoded_token=one.read_bytes,
        flops_per_byte=one.intensity,
        decoding_flops=one.step_flops,
        decoding_flops_rebuilt=one.rebuilt_flops,
        weights_bytes=one.weights_bytes,
        fits_tokens=one.fits_tokens,
        fits_sequences=one.fits_sequences,
        used_by=one.used_by,
        own=one.own,
    )


def _point(point: Point) -> parts.SweepCosts:
    step = point.decoding
    if step is None:
        return parts.SweepCosts(
            value=point.value,
            parameters=point.parameters,
            weights_bytes=point.materialized,
            projection_flops=point.projection_flops,
            attention_flops=point.attention_flops,
            attention_share=point.attention_share,
            streamed_bytes=point.streamed,
        )
    return parts.SweepCosts(
        value=point.value,
        parameters=point.parameters,
        weights_bytes=step.weights,
        cache_bytes_per_token=cache_elements(point.spec) * point.run.cache_width,
        cache_bytes=step.cache,
        read_bytes_per_decoded_token=step.bytes_per_token,
        decoding_flops=step.flops,
        flops_per_byte=step.intensity,
    )


def _rows(matrix: Matrix) -> parts.Rows:
    return tuple(map(tuple, matrix.tolist()))


def _head(head: HeadNumbers) -> parts.HeadMatrices:
    return parts.HeadMatrices(
        q=_rows(head.q),
        k=_rows(head.k),
        v=_rows(head.v),
        scores=_rows(head.raw),
        scaled=_rows(head.scaled),
        masked=tuple(
            tuple(None if score == float("-inf") else score for score in row)
            for row in head.masked.tolist()
        ),
        weights=_rows(head.weights),
        weights_unscaled=_rows(head.raw_weights),
        output=_rows(head.output),
        entropy_bits=tuple(head.entropy.tolist()),
        entropy_bits_unscaled=tuple(head.raw_entropy.tolist()),
    )
