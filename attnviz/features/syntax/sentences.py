"""Sentences with gold arcs and with those that the best head of each relation predicts.

They are the first ones, of the documents that heads were not chosen on, in which every relation
that was asked for occurs; so they are neither picked for the head nor against it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attnviz.core.source import Source
from attnviz.corpus.conllu import Sentence
from attnviz.corpus.gold.cases import Cases
from attnviz.corpus.gold.pointing import Pointing
from attnviz.corpus.gold.settings import SyntaxSettings
from attnviz.corpus.gold.tally import ALL, HitTally
from attnviz.corpus.gold.work import Task
from attnviz.errors import InputError
from attnviz.features.syntax.parses import Arc, Parse
from attnviz.features.syntax.result import DIRECTIONS, RelationHead, Syntax
from attnviz.scoring.passes import observe


def show(
    source: Source, sentences: Sequence[Sentence], settings: SyntaxSettings, report: Syntax
) -> tuple[Parse, ...]:
    """The first ``settings.sentences`` of them, or as many as there are."""
    asked = report.named(settings.relation or ALL)
    best = {relation.name: relation.best for relation in asked if relation.best is not None}
    if not best:
        names = " and ".join(relation.name for relation in asked)
        raise InputError(
            f"no head was chosen for {names}: {report.chosen_on} have none; name other relations"
        )
    if len(best) > 1:
        best.pop(ALL, None)  # one arc from each word
    parses: list[Parse] = []
    for sentence, task in _held_out(source, sentences, settings):
        if {*task.gold[0].names, ALL}.issuperset(best):
            parses.append(_parse(source, sentence, task, best))
        if len(parses) == settings.sentences:
            break
    if not parses:
        raise InputError(
            f"no sentence of {report.measured_on} has {' and '.join(best)}; name other relations, "
            "or fewer"
        )
    return tuple(parses)


def _held_out(
    source: Source, sentences: Sequence[Sentence], settings: SyntaxSettings
) -> Iterator[tuple[Sentence, Task]]:
    """Sentences that the model can take and that have a case, one by one."""
    cases = Cases(source, sentences, settings)
    for sentence in sentences:
        if cases.sides([cases.document(sentence)])[1][0]:
            for task in cases.tasks(HitTally(), [sentence]):
                if task.gold[0].names:
                    yield sentence, task


def _parse(source: Source, sentence: Sentence, task: Task, best: dict[str, RelationHead]) -> Parse:
    """One sentence, with the arcs of some relations."""
    observer = Pointing(task.batch, source.layout)
    observe(source, task.batch, observer)
    pointed, heads = observer.heads(0), list(source.layout)
    arcs = []
    for name, head, word in zip(*task.gold[0].columns, strict=True):
        asked = ALL if ALL in best else name
        if asked in best:
            chosen = best[asked]
            place = heads.index(chosen.head), DIRECTIONS.index(chosen.direction)
            arcs.append(Arc(name, asked, int(word), int(head), int(pointed[*place, word])))
    return Parse(sentence.name, sentence.words, tuple(arcs))
