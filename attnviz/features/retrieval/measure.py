"""Needles through a model: what it answers, what every head copies and attends to meanwhile.

The answer is generated greedily. Where a single pass shows that every token of the answer is the
likeliest after those before it, that is what would be generated, and nothing is generated.

Notation in shapes: H heads of a layer, N heads of the model, K tokens of a needle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnviz.captures.trials import predicted
from attnviz.core import arrays
from attnviz.core.arrays import Floats, Integers
from attnviz.core.heads import Site
from attnviz.core.prompt import Generation, Inputs, Prompt
from attnviz.core.source import ForwardRequest, Rows, Source
from attnviz.features.retrieval.needles import Ids, Needle
from attnviz.features.retrieval.result import RETRIEVED
from attnviz.scoring.observe import observe


@dataclass(frozen=True, slots=True)
class WatchedRows:
    """What is looked at in one prompt."""

    steps: Sequence[int]  # the rows from which a token was generated, in their order
    question: tuple[int, int]  # rows of the question, first and end
    document: tuple[int, int]  # keys of the needle, first and end


@dataclass(frozen=True, eq=False, slots=True)
class SeenRows:
    """What was seen in one prompt."""

    top: Integers  # [N, steps], the key with the largest weight, the first of several
    weight: Floats  # [N, K], mean weight from the rows of the question to each token of the needle
    chance: Floats  # [N], the needle's mean share of the keys that these rows may attend to


class NeedleObserver:
    """An observer of a batch of prompts."""

    def __init__(self, watched: Sequence[WatchedRows]) -> None:
        self._watched = watched
        self._top: dict[tuple[Site, int], Integers] = {}  # [H, steps]
        self._sums: dict[tuple[Site, int], Floats] = {}  # [H, K + 1], the last is chance

    def observe(self, rows: Rows) -> None:
        """Take in one block."""
        for item, watched in enumerate(self._watched):
            self._step(rows, item, watched)
            self._question(rows, item, watched)

    def result(self, item: int) -> SeenRows:
        """Return what was seen in one prompt of the batch."""
        sites = sorted({site for site, _ in self._top})
        top = np.concatenate([self._top[site, item] for site in sites])
        first, end = self._watched[item].question
        weights = np.concatenate([self._sums[site, item] for site in sites]) / max(1, end - first)
        return SeenRows(top, weights[:, :-1], weights[:, -1])

    def _step(self, rows: Rows, item: int, watched: WatchedRows) -> None:
        weights = rows.weights[item]  # [H, r, s]
        count = weights.shape[1]
        strongest = self._top.setdefault(
            (rows.site, item), np.full((len(weights), len(watched.steps)), -1)
        )
        for number, row in enumerate(watched.steps):
            if rows.start <= row < rows.start + count:
                keys = arrays.to_numpy(weights[:, row - rows.start].argmax(-1))
                strongest[:, number] = keys + rows.key_start

    def _question(self, rows: Rows, item: int, watched: WatchedRows) -> None:
        weights = rows.weights[item]
        heads, count, width = weights.shape
        first, end = watched.document
        sums = self._sums.setdefault((rows.site, item), np.zeros((heads, end - first + 1)))
        queries = slice(
            max(watched.question[0] - rows.start, 0), max(watched.question[1] - rows.start, 0)
        )
        left, right = max(first, rows.key_start), min(end, rows.key_start + width)
        if not weights[:, queries].shape[1] or left >= right:
            return
        keys = slice(left - rows.key_start, right - rows.key_start)
        sums[:, left - first : right - first] += arrays.doubles(weights[:, queries, keys]).sum(1)
        if rows.allowed is None:
            sums[:, -1] += weights[:, queries].shape[1] * (right - left) / width
            return
        allowed = rows.allowed[item if len(rows.allowed) > 1 else 0]
        reach = np.broadcast_to(arrays.to_numpy(allowed), (len(allowed), count, width))
        mask = reach[:, queries].astype(np.float64)
        share = mask[..., keys].sum(-1) / mask.sum(-1).clip(1)  # [1 or H, q]
        sums[:, -1] += share.sum(-1)


_AT_ONCE = 16
"""Prompts of a batch at most; ``_TOKENS`` of all of them, ``_LOGITS`` numbers of their logits."""
_TOKENS, _LOGITS = 8192, 1 << 27
_OUTLIER = 2.0
"""Tokens of a needle this many standard deviations below the mean do not count (QRHead)."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What a model wrote."""

    ids: Ids  # of what it generated
    # the share of the answer's tokens among them, each as often as it stands there (ROUGE-1 recall
    # over tokens)
    recall: float

    @property
    def retrieved(self) -> bool:
        """Whether that is more than half of the answer."""
        return self.recall > RETRIEVED


@dataclass(frozen=True, eq=False, slots=True)
class NeedleScores:
    """One needle."""

    answered: Answered | None  # None for a model that generates nothing
    copied: Floats  # [N], see :func:`copied`; ``copied_chance`` for a key that is drawn
    copied_chance: float
    query: Floats | None  # [N], see :func:`calibrated`; None without a question that has no content
    weight: Floats  # [N], weight from the question to the needle; ``weight_chance`` [N]
    weight_chance: Floats


def generates(source: Source) -> bool:
    """Whether a model writes answers."""
    return source.layout.kinds == ("decoder",) and not source.no_logits


def answers(source: Source, needles: Sequence[Needle]) -> Iterator[Answered]:
    """Yield what the model answers to each needle."""
    for batch in batches(source, needles):
        ready = [_forced(source, needle) for needle in batch]
        likeliest = _likeliest(source, batch, ready)
        for needle, ids in zip(batch, likeliest, strict=True):
            copied = ids == needle.wanted
            yield Answered(needle.wanted, 1.0) if copied else _written(source, needle)


def scored(
    source: Source, needles: Sequence[Needle], *, given: bool = False
) -> Iterator[NeedleScores]:
    """Yield the answer and the scores of every head, needle by needle."""
    writes = generates(source)
    for batch in batches(source, needles):
        replies: list[Answered | None] = [None] * len(batch)
        if given and source.layout.kinds == ("decoder",):
            replies = [Answered(needle.wanted, 1.0) for needle in batch]
        elif writes:
            replies = list(answers(source, batch))
        tracks = _seen(source, batch, [() if answer is None else answer.ids for answer in replies])
        empty = _seen(source, batch, None) if batch[0].null else [None] * len(batch)
        for needle, answer, rows, null in zip(batch, replies, tracks, empty, strict=True):
            ids = () if answer is None else answer.ids
            yield NeedleScores(
                answer,
                copied(rows.top, ids, needle),
                copied_chance(ids, needle),
                None if null is None else calibrated(rows.weight, null.weight),
                rows.weight.sum(1),
                rows.chance,
            )


def copied(top: NDArray[np.int64], ids: Ids, needle: Needle) -> Floats:
    """Score which of the answer's tokens each head copies (Wu et al. 2024, arXiv:2404.15574).

    A head copies a token when it is generated while the head's largest weight is on it in the
    needle. A token that is copied twice counts once.

    ``top`` [N, steps], the key with the largest weight when each token was generated; returns [N].
    """
    hits = np.zeros((len(top), len(needle.answer)), np.bool_)
    for n, key in enumerate(needle.answer):
        for step, token in enumerate(ids):
            if token == needle.ids[key]:
                hits[:, n] |= top[:, step] == key
    return hits.mean(1)


def copied_chance(ids: Ids, needle: Needle) -> float:
    """Return the same of a head whose largest weight is, at every step, on a key that is drawn."""
    missed = np.ones(len(needle.answer))
    for n, key in enumerate(needle.answer):
        for step, token in enumerate(ids):
            if token == needle.ids[key]:
                missed[n] *= 1 - 1 / (len(needle.ids) + step)
    return float((1 - missed).mean())


def calibrated(weight: Floats, null: Floats) -> Floats:
    """Weight from a question to a needle, less that from a question without content.

    As QRHead (arXiv:2506.09944) detects heads: token by token, without those more than two standard
    deviations below the needle's mean, summed over the needle.

    ``weight`` [N, K], mean over the question's rows; returns [N].
    """
    excess = weight - null
    spread = excess.std(1, ddof=1) if excess.shape[1] > 1 else np.zeros(len(excess))
    ordinary = excess > (excess.mean(1) - _OUTLIER * spread)[:, None]
    return np.where(ordinary | (spread == 0)[:, None], excess, 0).sum(1)


def batches(source: Source, needles: Sequence[Needle]) -> Iterator[Sequence[Needle]]:
    """Needles in their order, as many at once as there is room for."""
    first = 0
    while first < len(needles):
        longest = max(
            len(needle.ids) + needle.generate for needle in needles[first : first + _AT_ONCE]
        )
        logits = longest * (source.vocab_size or 1)
        size = max(1, min(_AT_ONCE, _TOKENS // longest, _LOGITS // logits))
        yield needles[first : first + size]
        first += size


def _prepared(source: Source, ids: Ids) -> Inputs:
    return source.prepare(Prompt(ids=ids, special_tokens=False))


def _forced(source: Source, needle: Needle) -> Inputs | None:
    """Give the prompt and the answer but its last token; None where more than that is generated."""
    if needle.generate != len(needle.answer):
        return None
    return _prepared(source, (*needle.ids, *needle.wanted[:-1]))


def _likeliest(
    source: Source, batch: Sequence[Needle], ready: Sequence[Inputs | None]
) -> list[Ids | None]:
    """Find the likeliest token in each place of an answer, in one pass; None where too large.

    The LM head runs at the places of the answers alone.
    """
    items = [inputs for inputs in ready if inputs is not None]
    longest = max(len(needle.ids) + needle.generate for needle in batch)
    if len(items) < len(batch) or longest * (source.vocab_size or 1) > _LOGITS:
        return [None] * len(batch)
    places = [range(len(n.ids) - 1, len(n.ids) - 1 + len(n.answer)) for n in batch]
    at = sorted({spot for group in places for spot in group})
    request = ForwardRequest(hidden=False, logits=True, logits_at=tuple(at))
    logits = source.forward(items, request=request).logits
    if logits is None:
        return [None] * len(batch)
    best = logits.argmax(-1).tolist()
    return [tuple(row[at.index(n)] for n in group) for row, group in zip(best, places, strict=True)]


def _written(source: Source, needle: Needle) -> Answered:
    """Return what the model generates."""
    g = Generation(needle.generate)
    tokens = predicted(source.prepare(Prompt(ids=needle.ids, special_tokens=False, generate=g)))
    ids = tokens.ids[len(needle.ids) :]
    shared = Counter(ids) & Counter(needle.wanted)
    return Answered(ids, shared.total() / len(needle.answer))


def _seen(
    source: Source, batch: Sequence[Needle], generated: Sequence[Ids] | None
) -> list[SeenRows]:
    """Judge a pass over the prompts and what was generated; over empty questions for None."""
    watched, items = [], []
    for number, needle in enumerate(batch):
        if generated is None:
            watched.append(WatchedRows((), needle.null_question, needle.document))
            items.append(_prepared(source, needle.null))
            continue
        ids = generated[number]
        steps = range(len(needle.ids) - 1, len(needle.ids) - 1 + len(ids))
        watched.append(WatchedRows(steps, needle.question, needle.document))
        items.append(_prepared(source, (*needle.ids, *ids[:-1])))
    observer = NeedleObserver(watched)
    observe(source, items, observer)
    return [observer.result(number) for number in range(len(batch))]
