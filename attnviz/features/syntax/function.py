"""``attnviz.syntax``: which heads follow the dependencies of a treebank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from attnviz import files as paths
from attnviz.captures.settings import ModelSettings
from attnviz.core.interface import interface
from attnviz.core.progress import Progress
from attnviz.corpus.gold.settings import SyntaxSettings
from attnviz.corpus.gold.treebank import sentences as read_sentences
from attnviz.features.syntax.compare import compare
from attnviz.features.syntax.result import Syntax


@interface
def syntax(
    files: str | Path | Sequence[str | Path],
    *,
    settings: SyntaxSettings,
    model: ModelSettings,
    progress: Progress | None = None,
) -> Syntax:
    """Compare where every head looks with the dependencies of a treebank (Clark et al. 2019).

    Args:
        files: CoNLL-U files, or patterns.
        progress: called again and again with a stage, how much is done and how much there is.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`.
    """
    sentences, bad = read_sentences(paths.listed(files), strict=settings.strict)
    source = model.load()
    result = compare(
        source,
        sentences,
        settings,
        bad=bad,
        load=model.again(source),
        controls=lambda control: model.loading(untrained=control.seed, scale=control.scale),
        progress=progress or (lambda stage, done, all_: None),
    )
    result.named(settings.relation)
    return replace(result, identity=model.identity)
