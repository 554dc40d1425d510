"""The walk of a tensor through one layer: as a table, as a drawing, and beside the real layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.attention.spec import RunSizes
from attnviz.errors import InputError, UsageError
from attnviz.features.shapes.answers.pictures import FIGURES, Out, save
from attnviz.features.shapes.answers.subject import Layer, Model, Subject, in_dtype, spec_of_subject
from attnviz.features.shapes.table import Printed
from attnviz.files import wrote

if TYPE_CHECKING:
    from attnviz.features.shapes.models import DiagramAnswer, ModelAnswer
    from attnviz.features.shapes.result import WalkAnswer
    from attnviz.features.shapes.verified import Compared, VerifyAnswer
    from attnviz.features.shapes.walk.steps import Walk
    from attnviz.features.shapes.walk.verify import Verification
    from attnviz.models.configs.model import ModelSpec
    from attnviz.models.parameter_count import ParameterCount

DEFAULT_RUN = RunSizes()


def walk(
    subject: Subject, run: RunSizes = DEFAULT_RUN, *, explain: bool = False
) -> WalkAnswer | ModelAnswer:
    """Every step from X to Y, with shapes, costs and perhaps reasons; a model's layers before it.

    Args:
        subject: a layer, or a model, whose main kind of layer is walked through.
        run: what goes through it; sizes of None stay letters.
        explain: whether each step comes with its reason.

    Raises:
        SizeError, UsageError: sizes that do not go together. ModelError: see :meth:`Model.read`.
    """
    from attnviz.features.shapes.drawing.walk import walk_printed
    from attnviz.features.shapes.records import walk_answer

    walked, layers, model = _walked(subject, run)
    printed = walk_printed(walked, explain=explain, layers=layers)
    if model is None:
        return walk_answer(walked, printed, explain=explain, layers=layers)
    from attnviz.features.shapes.drawing.models import model_printed
    from attnviz.features.shapes.models import model_answer

    return model_answer(model, walked, model_printed(model, walked.run, printed), explain=explain)


def diagram(
    subject: Subject, run: RunSizes = DEFAULT_RUN, *, explain: bool = False, out: Out = None
) -> DiagramAnswer:
    """The layer as boxes and arrows for the terminal, or drawn to scale into a file.

    Args:
        subject: as for :func:`walk`; ``run`` and ``explain`` too, which the data hold.
        run: sizes.
        explain: reasons.
        out: an .svg, .png or .pdf file, or several.

    Raises:
        AttnvizError: as for :func:`walk` and for saving a picture.
    """
    from attnviz.features.shapes.models import diagram_answer

    walked, layers, model = _walked(subject, run)
    if out is None:
        from attnviz.features.shapes.drawing.diagram_text import diagram_printed

        printed = diagram_printed(walked)
        return diagram_answer(walked, printed, explain=explain, layers=layers, model=model)

    def draw(format: str) -> bytes:
        from attnviz.features.shapes.drawing.diagram import diagram_figure

        return diagram_figure(walked, format)

    written = save(out, FIGURES, draw)
    printed = Printed(", ".join(map(wrote, written)))
    return diagram_answer(
        walked, printed, explain=explain, layers=layers, model=model, files=written
    )


def _walked(subject: Subject, run: RunSizes) -> tuple[Walk, int, ModelSpec | None]:
    """The walk, through how many such layers, and the model that they are of."""
    from attnviz.features.shapes.walk.steps import walk

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


def verify(subject: Subject, run: RunSizes = DEFAULT_RUN) -> VerifyAnswer:
    """The closed forms beside the real layer, or beside a model's parameters and layers.

    Args:
        subject: a layer, which is built and run; or a model, whose parameters are counted, and
            whose layers transformers runs beside attnviz's own where their family allows it.
        run: what goes through the layer; unset lengths are small ones.

    Returns:
        An answer whose ``equal`` says whether everything agrees.

    Raises:
        UsageError: a layer that would not fit, a model that cannot be counted, or one of a family
            that attnviz does not know.
        InputError: no weights there. AttnvizError: as for :func:`walk`.
    """
    from attnviz.features.shapes.drawing.models import verify_printed
    from attnviz.features.shapes.walk.verify import (
        DEFAULT_S,
        DEFAULT_T,
        verify,
        verify_model,
        verify_towers,
    )

    if isinstance(subject, Layer):
        from attnviz.features.shapes.walk.steps import walk

        spec = subject.spec()
        if run.cache is None:
            run = replace(run, seq=run.seq or DEFAULT_T)
        if spec.kind == "cross":
            run = replace(run, context_length=run.context_length or DEFAULT_S)
        result = verify(walk(spec, run))
        return _verified(result, verify_printed(result))
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
    unknown = set(parameters.towers) - set(towers) if towers else ()
    if len(parameters.towers) > 1 and towers:
        result = verify_towers(model.name, towers, parameters.towers, parameters.origin)
    else:
        result, unknown = verify_model(model, dict(parameters.layers), parameters.origin), ()
    share = parameters.attention / parameters.whole if parameters.whole else 0
    note = (
        f"{parameters.attention:,} of the model's {parameters.whole:,} parameters are attention "
        f"({100 * share:.1f} %)."
    )
    skipped = tuple(
        f"{sum(parameters.towers[tower].values()):,} attention parameters of its {tower} tower "
        "were not checked: attnviz does not know that tower's family."
        for tower in sorted(unknown)
    )
    ran = "The layers were not run, since their parameters differ."
    if not result.failures:
        checks, ran = _ran(subject, model, towers=bool(towers), whole=parameters.whole)
        result = replace(result, checks=(*result.checks, *checks))
    printed = verify_printed(result)
    printed = printed._replace(notes=(*printed.notes, ran, *skipped, note))
    return _verified(result, printed, attention=parameters.attention, whole=parameters.whole)


def _verified(
    verification: Verification,
    printed: Printed,
    *,
    attention: int | None = None,
    whole: int | None = None,
) -> VerifyAnswer:
    """The answer: the comparisons, and of a model the parameters that were counted."""
    from attnviz.features.shapes.verified import VerifyAnswer

    return VerifyAnswer(
        **printed._asdict(),
        subject=verification.subject,
        equal=not verification.failures,
        checks=verification.checks,
        attention_parameters=attention,
        whole_parameters=whole,
    )


def _ran(
    subject: Model, model: ModelSpec, *, towers: bool, whole: int
) -> tuple[list[Compared], str]:
    """Shapes and values of a model's layers at work, and a sentence on what was run, or why not."""
    from attnviz.features.shapes.walk.real import MAX_PARAMETERS, TOLERANCE, can_run, run_layers

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
    checks, said = run_layers(model, config, folder if whole <= MAX_PARAMETERS else None)
    return checks, f"{said} Values are equal within {TOLERANCE:g} of the largest."


def _counted(subject: Model) -> ParameterCount:
    """The parameters of a model, in its files or in its empty shell."""
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
