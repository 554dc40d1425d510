"""From a treebank to a report: which heads follow which relations.

Clark et al. 2019 (arXiv:1906.04341), with the offsets and the ten points of Voita et al. 2019
(arXiv:1905.09418).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from attnviz.core.heads import Layout
from attnviz.core.result import fingerprint
from attnviz.core.settings import Progress
from attnviz.core.source import Source
from attnviz.core.split import EVERYTHING
from attnviz.corpus.conllu import Sentence
from attnviz.corpus.gold import tally as gold
from attnviz.corpus.gold.cases import Cases, Loader, Pointing, Task, check_single, hits_of
from attnviz.corpus.gold.settings import SyntaxSettings
from attnviz.corpus.running import answered, executor, of_model
from attnviz.corpus.texts import InvalidRecord
from attnviz.errors import InputError
from attnviz.features.syntax import result as records
from attnviz.scoring.observe import observe
from attnviz.statistics.clusters import FEW


def run(
    source: Source,
    sentences: Sequence[Sentence],
    settings: SyntaxSettings,
    *,
    bad: Sequence[InvalidRecord] = (),
    load: Loader | None = None,
    progress: Progress = lambda stage, count, total: None,
) -> records.Syntax:
    """Measure every head, relation and direction."""
    settings.check()
    check_single(source)
    study = Cases(source, sentences, settings)
    tally = gold.HitTally()
    with executor(of_model(hits_of), source, load, settings.jobs, settings.ray) as running:
        for task, answer in answered(running, study.tasks(tally), "a batch of sentences"):
            tally.add_hits(answer)
            study.done += len(task.batch)
            progress("sentences", study.done, len(sentences))
    if not tally.cases:
        raise InputError(
            "no dependency is left to measure: the treebank has none but roots, or no sentence is "
            "short enough for the model"
        )
    return _report(study, tally, len(bad))


def _report(study: Cases, tally: gold.HitTally, unusable: int) -> records.Syntax:
    settings, unit, layout = study.settings, study.unit, study.source.layout
    tables = tally.tables(study.sides)
    candidates: list[tuple[records.RelationHead, float]] = []
    family = 0
    for name, table in tables.items():
        if name != gold.ALL and table.enough():
            candidates += [
                (_held_out(name, table, layout, number, direction), p)
                for number, direction, p in table.candidates()
            ]
            family += len(layout) * len(records.DIRECTIONS)
    questions = family if settings.split == EVERYTHING else len(candidates)
    roles = gold.proven(candidates, questions)
    documents = sorted({document for document, _ in tally.cases})
    skipped = {"unusable": unusable, "refused by the model": study.refused}
    return records.Syntax(
        source=study.source.info,
        layout=layout,
        texts=len(documents),
        corpus=fingerprint((s.words, s.heads, s.relations) for s in study.sentences),
        unit=unit,
        sentences=study.done,
        words=study.words,
        skipped=skipped,
        untokenized=study.untokenized,
        split=study.split,
        subtypes=settings.subtypes,
        punct=settings.punct,
        relations=tuple(_relation(name, table, layout) for name, table in tables.items()),
        roles=tuple(sorted(roles, key=lambda role: (role.head, -(role.margin.value or 0.0)))),
        asked=questions,
        notes=tuple(_notes(study, documents, skipped)),
    )


def _relation(name: str, table: gold.HitTable, layout: Layout) -> records.Relation:
    everything = np.ones(len(table.documents), np.bool_)
    count, accuracy = int(table.count.sum()), table.accuracy(everything)
    offset = table.best_rule(everything)
    best = None
    if table.count[table.chosen].sum():
        cell = int(table.accuracy(table.chosen).argmax())
        best = _held_out(name, table, layout, *divmod(cell, len(records.DIRECTIONS)))
    return records.Relation(
        name=name,
        count=count,
        offset=table.rules[offset],
        offset_accuracy=int(table.ruled[:, offset].sum()) / count,
        heads=tuple(
            records.HeadAccuracy(head, *both)
            for head, both in zip(layout, accuracy.tolist(), strict=True)
        ),
        best=best,
    )


def _held_out(
    name: str, table: gold.HitTable, layout: Layout, number: int, direction: int
) -> records.RelationHead:
    """Return a head, and the best offset of the documents to choose on, where they are measured."""
    lead = table.lead(number, direction)
    return records.RelationHead(list(layout)[number], name, records.DIRECTIONS[direction], *lead)


def _notes(study: Cases, documents: Sequence[int], skipped: Mapping[str, int]) -> Iterator[str]:
    for reason, count in skipped.items():
        if count:
            noun = "sentence was" if count == 1 else "sentences were"
            yield f"{count:,} {noun} left out: {reason}."
    if study.untokenized:
        yield (
            f"{study.untokenized:,} words have no token; relations from and to them do not count."
        )
    if study.settings.split == EVERYTHING:
        heads = 2 * len(study.source.layout)
        yield (
            "Head and offset were chosen on the data that their figures are from: "
            f"picking the best of {heads} overestimates (as in Clark et al. 2019)."
        )
    elif len(documents) < 2:
        yield "A single sentence: nothing is held out, so no head has a figure of its own."
    measured = int(study.sides(documents)[1].sum())
    if measured < 2:
        yield f"Figures are from a single one of the {study.unit}, so there are no intervals."
    elif measured < FEW:
        yield f"Intervals from {measured} {study.unit} cover less than 95 %; use {FEW} or more."
    if study.unit == "sentences":
        yield "No document is marked (newdoc), so every sentence counts as one of its own."
    if "decoder" in study.source.layout.kinds:
        yield (
            "In a causal model no word sees what comes after it: a dependent finds only heads "
            "before it by its row, only heads after it by its column."
        )


def show(
    source: Source, sentences: Sequence[Sentence], settings: SyntaxSettings, report: records.Syntax
) -> tuple[records.Parse, ...]:
    """Return the first ``settings.sentences`` of them, or as many as there are."""
    relations = report.named(settings.relation or gold.ALL)
    best = {relation.name: relation.best for relation in relations if relation.best is not None}
    if not best:
        names = " and ".join(relation.name for relation in relations)
        raise InputError(
            f"no head was chosen for {names}: {report.chosen_on} have none; name other relations"
        )
    if len(best) > 1:
        best.pop(gold.ALL, None)  # one arc from each word
    parses: list[records.Parse] = []
    for sentence, task in _held_out_sentences(source, sentences, settings):
        if {*task.gold[0].names, gold.ALL}.issuperset(best):
            parses.append(_parse(source, sentence, task, best))
        if len(parses) == settings.sentences:
            break
    if not parses:
        raise InputError(
            f"no sentence of {report.measured_on} has {' and '.join(best)}; name other relations, "
            "or fewer"
        )
    return tuple(parses)


def _held_out_sentences(
    source: Source, sentences: Sequence[Sentence], settings: SyntaxSettings
) -> Iterator[tuple[Sentence, Task]]:
    """Sentences that the model can take and that have a case, one by one."""
    cases = Cases(source, sentences, settings)
    for sentence in sentences:
        if cases.sides([cases.document(sentence)])[1][0]:
            for task in cases.tasks(gold.HitTally(), [sentence]):
                if task.gold[0].names:
                    yield sentence, task


def _parse(
    source: Source, sentence: Sentence, task: Task, best: dict[str, records.RelationHead]
) -> records.Parse:
    """One sentence, with the arcs of some relations."""
    observer = Pointing(task.batch)
    observe(source, task.batch, observer)
    pointed, heads = observer.heads(0), list(source.layout)
    arcs = []
    for name, head, word in zip(*task.gold[0].columns, strict=True):
        kind = gold.ALL if gold.ALL in best else name
        if kind in best:
            chosen = best[kind]
            cell = heads.index(chosen.head), records.DIRECTIONS.index(chosen.direction)
            arcs.append(records.Arc(name, kind, int(word), int(head), int(pointed[*cell, word])))
    return records.Parse(sentence.name, sentence.words, tuple(arcs))
