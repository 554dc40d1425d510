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

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from attnviz import files
from attnviz.attention.costs import cache_elements, crossing, parameters, weights_elements
from attnviz.attention.spec import AttentionSpec, LayerAxes, RunSizes
from attnviz.core.interface import interface
from attnviz.core.provenance import own_name
from attnviz.core.settings import declarations
from attnviz.errors import InputError, Message, Setting, UsageError
from attnviz.features.shapes import result as results
from attnviz.features.shapes.result import record_of
from attnviz.features.shapes.settings import (
    Example,
    Layer,
    Model,
    ShapesOutput,
    Subject,
    ViewSettings,
    in_dtype,
    spec_of_subject,
)
from attnviz.features.shapes.table import Printed
from attnviz.files import wrote

if TYPE_CHECKING:
    from attnviz.attention.walkthrough import Step, Walk
    from attnviz.models.configs.families import LayerGroup
    from attnviz.models.configs.model import ModelSpec
    from attnviz.models.parameter_count import ParameterCount

__all__ = [
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
    "shapes",
    "sweep",
    "verify",
    "walk",
]

FIGURES, DPI = ("svg", "png", "pdf"), 160
DEFAULT_RUN = RunSizes()

Out = str | Path | tuple[str | Path, ...] | None  # files to draw into, one or several
A = TypeVar("A", bound=results.Answer)


def walk(
    subject: Subject, run: RunSizes = DEFAULT_RUN, *, explain: bool = False
) -> results.WalkAnswer | results.ModelAnswer:
    """Every step from X to Y with shapes, costs and perhaps reasons; a model's layers first."""
    from attnviz.features.shapes.drawing.walk import walk_printed

    walked, layers, model = _walked(subject, run)
    printed = walk_printed(walked, explain=explain, layers=layers)
    parts = _of_layer(walked, explain=explain, layers=layers)
    if model is None:
        return results.WalkAnswer(**printed._asdict(), **parts)
    from attnviz.features.shapes.costs import model_cache
    from attnviz.features.shapes.drawing.models import model_printed

    printed, cache = model_printed(model, walked.run, printed), model_cache(model, walked.run)
    return results.ModelAnswer(
        **printed._asdict(), model=_model_layers(model), cache=cache, **parts
    )


def diagram(
    subject: Subject, run: RunSizes = DEFAULT_RUN, *, explain: bool = False, out: Out = None
) -> results.DiagramAnswer:
    """Return the layer as boxes and arrows for the terminal, or drawn to scale into a file."""
    walked, layers, model = _walked(subject, run)
    paths: tuple[Path, ...] = ()
    if out is None:
        from attnviz.features.shapes.drawing.diagram import diagram_printed

        printed = diagram_printed(walked)
    else:

        def draw(format: str) -> Any:
            from attnviz.features.shapes.drawing.diagram_figure import draw as drawn

            return drawn(walked, format, DPI)

        paths = _save(out, FIGURES, draw)
        printed = Printed(", ".join(map(wrote, paths)))
    return results.DiagramAnswer(
        **printed._asdict(),
        model=None if model is None else _model_layers(model),
        files=tuple(own_name(str(name)) for name in paths),
        **_of_layer(walked, explain=explain, layers=layers),
    )


def verify(subject: Subject, run: RunSizes = DEFAULT_RUN) -> results.VerifyAnswer:
    """Return the closed forms beside the real layer, or beside a model's parameters and layers."""
    from attnviz.features.shapes import verify as verifying
    from attnviz.features.shapes.drawing.models import verify_printed

    if isinstance(subject, Layer):
        from attnviz.attention.walkthrough import walk

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
    attention, total = parameters.attention, parameters.whole
    unknown: list[str] = []
    if len(parameters.towers) > 1 and towers:
        unknown = sorted(parameters.towers.keys() - towers.keys())
        result = verifying.verify_towers(model.name, towers, parameters.towers, parameters.origin)
    else:
        result = verifying.verify_model(model, dict(parameters.layers), parameters.origin)
    ran = "The layers were not run, since their parameters differ."
    if not result.failures:
        checks, ran = _ran(subject, model, towers=bool(towers), parameters=total)
        result = result.of((*result.checks, *checks), result.subject)
    notes = [
        ran,
        *(
            f"{sum(parameters.towers[tower].values()):,} attention parameters of its {tower} tower "
            "were not checked: attnviz does not know that tower's family."
            for tower in unknown
        ),
        f"{attention:,} of the model's {total:,} parameters are attention "
        f"({100 * attention / (total or 1):.1f} %).",
    ]
    result = replace(result, attention_parameters=attention, whole_parameters=total)
    return verify_printed(replace(result, notes=tuple(notes)))


def compare(
    subject: Subject, run: RunSizes = DEFAULT_RUN, *, memory: str | None = None
) -> results.CompareAnswer:
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
) -> results.SweepAnswer:
    """Costs along one size, for the terminal and perhaps as curves in a file."""
    from attnviz.features.shapes.costs import on_gpus, with_kv_heads
    from attnviz.features.shapes.costs import sweep as along
    from attnviz.features.shapes.drawing.costs import sweep_printed

    subject_spec, model = spec_of_subject(subject)

    def spec_at(variable: str, value: int | None) -> AttentionSpec:
        if variable in ("seq", "context-length") or value is None:
            return subject_spec
        if variable == "tp":
            return on_gpus(subject_spec, value)
        if variable == "kv-heads" and subject_spec.kind in ("mla", "cross"):
            raise UsageError(
                "{sweep} shares keys among query heads, which {} does not do",
                subject_spec.kind,
                sweep=variable,
            )
        if variable == "kv-heads" and isinstance(subject, Model):
            return with_kv_heads(subject_spec, value or subject_spec.kv_heads)
        if not isinstance(subject, Layer):
            raise UsageError(
                "{sweep} contradicts {!r}, which fixes it; sweep seq", subject.name, sweep=variable
            )
        name = variable.replace("-", "_")
        if getattr(subject, name) is not None:
            raise UsageError("{} and {sweep} contradict each other", Setting(name), sweep=variable)
        kind = None if variable == "kv-heads" else subject.kind
        return subject.but(kind=kind, **{name: value}).spec()

    result = along(sweep, in_dtype(run, model), spec_at)
    result = replace(result, model=model.name if model else None)

    return _with_figures(sweep_printed(result), out)


def presets() -> results.PresetsAnswer:
    """Return published models with their sizes and sources."""
    from attnviz.features.shapes.drawing.models import presets_printed
    from attnviz.models.configs.model import presets

    listed = tuple(
        record_of(
            results.PresetSizes,
            preset,
            name=name,
            layer=results.LayerSizes.of(preset.model.main.spec),
            layers=sum(len(group.layers) for group in preset.model.groups),
            attention_parameters=preset.model.attention_parameters,
            whole_parameters=preset.parameters,
            share=preset.model.share,
        )
        for name, preset in presets().items()
    )
    return results.PresetsAnswer(**presets_printed(listed)._asdict(), presets=listed)


def numbers(example: Example, *, precision: int = 3, variant: str = "") -> results.NumbersAnswer:
    """Every matrix of a tiny layer, head by head; ``variant`` as for ``worked.compute``."""
    from attnviz.features.shapes.drawing.by_hand import numbers_printed
    from attnviz.features.shapes.worked import compute, head_matrices, rows_of, shifted_row

    if not 0 <= precision <= 12:
        raise UsageError("{precision} must be 0 to 12 digits", precision=precision)
    walked = compute(example.read(), variant, example.seed)
    tiny = walked.tiny
    named = {name: getattr(tiny, name) for name in ("w_q", "w_k", "w_v", "w_o")}
    return record_of(
        results.NumbersAnswer,
        tiny,
        **numbers_printed(walked, precision)._asdict(),
        scale=walked.scale,
        variant=variant,
        worked_row=rows_of(shifted_row(walked)) if variant == "overflow" else (),
        blocked_rows=walked.blocked,
        x=None if tiny.x is None else rows_of(tiny.x),
        matrices={name: rows_of(matrix) for name, matrix in named.items() if matrix is not None},
        heads=tuple(map(head_matrices, walked.heads)),
        concat=rows_of(walked.concat),
        output=rows_of(walked.output),
    )


def animate(example: Example, out: Out) -> results.AnimateAnswer:
    """Return the same numbers as an animation in one HTML file, which loads nothing."""
    from attnviz.features.shapes.animation.page import animation_page
    from attnviz.features.shapes.worked import compute

    walked = compute(example.read())
    paths = tuple(map(str, _save(out, ("html",), lambda _: animation_page(walked))))
    return results.AnimateAnswer(title=", ".join(map(wrote, paths)), files=paths)


def scaling(seed: int = 0, *, out: Out = None) -> results.ScalingAnswer:
    """Softmax with and without 1/√d as heads grow wider, perhaps as curves in a file."""
    from attnviz.features.shapes.drawing.costs import scaling_printed
    from attnviz.features.shapes.worked import scaling

    if seed < 0:
        raise UsageError("{seed} must not be negative, got {}", seed, seed=...)
    return _with_figures(scaling_printed(scaling(seed)), out)


def _walked(subject: Subject, run: RunSizes) -> tuple[Walk, int, ModelSpec | None]:
    """Walk through a layer; how many such layers there are, and the model that they are of."""
    from attnviz.attention.walkthrough import walk

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


def _of_layer(walk: Walk, *, explain: bool, layers: int) -> dict[str, Any]:
    """Make the fields of every answer that walks through one layer."""
    spec, run, flops = walk.spec, walk.run, walk.flops
    return {
        "layer": results.LayerSizes.of(spec),
        "run": results.LayerRun.of(run),
        "layers": layers,
        "steps": tuple(_step(step, explain=explain) for step in walk.steps),
        "costs": results.LayerCosts(
            parameters=record_of(results.ParameterCosts, walk.parameters),
            flops=results.FlopCosts(
                projections=results.Formula.of(flops.projections),
                attention=results.Formula.of(flops.attention),
                total=results.Formula.of(flops.total),
            ),
            weights_bytes=results.Formula.of(weights_elements(LayerAxes(spec, run)) * run.width),
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
        flops=results.Formula.of(step.flops),
        bytes=None if step.bytes is None else results.Formula.of(step.bytes),
        why=step.why if explain else None,
    )


def _model_layers(model: ModelSpec) -> results.ModelLayers:
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
        layer=results.LayerSizes.of(spec),
        parameters_per_layer=parameters(spec).total,
        parameters=group_parameters(group),
        cache_elements_per_token=cache_elements(spec) if cached else None,
    )


def _ran(
    subject: Model, model: ModelSpec, *, towers: bool, parameters: int
) -> tuple[list[results.Compared], str]:
    """Compare a model's layers at work; with a sentence on what was run, or why not."""
    from attnviz.features.shapes.verify import MAX_PARAMETERS, TOLERANCE, can_run, run_layers

    if towers or not can_run(model):
        kind = "a model of several towers" if towers else f"the {model.family} family"
        if any(group.spec.rotary and group.spec.rotary.scaling for group in model.groups):
            kind = "models with scaled rotary positions"
        return [], f"Only parameters were counted: attnviz does not run the layers of {kind} here."
    if subject.published is not None:
        checks, text = run_layers(model, subject.published.config, None)
    else:
        config, folder = subject.located()
        checks, text = run_layers(model, config, folder if parameters <= MAX_PARAMETERS else None)
    return checks, f"{text} Values are equal within {TOLERANCE:g} of the largest."


def _counted(subject: Model) -> ParameterCount:
    """Count the parameters of a model, in its files or in its empty shell."""
    from attnviz.models.parameter_count import count_checkpoint, count_config

    chosen = subject.published
    if chosen is None:
        counts = count_checkpoint(subject.located()[1])
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
    from attnviz.models.parameter_count import count_checkpoint

    if not isinstance(subject, Model) or subject.model is None:
        return model
    parameters = count_checkpoint(subject.located()[1])
    return model if parameters is None else replace(model, whole=parameters.whole)


def _with_figures(answer: A, out: Out) -> A:
    """Draw into the files asked for, and note them."""

    def draw(format: str) -> Any:
        from attnviz.features.shapes.drawing.figures import draw as drawn

        return drawn(answer, format, DPI)

    paths = () if out is None else _save(out, FIGURES, draw)
    return replace(answer, notes=(*answer.notes, *(f"Wrote {path}." for path in paths)))


def _save(out: Out, formats: tuple[str, ...], draw: Callable[[str], Any]) -> tuple[Path, ...]:
    """Draw a picture into files of known suffixes, each whole or not at all."""
    paths = tuple(map(Path, files.listed(out)))
    for path in paths:
        files.check_suffix(path, [f".{name}" for name in formats])
        files.check_writable(path)
    for path in paths:
        files.write(path, draw(path.suffix.lower().removeprefix(".")))
    return paths


class Request(NamedTuple):
    """All settings of a call."""

    layer: Layer
    run: RunSizes
    model: Model
    view: ViewSettings
    example: Example
    output: ShapesOutput

    @property
    def named(self) -> str | None:
        """What the user called the model; None where a fresh layer is meant."""
        return self.model.name if self.model != Model() else None

    @property
    def subject(self) -> Subject:
        """What the view is about."""
        return self.layer if self.named is None else self.model

    @property
    def tiny(self) -> Example:
        """The numbers to walk through."""
        return self.example.but(layer=self.layer)

    def changed(self) -> list[str]:
        """Return the names of the settings that are not what they are by default."""
        return [name for record in self for name in record.changed()]


class View(NamedTuple):
    """A view: what answers, the options it heeds, and those of them that its CSV does not show."""

    answer: Callable[[Request], results.Answer]
    heeds: frozenset[str] = frozenset()
    not_in_csv: frozenset[str] = frozenset()
    has_csv: bool = True


def _animate(request: Request) -> results.Answer:
    if request.output.out is None:
        raise UsageError("{show} makes a file; add {out}", show="animation", out="animation.html")
    return animate(request.tiny, request.output.out)


_SIZES, _RUN, _MODEL = (frozenset(declarations(kind)) for kind in (Layer, RunSizes, Model))
_TINY = frozenset({"text", "file", "seed", "d_model", "heads", "kv_heads", "kind"})
_TINY |= {"causal", "sliding_window"}
_ONE = _SIZES - {"layers"}

VIEWS: Mapping[str, View] = {
    "walk": View(
        lambda a: walk(a.subject, a.run, explain=a.view.explain),
        _SIZES | _RUN | _MODEL | {"explain"},
        frozenset({"layers"}),
    ),
    "diagram": View(
        lambda a: diagram(a.subject, a.run, explain=a.view.explain, out=a.output.out),
        _SIZES | _RUN | _MODEL | {"explain", "out"},
        has_csv=False,
    ),
    "verify": View(lambda a: verify(a.subject, a.run), _ONE | _RUN | _MODEL),
    "compare": View(
        lambda a: compare(a.subject, a.run, memory=a.view.detail), _SIZES | _RUN | _MODEL
    ),
    "sweep": View(
        lambda a: sweep(a.subject, str(a.view.detail), a.run, out=a.output.out),
        _ONE | _RUN | _MODEL | {"out"},
    ),
    "scaling": View(
        lambda a: scaling(a.example.seed, out=a.output.out), frozenset({"seed", "out"})
    ),
    "numbers": View(
        lambda a: numbers(a.tiny, precision=a.view.precision, variant=a.view.variant), _TINY
    ),
    "animation": View(_animate, _TINY | {"out"}, has_csv=False),
    "presets": View(lambda _: presets()),
}
"""Every view by its name; the walk is what nobody has to ask for."""

_OF_A_MODEL = _RUN | {"explain"}
"""What the walk of a model heeds below the table of its layers, which is all that CSV holds."""


def answer_of(request: Request) -> results.Answer:
    """Answer a call by the view that it asks for."""
    return view_of(request).answer(request)


@interface
def shapes(
    text: str | None = None,
    *,
    layer: Layer,
    run: RunSizes,
    model: Model,
    view: ViewSettings,
    example: Example,
    out: Out = None,
) -> results.Answer:
    """Return the shape of every step of attention, why it is so, and what it costs.

    ``av.shapes(d_model=512, heads=8)``, ``av.shapes(model="llama3-70b", show="compare:80GB")``,
    ``av.shapes("cat sat on mat", show="numbers")``. No weights are read, but to verify.

    Args:
        text: up to 32 words for ``show="numbers"`` and ``show="animation"``.
        out: files for what ``show`` draws: a diagram, scaling or a sweep into ``.svg``, ``.png``
            or ``.pdf``, an animation into ``.html``.

    Returns:
        What the view found: its tables print themselves and show themselves in a notebook, and
        ``to_dict()`` and ``to_json()`` hold the numbers.

    Raises:
        UsageError: options that do not go together. SizeError: sizes that make no layer.
        ModelError: a model that is not there.
    """
    paths = None if out is None else tuple(map(Path, files.listed(out)))
    return answer_of(Request(layer, run, model, view, example, ShapesOutput(out=paths)))


def _spoken(view: str) -> Setting:
    """Return a view by the option that asks for it."""
    return Setting("show", "seq=128..131072" if view == "sweep" else view)


def view_of(request: Request) -> View:
    """Return the view asked for; UsageError for options that it would not heed."""
    options = [name for name in request.changed() if name != "show"]
    formats = [name for name in ("json", "csv", "markdown") if name in options]
    if len(formats) > 1:
        raise UsageError("{} and {} are two formats; choose one", *map(Setting, formats[:2]))
    name = request.view.view or ("walk" if request.output.out is None else "diagram")
    view, heeds = VIEWS[name], VIEWS[name].heeds
    if request.named is not None:
        heeds -= _SIZES | (_RUN if name == "verify" else frozenset())
    for option in options:
        if option not in heeds | {*formats}:
            raise _unheeded(option, request, request.view.view or "")
    if "csv" in formats:
        _check_csv(name, view, request)
    return view


def _check_csv(name: str, view: View, request: Request) -> None:
    """Refuse CSV where there is no table, and options that change nothing in it."""
    if not view.has_csv:
        raise UsageError("{} has no table for {csv}; leave it out", _spoken(name), csv=...)
    silent = view.not_in_csv
    if name == "walk" and request.named is not None:
        silent = _OF_A_MODEL
    for option in request.changed():
        if option in silent:
            raise UsageError(
                "{} changes nothing in {csv}; leave it out, or take {json}",
                Setting(option),
                csv=...,
                json=...,
            )


def _unheeded(name: str, request: Request, view: str) -> UsageError:
    """Say which option a view does not heed; the walk is the view without a name."""
    option: Any = f"the text {request.example.text!r}" if name == "text" else Setting(name)
    model = request.named
    if name in _SIZES and model is not None:
        return UsageError(
            "{} is fixed by {!r}; leave it out, or leave the model out", Setting(name), model
        )
    if view:
        return UsageError("{} does not apply to {}; leave it out", option, _spoken(view))
    takers: list[Setting | Message] = [
        _spoken(taker) for taker, other in VIEWS.items() if name in other.heeds
    ]
    listed = functools.reduce(lambda some, other: Message("{} or {}", some, other), takers)
    return UsageError("{} needs {}; add it", option, listed)
