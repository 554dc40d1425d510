"""``attnviz.coref``: which heads find the antecedents of pronouns and other mentions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnviz import files
from attnviz.captures.look import DEFAULT_MODEL, Model, load, loader
from attnviz.core.progress import Progress
from attnviz.corpus.texts import Bad
from attnviz.errors import UsageError
from attnviz.features.coref.entities import documents, is_treebank
from attnviz.features.coref.gap import choices
from attnviz.features.coref.mentions import run_mentions
from attnviz.features.coref.names import run_names
from attnviz.features.coref.result import Coref
from attnviz.features.coref.settings import CorefSettings
from attnviz.models.identity import identity


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
        options: fields of :class:`~attnviz.features.coref.settings.CorefSettings`: ``select_on``,
            ``candidates``, ``window``, ``strict``, ``jobs``, ``ray``.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`.
    """
    known = CorefSettings.__dataclass_fields__
    unknown = [name for name in options if name not in known]
    if unknown:
        raise UsageError(f"unknown option {unknown[0]!r}; choose from {', '.join(known)}")
    settings = CorefSettings(**options)
    settings.check()
    names = files.listed(inputs)
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
    return replace(report, identity=identity(model))


def _broken(bad: Sequence[Bad]) -> dict[str, int]:
    """How much of a treebank cannot be used; the first of it is named."""
    if not bad:
        return {}
    return {f"sentences or documents that cannot be used, first {bad[0].place}": len(bad)}
