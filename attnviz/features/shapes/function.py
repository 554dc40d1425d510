"""Shapes and costs of attention: one function a view of ``attnviz shapes``, each with one answer.

An answer is a typed record (:mod:`attnviz.features.shapes.result`) with ``to_dict``, ``to_json``,
``from_dict`` and ``from_json``; ``Answer.from_json`` and ``attnviz.read`` read any of them.

>>> from attnviz.features.shapes import function as answers
>>> comparison = answers.compare(answers.Model(model="llama3-70b"), memory="80GB")
>>> comparison.variants[0].cache_bytes_per_token
5242880

Nothing here imports torch, except to verify; matplotlib and NumPy are imported only for what
needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from attnviz import files
from attnviz.attention.spec import AttentionSpec, RunSizes
from attnviz.core.provenance import own_name
from attnviz.errors import InputError, Setting, UsageError
from attnviz.features.shapes.records import layer_sizes, model_layers, of_layer, record_of
from attnviz.features.shapes.result import (
    AnimateAnswer,
    Answer,
    CompareAnswer,
    Compared,
    DiagramAnswer,
    ModelAnswer,
    NumbersAnswer,
    PresetsAnswer,
    PresetSizes,
    ScalingAnswer,
    SweepAnswer,
    VerifyAnswer,
    WalkAnswer,
)
from attnviz.features.shapes.settings import (
    Example,
    Layer,
    Model,
    Subject,
    in_dtype,
    spec_of_subject,
)
from attnviz.features.shapes.table import Printed
from attnviz.files import wrote

if TYPE_CHECKING:
    from attnviz.attention.steps import Walk
    from attnviz.models.configs.model import ModelSpec
    from attnviz.models.parameter_count import ParameterCount

__all__ = [
    "Answer",
    "Example",
    "Layer",
    "Model",
    "RunSizes",
    "animate",
    "compare",
    "diagram",
    "numbers",
    "presets",
    "scaling",
    "sweep",
    "verify",
    "walk",
]

FIGURES = ("svg", "png", "pdf")
DEFAULT_RUN = RunSizes()

Out = str | Path | tuple[str | Path, ...] | None
"""Files to draw into, one or several."""
A = TypeVar("A", bound=Answer)


def walk(
    subject: Subject, run: RunSizes = DEFAULT_RUN, *, explain: bool = False
) -> WalkAnswer | ModelAnswer:
    """Every step from X to Y with shapes, costs and perhaps reasons; a model's layers first."""
    from attnviz.features.shapes.drawing.walk import walk_printed

    walked, layers, model = _walked(subject, run)
    printed = walk_printed(walked, explain=explain, layers=layers)
    parts = of_layer(walked, explain=explain, layers=layers)
    if model is None:
        return WalkAnswer(**printed._asdict(), **parts)
    from attnviz.features.shapes.costs import model_cache
    from attnviz.features.shapes.drawing.models import model_printed

    printed, cache = model_printed(model, walked.run, printed), model_cache(model, walked.run)
    return ModelAnswer(**printed._asdict(), model=model_layers(model), cache=cache, **parts)


def diagram(
    subject: Subject, run: RunSizes = DEFAULT_RUN, *, explain: bool = False, out: Out = None
) -> DiagramAnswer:
    """The layer as boxes and arrows for the terminal, or drawn to scale into a file."""
    walked, layers, model = _walked(subject, run)
    written: tuple[Path, ...] = ()
    if out is None:
        from attnviz.features.shapes.drawing.diagram import diagram_printed

        printed = diagram_printed(walked)
    else:

        def draw(format: str) -> bytes:
            from attnviz.features.shapes.drawing.diagram_figure import diagram_figure

            return diagram_figure(walked, format)

        written = _save(out, FIGURES, draw)
        printed = Printed(", ".join(map(wrote, written)))
    return DiagramAnswer(
        **printed._asdict(),
        model=None if model is None else model_layers(model),
        files=tuple(own_name(str(name)) for name in written),
        **of_layer(walked, explain=explain, layers=layers),
    )


def verify(subject: Subject, run: RunSizes = DEFAULT_RUN) -> VerifyAnswer:
    """The closed forms beside the real layer, or beside a model's parameters and layers."""
    from attnviz.features.shapes import verify as verifying
    from attnviz.features.shapes.drawing.models import verify_printed

    if isinstance(subject, Layer):
        from attnviz.attention.steps import walk

        spec = subject.spec()
        if run.cache is None:
            run = replace(run, seq=run.seq or verifying.DEFAULT_T)
        if spec.kind == "cross":
            run = replace(run, context_length=run.context_length or verifying.DEFAULT_S)
        return verify_printed(verifying.verify(walk(spec, run)))
    from attnviz.models.configs.families import FAMILIES

    model = subject.read()
    if model.family not in FAMILIES:
        raise UsageError(
            "{verify} compares every layer, but attnviz does not know the family of {}, {!r}: only "
            "sizes under their usual names are read; leave {verify} out",
            model.name,
            model.family,
            verify=...,
        )
    towers, parameters = subject.towers(), _counted(subject)
    unknown = set(parameters.towers) - set(towers) if towers else set[str]()
    if len(parameters.towers) > 1 and towers:
        result = verifying.verify_towers(model.name, towers, parameters.towers, parameters.origin)
    else:
        result = verifying.verify_model(model, dict(parameters.layers), parameters.origin)
        unknown = set()
    share = parameters.attention / parameters.whole if parameters.whole else 0
    ran = "The layers were not run, since their parameters differ."
    if not result.failures:
        checks, ran = _ran(subject, model, towers=bool(towers), whole=parameters.whole)
        result = result.of((*result.checks, *checks), result.subject)
    notes = [
        ran,
        *(
            f"{sum(parameters.towers[tower].values()):,} attention parameters of its {tower} tower "
            "were not checked: attnviz does not know that tower's family."
            for tower in sorted(unknown)
        ),
        f"{parameters.attention:,} of the model's {parameters.whole:,} parameters are attention "
        f"({100 * share:.1f} %).",
    ]
    attention, whole = parameters.attention, parameters.whole
    result = replace(result, attention_parameters=attention, whole_parameters=whole)
    return verify_printed(replace(result, notes=tuple(notes)))


def compare(
    subject: Subject, run: RunSizes = DEFAULT_RUN, *, memory: str | None = None
) -> CompareAnswer:
    """MHA, GQA, MQA and MLA at the same widths: parameters, FLOPs, cache, and what fits."""
    from attnviz.features.shapes.costs import compare, parse_memory
    from attnviz.features.shapes.drawing.costs import compare_printed

    room = parse_memory(memory) if memory is not None else None
    spec, model = spec_of_subject(subject)
    layers = subject.count() if isinstance(subject, Layer) else 1
    if model is not None and model.whole is None and room is not None:
        model = _weighed(model, subject)
    run = in_dtype(run, model)
    return compare_printed(compare(spec, run, layers=layers, model=model, memory=room))


def sweep(
    subject: Subject, sweep: str, run: RunSizes = DEFAULT_RUN, *, out: Out = None
) -> SweepAnswer:
    """Costs along one size, for the terminal and perhaps as curves in a file."""
    from attnviz.features.shapes.costs import on_gpus, with_kv_heads
    from attnviz.features.shapes.drawing.costs import sweep_printed
    from attnviz.features.shapes.sweep import sweep as along

    own, model = spec_of_subject(subject)

    def spec_at(variable: str, value: int | None) -> AttentionSpec:
        if variable in ("seq", "context-length") or value is None:
            return own
        if variable == "tp":
            return on_gpus(own, value)
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

    found = along(sweep, in_dtype(run, model), spec_at)
    found = replace(found, model=model.name if model else None)

    def draw(format: str) -> bytes:
        from attnviz.features.shapes.drawing.figures import sweep_figure

        return sweep_figure(found, format)

    return _with_figures(sweep_printed(found), out, draw)


def presets() -> PresetsAnswer:
    """Published models with their sizes and sources."""
    from attnviz.features.shapes.drawing.models import presets_printed
    from attnviz.models.configs.model import presets

    known = tuple(
        record_of(
            PresetSizes,
            preset,
            name=name,
            layer=layer_sizes(preset.model.main.spec),
            layers=sum(len(group.layers) for group in preset.model.groups),
            attention_parameters=preset.model.attention_parameters,
            whole_parameters=preset.parameters,
            share=preset.model.share,
        )
        for name, preset in presets().items()
    )
    return PresetsAnswer(**presets_printed(known)._asdict(), presets=known)


def numbers(example: Example, *, precision: int = 3, variant: str = "") -> NumbersAnswer:
    """Every matrix of a tiny layer, head by head; ``variant`` as for ``worked.compute``."""
    from attnviz.features.shapes.drawing.by_hand import numbers_printed
    from attnviz.features.shapes.worked import compute, head_matrices, rows_of, shifted_row

    if not 0 <= precision <= 12:
        raise UsageError("{precision} must be 0 to 12 digits", precision=precision)
    walked = compute(example.read(), variant, example.seed)
    given = walked.given
    named = {name: getattr(given, name) for name in ("w_q", "w_k", "w_v", "w_o")}
    return record_of(
        NumbersAnswer,
        given,
        **numbers_printed(walked, precision)._asdict(),
        scale=walked.scale,
        variant=variant,
        worked_row=rows_of(shifted_row(walked)) if variant == "overflow" else (),
        blocked_rows=walked.blocked,
        x=None if given.x is None else rows_of(given.x),
        matrices={name: rows_of(matrix) for name, matrix in named.items() if matrix is not None},
        heads=tuple(map(head_matrices, walked.heads)),
        concat=rows_of(walked.concat),
        output=rows_of(walked.output),
    )


def animate(example: Example, out: Out) -> AnimateAnswer:
    """The same numbers as an animation in one HTML file, which loads nothing."""
    from attnviz.features.shapes.animation.page import animation_page
    from attnviz.features.shapes.worked import compute

    walked = compute(example.read())
    written = tuple(map(str, _save(out, ("html",), lambda _: animation_page(walked))))
    return AnimateAnswer(title=", ".join(map(wrote, written)), files=written)


def scaling(seed: int = 0, *, out: Out = None) -> ScalingAnswer:
    """Softmax with and without 1/√d as heads grow wider, perhaps as curves in a file."""
    from attnviz.features.shapes.drawing.costs import scaling_printed
    from attnviz.features.shapes.worked import scaling

    if seed < 0:
        raise UsageError("{seed} must not be negative, got {}", seed, seed=...)
    measured = scaling(seed)

    def draw(format: str) -> bytes:
        from attnviz.features.shapes.drawing.figures import scaling_figure

        return scaling_figure(measured, format)

    return _with_figures(scaling_printed(measured), out, draw)


def _walked(subject: Subject, run: RunSizes) -> tuple[Walk, int, ModelSpec | None]:
    """Walk through a layer; how many such layers there are, and the model that they are of."""
    from attnviz.attention.steps import walk

    spec, model = spec_of_subject(subject)
    if model is not None and run.context_length is not None:
        raise UsageError(
            "{context_length} is for cross-attention, but the walk of {} goes through its "
            "self-attention; leave it out",
            model.name,
            context_length=run.context_length,
        )
    layers = subject.count() if isinstance(subject, Layer) else 1
    return walk(spec, in_dtype(run, model)), layers, model


def _ran(
    subject: Model, model: ModelSpec, *, towers: bool, whole: int
) -> tuple[list[Compared], str]:
    """Compare a model's layers at work; with a sentence on what was run, or why not."""
    from attnviz.features.shapes.real import MAX_PARAMETERS, TOLERANCE, can_run, run_layers

    if towers or not can_run(model):
        what = "a model of several towers" if towers else f"the {model.family} family"
        if any(group.spec.rotary and group.spec.rotary.scaling for group in model.groups):
            what = "models with scaled rotary positions"
        return [], f"Only parameters were counted: attnviz does not run the layers of {what} here."
    config: Mapping[str, Any]
    folder: Path | None
    if subject.published is None:
        from attnviz.models.folder import locate_config

        config, folder = locate_config(subject.name)
    else:
        config, folder = subject.published.config, None
    checks, text = run_layers(model, config, folder if whole <= MAX_PARAMETERS else None)
    return checks, f"{text} Values are equal within {TOLERANCE:g} of the largest."


def _counted(subject: Model) -> ParameterCount:
    """Count the parameters of a model, in its files or in its empty shell."""
    from attnviz.models.parameter_count import count_checkpoint, count_config

    chosen = subject.published
    if chosen is None:
        from attnviz.models.folder import locate_config

        counts = count_checkpoint(locate_config(subject.name)[1])
        if counts is None:
            raise InputError(
                "{} has no safetensors weights here to count; {verify} needs a folder that holds "
                "them",
                subject.name,
                verify=...,
            )
        return counts
    if not chosen.counted_as:
        raise UsageError(
            "{} has no published weights and no transformers class to count; {model} without "
            "{verify} shows the closed forms",
            chosen.title,
            model=...,
            verify=...,
        )
    return count_config(chosen.config, chosen.counted_as)


def _weighed(model: ModelSpec, subject: Subject) -> ModelSpec:
    """Count all parameters of the model, where its weights are there to count."""
    from attnviz.models.folder import locate_config
    from attnviz.models.parameter_count import count_checkpoint

    if not isinstance(subject, Model) or subject.model is None:
        return model
    parameters = count_checkpoint(locate_config(subject.model)[1])
    return model if parameters is None else replace(model, whole=parameters.whole)


def _with_figures(answer: A, out: Out, draw: Callable[[str], bytes]) -> A:
    """Draw into the files asked for, and note them."""
    written = () if out is None else _save(out, FIGURES, draw)
    return replace(answer, notes=(*answer.notes, *(f"Wrote {path}." for path in written)))


def _save(out: Out, known: tuple[str, ...], draw: Callable[[str], bytes]) -> tuple[Path, ...]:
    """Draw a picture into files of known suffixes, each whole or not at all."""
    paths = tuple(map(Path, files.listed(out)))
    for path in paths:
        files.check_suffix(path, [f".{name}" for name in known])
        files.check_writable(path)
    for path in paths:
        files.write(path, draw(path.suffix.lower().removeprefix(".")))
    return paths
