"""The answers about costs: kinds side by side, growth along one size, published models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from attnviz.attention.costs import cache_elements
from attnviz.features.shapes.parts import Formula, LayerRun, LayerSizes
from attnviz.features.shapes.records import formula, layer_run, layer_sizes
from attnviz.features.shapes.result import Answer

if TYPE_CHECKING:
    from attnviz.features.shapes.costs.compare import Comparison, Variant
    from attnviz.features.shapes.costs.sweep import Point, Sweep
    from attnviz.features.shapes.table import Printed
    from attnviz.models.configs.presets import Preset


@dataclass(frozen=True, kw_only=True)
class VariantCosts:
    """One kind of attention at the sizes in question.

    Attributes:
        name: ``GQA, G = 8``. layer: one layer of it.
        parameters: of one layer. flops: of one layer, for the run; MLA's keys and values rebuilt.
        cache_elements_per_token: numbers per token and layer.
        cache_bytes_per_token: of all layers; also per sequence, and per batch.
        cache_bytes_per_sequence: see there.
        cache_bytes_per_batch: see there.
        ratio_to_mha: its cache against MHA's with the same heads.
        read_bytes_per_decoded_token: its own cache, and a share of these layers' weights.
        flops_per_byte: that decoding computes with what it reads, of ``decoding_flops``.
        decoding_flops: to decode one token of a sequence in these layers; MLA with W_K and W_V
            absorbed. decoding_flops_rebuilt: where MLA makes keys and values of all latents anew.
        weights_bytes: all weights that are known.
        fits_tokens: the longest sequence that fits; -1 where any does, None where nobody asked.
        fits_sequences: how many sequences fit.
        used_by: published models with as many key heads.
        own: whether it is the one asked about.
    """

    name: str
    layer: LayerSizes
    parameters: int
    flops: Formula
    cache_elements_per_token: int
    cache_bytes_per_token: int
    cache_bytes_per_sequence: int
    cache_bytes_per_batch: int
    ratio_to_mha: float
    read_bytes_per_decoded_token: float
    flops_per_byte: float
    decoding_flops: int
    decoding_flops_rebuilt: int
    weights_bytes: int
    fits_tokens: int | None
    fits_sequences: int | None
    used_by: tuple[str, ...]
    own: bool


@dataclass(frozen=True, kw_only=True)
class SweepCosts:
    """Costs at one size: of a run, or of decoding where key heads are swept; the others are None.

    Attributes:
        value: the size. parameters: of the layer.
        weights_bytes: of all attention weights of the run; of the layer's parameters in decoding.
        projection_flops: O(T·D²). attention_flops: O(T·S·D). attention_share: of the two.
        streamed_bytes: of attention weights held at once when they are handed out in blocks.
        cache_bytes_per_token: kept. cache_bytes: of the batch.
        read_bytes_per_decoded_token: a share of the weights, and a sequence's own cache.
        decoding_flops: of the step. flops_per_byte: that it reads.
    """

    value: int
    parameters: int
    weights_bytes: int
    projection_flops: int | None = None
    attention_flops: int | None = None
    attention_share: float | None = None
    streamed_bytes: int | None = None
    cache_bytes_per_token: int | None = None
    cache_bytes: int | None = None
    read_bytes_per_decoded_token: float | None = None
    decoding_flops: int | None = None
    flops_per_byte: float | None = None


@dataclass(frozen=True, kw_only=True)
class PresetSizes:
    """A published model: its main layer, how many attend, and its parameters."""

    name: str
    title: str
    year: int
    source: str
    layer: LayerSizes
    layers: int
    attention_parameters: int
    whole_parameters: int
    share: float | None


@dataclass(frozen=True, kw_only=True)
class CompareAnswer(Answer):
    """Kinds of attention at the same D, H and d.

    Attributes:
        layer: the one in question. run: what goes through it. layers: how many there are.
        tokens: of a sequence in the cache. memory_bytes: what weights and cache may take.
        variants: every kind.
    """

    view: Literal["compare"] = "compare"
    layer: LayerSizes
    run: LayerRun
    layers: int
    tokens: int
    memory_bytes: int | None
    variants: tuple[VariantCosts, ...]


@dataclass(frozen=True, kw_only=True)
class SweepAnswer(Answer):
    """Costs along one size.

    Attributes:
        model: whose layer it is; None for a fresh one.
        layer: the first. run: the first.
        variable: the size.
        crossing_length: T at which attention costs what the projections cost; None when another
            size is swept, or where a window keeps attention the cheaper part.
        points: one a size.
    """

    view: Literal["sweep"] = "sweep"
    model: str | None = None
    layer: LayerSizes
    run: LayerRun
    variable: Literal["seq", "d-model", "heads", "kv-heads", "context-length"]
    crossing_length: float | None
    points: tuple[SweepCosts, ...]


@dataclass(frozen=True, kw_only=True)
class PresetsAnswer(Answer):
    """Published models."""

    view: Literal["presets"] = "presets"
    presets: tuple[PresetSizes, ...]


def compare_answer(comparison: Comparison, printed: Printed) -> CompareAnswer:
    """Kinds of attention side by side."""
    return CompareAnswer(
        **printed._asdict(),
        layer=layer_sizes(comparison.spec),
        run=layer_run(comparison.run),
        layers=comparison.layers,
        tokens=comparison.tokens,
        memory_bytes=comparison.memory,
        variants=tuple(map(_variant, comparison.variants)),
    )


def sweep_answer(sweep: Sweep, printed: Printed) -> SweepAnswer:
    """Costs along one size."""
    first = sweep.points[0]
    return SweepAnswer(
        **printed._asdict(),
        model=sweep.model,
        layer=layer_sizes(first.spec),
        run=layer_run(first.run),
        variable=sweep.variable,
        crossing_length=sweep.crossing,
        points=tuple(map(_point, sweep.points)),
    )


def presets_answer(known: Mapping[str, Preset], printed: Printed) -> PresetsAnswer:
    """Published models."""
    return PresetsAnswer(
        **printed._asdict(),
        presets=tuple(
            PresetSizes(
                name=name,
                title=preset.title,
                year=preset.year,
                source=preset.source,
                layer=layer_sizes(preset.model.main.spec),
                layers=sum(len(group.layers) for group in preset.model.groups),
                attention_parameters=preset.model.attention_parameters,
                whole_parameters=preset.parameters,
                share=preset.model.share,
            )
            for name, preset in known.items()
        ),
    )


def _variant(variant: Variant) -> VariantCosts:
    return VariantCosts(
        name=variant.name,
        layer=layer_sizes(variant.spec),
        parameters=variant.parameters,
        flops=formula(variant.flops),
        cache_elements_per_token=variant.elements,
        cache_bytes_per_token=variant.token_bytes,
        cache_bytes_per_sequence=variant.sequence_bytes,
        cache_bytes_per_batch=variant.batch_bytes,
        ratio_to_mha=variant.ratio,
        read_bytes_per_decoded_token=variant.read_bytes,
        flops_per_byte=variant.intensity,
        decoding_flops=variant.step_flops,
        decoding_flops_rebuilt=variant.rebuilt_flops,
        weights_bytes=variant.weights_bytes,
        fits_tokens=variant.fits_tokens,
        fits_sequences=variant.fits_sequences,
        used_by=variant.used_by,
        own=variant.own,
    )


def _point(point: Point) -> SweepCosts:
    step = point.decoding
    if step is None:
        return SweepCosts(
            value=point.value,
            parameters=point.parameters,
            weights_bytes=point.materialized,
            projection_flops=point.projection_flops,
            attention_flops=point.attention_flops,
            attention_share=point.attention_share,
            streamed_bytes=point.streamed,
        )
    return SweepCosts(
        value=point.value,
        parameters=point.parameters,
        weights_bytes=step.weights,
        cache_bytes_per_token=cache_elements(point.spec) * point.run.cache_width,
        cache_bytes=step.cache,
        read_bytes_per_decoded_token=step.bytes_per_token,
        decoding_flops=step.flops,
        flops_per_byte=step.intensity,
    )
