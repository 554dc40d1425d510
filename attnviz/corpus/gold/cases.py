"""The cases of a treebank: which dependents, of which document, are to find which head."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from attnviz.core.arguments import check_fields
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.source import Source
from attnviz.corpus.batches import batches, tokenize
from attnviz.corpus.gold.halves import HALVES, Selection
from attnviz.corpus.gold.pointing import present
from attnviz.corpus.gold.tally import HitTally
from attnviz.corpus.gold.treebank import PUNCTUATION, Sentence, stripped
from attnviz.corpus.gold.work import Gold, Task
from attnviz.corpus.texts import Bad, Text
from attnviz.errors import InputError, Setting, UsageError

Loader = Callable[[], Source]

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
        random: measure the same model with weights without anything learned in them as well:
            untrained ones, and the trained ones shuffled.
        seed: of the first of those weights, and ``seeds`` how many there are of each kind.
        seeds: see ``seed``.
        trees: grow every head's undirected spanning tree.
        rooted: grow every head's directed spanning tree from the gold root (Htut et al. 2019).
        combine: train a classifier over all heads, on the model and on such weights.
        show: sentences to be kept with the arcs of ``relation``.
        relation: names with commas between them; ``all`` where there is none.
    """

    subtypes: bool = False
    punct: bool = True
    select_on: Selection = HALVES
    strict: bool = False
    jobs: int = 1
    ray: str | None = None
    random: bool = False
    seed: int = 0
    seeds: int = 3
    trees: bool = False
    rooted: bool = False
    combine: bool = False
    show: int = 0
    relation: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def check(self) -> None:
        """Raise UsageError for a value that there is not."""
        if self.jobs < 1:
            raise UsageError("{} is too few; take at least 1", Setting("jobs", self.jobs))
        if self.seeds < 1:
            raise UsageError("{} is too few; take at least 1", Setting("seeds", self.seeds))
        if self.show < 0:
            raise UsageError("{} is too few; take at least 1", Setting("show", self.show))
        if not 0 <= self.seed < 1 << 63:
            raise UsageError("{} must be from 0 to 2^63 - 1", Setting("seed", self.seed))


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

    def document(self, sentence: Sentence) -> int:
        """The cluster that a sentence belongs to."""
        return self._documents[sentence.number]

    def tasks(self, tally: HitTally, some: Sequence[Sentence] | None = None) -> Iterator[Task]:
        """Batches of sentences, all or some, with their cases, which the tally gets."""
        wanted = self.sentences if some is None else some
        texts = (Text(s.number, s.place, s.prompt) for s in wanted)
        by_number = {s.number: s for s in wanted}
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
            self.document(sentence),
            words,
            heads[words],
            tuple(names[w] for w in words),
            int(np.argmax(heads < 0)),
        )
