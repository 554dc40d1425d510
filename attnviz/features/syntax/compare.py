"""Everything that is asked of a treebank: the heads, and what they are to be held against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from attnviz.annotated import SyntaxReport
from attnviz.corpus.texts import Bad
from attnviz.grammar.cases import Loader, Progress, SyntaxSettings
from attnviz.grammar.combine import combine
from attnviz.grammar.shown import show
from attnviz.grammar.syntax import run
from attnviz.grammar.treebank import Sentence
from attnviz.grammar.trees import grow
from attnviz.passes import Source


def compare(
    source: Source,
    sentences: Sequence[Sentence],
    settings: SyntaxSettings,
    *,
    bad: Sequence[Bad] = (),
    load: Loader | None = None,
    untrained: Loader,
    progress: Progress = lambda stage, done, all_: None,
) -> SyntaxReport:
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
        UsageError, InputError: see :func:`~attnviz.grammar.syntax.run`.
    """
    settings.check()
    drawn = untrained() if settings.random or settings.combine else None
    report = _measured(source, sentences, settings, bad, load, "", progress)
    if drawn is not None and settings.random:
        control = _measured(drawn, sentences, settings, bad, untrained, "untrained ", progress)
        report = replace(report, untrained=control)
    if drawn is not None and settings.combine:
        combined = combine(
            source, drawn, sentences, settings, load=load, load_untrained=untrained,
            progress=progress,
        )  # fmt: skip
        report = replace(report, combined=combined)
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
) -> SyntaxReport:
    """One model: its heads, and their trees if these are asked for."""

    def told(what: str, done: int, there: int) -> None:
        progress(stage + what, done, there)

    report = run(source, sentences, settings, bad=bad, load=load, progress=told)
    if not settings.trees:
        return report
    return replace(report, trees=grow(source, sentences, settings, load=load, progress=told))
