"""Differences, as a script asks for them: captures, reports, one text through two models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnviz.captures.look import DEFAULT_MODEL, Look, Model, capture, find, load
from attnviz.core.capture import Capture
from attnviz.core.prompt import Prompt
from attnviz.core.result import Result
from attnviz.errors import InputError, UsageError
from attnviz.features.diff import reports
from attnviz.features.diff.result import Diff
from attnviz.features.diff.run import compare
from attnviz.features.registry import read
from attnviz.files import handed, name_of
from attnviz.models import recorded
from attnviz.models.identity import identity

RECORDED = (".npz", ".safetensors")
ENDINGS = (*RECORDED, ".json", ".profile")
"""Files that hold a capture."""


def diff(
    before: Look | str | Path | Result | Iterable[Look],
    after: Look | str | Path | Result | None = None,
    *,
    model: Model = DEFAULT_MODEL,
    tokenizer: Any = None,
    against: Model | None = None,
    align: str = "token",
    device: str = "auto",
    dtype: str = "auto",
) -> Diff:
    """Say what changed between two runs, head by head.

    Args:
        before: a capture or its file; a result of ``heads``, ``profile``, ``ablate``, ``logits``,
            ``syntax``, ``coref`` or ``circuits``, or its JSON file, or a profile's state file
            (.profile); or a text; with ``against`` one text or several.
        after: what to compare it with; nothing with ``against``.
        model: for texts, see :func:`attnviz.load`, as for ``device`` and ``dtype``.
        tokenizer: of a transformers model in memory.
        against: the model that the same texts go through after ``model``.
        align: which rows and keys belong together: the same ``token`` at the same position, the
            same ``position`` of texts of the same length, or the n-th ``word``.
        device: where to run.
        dtype: in which precision.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`; InputError for runs that have nothing to compare.
    """
    if (after is None) == (against is None):
        raise UsageError(
            "give two runs to compare, or texts and the other model with {against}", against=...
        )
    if tokenizer is not None:
        model = load(model, tokenizer=tokenizer, device=device, dtype=dtype)
        device = dtype = "auto"
    options: dict[str, Any] = {"device": device, "dtype": dtype}
    if against is not None:
        single = isinstance(before, str | Prompt | Capture | Path | Result)
        return _through([before] if single else before, model, against, align, options)
    return _two(before, after, model, align, options)


def _through(looks: Any, model: Model, against: Model, align: str, options: dict[str, Any]) -> Diff:
    """Texts through two models."""
    find(model, against)
    one, other = load(model, **options), load(against, **options)

    def pairs() -> Iterator[tuple[Capture, Capture]]:
        for look in looks:
            if not isinstance(look, str | Prompt):
                raise UsageError(
                    "only texts can be run through two models; give {after} for a capture",
                    after=...,
                )
            yield capture(look, model=one), capture(look, model=other)

    found = compare(pairs(), align)
    return replace(found, identity=identity(model), other_identity=identity(against))


def _two(before: Any, after: Any, model: Model, align: str, options: dict[str, Any]) -> Diff:
    """Two captures, reports or texts."""
    found = [_report(what) for what in (before, after)]
    if found[0] is not None and found[1] is not None:
        return reports.compare(found[0], found[1])
    if found[0] is not None or found[1] is not None:
        raise InputError(_unlike(*((before, after) if found[1] is None else (after, before))))
    captures = [_capture(what, model, options) for what in (before, after)]
    names = _names((before, after), captures)
    compared = compare([(captures[0], captures[1])], align, names)
    known = [identity(model) if isinstance(what, str | Prompt) and not is_file(what) else {}
             for what in (before, after)]  # fmt: skip
    return replace(compared, identity=known[0], other_identity=known[1])


def _unlike(report: object, other: object) -> str:
    """Why a report cannot be compared with something else."""
    first = f"{name_of(report)} is" if isinstance(report, str | Path) else "one is"
    if not isinstance(other, str) or is_file(other):
        second = "the other a capture or a text"
    else:
        second = f"{other[:40]!r} a text, since no report's name ends so"
    return f"{first} a report and {second}; compare two reports (.json, .profile)"


def _names(both: tuple[object, object], captures: Sequence[Capture]) -> tuple[str, str]:
    """What the runs were: their files, as far as the two differ, their texts, or their models."""
    (before, after), (one, other) = both, captures
    names = _name(before, one), _name(after, other)
    if names[0] != names[1] or not (is_file(before) and is_file(after)):
        return names
    first, second = (Path(str(what)).resolve().parts for what in both)
    for depth in range(2, min(len(first), len(second))):
        if first[-depth] != second[-depth]:
            return "/".join(first[-depth:]), "/".join(second[-depth:])
    return names


def _name(what: object, capture: Capture) -> str:
    if is_file(what):
        return Path(str(what)).name
    return repr(what) if isinstance(what, str) else capture.source.model


def is_file(what: object) -> bool:
    """Whether a file is meant, and not a text."""
    return isinstance(what, Path) or (
        isinstance(what, str) and (what.lower().endswith(ENDINGS) or handed(what))
    )


def _report(what: object) -> reports.Report | None:
    """A result, or what a file holds of one; None for anything else."""
    if isinstance(what, Result):
        return reports.report(what, f"the {what.command} result")
    if not is_file(what) or Path(str(what)).suffix.lower() in RECORDED:
        return None
    return reports.report(read(str(what)), name_of(str(what)))


def _capture(what: Any, model: Model, options: dict[str, Any]) -> Capture:
    if is_file(what):
        return recorded.load(Path(what))
    return capture(what, model=model, **options)
