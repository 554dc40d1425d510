"""Everything that is asked of a treebank: the heads, and what they are to be held against."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import get_args

from attnviz.core.settings import Progress
from attnviz.core.source import Source
from attnviz.corpus.conllu import Sentence
from attnviz.corpus.gold.cases import Loader
from attnviz.corpus.gold.settings import SyntaxSettings
from attnviz.corpus.texts import InvalidRecord
from attnviz.features.syntax.combine import combine
from attnviz.features.syntax.parses import Trees
from attnviz.features.syntax.relations import run
from attnviz.features.syntax.result import Syntax, Untrained
from attnviz.features.syntax.sentences import show
from attnviz.features.syntax.trees import TreeMethod, grow
from attnviz.models.cache import Cache, as_records
from attnviz.models.controls import Control, Scale

Controls = Sequence[tuple[Control, Loader]]
"""The same model with nothing learned in it, and what loads it in any process."""


def compare(
    source: Source,
    sentences: Sequence[Sentence],
    settings: SyntaxSettings,
    *,
    bad: Sequence[InvalidRecord] = (),
    load: Loader | None = None,
    controls: Callable[[Control], Loader],
    progress: Progress = lambda stage, done, all_: None,
) -> Syntax:
    """Measure heads one by one, in trees and together, and the same model without learning."""
    settings.check()
    drawn: Controls = ()
    if settings.control or settings.combine:
        wanted = [Control(seed, scale) for scale in get_args(Scale) for seed in settings.seeds]
        drawn = [(control, controls(control)) for control in wanted]
        drawn[0][1]()  # a model that there is no such thing of is refused before anything is run
    report = _measured(source, sentences, settings, bad, load, "", progress)
    if settings.control:
        report = replace(report, untrained=tuple(_without(
            source, drawn, sentences, settings, bad, progress
        )))  # fmt: skip
    if settings.combine:
        combined = combine(source, drawn, sentences, settings, load=load, progress=progress)
        report = replace(report, combined=combined)
    if drawn:
        report = replace(report, seed=settings.seed)
    if settings.sentences:
        report = replace(report, shown=show(source, sentences, settings, report))
    return report


def _without(
    source: Source,
    controls: Controls,
    sentences: Sequence[Sentence],
    settings: SyntaxSettings,
    bad: Sequence[InvalidRecord],
    progress: Progress,
) -> Iterator[Untrained]:
    """The figures of every control."""
    cache, pack = Cache(source), as_records(Untrained)
    for control, load in controls:

        def untrained(
            control: Control,
            settings: SyntaxSettings,
            sentences: Sequence[Sentence],
            bad: Sequence[InvalidRecord],
            load: Loader = load,
        ) -> Untrained:
            stage = f"{control.title}: "
            measured = _measured(load(), sentences, settings, bad, load, stage, progress)
            return Untrained(
                control.seed,
                control.scale,
                measured.relations,
                measured.roles,
                measured.trees,
                measured.rooted,
            )

        about = (control, settings, sentences, bad)
        yield cache.recall("syntax with random weights", about, untrained, *pack)


def _measured(
    source: Source,
    sentences: Sequence[Sentence],
    settings: SyntaxSettings,
    bad: Sequence[InvalidRecord],
    load: Loader | None,
    stage: str,
    progress: Progress,
) -> Syntax:
    """One model: its heads, and their trees if these are asked for."""

    def told(what: str, done: int, there: int) -> None:
        progress(stage + what, done, there)

    report = run(source, sentences, settings, bad=bad, load=load, progress=told)

    def trees(method: TreeMethod) -> Trees:
        return grow(source, sentences, settings, method, load=load, progress=told)

    return replace(
        report,
        trees=trees("undirected") if settings.trees else None,
        rooted=trees("rooted") if settings.rooted else None,
    )
