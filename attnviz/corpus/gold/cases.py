"""The cases of a treebank: which dependents, of which document, are to find which head."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.source import Source
from attnviz.core.split import by_field, merge_near_copies, sides
from attnviz.corpus.batches import batches, tokenize
from attnviz.corpus.conllu import Sentence, stripped
from attnviz.corpus.gold.pointing import Pointing, present
from attnviz.corpus.gold.settings import SyntaxSettings
from attnviz.corpus.gold.tally import ALL, Hits, HitTally, Key
from attnviz.corpus.gold.treebank import PUNCTUATION, commented
from attnviz.corpus.texts import InvalidRecord, Text
from attnviz.errors import InputError, UsageError
from attnviz.scoring.passes import observe


@dataclass(frozen=True, eq=False, slots=True)
class Gold:
    """The cases of one sentence."""

    document: int  # from 1
    words: NDArray[np.int64]  # [C], the dependents; ``heads`` [C] theirs, ``names`` their relations
    heads: NDArray[np.int64]  # numbers of words, from 0
    names: tuple[str, ...]  # one for each case
    root: int  # the word that depends on none

    @property
    def columns(self) -> tuple[tuple[str, ...], NDArray[np.int64], NDArray[np.int64]]:
        """Names, heads and words, to go through them case by case."""
        return self.names, self.heads, self.words


@dataclass(frozen=True, eq=False, slots=True)
class Task:
    """A batch of tokenized sentences with their cases."""

    batch: tuple[Inputs, ...]
    gold: tuple[Gold, ...]


def hits_of(source: Source, task: Task) -> Hits:
    """How many cases of each document and relation each head finds, [N, 2]."""
    observer = Pointing(task.batch, source.layout)
    observe(source, task.batch, observer)
    keys: dict[Key, int] = {}
    right, owners = [], []
    for number, gold in enumerate(task.gold):
        pointed = observer.heads(number)[:, :, gold.words]  # [N, 2, C]
        right.append(pointed == gold.heads)
        owners += [keys.setdefault((gold.document, name), len(keys)) for name in gold.names]
    return _added(np.concatenate(right, 2), owners, keys)


def _added(right: NDArray[np.bool_], owners: Sequence[int], keys: Mapping[Key, int]) -> Hits:
    """Hits by document and relation, and by document alone."""
    member = np.zeros((len(owners), len(keys)), np.float32)
    member[np.arange(len(owners)), owners] = 1
    sums = np.rint(right.astype(np.float32) @ member).astype(np.int32)  # [N, 2, K]
    added: dict[Key, NDArray[np.int32]] = {}
    for (document, name), hits in zip(keys, np.moveaxis(sums, 2, 0), strict=True):
        added[document, name] = hits
        whole = added.get((document, ALL))
        added[document, ALL] = hits if whole is None else whole + hits
    return added


Bools = NDArray[np.bool_]
Loader = Callable[[], Source]

BATCH_TOKENS = 4096
"""Tokens of a padded batch."""


def check_single(source: Source) -> None:
    """Refuse models whose attention is not of one text alone."""
    if len(source.layout.kinds) > 1:
        raise UsageError(
            "{} has an encoder and a decoder; annotated text needs a {model} with a single stack",
            source.info.model,
            model=...,
        )
    source.prepare(Prompt("a", words=((0, 1),)))  # raises where a model takes no words as given


@dataclass
class Cases:
    """Sentences as batches with their cases, and what has been run of them.

    Attributes:
        source: the model.
        sentences: the treebank.
        settings: what counts.
        unit: what a cluster is, ``documents`` or ``sentences``.
        done: sentences that were run; ``words`` in them, ``untokenized`` those without a token.
        refused: sentences that the model cannot take.
        words: see ``done``, as for ``untokenized``.
        untokenized: see ``done``.

    What the settings' ``split`` divides is ``sides``; ``split`` is as results name it.
    """

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
        words: dict[int, list[str]] = {}
        for sentence in self.sentences:
            words.setdefault(self.document(sentence), []).extend(sentence.words)
        same = merge_near_copies((number, " ".join(some)) for number, some in words.items())
        self._documents = {number: same[document] for number, document in self._documents.items()}

        def said(field: str) -> Iterator[tuple[int, str]]:
            values = commented(self.sentences, field, self.settings.split)
            return zip(map(self.document, self.sentences), values, strict=True)

        self.split, self.values = by_field(self.settings.split, said)

    def sides(self, documents: Sequence[int] | NDArray[np.integer[Any]]) -> tuple[Bools, Bools]:
        """Which of some clusters are chosen on, and which are measured."""
        return sides(self.split, documents, self.values)

    def document(self, sentence: Sentence) -> int:
        """The cluster that a sentence belongs to; near copies of a document are one."""
        return self._documents[sentence.number]

    def tasks(self, tally: HitTally, some: Sequence[Sentence] | None = None) -> Iterator[Task]:
        """Batches of sentences, all or some, with their cases, which the tally gets."""
        wanted = self.sentences if some is None else some
        texts = (Text(s.number, s.place, s.prompt) for s in wanted)
        by_number = {s.number: s for s in wanted}
        tokenized = tokenize(texts, self.source)
        for batch in batches(tokenized, lambda inputs: inputs.length, BATCH_TOKENS):
            if isinstance(batch, InvalidRecord):
                if self.settings.strict:
                    raise InputError(
                        f"{batch.place}: the model cannot take this sentence; it reads at most "
                        f"{self.source.max_tokens} tokens"
                    )
                self.refused += 1
                continue
            gold = []
            for sentence in batch:
                gold.append(self._gold(by_number[sentence.text.number], sentence.inputs))
                for name, head, word in zip(*gold[-1].columns, strict=True):
                    tally.add(gold[-1].document, name, int(head - word))
            yield Task(tuple(sentence.inputs for sentence in batch), tuple(gold))

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
            self.document(sentence),
            words,
            heads[words],
            tuple(names[w] for w in words),
            int(np.argmax(heads < 0)),
        )
