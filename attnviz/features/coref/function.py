"""``attnviz.coref``: which heads find the antecedents of pronouns and other mentions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnviz import files
from attnviz.annotated.coref import CorefReport
from attnviz.corpus.texts import Bad
from attnviz.errors import UsageError
from attnviz.grammar.cases import Progress
from attnviz.grammar.entities import documents, is_treebank
from attnviz.grammar.gap import choices
from attnviz.grammar.mentions import run_mentions
from attnviz.grammar.names import run_names
from attnviz.grammar.settings import CorefSettings
from attnviz.looking import DEFAULT_MODEL, Model, load, loader
from attnviz.models.identity import identity
from attnviz.notebook import Pictured, Tabular, picture_format, printed


class Coref(Pictured, Tabular, CorefReport):
    """A report as :func:`coref` returns it: it prints, draws and saves itself."""

    def to_records(self) -> list[dict[str, Any]]:
        """A row for each kind of example and head, those that are right most often first."""
        from attnviz.render.grammar.tables import coref_rows

        return coref_rows(self)

    def __str__(self) -> str:
        """The grid and the tables, as the command line prints them, without colours."""
        from attnviz.render.grammar.printed import coref_parts

        return printed(*coref_parts(self))

    def figure(self, format: str = "png") -> bytes:
        """The best heads beside the baselines, and the grid, in ``png``, ``svg`` or ``pdf``."""
        from attnviz.render.grammar.coref_figure import coref_figure

        return coref_figure(self, format)

    def save(self, path: str | Path) -> Path:
        """Write it as .json, or draw it as .png, .svg or .pdf."""
        from attnviz.render.grammar.tables import annotated_json

        path = Path(path)
        as_json = path.suffix.lower() == ".json"
        drawn = None if as_json else self.figure(picture_format(path))
        files.write(path, annotated_json(self).encode() if drawn is None else drawn)
        return path

    def _repr_png_(self) -> bytes:
        return self.figure()

    def __repr__(self) -> str:
        return (
            f"<Coref {self.source.model}, {self.examples} examples: {len(self.roles)} of "
            f"{len(self.layout)} heads find the antecedent>"
        )


def coref(
    inputs: str | Path | Sequence[str | Path],
    *,
    model: Model = DEFAULT_MODEL,
    device: str = "auto",
    dtype: str = "auto",
    progress: Progress = lambda stage, done, all_: None,
    **options: Any,
) -> Coref:
    """Compare where every head looks with what pronouns and other mentions refer to.

    Args:
        inputs: tables with the columns of GAP (Webster et al. 2018), or CoNLL-U files with the
            Entity annotation of CorefUD, or patterns.
        model: see :func:`attnviz.load`, as for ``device`` and ``dtype``.
        device: where to run.
        dtype: in which precision.
        progress: called again and again with a stage, how much is done and how much there is.
        options: fields of :class:`~attnviz.grammar.settings.CorefSettings`: ``select_on``,
            ``candidates``, ``window``, ``strict``, ``jobs``, ``ray``.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`.
    """
    known = CorefSettings.__dataclass_fields__
    unknown = [name for name in options if name not in known]
    if unknown:
        raise UsageError(f"unknown option {unknown[0]!r}; there are {', '.join(known)}")
    settings = CorefSettings(**options)
    settings.check()
    names = [str(one) for one in ([inputs] if isinstance(inputs, str | Path) else inputs)]
    if is_treebank(names):
        found, bad = documents(names, strict=settings.strict)
        source = load(model, device=device, dtype=dtype)
        again = loader(model, source, device=device, dtype=dtype)
        report = run_mentions(
            source, found, settings, skipped=_broken(bad), load=again, progress=progress
        )
    else:
        pairs, neither, bad = choices(names, strict=settings.strict)
        source = load(model, device=device, dtype=dtype)
        again = loader(model, source, device=device, dtype=dtype)
        skipped = {
            "rows that cannot be used": len(bad),
            "neither name or both are the antecedent": neither,
        }
        report = run_names(source, pairs, settings, skipped=skipped, load=again, progress=progress)
    return Coref(**vars(replace(report, identity=identity(model))))


def _broken(bad: Sequence[Bad]) -> dict[str, int]:
    """How much of a treebank cannot be used; the first of it is named."""
    if not bad:
        return {}
    return {f"sentences or documents that cannot be used, first {bad[0].place}": len(bad)}
