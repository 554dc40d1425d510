"""From what was computed to what is written: answers with typed parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from attnviz.attention.costs import cache_elements, crossing, weights_elements
from attnviz.attention.spec import AttentionSpec, LayerAxes, RunSizes
from attnviz.attention.symbolic import Amount
from attnviz.features.shapes import parts
from attnviz.features.shapes.result import WalkAnswer

if TYPE_CHECKING:
    from attnviz.features.shapes.table import Printed
    from attnviz.features.shapes.walk.steps import Step, Walk


def walk_answer(walk: Walk, printed: Printed, *, explain: bool, layers: int) -> WalkAnswer:
    """A fresh layer, step by step."""
    return WalkAnswer(**printed._asdict(), **of_layer(walk, explain=explain, layers=layers))


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


def of_layer(walk: Walk, *, explain: bool, layers: int) -> dict[str, Any]:
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
