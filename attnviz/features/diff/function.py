"""Differences, as a script asks for them: captures, reports, one text through two models."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from attnviz.captures.inputs import Input, capture, captures
from attnviz.captures.loading import find
from attnviz.captures.settings import ModelSettings
from attnviz.core.capture import Capture
from attnviz.core.interface import interface
from attnviz.core.prompt import Prompt
from attnviz.core.result import Figures, Result
from attnviz.drawing.labels import counted
from attnviz.drawing.renderable import Renderable
from attnviz.errors import InputError, UsageError
from attnviz.features.diff import Alignment, DiffSettings
from attnviz.features.diff.result import Diff, FigureChange, HeadChange
from attnviz.features.diff.run import compare
from attnviz.features.results import read
from attnviz.files import handed, name_of
from attnviz.models import recorded


@dataclass(frozen=True)
class Report:
    """A result as it is compared."""

    name: str  # of its file, or what stands for it
    result: Result
    figures: Figures  # of its heads


def compare_reports(first: Report, second: Report) -> Diff:
    """Return what differs between two reports."""
    before, after = first.result, second.result
    if before.command != after.command:
        raise InputError(
            f"{first.name} is of {before.command}, {second.name} of {after.command}; compare two "
            "of one kind"
        )
    for key, value in first.figures.settings.items():
        if value != second.figures.settings.get(key):
            setting = second.figures.settings.get(key)
            raise InputError(f"{key} is {value} in {first.name}, {setting} in {second.name}")
    if odd := sorted(first.figures.values.keys() ^ second.figures.values.keys()):
        raise InputError(f"only one of the two reports has {', '.join(odd[:5])}")
    names = [_names_of(run) for run in (first, second)]
    if not names[0] & names[1] and all(names):
        listed = " and ".join(", ".join(sorted(figures)[:5]) for figures in names)
        raise InputError(f"the two reports have no figure in common ({listed})")
    heads = [_changed(name, first.figures, second.figures) for name in first.figures.values]
    heads.sort(key=lambda head: -head.largest())
    return Diff(
        source=before.source,
        layout=before.layout,
        identity=before.identity,
        texts=before.texts,
        corpus=before.corpus if before.corpus == after.corpus else "",
        notes=tuple(_notes(first, second)),
        other=after.source,
        other_identity=after.identity,
        before=f"{before.source.model} ({first.name})",
        after=f"{after.source.model} ({second.name})",
        kind=before.command,
        heads=tuple(heads),
    )


def _notes(first: Report, second: Report) -> Iterator[str]:
    before, after = first.result, second.result
    if before.texts:
        yield "Reports keep no figures of single texts: their differences have no paired interval."
    if before.texts != after.texts:
        texts = counted(before.texts, "text")
        yield f"The first report is of {texts}, the second of {after.texts:,}."
    elif before.corpus != after.corpus:
        yield "The two reports are of other texts, so that what differs may be of them."
    if odd := sorted(_names_of(first) ^ _names_of(second)):
        yield f"Only one of the two reports has {', '.join(odd[:5])}."


def _names_of(report: Report) -> frozenset[str]:
    """Return the names of its figures."""
    return frozenset(key for values in report.figures.values.values() for key in values)


def _changed(name: str, earlier: Figures, later: Figures) -> HeadChange:
    before, after = earlier.values[name], later.values[name]
    changes = [
        _change(key, first, second)
        for key in before
        if (first := before[key]) is not None and (second := after.get(key)) is not None
    ]
    had, has = (run.roles.get(name, frozenset()) for run in (earlier, later))
    return HeadChange(
        name, None, tuple(changes), tuple(sorted(has - had)), tuple(sorted(had - has))
    )


def _change(name: str, before: float, after: float) -> FigureChange:
    if not (math.isfinite(before) and math.isfinite(after)):
        raise InputError(f"{name} is {before} in one report and {after} in the other")
    return FigureChange(name, before, after, after - before)


RECORDED = (".npz", ".safetensors")
ENDINGS = (*RECORDED, ".json", ".profile", ".html")
"""Files that hold a capture."""


@interface
def diff(
    before: Input | str | Path | Result | Iterable[Input] | None = None,
    after: Input | str | Path | Result | None = None,
    *,
    settings: DiffSettings,
    tokenizer: Any = None,
    model: ModelSettings,
) -> Diff:
    """Say what changed between two runs, head by head.

    Args:
        before: a capture or its file; a result of ``heads``, ``profile``, ``ablate``, ``logits``,
            ``syntax``, ``coref`` or ``circuits``, or its JSON file, the page of a result (.html),
            or a profile's state file (.profile); or a text; with ``other_model`` one text or
            several, or nothing where one of the two is a LoRA adapter whose file is read alone.
        after: what to compare it with; nothing with ``other_model``.
        tokenizer: of a transformers model in memory.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`; InputError for runs that have nothing to compare.
    """
    other = settings.other_model
    if (after is None) == (other is None) or (before is None and other is None):
        raise UsageError(
            "give two runs to compare, or texts and the other model with {other_model}",
            other_model=...,
        )
    if tokenizer is not None:
        model = ModelSettings(model=model.load(tokenizer=tokenizer))
    if other is not None:
        if before is None:
            from attnviz.features.diff.moved import from_file

            return from_file(model.model, other)
        single = isinstance(before, str | Prompt | Capture | Path | Result)
        texts = [before] if single else before
        return _through(texts, model, model.but(model=other), settings.align)
    return _two(before, after, model, settings.align)


def _through(texts: Any, model: ModelSettings, other: ModelSettings, align: Alignment) -> Diff:
    """Texts through two models."""
    from attnviz.features.diff.moved import Movement, beside
    from attnviz.models import pretrained

    find(model.model, other.model)
    sources = [model.load(), other.load()]
    for number, settings in enumerate((model, other)):  # not to compare two ways of computing
        backends = sources[number].info.backend, sources[1 - number].info.backend
        if backends == ("native", "hooked") and isinstance(settings.model, str | Path):
            sources[number] = pretrained.load(
                str(settings.model), device=settings.device, dtype=settings.dtype, backend="hooked"
            )
    movement = Movement(*sources)

    def pairs() -> Iterator[tuple[Capture, Capture]]:
        for text in texts:
            if not isinstance(text, str | Prompt):
                raise UsageError(
                    "only texts can be run through two models; give {after} for a capture",
                    after=...,
                )
            (first,), (second,) = (
                captures(text, model=ModelSettings(model=source), beside=beside)
                for source, beside in zip(sources, movement.observers(), strict=True)
            )
            yield first, second

    result = compare(pairs(), align, movement=movement)
    result = replace(result, identity=model.identity, other_identity=other.identity)
    return beside(result, model.model, other.model)


def _two(before: Any, after: Any, model: ModelSettings, align: Alignment) -> Diff:
    """Two captures, reports or texts."""
    results = [_report(subject) for subject in (before, after)]
    if results[0] is not None and results[1] is not None:
        return compare_reports(results[0], results[1])
    if results[0] is not None or results[1] is not None:
        raise InputError(_unlike(*((before, after) if results[1] is None else (after, before))))
    captures = [
        recorded.load(Path(subject)) if is_file(subject) else capture(subject, model=model)
        for subject in (before, after)
    ]
    names = _names((before, after), captures)
    compared = compare([(captures[0], captures[1])], align, names)
    known = [model.identity if isinstance(subject, str | Prompt) and not is_file(subject) else {}
             for subject in (before, after)]  # fmt: skip
    return replace(compared, identity=known[0], other_identity=known[1])


def _unlike(report: object, other: object) -> str:
    """Why a report cannot be compared with something else."""
    first = f"{name_of(report)} is" if isinstance(report, str | Path) else "one is"
    if not isinstance(other, str) or is_file(other):
        second = "the other a capture or a text"
    else:
        second = f"{other[:40]!r} a text, since no report's name ends so"
    return f"{first} a report and {second}; compare two reports (.json, .profile, .html)"


def _names(subjects: tuple[object, object], captures: Sequence[Capture]) -> tuple[str, str]:
    """Name the runs: their files, as far as the two differ, their texts, or their models."""
    (before, after), (earlier, later) = subjects, captures
    names = _name(before, earlier), _name(after, later)
    if names[0] != names[1] or not (is_file(before) and is_file(after)):
        return names
    first, second = (Path(str(subject)).resolve().parts for subject in subjects)
    for depth in range(2, min(len(first), len(second))):
        if first[-depth] != second[-depth]:
            return "/".join(first[-depth:]), "/".join(second[-depth:])
    return names


def _name(subject: object, capture: Capture) -> str:
    if is_file(subject):
        return Path(str(subject)).name
    return repr(subject) if isinstance(subject, str) else capture.source.model


def is_file(subject: object) -> bool:
    """Whether a file is meant, and not a text."""
    return isinstance(subject, Path) or (
        isinstance(subject, str) and (subject.lower().endswith(ENDINGS) or handed(subject))
    )


def _report(subject: object) -> Report | None:
    """Return a result, or what a file holds of one; None for anything else."""
    result: object = subject
    if isinstance(subject, Result):
        name = f"the {subject.command} result"
    elif not is_file(subject) or Path(str(subject)).suffix.lower() in RECORDED:
        return None
    else:
        result, name = read(str(subject)), name_of(str(subject))
    if not isinstance(result, Result) or not isinstance(result, Renderable):
        raise InputError(f"{name} holds no result about heads; give one that a command measured")
    return Report(name, result, result.compared())
