"""Everything that is asked of a treebank: the heads, and what they are to be held against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from attnviz.annotated import SyntaxReport
from attnviz.corpus.texts import Bad
from attnviz.grammar.cases import Loader, Progress, SyntaxSettings
from attnviz.grammar.syntax import run
from attnviz.grammar.treebank import Sentence
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
    """Measure heads, and the same model without training where that is asked for.

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
    control = untrained() if settings.random else None
    report = run(source, sentences, settings, bad=bad, load=load, progress=progress)
    if control is not None:
        drawn = run(
            control, sentences, settings, bad=bad, load=untrained, stage="untrained",
            progress=progress,
        )  # fmt: skip
        report = replace(report, untrained=drawn)
    return report
