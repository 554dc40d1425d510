"""Differences, as a script asks for them: captures, reports, one text through two models."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from attnviz import files
from attnviz.comparing import reports
from attnviz.comparing.run import compare
from attnviz.differences import DiffReport
from attnviz.errors import InputError, UsageError
from attnviz.looking import DEFAULT_MODEL, Look, Model, capture, load
from attnviz.models import recorded
from attnviz.notebook import Pictured, Tabular, picture_format, printed
from attnviz.profiling import saved
from attnviz.profiling.summary import summarize
from attnviz.records import Capture, Prompt
from attnviz.render.profile_tables import profile_json

RECORDED = (".npz", ".safetensors")
"""Files that hold a capture."""
PAGES = (".html", ".htm")


class Diff(Pictured, Tabular, DiffReport):
    """A report as :func:`diff` returns it: it prints, draws and saves itself."""

    def to_records(self) -> list[dict[str, Any]]:
        """A row for each figure of each head, the distance of its maps first."""
        from attnviz.render.diff.tables import change_rows

        return change_rows(self)

    def __str__(self) -> str:
        """The heads that differ most, as the command line prints them, without colours."""
        from attnviz.render.diff.terminal import parts

        return printed(*parts(self))

    def figure(self, format: str = "png", top: int = 4) -> bytes:
        """The distances of all heads, and signed maps of those that differ most."""
        from attnviz.render.diff.figure import diff_figure

        return diff_figure(self, format, top)

    def page(self) -> bytes:
        """The heads and their maps side by side, as one offline page of a single text."""
        from attnviz.render.diff.page import diff_page

        return diff_page(self)

    def save(self, path: str | Path) -> Path:
        """Write it as .json, .csv or .html, or draw it as .png, .svg or .pdf."""
        from attnviz.render.diff.tables import diff_csv, diff_json

        path = Path(path)
        written = {".json": diff_json, ".csv": diff_csv}.get(path.suffix.lower())
        if path.suffix.lower() in PAGES:
            data = self.page()
        else:
            data = written(self).encode() if written else self.figure(picture_format(path))
        files.write(path, data)
        return path

    def __repr__(self) -> str:
        most = ", ".join(f"{head.name} {head.largest():.3g}" for head in self.heads[:3])
        return f"<Diff {self.before} / {self.after}, {self.kind}: {most}>"

    def _repr_png_(self) -> bytes | None:
        return self.figure() if self.kind == "maps" else None


def diff(
    before: Look | str | Path | Iterable[Look],
    after: Look | str | Path | None = None,
    *,
    model: Model = DEFAULT_MODEL,
    against: Model | None = None,
    align: str = "token",
    device: str = "auto",
    dtype: str = "auto",
) -> Diff:
    """Say what changed between two runs, head by head.

    Args:
        before: a capture or its file, a report's JSON file (of ``heads``, ``profile``, ``ablate``),
            a profile's state file (.profile), or a text; with ``against`` one text or several.
        after: what to compare it with; nothing with ``against``.
        model: for texts, see :func:`attnviz.load`, as for ``device`` and ``dtype``.
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
    options: dict[str, Any] = {"device": device, "dtype": dtype}
    if against is not None:
        looks = [before] if isinstance(before, str | Prompt | Capture | Path) else before
        report = _through(looks, model, against, align, options)
    else:
        report = _two(before, after, model, align, options)
    return Diff(**{name: getattr(report, name) for name in report.__dataclass_fields__})


def _through(
    looks: Any, model: Model, against: Model, align: str, options: dict[str, Any]
) -> DiffReport:
    """Texts through two models."""
    one, other = load(model, **options), load(against, **options)

    def pairs() -> Iterator[tuple[Capture, Capture]]:
        for look in looks:
            if not isinstance(look, str | Prompt):
                raise UsageError("only texts go through two models; give {after} for a capture",
                                 after=...)  # fmt: skip
            yield capture(look, model=one), capture(look, model=other)

    return compare(pairs(), align)


def _two(before: Any, after: Any, model: Model, align: str, options: dict[str, Any]) -> DiffReport:
    """Two captures, reports or texts."""
    documents = [_document(what) for what in (before, after)]
    if all(document is not None for document in documents):
        names = str(before), str(after)
        return reports.compare(documents[0] or {}, documents[1] or {}, names)
    if any(document is not None for document in documents):
        raise InputError("a report can only be compared with another report")
    captures = [_capture(what, model, options) for what in (before, after)]
    names = _name(before, captures[0]), _name(after, captures[1])
    return compare([(captures[0], captures[1])], align, names)


def _name(what: object, capture: Capture) -> str:
    """What a run was: its file, its text, or its model."""
    if _is_file(what):
        return str(what)
    return repr(what) if isinstance(what, str) else capture.source.model


def _is_file(what: object) -> bool:
    """Whether a file is meant, and not a text."""
    return isinstance(what, Path) or (
        isinstance(what, str) and what.lower().endswith((*RECORDED, ".json", ".profile"))
    )


def _document(what: object) -> dict[str, Any] | None:
    """A report's JSON, or that of a profile's state file; None for anything else."""
    if not _is_file(what) or Path(str(what)).suffix.lower() in RECORDED:
        return None
    what = Path(str(what))
    if what.suffix.lower() != ".json":
        found: dict[str, Any] = json.loads(profile_json(summarize(saved.read(what))))
        return found
    try:
        document = json.loads(what.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {what}: {error.strerror}; check the path") from error
    except ValueError as error:
        raise InputError(f"{what} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise InputError(f"{what} holds no report")
    return document


def _capture(what: Any, model: Model, options: dict[str, Any]) -> Capture:
    if _is_file(what):
        return recorded.load(Path(what))
    return capture(what, model=model, **options)
