"""Everything that is asked of a treebank: the heads, and what they are to be held against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from attnviz.core.source import Source
from attnviz.corpus.gold.cases import Loader, Progress, SyntaxSettings
from attnviz.corpus.gold.treebank import Sentence
from attnviz.corpus.texts import Bad
from attnviz.features.syntax.combine import combine
from attnviz.features.syntax.relations import run
from attnviz.features.syntax.result import Syntax, Untrained
from attnviz.features.syntax.sentences import show
from attnviz.features.syntax.trees import grow


def compare(
    source: Source,
    sentences: Sequence[Sentence],
    settings: SyntaxSettings,
    *,
    bad: Sequence[Bad] = (),
    load: Loader | None = None,
    untrained: Loader,
    progress: Progress = lambda stage, done, all_: None,
) -> Syntax:
    """Measure heads one by one, in trees and together, and the same model without training.

    Args:
        source: the model.
        sentences: the treebank.
        settings: what is asked.
        bad: what in the treebank cannot be used.
        load: loads the model in another process; None for a model that only this one has.
        untrained: makes the same model with random weights, in any process.
        progress: called again and again.

    Raises:
        UsageError, InputError: see :func:`~attnviz.features.syntax.relations.run`.
    """
    settings.check()
    drawn = untrained() if settings.random or settings.combine else None
    report = _measured(source, sentences, settings, bad, load, "", progress)
    if drawn is not None and settings.random:
        control = _measured(drawn, sentences, settings, bad, untrained, "untrained ", progress)
        same = Untrained(settings.seed, control.relations, control.roles, control.trees)
        report = replace(report, untrained=(same,))
    if drawn is not None and settings.combine:
        combined = combine(
            source, drawn, sentences, settings, load=load, load_untrained=untrained,
            progress=progress,
        )  # fmt: skip
        report = replace(report, combined=combined)
    if drawn is not None:
        report = replace(report, seed=settings.seed)
    if settings.show:
        report = replace(report, shown=show(source, sentences, settings, report))
    return report


def _measured(
    source: Source,
    sentences: Sequence[Sentence],
    settings: SyntaxSettings,
    bad: Sequence[Bad],
    load: Loader | None,
    stage: str,
    progress: Progress,
) -> Syntax:
    """One model: its heads, and their trees if these are asked for."""

    def told(what: str, done: int, there: int) -> None:
        progress(stage + what, done, there)

    report = run(source, sentences, settings, bad=bad, load=load, progress=told)
    if not settings.trees:
        return report
    return replace(report, trees=grow(source, sentences, settings, load=load, progress=told))
