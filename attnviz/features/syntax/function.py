"""``attnviz.syntax``: which heads follow the dependencies of a treebank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from attnviz import files as paths
from attnviz.captures.loading import light
from attnviz.captures.settings import ModelSettings
from attnviz.core.interface import interface
from attnviz.core.settings import Progress
from attnviz.corpus.conllu import Sentence, stripped
from attnviz.corpus.gold.settings import SyntaxSettings
from attnviz.corpus.gold.treebank import PUNCTUATION
from attnviz.corpus.gold.treebank import sentences as read_sentences
from attnviz.features.syntax.compare import compare
from attnviz.features.syntax.result import Syntax, no_relation


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
    _check_relations(settings, sentences)
    source = light(model.load())
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


def _check_relations(settings: SyntaxSettings, sentences: Sequence[Sentence]) -> None:
    """Raise UsageError for a relation that no word of a treebank has, before anything is run."""
    if settings.relation is None:
        return
    used = Counter(
        name if settings.subtypes else stripped(name)
        for sentence in sentences
        for name, head in zip(sentence.relations, sentence.heads, strict=True)
        if head >= 0 and (settings.punct or stripped(name) != PUNCTUATION)
    )
    for name in map(str.strip, settings.relation.split(",")):
        if name not in used:
            raise no_relation(name, [known for known, _ in used.most_common()])
