"""The cases of a treebank: which dependents are to find which head, and where heads point.

Clark et al. 2019 (arXiv:1906.04341): the weight to a word is the sum over its tokens, the weight
from it the mean; tokens outside of every word are dropped, the others are not scaled up. A head
points from a word to the other word with the largest weight, to the first of several. Rows say
where a word looks, columns who looks most at it.

Notation in shapes: B sentences, T tokens, W words, H heads of a layer.

Treebanks: sentences with gold dependencies from any number of CoNLL-U files.

A sentence that cannot be used becomes a :class:`InvalidRecord` with its line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core import arrays
from attnviz.core.arrays import Array, Bools
from attnviz.core.heads import Site
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.source import Rows, Source
from attnviz.core.split import by_field, merge_near_copies, sides
from attnviz.corpus import conllu
from attnviz.corpus.conllu import Sentence, stripped
from attnviz.corpus.gold.settings import SyntaxSettings
from attnviz.corpus.gold.tally import ALL, Hits, HitTally, Key
from attnviz.corpus.lines import Problem, shown
from attnviz.corpus.texts import InvalidRecord, Text, batches, resolve, separated, tokenize
from attnviz.errors import InputError, UsageError
from attnviz.files import listed
from attnviz.scoring.observe import observe

PUNCTUATION = "punct"
LOOKS = (
    "a CoNLL-U file has ten columns separated by tabs, one word per line and an empty "
    "line after each sentence (https://universaldependencies.org/format.html)"
)


def commented(sentences: Sequence[Sentence], name: str, split: str) -> Iterator[str]:
    """Yield what the comment of a name says of every sentence, or of one before in its document."""
    document, value = 0, None
    for sentence in sentences:
        if sentence.document != document:
            document, value = sentence.document, None
        value = sentence.comment(name) or value
        if value is None:
            raise InputError(
                "{} has no comment {!r} for {split}, nor has a sentence before it in its document; "
                "write # {} = ... there", sentence.place, name, name, split=split,
            )  # fmt: skip
        yield value


def read(names: Sequence[str]) -> Iterator[Sentence | InvalidRecord]:
    """Every sentence of some files, in order."""
    number = document = 0
    for name in resolve(names):
        read, begun = number, document
        for index, line, sentence in conllu.sentences(name):
            number = read + index
            if isinstance(sentence, Problem):
                yield InvalidRecord(number, f"{shown(name)}:{line}", sentence)
            else:
                document = begun + sentence.document
                yield replace(sentence, number=number, document=document)


def sentences(names: Sequence[str], *, strict: bool) -> tuple[list[Sentence], list[InvalidRecord]]:
    """All of a treebank, and what in it cannot be used."""
    good, bad = separated(read(names), strict=strict)
    if not good:
        reason = f"{bad[0].place}: {bad[0].reason}; " if bad else "no sentence in it; "
        raise InputError(f"{', '.join(names)} has nothing usable: {reason}{LOOKS}")
    return good, bad


COREF = "coref="
"""Stands before a treebank whose entities are meant, not its dependencies."""

_TABLES = (".tsv", ".csv", ".txt")  # suffixes of tables of pronouns; other files are treebanks


def split_gold(gold: str | Path | Sequence[str | Path] | None) -> tuple[list[str], list[str]]:
    """Return the files for syntax, and those for coref: tables of pronouns, and ``coref=FILE``."""
    treebanks: list[str] = []
    antecedents: list[str] = []
    for name in listed(gold):
        if name.startswith(COREF):
            antecedents.append(name.removeprefix(COREF))
        elif Path(name).suffix.lower() in _TABLES:
            antecedents.append(name)
        else:
            treebanks.append(name)
    return treebanks, antecedents


Kept = NDArray[Any] | Sequence[NDArray[Any]]
"""What is kept of a layer for every sentence of a batch, [H, ...] each."""


class WordMaps:
    """An observer that keeps of every layer, as soon as it is complete, what :meth:`of` makes.

    Attributes:
        width: W, words of the longest sentence.
    """

    def __init__(self, batch: Sequence[Inputs]) -> None:
        sides = [inputs.tokens for inputs in batch]
        self._length = max(map(len, sides))
        self.width = max(max(tokens.words, default=-1) for tokens in sides) + 1
        member = np.zeros((len(sides), self._length, self.width))
        for number, tokens in enumerate(sides):
            for token, word in enumerate(tokens.words):
                if word >= 0:
                    member[number, token, word] = 1
        share = member / member.sum(1, keepdims=True).clip(1)
        self._member = arrays.array(member[:, None])  # [B, 1, T, W]
        self._share = arrays.array(share.swapaxes(1, 2)[:, None])  # [B, 1, W, T]
        self._sums: dict[Site, Array] = {}
        self._kept: dict[Site, Kept] = {}

    def observe(self, rows: Rows) -> None:
        """Take in one block."""
        maps = self.add(rows)
        if maps is not None:
            self._kept[rows.site] = self.of(maps)

    def of(self, maps: Array) -> Kept:
        """Take of weights from word to word [B, H, W, W] what is kept: [H, ...] by sentence."""
        return arrays.to_numpy(maps)

    def heads(self, item: int) -> NDArray[Any]:
        """[N, ...], what is kept of one sentence."""
        return np.concatenate([self._kept[site][item] for site in sorted(self._kept)])

    def add(self, rows: Rows) -> Array | None:
        """Take in a block; [B, H, W, W] in float64 with the layer's last one, else None."""
        _, _, count, width = rows.weights.shape
        weights = arrays.exact(rows.weights)
        self._member = arrays.converted(self._member, weights)
        self._share = arrays.converted(self._share, weights)
        keys = slice(rows.key_start, rows.key_start + width)
        queries = slice(rows.start, rows.start + count)
        to_words = weights @ self._member[:, :, keys]
        maps = self._share[..., queries] @ to_words
        sums = self._sums.pop(rows.site, None)
        maps = maps if sums is None else arrays.converted(sums, maps) + maps
        if queries.stop < self._length:
            self._sums[rows.site] = maps
            return None
        return maps


class Pointing(WordMaps):
    """Keeps where every head points, [N, 2, W] for each sentence: by row and by column.

    ``candidates`` [W, W] for each sentence, whether a head may point from the first word to the
    second; by default to every other word that has a token.
    """

    def __init__(
        self, batch: Sequence[Inputs], candidates: Sequence[NDArray[np.bool_]] | None = None
    ) -> None:
        super().__init__(batch)
        in_text = np.stack([present(inputs, self.width) for inputs in batch])
        width = self.width
        eligible = in_text[:, :, None] & in_text[:, None, :] & ~np.eye(width, dtype=np.bool_)
        for number, choices in enumerate(candidates or ()):
            allowed = choices[:width, :width]
            eligible[number, : len(allowed), : len(allowed)] &= allowed
        self._eligible = arrays.array(eligible[:, None])
        self._alike = candidates is None  # whether both directions have the same candidates

    def of(self, maps: Array) -> NDArray[np.int64]:
        """[B, H, 2, W], the word that each head points to from each word."""
        xp = arrays.of(maps).xp
        self._eligible = eligible = arrays.converted(self._eligible, maps)
        ahead = xp.where(eligible, maps, -1.0)
        behind = ahead if self._alike else xp.where(eligible.swapaxes(2, 3), maps, -1.0)
        return arrays.to_numpy(xp.stack([ahead.argmax(3), behind.argmax(2)], 2))


def present(inputs: Inputs, words: int) -> NDArray[np.bool_]:
    """Which of a sentence's words have a token at all."""
    in_text = np.zeros(words, np.bool_)
    in_text[[word for word in inputs.tokens.words if word >= 0]] = True
    return in_text


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
    observer = Pointing(task.batch)
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
        total = added.get((document, ALL))
        added[document, ALL] = hits if total is None else total + hits
    return added


Loader = Callable[[], Source]

BATCH_TOKENS = 4096
"""Tokens of a padded batch."""


def in_batches(
    source: Source, items: Sequence[Any]
) -> Iterator[list[tuple[Any, Inputs]] | InvalidRecord]:
    """Tokenize what has a number, a place and a prompt, in batches; what cannot be, by itself."""
    by_number = {item.number: item for item in items}
    texts = (Text(item.number, item.place, item.prompt) for item in items)
    for batch in batches(tokenize(texts, source), attrgetter("length"), BATCH_TOKENS):
        if isinstance(batch, InvalidRecord):
            yield batch
        else:
            yield [(by_number[item.text.number], item.inputs) for item in batch]


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

    ``unit``: what a cluster is, ``documents`` or ``sentences``. What the settings' ``split``
    divides is ``sides``; ``split`` is as results name it.
    """

    source: Source  # the model
    sentences: Sequence[Sentence]  # the treebank
    settings: SyntaxSettings  # what counts
    done: int = 0  # sentences that were run
    refused: int = 0  # sentences that the model cannot take
    words: int = 0  # in those that were run; ``untokenized`` those without a token
    untokenized: int = 0

    def __post_init__(self) -> None:
        marked = len({sentence.document for sentence in self.sentences}) > 1
        self._documents = {
            sentence.number: sentence.document if marked else index
            for index, sentence in enumerate(self.sentences, start=1)
        }  # a single document is taken sentence by sentence
        self.unit = "sentences"
        if len(set(self._documents.values())) < len(self.sentences):
            self.unit = "documents"
        words: dict[int, list[str]] = {}
        for sentence in self.sentences:
            words.setdefault(self.document(sentence), []).extend(sentence.words)
        first = merge_near_copies((number, " ".join(texts)) for number, texts in words.items())
        self._documents = {number: first[document] for number, document in self._documents.items()}

        def said(field: str) -> Iterator[tuple[int, str]]:
            values = commented(self.sentences, field, self.settings.split)
            return zip(map(self.document, self.sentences), values, strict=True)

        self.split, self.values = by_field(self.settings.split, said)

    def sides(self, documents: Sequence[int] | NDArray[np.integer[Any]]) -> tuple[Bools, Bools]:
        """Which of some clusters are chosen on, and which are measured."""
        return sides(self.split, documents, self.values)

    def document(self, sentence: Sentence) -> int:
        """Return the cluster that a sentence belongs to; near copies of a document are one."""
        return self._documents[sentence.number]

    def tasks(self, tally: HitTally, sentences: Sequence[Sentence] | None = None) -> Iterator[Task]:
        """Batches of sentences, all or some, with their cases, which the tally gets."""
        chosen = self.sentences if sentences is None else sentences
        for batch in in_batches(self.source, chosen):
            if isinstance(batch, InvalidRecord):
                if self.settings.strict:
                    raise InputError(
                        f"{batch.place}: the model cannot take this sentence; it reads at most "
                        f"{self.source.max_tokens} tokens"
                    )
                self.refused += 1
                continue
            gold = []
            for sentence, inputs in batch:
                gold.append(self._gold(sentence, inputs))
                for name, head, word in zip(*gold[-1].columns, strict=True):
                    tally.add(gold[-1].document, name, int(head - word))
            yield Task(tuple(inputs for _, inputs in batch), tuple(gold))

    def _gold(self, sentence: Sentence, inputs: Inputs) -> Gold:
        """Give the words of a sentence that have a head, tokens for both, and a wanted relation."""
        tokenized = present(inputs, len(sentence.words))
        self.words += len(sentence.words)
        self.untokenized += int((~tokenized).sum())
        heads = np.array(sentence.heads, np.int64)
        base = [stripped(relation) for relation in sentence.relations]
        spoken = np.array([self.settings.punct or name != PUNCTUATION for name in base])
        words = np.flatnonzero((heads >= 0) & tokenized & tokenized[heads] & spoken)
        names = sentence.relations if self.settings.subtypes else base
        return Gold(
            self.document(sentence),
            words,
            heads[words],
            tuple(names[w] for w in words),
            int(np.argmax(heads < 0)),
        )
