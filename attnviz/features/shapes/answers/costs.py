"""What attention costs: kinds side by side, growth along one size, published models."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from attnviz.attention.spec import AttentionSpec, RunSizes
from attnviz.errors import Setting, UsageError
from attnviz.features.shapes.answers.pictures import FIGURES, Out, save
from attnviz.features.shapes.answers.subject import Layer, Model, Subject, in_dtype, spec_of_subject
from attnviz.features.shapes.costs.result import CompareAnswer, PresetsAnswer, SweepAnswer

if TYPE_CHECKING:
    from attnviz.models.configs.model import ModelSpec

DEFAULT_RUN = RunSizes()


def compare(
    subject: Subject, run: RunSizes = DEFAULT_RUN, *, memory: str | None = None
) -> CompareAnswer:
    """MHA, GQA, MQA and MLA at the same widths: parameters, FLOPs, cache, and what fits.

    Args:
        subject: a layer, or a model with all of its layers.
        run: batch, length and dtypes.
        memory: what weights and cache may take, ``80GB`` or ``80GiB``.

    Raises:
        UsageError: cross-attention or an encoder, or a memory that is no size. AttnvizError: as
            for :func:`attnviz.features.shapes.function.walk`.
    """
    from attnviz.features.shapes.costs.compare import compare, parse_memory
    from attnviz.features.shapes.costs.result import compare_answer
    from attnviz.features.shapes.drawing.costs import compare_printed

    room = parse_memory(memory) if memory is not None else None
    spec, model = spec_of_subject(subject)
    layers = subject.count() if isinstance(subject, Layer) else 1
    if model is not None and model.whole is None and room is not None:
        model = _weighed(model, subject)
    run = in_dtype(run, model)
    comparison = compare(spec, run, layers=layers, model=model, memory=room)
    return compare_answer(comparison, compare_printed(comparison))


def _weighed(model: ModelSpec, subject: Subject) -> ModelSpec:
    """The model with all of its parameters counted, where its weights are there to count."""
    from attnviz.models.folder import locate_config
    from attnviz.models.parameter_count import count_checkpoint

    if not isinstance(subject, Model) or subject.model is None:
        return model
    parameters = count_checkpoint(locate_config(subject.model)[1])
    return model if parameters is None else replace(model, whole=parameters.whole)


def sweep(
    subject: Subject, sweep: str, run: RunSizes = DEFAULT_RUN, *, out: Out = None
) -> SweepAnswer:
    """Costs along one size, for the terminal and perhaps as curves in a file.

    Args:
        subject: a layer, or a model, whose main kind of layer is taken (with other numbers of key
            heads, where those are swept).
        sweep: ``seq=128..131072``; see :func:`attnviz.features.shapes.costs.sweep.parse_sweep`.
        run: the other sizes.
        out: an .svg, .png or .pdf file, or several.

    Raises:
        UsageError: a sweep that makes no sense, or of a size that is given already.
        AttnvizError: as for :func:`attnviz.features.shapes.function.walk` and
            :func:`~attnviz.features.shapes.answers.pictures.save`.
    """
    from attnviz.features.shapes.costs.compare import with_kv_heads
    from attnviz.features.shapes.costs.result import sweep_answer
    from attnviz.features.shapes.costs.sweep import sweep as along
    from attnviz.features.shapes.drawing.costs import sweep_printed

    own, model = spec_of_subject(subject)

    def spec_at(variable: str, value: int | None) -> AttentionSpec:
        if variable in ("seq", "context-length"):
            return own
        if variable == "kv-heads" and own.kind in ("mla", "cross"):
            raise UsageError(
                "{sweep} shares keys among query heads, which {} does not do",
                own.kind,
                sweep=variable,
            )
        if variable == "kv-heads" and isinstance(subject, Model):
            return with_kv_heads(own, value or own.kv_heads)
        if not isinstance(subject, Layer):
            raise UsageError(
                "{sweep} contradicts {!r}, which fixes it; sweep seq", subject.name, sweep=variable
            )
        name = variable.replace("-", "_")
        if getattr(subject, name) is not None:
            raise UsageError("{} and {sweep} contradict each other", Setting(name), sweep=variable)
        if variable == "kv-heads":
            return replace(subject, kv_heads=value, kind=None).spec()
        at = replace(subject, heads=value) if name == "heads" else replace(subject, d_model=value)
        return at.spec()

    points = along(sweep, in_dtype(run, model), spec_at)
    points = replace(points, model=model.name if model else None)
    answer = sweep_answer(points, sweep_printed(points))
    if out is None:
        return answer

    def draw(format: str) -> bytes:
        from attnviz.features.shapes.drawing.figures import sweep_figure

        return sweep_figure(points, format)

    wrote = tuple(f"Wrote {path}." for path in save(out, FIGURES, draw))
    return replace(answer, notes=(*answer.notes, *wrote))


def presets() -> PresetsAnswer:
    """Published models with their sizes and sources."""
    from attnviz.features.shapes.costs.result import presets_answer
    from attnviz.features.shapes.drawing.models import presets_printed
    from attnviz.models.configs.presets import presets

    known = presets()
    return presets_answer(known, presets_printed(known))
