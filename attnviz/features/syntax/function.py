"""``attnviz.syntax``: which heads follow the dependencies of a treebank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from attnviz import files
from attnviz.captures.look import DEFAULT_MODEL, Model, load, loader
from attnviz.captures.settings import settings_of
from attnviz.core.progress import Progress
from attnviz.corpus.gold.cases import SyntaxSettings
from attnviz.corpus.gold.treebank import sentences as read_sentences
from attnviz.features.syntax.compare import compare
from attnviz.features.syntax.result import Syntax
from attnviz.models.identity import identity


def syntax(
    treebank: str | Path | Sequence[str | Path],
    *,
    model: Model = DEFAULT_MODEL,
    device: str = "auto",
    dtype: str = "auto",
    progress: Progress | None = None,
    settings: SyntaxSettings | None = None,
    **options: Any,
) -> Syntax:
    """Compare where every head looks with the dependencies of a treebank (Clark et al. 2019).

    Args:
        treebank: CoNLL-U files, or patterns.
        model: see :func:`attnviz.load`, as for ``device`` and ``dtype``.
        device: where to run.
        dtype: in which precision.
        progress: called again and again with a stage, how much is done and how much there is.
        settings: see :class:`~attnviz.corpus.gold.cases.SyntaxSettings`.
        options: its fields, in place of ``settings``: ``punct=False``, ``subtypes=True``,
            ``select_on="all"``, ``random=True``, ``trees=True``, ``combine=True``, ``jobs=4``,
            ``show=3, relation="obj"``, ...

    Raises:
        AttnvizError: see :mod:`attnviz.errors`.
    """
    chosen = settings_of(SyntaxSettings, settings, options)
    sentences, bad = read_sentences(files.listed(treebank), strict=chosen.strict)
    source = load(model, device=device, dtype=dtype)
    report = compare(
        source,
        sentences,
        chosen,
        bad=bad,
        load=loader(model, source, device=device, dtype=dtype),
        controls=lambda control: partial(
            load, model, device=device, dtype=dtype, untrained=control.seed, scale=control.scale
        ),
        progress=progress or (lambda stage, done, all_: None),
    )
    return replace(report, identity=identity(model))
