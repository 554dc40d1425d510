"""``attnviz.syntax``: which heads follow the dependencies of a treebank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from attnviz import files as paths
from attnviz.captures.loading import light
from attnviz.captures.settings import ModelSettings
from attnviz.core.interface import interface
from attnviz.core.settings import Progress
from attnviz.core.source import Source
from attnviz.corpus.conllu import Sentence, stripped
from attnviz.corpus.gold.cases import PUNCTUATION, Loader
from attnviz.corpus.gold.cases import sentences as read_sentences
from attnviz.corpus.gold.settings import SyntaxSettings
from attnviz.corpus.texts import InvalidRecord
from attnviz.features.syntax.combine import combine
from attnviz.features.syntax.relations import run, show
from attnviz.features.syntax.result import Syntax, Trees, Untrained, no_relation
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
    progress: Progress = lambda stage, count, total: None,
) -> Syntax:
    """Measure heads one by one, in trees and together, and the same model without learning."""
    settings.check()
    measured: Controls = ()
    if settings.control or settings.combine:
        requested = [Control(seed, scale) for scale in get_args(Scale) for seed in settings.seeds]
        measured = [(control, controls(control)) for control in requested]
        measured[0][1]()  # a model that there is no such thing of is refused before anything is run
    report = _measured(source, sentences, settings, bad, load, "", progress)
    if settings.control:
        report = replace(report, untrained=tuple(_without(
            source, measured, sentences, settings, bad, progress
        )))  # fmt: skip
    if settings.combine:
        combined = combine(source, measured, sentences, settings, load=load, progress=progress)
        report = replace(report, combined=combined)
    if measured:
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
    """Yield the figures of every control."""
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

    def told(title: str, count: int, total: int) -> None:
        progress(stage + title, count, total)

    report = run(source, sentences, settings, bad=bad, load=load, progress=told)

    def trees(method: TreeMethod) -> Trees:
        return grow(source, sentences, settings, method, load=load, progress=told)

    return replace(
        report,
        trees=trees("undirected") if settings.trees else None,
        rooted=trees("rooted") if settings.rooted else None,
    )


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
        progress=progress or (lambda stage, count, total: None),
    )
    result.named(settings.relation)
    return replace(result, identity=model.identity)


def _check_relations(settings: SyntaxSettings, sentences: Sequence[Sentence]) -> None:
    """Raise UsageError for a relation that no word of a treebank has, before anything is run."""
    if settings.relation is None:
        return
    counts = Counter(
        name if settings.subtypes else stripped(name)
        for sentence in sentences
        for name, head in zip(sentence.relations, sentence.heads, strict=True)
        if head >= 0 and (settings.punct or stripped(name) != PUNCTUATION)
    )
    for name in map(str.strip, settings.relation.split(",")):
        if name not in counts:
            raise no_relation(name, [label for label, _ in counts.most_common()])
