"""The views of a layer or a model: walk, diagram, comparison, sweep, verification; and scaling."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.attention.spec import AttentionSpec, Run
from attnviz.errors import InputError, UsageError
from attnviz.render.shapes.report import Report
from attnviz.shapes.layer import layers_of, spec_asked
from attnviz.shapes.request import FIGURES, Request, given, suffix_of

if TYPE_CHECKING:
    from attnviz.attention.configs import ModelSpec
    from attnviz.attention.trace import Walk


def walk_view(request: Request, run: Run, spec: AttentionSpec, model: ModelSpec | None) -> Report:
    """The table of steps, of a model's main layer where there is a model; perhaps drawn."""
    from attnviz.attention.trace import walk
    from attnviz.render.shapes.walk import walk_report

    if model is not None and run.context is not None:
        raise UsageError(
            f"--context {run.context} is for cross-attention, but the walk of {model.name} goes "
            "through its self-attention; leave it out"
        )
    walked = walk(spec, run)
    report = walk_report(walked, why=request.why, layers=layers_of(request))
    if model is not None:
        from attnviz.render.shapes.models import model_report

        report = model_report(model, run, report)
    return _diagram(request, walked, report) if request.diagram else report


def _diagram(request: Request, walked: Walk, report: Report) -> Report:
    if request.output is None:
        from attnviz.render.shapes.diagram_text import diagram_report

        return diagram_report(walked, report)
    kind = suffix_of(request.output, FIGURES)
    from attnviz.files import check_writable, write

    check_writable(request.output)
    from attnviz.render.shapes.diagram import diagram_figure

    write(request.output, diagram_figure(walked, kind))
    return _written(report, "diagram", request.output)


def _written(report: Report, view: str, path: Path) -> Report:
    return Report(view, f"wrote {path}", (), data={**report.data, "file": str(path)})


def compare_view(
    request: Request, run: Run, spec: AttentionSpec, model: ModelSpec | None
) -> Report:
    """The kinds of attention side by side."""
    from attnviz.attention.compare import compare, parse_memory
    from attnviz.render.shapes.costs import compare_report

    memory = parse_memory(request.memory) if request.memory is not None else None
    layers = layers_of(request)
    return compare_report(compare(spec, run, layers=layers, model=model, memory=memory))


def sweep_view(request: Request, run: Run, spec: AttentionSpec) -> Report:
    """Costs along one size, perhaps plotted into a file."""
    from attnviz.attention.sweep import sweep
    from attnviz.render.shapes.costs import sweep_report

    fixed = request.preset or request.model

    def spec_at(variable: str, value: int | None) -> AttentionSpec:
        if variable in ("seq", "context"):
            return spec
        if fixed:
            raise UsageError(f"--sweep {variable} contradicts {fixed!r}, which fixes it; sweep seq")
        name = variable.replace("-", "_")
        if given(request, (name,)):
            raise UsageError(f"--{variable} and --sweep {variable} contradict each other")
        if name == "heads":
            return spec_asked(request._replace(heads=value))
        return spec_asked(request._replace(d_model=value))

    found = sweep(str(request.sweep), run, spec_at)
    report = sweep_report(found)
    if request.plot is None:
        return report
    kind = suffix_of(request.plot, FIGURES)
    from attnviz.files import check_writable, write

    check_writable(request.plot)
    from attnviz.render.shapes.figures import sweep_figure

    write(request.plot, sweep_figure(found, kind))
    return report._replace(notes=(*report.notes, f"Wrote {request.plot}."))


def scaling_view(request: Request) -> Report:
    """Softmax with and without 1/√d, perhaps plotted into a file."""
    from attnviz.attention.scaling import scaling
    from attnviz.render.shapes.costs import scaling_report

    if request.plot is not None:
        suffix_of(request.plot, FIGURES)
    if request.seed < 0:
        raise UsageError(f"--seed must not be negative, got {request.seed}")
    found = scaling(request.seed)
    report = scaling_report(found)
    if request.plot is None:
        return report
    from attnviz.files import check_writable, write

    check_writable(request.plot)
    from attnviz.render.shapes.figures import scaling_figure

    write(request.plot, scaling_figure(found, suffix_of(request.plot, FIGURES)))
    return report._replace(notes=(*report.notes, f"Wrote {request.plot}."))


def verify_view(request: Request, run: Run, spec: AttentionSpec, model: ModelSpec | None) -> Report:
    """The closed forms beside the real layer, or beside a real model's parameters."""
    from attnviz.attention.verify import verify, verify_model
    from attnviz.render.shapes.models import verify_report

    if model is None:
        from attnviz.attention.trace import walk
        from attnviz.attention.verify import DEFAULT_S, DEFAULT_T

        if run.cache is None:
            run = replace(run, seq=run.seq or DEFAULT_T)
        if spec.kind == "cross":
            run = replace(run, context=run.context or DEFAULT_S)
        return verify_report(verify(walk(spec, run)))
    from attnviz.models.counted import count_checkpoint, count_config

    if request.preset is not None:
        from attnviz.attention.presets import preset

        chosen = preset(request.preset)
        if not chosen.counted_as:
            raise UsageError(
                f"{chosen.title} has no published weights and no transformers class to count; "
                "--preset without --verify shows the closed forms"
            )
        counted = count_config(chosen.config, chosen.counted_as)
    else:
        from attnviz.models.config_file import read_config_file

        folder = read_config_file(str(request.model))[1]
        found = count_checkpoint(folder) if folder is not None else None
        if found is None:
            raise InputError(
                f"{request.model} has no safetensors weights here to count; --verify needs a "
                "folder that holds them"
            )
        counted = found
    report = verify_report(verify_model(model, dict(counted.layers), counted.origin))
    share = counted.attention / counted.whole if counted.whole else 0
    note = (
        f"{counted.attention:,} of the model's {counted.whole:,} parameters are attention "
        f"({100 * share:.1f} %)."
    )
    return report._replace(notes=(*report.notes, note))
