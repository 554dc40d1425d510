"""The walk of a tensor through one layer: as a table, as a drawing, and beside the real layer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.answers.pictures import FIGURES, save
from attnviz.answers.subject import Layer, Model, Subject, in_dtype, spec_of_subject
from attnviz.errors import InputError, UsageError
from attnviz.render.shapes.answer import Answer
from attnviz.shapes.spec import RunSizes

if TYPE_CHECKING:
    from attnviz.models.counted import Counted
    from attnviz.shapes.walk.steps import Walk

DEFAULT_RUN = RunSizes()


def walk(subject: Subject, run: RunSizes = DEFAULT_RUN, *, why: bool = False) -> Answer:
    """Every step from X to Y, with shapes, costs and perhaps reasons; a model's layers before it.

    Args:
        subject: a layer, or a model, whose main kind of layer is walked through.
        run: what goes through it; sizes of None stay letters.
        why: whether each step comes with its reason.

    Raises:
        SizeError, UsageError: sizes that do not go together. ModelError: see :meth:`Model.read`.
    """
    return _walked(subject, run, why=why)[1]


def diagram(
    subject: Subject,
    run: RunSizes = DEFAULT_RUN,
    *,
    why: bool = False,
    out: Path | None = None,
) -> Answer:
    """The layer as boxes and arrows for the terminal, or drawn to scale into a file.

    Args:
        subject: as for :func:`walk`; ``run`` and ``why`` too, which the data hold.
        run: sizes.
        why: reasons.
        out: an .svg, .png or .pdf file.

    Raises:
        AttnvizError: as for :func:`walk` and :func:`~attnviz.answers.pictures.save`.
    """
    walked, answer = _walked(subject, run, why=why)
    if out is None:
        from attnviz.render.shapes.diagram_text import diagram_answer

        return diagram_answer(walked, answer)

    def draw(format: str) -> bytes:
        from attnviz.render.shapes.diagram import diagram_figure

        return diagram_figure(walked, format)

    save(out, FIGURES, draw)
    return Answer("diagram", f"wrote {out}", (), data={**answer.data, "file": str(out)})


def _walked(subject: Subject, run: RunSizes, *, why: bool) -> tuple[Walk, Answer]:
    from attnviz.render.shapes.walk import walk_answer
    from attnviz.shapes.walk.steps import walk

    spec, model = spec_of_subject(subject)
    if model is not None and run.context_length is not None:
        raise UsageError(
            "{context_length} is for cross-attention, but the walk of {} goes through its "
            "self-attention; leave it out",
            model.name,
            context_length=run.context_length,
        )
    run = in_dtype(run, model)
    walked = walk(spec, run)
    layers = subject.count() if isinstance(subject, Layer) else 1
    answer = walk_answer(walked, why=why, layers=layers)
    if model is not None:
        from attnviz.render.shapes.models import model_answer

        answer = model_answer(model, run, answer)
    return walked, answer


def verify(subject: Subject, run: RunSizes = DEFAULT_RUN) -> Answer:
    """The closed forms beside the real layer, or beside a real model's parameters.

    Args:
        subject: a layer, which is built and run; or a model, whose parameters are counted.
        run: what goes through the layer; unset lengths are small ones.

    Returns:
        An answer whose ``data["equal"]`` says whether everything agrees.

    Raises:
        UsageError: a layer that would not fit, or a model that cannot be counted.
        InputError: no weights there. AttnvizError: as for :func:`walk`.
    """
    from attnviz.render.shapes.models import verify_answer
    from attnviz.shapes.walk.verify import (
        DEFAULT_S,
        DEFAULT_T,
        verify,
        verify_model,
        verify_towers,
    )

    if isinstance(subject, Layer):
        from attnviz.shapes.walk.steps import walk

        spec = subject.spec()
        if run.cache is None:
            run = replace(run, seq=run.seq or DEFAULT_T)
        if spec.kind == "cross":
            run = replace(run, context_length=run.context_length or DEFAULT_S)
        return verify_answer(verify(walk(spec, run)))
    model, towers, counted = subject.read(), subject.towers(), _counted(subject)
    unknown = set(counted.towers) - set(towers) if towers else ()
    if len(counted.towers) > 1 and towers:
        found = verify_towers(model.name, towers, counted.towers, counted.origin)
    else:
        found, unknown = verify_model(model, dict(counted.layers), counted.origin), ()
    answer = verify_answer(found)
    share = counted.attention / counted.whole if counted.whole else 0
    note = (
        f"{counted.attention:,} of the model's {counted.whole:,} parameters are attention "
        f"({100 * share:.1f} %)."
    )
    skipped = tuple(
        f"{sum(counted.towers[tower].values()):,} attention parameters of its {tower} tower were "
        "not checked: attnviz does not know that tower's family."
        for tower in sorted(unknown)
    )
    return answer._replace(notes=(*answer.notes, *skipped, note))


def _counted(subject: Model) -> Counted:
    """The parameters of a model, in its files or in its empty shell."""
    from attnviz.models.counted import count_checkpoint, count_config

    if subject.preset is None:
        from attnviz.models.folder import locate_config

        found = count_checkpoint(locate_config(subject.name)[1])
        if found is None:
            raise InputError(
                "{} has no safetensors weights here to count; {verify} needs a folder that holds "
                "them",
                subject.name,
                verify=...,
            )
        return found
    from attnviz.shapes.configs.presets import preset

    chosen = preset(subject.preset)
    if not chosen.counted_as:
        raise UsageError(
            "{} has no published weights and no transformers class to count; {preset} without "
            "{verify} shows the closed forms",
            chosen.title,
            preset=...,
            verify=...,
        )
    return count_config(chosen.config, chosen.counted_as)
