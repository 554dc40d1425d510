"""From a treebank to a report: which heads follow which relations.

Clark et al. 2019 (arXiv:1906.04341), with the offsets and the ten points of Voita et al. 2019
(arXiv:1905.09418).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnviz.annotated import DIRECTIONS, Best, Relation, SyntacticRole, SyntaxReport
from attnviz.corpus.batches import batches, tokenize
from attnviz.corpus.executors import Lost
from attnviz.corpus.running import executor
from attnviz.corpus.texts import Bad, Text
from attnviz.errors import AttnvizError, InputError, Setting, UsageError
from attnviz.grammar.pointing import present
from attnviz.grammar.tally import ALL, Table, Tally
from attnviz.grammar.treebank import PUNCTUATION, Sentence, stripped
from attnviz.grammar.work import Gold, Task, Work
from attnviz.passes import Source
from attnviz.records import Inputs, Layout, Prompt
from attnviz.statistics.clusters import FEW

Progress = Callable[[str, int, int], None]
"""Called with the stage, how many sentences are done and how many there are."""

Loader = Callable[[], Source]
Bools = NDArray[np.bool_]

HALVES, EVERYTHING = "halves", "all"
TEN_POINTS = 0.1
"""What a syntactic head has over the best offset (Voita et al. 2019)."""
BATCH_TOKENS = 4096
"""Tokens of a padded batch."""


@dataclass(frozen=True)
class SyntaxSettings:
    """How heads are compared with a treebank.

    Attributes:
        subtypes: take ``nmod:poss`` for a relation of its own.
        punct: count punctuation's dependencies.
        select_on: ``halves`` chooses heads and offsets on even documents and measures them on odd
            ones; ``all`` does both on everything, as Clark et al. do.
        strict: a sentence that cannot be used ends the run.
        jobs: processes.
        ray: where Ray is, see :class:`~attnviz.corpus.on_ray.OnRay`; None for without.
    """

    subtypes: bool = False
    punct: bool = True
    select_on: str = HALVES
    strict: bool = False
    jobs: int = 1
    ray: str | None = None

    def check(self) -> None:
        """Raise UsageError for a value that there is not."""
        if self.select_on not in (HALVES, EVERYTHING):
            raise UsageError(
                "{} is not known; take halves or all", Setting("select_on", self.select_on)
            )
        if self.jobs < 1:
            raise UsageError("{} is too few; take at least 1", Setting("jobs", self.jobs))


def run(
    source: Source,
    sentences: Sequence[Sentence],
    settings: SyntaxSettings,
    *,
    bad: Sequence[Bad] = (),
    load: Loader | None = None,
    progress: Progress = lambda stage, done, all_: None,
) -> SyntaxReport:
    """Measure every head, relation and direction.

    Args:
        source: the model.
        sentences: the treebank.
        settings: how.
        bad: what in the treebank cannot be used.
        load: loads the model in another process; None for a model that only this one has.
        progress: called again and again.

    Raises:
        UsageError: a model with two stacks; options that there are not.
        InputError: no sentence that the model can take.
    """
    settings.check()
    check_single(source)
    study = _Study(source, sentences, settings)
    tally = Tally()
    with executor(Work, source, load, settings.jobs, settings.ray) as running:
        for task, answer in running.run(study.tasks(tally)):
            if isinstance(answer, Lost):
                raise AttnvizError("a batch of sentences cannot be run: {}", answer.reason)
            tally.add_hits(answer)
            study.done += len(task.batch)
            progress("sentences", study.done, len(sentences))
    if not tally.cases:
        raise InputError(
            "no dependency is left to measure: the treebank has none but roots, or no sentence is "
            "short enough for the model"
        )
    return _report(study, tally, len(bad))


def check_single(source: Source) -> None:
    """Refuse models whose attention is not of one text alone."""
    if len(source.layout.kinds) > 1:
        raise UsageError(
            "{} has an encoder and a decoder; annotated text needs a {model} with a single stack",
            source.info.model,
            model=...,
        )
    source.prepare(Prompt("a", spans=((0, 1),)))  # raises where a model takes no words as given


@dataclass
class _Study:
    """What is run, and what has been run of it."""

    source: Source
    sentences: Sequence[Sentence]
    settings: SyntaxSettings
    done: int = 0
    refused: int = 0
    words: int = 0
    untokenized: int = 0

    def __post_init__(self) -> None:
        marked = len({sentence.document for sentence in self.sentences}) > 1
        self._documents = {
            sentence.number: sentence.document if marked else place
            for place, sentence in enumerate(self.sentences, start=1)
        }  # a single document is taken sentence by sentence
        self.unit = "sentences"
        if len(set(self._documents.values())) < len(self.sentences):
            self.unit = "documents"

    def tasks(self, tally: Tally) -> Iterator[Task]:
        """Batches of sentences with their cases, which the tally gets."""
        texts = (Text(s.number, s.place, s.prompt) for s in self.sentences)
        by_number = {s.number: s for s in self.sentences}
        tokenized = tokenize(texts, self.source)
        for found in batches(tokenized, lambda inputs: inputs.length, BATCH_TOKENS):
            if isinstance(found, Bad):
                if self.settings.strict:
                    raise InputError(
                        f"{found.place}: the model cannot take this sentence; it reads at most "
                        f"{self.source.max_tokens} tokens"
                    )
                self.refused += 1
                continue
            gold = []
            for one in found:
                gold.append(self._gold(by_number[one.text.number], one.inputs))
                for name, head, word in zip(*gold[-1].columns, strict=True):
                    tally.add(gold[-1].document, name, int(head - word))
            yield Task(tuple(one.inputs for one in found), tuple(gold))

    def _gold(self, sentence: Sentence, inputs: Inputs) -> Gold:
        """The words of a sentence that have a head, tokens for both, and a wanted relation."""
        there = present(inputs, len(sentence.words))
        self.words += len(sentence.words)
        self.untokenized += int((~there).sum())
        heads = np.array(sentence.heads, np.int64)
        base = [stripped(relation) for relation in sentence.relations]
        spoken = np.array([self.settings.punct or name != PUNCTUATION for name in base])
        words = np.flatnonzero((heads >= 0) & there & there[heads] & spoken)
        names = sentence.relations if self.settings.subtypes else base
        return Gold(
            self._documents[sentence.number], words, heads[words], tuple(names[w] for w in words)
        )


def _report(study: _Study, tally: Tally, unusable: int) -> SyntaxReport:
    settings, unit, layout = study.settings, study.unit, study.source.layout
    tables = tally.tables()
    relations: list[Relation] = []
    roles: list[SyntacticRole] = []
    for name, table in tables.items():
        chosen, measured = _halves(table, settings.select_on)
        relations.append(_relation(name, table, chosen, measured, layout))
        if name != ALL:
            roles += _roles(name, table, chosen, measured, layout)
    everything = settings.select_on == EVERYTHING
    documents = len({document for document, _ in tally.cases})
    skipped = {"unusable": unusable, "refused by the model": study.refused}
    return SyntaxReport(
        source=study.source.info,
        layout=layout,
        sentences=study.done,
        words=study.words,
        documents=documents,
        unit=unit,
        skipped=skipped,
        untokenized=study.untokenized,
        chosen_on=f"all {unit}" if everything else f"even {unit}",
        measured_on=f"all {unit}" if everything else f"odd {unit}",
        subtypes=settings.subtypes,
        punct=settings.punct,
        relations=tuple(relations),
        roles=tuple(sorted(roles, key=lambda role: (role.head, -(role.margin.value or 0.0)))),
        notes=tuple(_notes(study, documents, skipped)),
    )


def _halves(table: Table, select_on: str) -> tuple[Bools, Bools]:
    """Which documents are chosen on, and which are measured."""
    if select_on == EVERYTHING:
        everything = np.ones(len(table.documents), np.bool_)
        return everything, everything
    even = table.documents % 2 == 0
    return even, ~even


def _relation(name: str, table: Table, chosen: Bools, measured: Bools, layout: Layout) -> Relation:
    everything = np.ones(len(table.documents), np.bool_)
    count, accuracy = int(table.count.sum()), table.accuracy(everything)
    offset = table.best_offset(everything)
    return Relation(
        name=name,
        count=count,
        offset=int(table.distances[offset]),
        offset_accuracy=int(table.offsets[:, offset].sum()) / count,
        to_head=tuple(accuracy[:, 0].tolist()),
        from_head=tuple(accuracy[:, 1].tolist()),
        best=_best(table, chosen, measured, layout) if table.count[chosen].sum() else None,
    )


def _best(table: Table, chosen: Bools, measured: Bools, layout: Layout) -> Best:
    """The best head and offset of the documents to choose on; their figures from the others."""
    head, direction = divmod(int(table.accuracy(chosen).argmax()), len(DIRECTIONS))
    offset = table.best_offset(chosen)
    hits, offsets = table.hits[:, head, direction], table.offsets[:, offset]
    return Best(
        head=list(layout)[head],
        direction=DIRECTIONS[direction],
        accuracy=table.share(hits, measured),
        count=int(table.count[measured].sum()),
        offset=int(table.distances[offset]),
        offset_accuracy=table.share(offsets, measured).value,
        margin=table.share(hits - offsets, measured),
    )


def _roles(
    name: str, table: Table, chosen: Bools, measured: Bools, layout: Layout
) -> Iterator[SyntacticRole]:
    """Heads that beat the best offset by ten points where it was chosen, and surely elsewhere."""
    total = int(table.count[chosen].sum())
    if not total:
        return
    offset = table.best_offset(chosen)
    offsets = table.offsets[:, offset]
    accuracy = table.accuracy(chosen)
    base = int(offsets[chosen].sum()) / total
    for place, head in enumerate(layout):
        direction = int(accuracy[place].argmax())
        if accuracy[place, direction] - base < TEN_POINTS:
            continue
        hits = table.hits[:, place, direction]
        margin = table.share(hits - offsets, measured)
        if (margin.value or 0.0) >= TEN_POINTS and (margin.low or 0.0) > 0:
            found = table.share(hits, measured)
            count = int(table.count[measured].sum())
            yield SyntacticRole(head, name, DIRECTIONS[direction], found, margin, count)


def _notes(study: _Study, documents: int, skipped: Mapping[str, int]) -> Iterator[str]:
    for why, count in skipped.items():
        if count:
            noun = "sentence was" if count == 1 else "sentences were"
            yield f"{count:,} {noun} left out: {why}."
    if study.untokenized:
        yield (
            f"{study.untokenized:,} words have no token; relations from and to them do not count."
        )
    if study.settings.select_on == EVERYTHING:
        heads = 2 * len(study.source.layout)
        yield (
            f"Head and offset were chosen on the data that their figures are from: the best of "
            f"{heads} flatters (as in Clark et al. 2019)."
        )
    elif documents < 2:
        yield "A single sentence: nothing is held out, so no head has a figure of its own."
    measured = documents if study.settings.select_on == EVERYTHING else (documents + 1) // 2
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
