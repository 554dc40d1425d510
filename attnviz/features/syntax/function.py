"""``attnviz.syntax``: which heads follow the dependencies of a treebank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
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


@dataclass(frozen=True, eq=False, slots=True)
class _Study:
    """A treebank, what is asked of it, and who is told how far that has come."""

    sentences: Sequence[Sentence]
    bad: Sequence[InvalidRecord]  # what of it cannot be used
    settings: SyntaxSettings
    progress: Progress

    def measured(self, source: Source, load: Loader | None, stage: str = "") -> Syntax:
        """One model: its heads, and their trees if these are asked for."""

        def told(title: str, count: int, total: int) -> None:
            self.progress(stage + title, count, total)

        def trees(method: TreeMethod) -> Trees:
            return grow(source, self.sentences, self.settings, method, load=load, progress=told)

        return replace(
            run(source, self.sentences, self.settings, bad=self.bad, load=load, progress=told),
            trees=trees("undirected") if self.settings.trees else None,
            rooted=trees("rooted") if self.settings.rooted else None,
        )

    def untrained(self, source: Source, control: Control, load: Loader) -> Untrained:
        """Give the figures of a control of a model, which ``load`` loads."""

        def measured(*_: object) -> Untrained:
            report = self.measured(load(), load, f"{control.title}: ")
            figures = (report.relations, report.roles, report.trees, report.rooted)
            return Untrained(control.seed, control.scale, *figures)

        about = (control, self.settings, self.sentences, self.bad)
        pack = as_records(Untrained)
        return Cache(source).recall("syntax with random weights", about, measured, *pack)


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
    settings.check()
    study = _Study(sentences, bad, settings, progress or (lambda stage, count, total: None))
    controls: list[tuple[Control, Loader]] = []
    if settings.control or settings.combine:
        for scale, seed in product(get_args(Scale), settings.seeds):
            control = Control(seed, scale), model.loading(untrained=seed, scale=scale)
            controls.append(control)
        controls[0][1]()  # a model that there is no such thing of is refused before anything is run
    load = model.again(source)
    result = study.measured(source, load)
    if settings.control:
        untrained = tuple(study.untrained(source, *control) for control in controls)
        result = replace(result, untrained=untrained)
    if settings.combine:
        combined = combine(
            source, controls, sentences, settings, load=load, progress=study.progress
        )
        result = replace(result, combined=combined)
    if controls:
        result = replace(result, seed=settings.seed)
    if settings.sentences:
        result = replace(result, shown=show(source, sentences, settings, result))
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
