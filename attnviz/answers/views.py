"""The views of a layer or a model: walk, diagram, comparison, sweep, verification; and scaling."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.answers.layer import layers_of, spec_asked
from attnviz.answers.request import FIGURES, Request, given, suffix_of
from attnviz.errors import InputError, Setting, UsageError
from attnviz.render.shapes.answer import Answer
from attnviz.shapes.spec import AttentionSpec, RunSizes

if TYPE_CHECKING:
    from attnviz.shapes.configs.model import ModelSpec
    from attnviz.shapes.walk.steps import Walk


def walk_view(
    request: Request, run: RunSizes, spec: AttentionSpec, model: ModelSpec | None
) -> Answer:
    """The table of steps, of a model's main layer where there is a model; perhaps drawn."""
    from attnviz.render.shapes.walk import walk_answer
    from attnviz.shapes.walk.steps import walk

    if model is not None and run.context is not None:
        raise UsageError(
            "{context} is for cross-attention, but the walk of {} goes through its "
            "self-attention; leave it out",
            model.name,
            context=run.context,
        )
    walked = walk(spec, run)
    answer = walk_answer(walked, why=request.why, layers=layers_of(request))
    if model is not None:
        from attnviz.render.shapes.models import model_answer

        answer = model_answer(model, run, answer)
    return _diagram(request, walked, answer) if request.diagram else answer


def _diagram(request: Request, walked: Walk, answer: Answer) -> Answer:
    if request.output is None:
        from attnviz.render.shapes.diagram_text import diagram_answer

        return diagram_answer(walked, answer)
    kind = suffix_of(request.output, FIGURES)
    from attnviz.files import check_writable, write

    check_writable(request.output)
    from attnviz.render.shapes.diagram import diagram_figure

    write(request.output, diagram_figure(walked, kind))
    return _written(answer, "diagram", request.output)


def _written(answer: Answer, view: str, path: Path) -> Answer:
    return Answer(view, f"wrote {path}", (), data={**answer.data, "file": str(path)})


def compare_view(
    request: Request, run: RunSizes, spec: AttentionSpec, model: ModelSpec | None
) -> Answer:
    """The kinds of attention side by side."""
    from attnviz.render.shapes.costs import compare_answer
    from attnviz.shapes.costs.compare import compare, parse_memory

    memory = parse_memory(request.memory) if request.memory is not None else None
    layers = layers_of(request)
    return compare_answer(compare(spec, run, layers=layers, model=model, memory=memory))


def sweep_view(request: Request, run: RunSizes, spec: AttentionSpec) -> Answer:
    """Costs along one size, perhaps plotted into a file."""
    from attnviz.render.shapes.costs import sweep_answer
    from attnviz.shapes.costs.sweep import sweep

    fixed = request.preset or request.model

    def spec_at(variable: str, value: int | None) -> AttentionSpec:
        if variable in ("seq", "context"):
            return spec
        if fixed:
            raise UsageError(
                "{sweep} contradicts {!r}, which fixes it; sweep seq", fixed, sweep=variable
            )
        name = variable.replace("-", "_")
        if given(request, (name,)):
            raise UsageError("{} and {sweep} contradict each other", Setting(name), sweep=variable)
        if name == "heads":
            return spec_asked(request._replace(heads=value))
        return spec_asked(request._replace(d_model=value))

    found = sweep(str(request.sweep), run, spec_at)
    answer = sweep_answer(found)
    if request.plot is None:
        return answer
    kind = suffix_of(request.plot, FIGURES)
    from attnviz.files import check_writable, write

    check_writable(request.plot)
    from attnviz.render.shapes.figures import sweep_figure

    write(request.plot, sweep_figure(found, kind))
    return answer._replace(notes=(*answer.notes, f"Wrote {request.plot}."))


def scaling_view(request: Request) -> Answer:
    """Softmax with and without 1/√d, perhaps plotted into a file."""
    from attnviz.render.shapes.costs import scaling_answer
    from attnviz.shapes.worked.softmax_scale import scaling

    if request.plot is not None:
        suffix_of(request.plot, FIGURES)
    if request.seed < 0:
        raise UsageError("{seed} must not be negative, got {}", request.seed, seed=...)
    found = scaling(request.seed)
    answer = scaling_answer(found)
    if request.plot is None:
        return answer
    from attnviz.files import check_writable, write

    check_writable(request.plot)
    from attnviz.render.shapes.figures import scaling_figure

    write(request.plot, scaling_figure(found, suffix_of(request.plot, FIGURES)))
    return answer._replace(notes=(*answer.notes, f"Wrote {request.plot}."))


def verify_view(
    request: Request, run: RunSizes, spec: AttentionSpec, model: ModelSpec | None
) -> Answer:
    """The closed forms beside the real layer, or beside a real model's parameters."""
    from attnviz.render.shapes.models import verify_answer
    from attnviz.shapes.walk.verify import verify, verify_model

    if model is None:
        from attnviz.shapes.walk.steps import walk
        from attnviz.shapes.walk.verify import DEFAULT_S, DEFAULT_T

        if run.cache is None:
            run = replace(run, seq=run.seq or DEFAULT_T)
        if spec.kind == "cross":
            run = replace(run, context=run.context or DEFAULT_S)
        return verify_answer(verify(walk(spec, run)))
    from attnviz.models.counted import count_checkpoint, count_config

    if request.preset is not None:
        from attnviz.shapes.configs.presets import preset

        chosen = preset(request.preset)
        if not chosen.counted_as:
            raise UsageError(
                "{} has no published weights and no transformers class to count; {preset} without "
                "{verify} shows the closed forms",
                chosen.title,
                preset=...,
                verify=...,
            )
        counted = count_config(chosen.config, chosen.counted_as)
    else:
        from attnviz.models.folder import locate_config

        found = count_checkpoint(locate_config(str(request.model))[1])
        if found is None:
            raise InputError(
                "{} has no safetensors weights here to count; {verify} needs a folder that holds "
                "them",
                request.model,
                verify=...,
            )
        counted = found
    answer = verify_answer(verify_model(model, dict(counted.layers), counted.origin))
    share = counted.attention / counted.whole if counted.whole else 0
    note = (
        f"{counted.attention:,} of the model's {counted.whole:,} parameters are attention "
        f"({100 * share:.1f} %)."
    )
    return answer._replace(notes=(*answer.notes, note))
