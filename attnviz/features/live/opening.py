"""What the page opens on: one thing that heads of the model do, and a switch where it can be tried.

It is chosen by measurement when the page is made, on the numbers that the page stores; a model that
shows nothing of the kind opens with a plain text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.source import ForwardRequest, Rows, Source
from attnviz.corpus.lines import sentences
from attnviz.features.live.lessons import Lesson, LessonPass, Step
from attnviz.models.native.source import Native
from attnviz.scoring.observe import Recorder


def holding(lessons: Iterable[Lesson], source: Native) -> tuple[Lesson, ...]:
    """Those lessons of which every step says what is so."""
    passes = LessonPasses(source)
    return tuple(
        lesson for lesson in lessons if all(step.holds(passes.of(step)) for step in lesson.steps)
    )


class LessonPasses:
    """Runs a model as steps of lessons ask."""

    def __init__(self, source: Native) -> None:
        self._source = source
        portable = source.portable()
        self._texts = portable.vocabulary.texts
        self._root = 1 / portable.scales[0]
        positions = portable.tensors["positions"]

        def level(numbers: Array) -> Array:
            if not np.array_equal(arrays.to_numpy(numbers), positions):
                return numbers
            lib = arrays.of(numbers)
            return lib.copied(lib.xp.broadcast_to(numbers.mean(0), numbers.shape))

        self._level = source.rounded(level)
        self._run = cache(self._pass)

    def of(self, step: Step) -> LessonPass:
        """Return what a step shows once it has been told."""
        plain = self._run(step.text, (), True)
        if not step.off and step.places and step.other is None:
            return plain
        return replace(self._run(step.other or step.text, step.off, step.places), plain=plain)

    def _pass(self, text: str, off: tuple[str, ...], places: bool) -> LessonPass:
        source = self._source if places else self._level
        inputs = source.prepare(Prompt(text))
        recorder = Recorder([inputs])
        with source.gated(dict.fromkeys(off, 0.0)):
            logits = source.forward([inputs], [recorder], ForwardRequest(logits=True)).logits
        assert logits is not None
        (sides,) = inputs.sides.values()
        return LessonPass(
            sides.queries.texts,
            np.stack(list(recorder.maps().values())),
            arrays.to_numpy(arrays.of(logits).softmax(logits[0, -1], None)),
            self._texts,
            self._root,
        )


@dataclass(frozen=True, slots=True)
class RoundingErrors:
    """The largest changes over some texts: what was seen, and no bound on other texts."""

    weight: float  # of an attention weight
    score: float  # of a score, which softmax is taken of
    share: float  # of a probability of the LM head; 0 without one
    texts: int  # how many


class _Blocks:
    """Keeps what goes by: weights, and scores where they are allowed."""

    def __init__(self) -> None:
        self.weights: list[Array] = []
        self.scores: list[Array] = []

    def observe(self, rows: Rows) -> None:
        assert rows.logits is not None
        lib = arrays.of(rows.weights)
        self.weights.append(lib.copied(rows.weights))
        scores = lib.copied(rows.logits)
        if rows.allowed is not None:
            scores = lib.xp.where(rows.allowed, scores, 0)
        self.scores.append(scores)


def moved(source: Source, original: Source, inputs: Inputs) -> RoundingErrors:
    """Return what changes on a text and on the sentences that ship with attnviz."""
    texts = [inputs, *(source.prepare(Prompt(text, truncate=True)) for text in sentences())]
    weight = score = share = 0.0
    for text in texts:
        (stored, p), (exact, q) = (_run(model, text) for model in (source, original))
        weight = max(weight, _farthest(stored.weights, exact.weights))
        score = max(score, _farthest(stored.scores, exact.scores))
        share = max(share, _farthest(p, q))
    return RoundingErrors(weight, score, share, len(texts))


def _run(source: Source, text: Inputs) -> tuple[_Blocks, list[Array]]:
    blocks = _Blocks()
    has_words = not source.no_logits
    request = ForwardRequest(hidden=False, logits=has_words)
    logits = source.forward([text], [blocks], request).logits
    return blocks, [] if logits is None else [arrays.of(logits).softmax(logits, None)]


def _farthest(first: Sequence[Array], second: Sequence[Array]) -> float:
    pairs = zip(first, second, strict=True)
    return max((float(abs(a - b).max()) for a, b in pairs), default=0.0)


TEXT = "the cat river moon stone bread the cat river moon stone"
"""Words in no order, and then all but the last again."""
MASKED = (
    "He {} been here before, and he knew the old house.",
    "He opened the door and closed the {} behind him.",
    "The capital of France is {}.",
)
"""Sentences with a place for the mask."""
PLAIN = (
    "She walked along the bank of the river and opened a bank account",
    "The old clock in the hall has stopped, and nobody knows why.",
)
"""Sentences for models that predict no words."""
SURE = 0.5
"""So much the predicted word has, and so much of their weight heads have where they look; half of
the word's probability goes at least where the head of the switch is off."""


@dataclass(frozen=True, slots=True)
class Arc:
    """A head that looks from one place to another."""

    head: str
    query: int
    key: int


@dataclass(frozen=True, slots=True)
class Opening:
    """What heads do at one place of a text."""

    text: str  # what the model reads
    at: int  # the place
    # the id of the word that is predicted there, or None of models that predict none
    answer: int | None
    # in causal models two heads in a row that find the word (Olsson et al. 2022, arXiv:2209.11895),
    # the upper one first; of a mask the one head that matters; where no word is predicted those
    # that look at the token before and at the one behind.
    looks: tuple[Arc, ...]
    switch: str | None  # the head that goes off, or None


def opening(source: Native, text: str | None = None) -> Opening | None:
    """Return the clearest such thing, if there is one."""
    model = source.portable()
    if model.causal:
        return _repeated(source, text or TEXT)
    mask = model.vocabulary.mask
    if model.words and mask is not None:
        texts = [sentence.format(model.vocabulary.texts[mask]) for sentence in MASKED]
        openings = [_filled(source, line, mask) for line in ([text] if text else texts)]
        return max(filter(None, openings), key=lambda pair: pair[0], default=(0.0, None))[1]
    sides = [_beside(source, line) for line in ([text] if text else PLAIN)]
    return max(filter(None, sides), key=lambda pair: pair[0], default=(0.0, None))[1]


def _repeated(source: Native, text: str) -> Opening | None:
    """Return a word that two heads in a row find.

    Of the heads that look from an earlier place of the predicted word to the token before it, the
    one with the largest weight is switched off; the reader is the head above it that thereby looks
    away most.
    """
    passes = LessonPasses(source)
    plain = passes.of(Step("", text, "0.0"))
    answer = int(plain.shares.argmax())
    (sides,) = source.prepare(Prompt(text)).sides.values()
    ids = sides.queries.ids
    layers, heads = plain.weights.shape[:2]
    pairs = [
        (plain.weights[layer, head, key, key - 1], layer, head, key)
        for key in range(2, len(plain.tokens) - 1)
        for layer, head in product(range(layers - 1), range(heads))
        if ids[key] == answer
    ]
    if not pairs or plain.shares[answer] < SURE:
        return None
    weight, layer, head, key = max(pairs)
    writer = f"{layer}.{head}"
    ablated = passes.of(Step("", text, writer, off=(writer,)))
    reader = max(
        (f"{above}.{number}" for above, number in product(range(layer + 1, layers), range(heads))),
        key=lambda name: _fall(name, key, plain, ablated),
    )
    sure = (
        weight >= SURE
        and plain.w(reader, -1, key) >= SURE
        and _fall(reader, key, plain, ablated) >= SURE * plain.w(reader, -1, key)
        and ablated.shares[answer] <= SURE * plain.shares[answer]
    )
    last = len(ids) - 1
    looks = (Arc(reader, last, key), Arc(writer, key, key - 1))
    return Opening(text, last, answer, looks, writer) if sure else None


def _fall(head: str, key: int, plain: LessonPass, ablated: LessonPass) -> float:
    """Return what the last token's weight on a key loses."""
    return plain.w(head, -1, key) - ablated.w(head, -1, key)


def _filled(source: Native, text: str, mask: int) -> tuple[float, Opening] | None:
    """Find the word at a mask, the head that matters most there, and how much goes without it."""
    inputs = source.prepare(Prompt(text))
    (sides,) = inputs.sides.values()
    if mask not in sides.queries.ids:
        return None
    position = sides.queries.ids.index(mask)
    recorder = Recorder([inputs])

    def shares(*off: str) -> NDArray[np.floating[Any]]:
        with source.gated(dict.fromkeys(off, 0.0)):
            request = ForwardRequest(logits=True)
            logits = source.forward([inputs], [] if off else [recorder], request).logits
        assert logits is not None
        return arrays.to_numpy(arrays.of(logits).softmax(logits[0, position], None))

    plain = shares()
    answer = int(plain.argmax())
    rows = np.stack(list(recorder.maps().values()))[:, :, position]
    keys = rows.argmax(-1)
    looks = [
        Arc(f"{layer}.{head}", position, int(keys[layer, head]))
        for layer, head in zip(*np.nonzero(rows.max(-1) >= SURE), strict=True)
        if keys[layer, head] != position and not sides.queries.special[keys[layer, head]]
    ]
    falls = [(float(plain[answer] - shares(arc.head)[answer]), arc) for arc in looks]
    fall, arc = max(falls, key=lambda pair: pair[0], default=(0.0, None))
    if arc is None or plain[answer] < SURE or fall < SURE * plain[answer]:
        return None
    return fall, Opening(text, position, answer, (arc,), arc.head)


def _beside(source: Native, text: str) -> tuple[float, Opening] | None:
    """Find the heads most on the token before and behind, and the smaller of the two weights."""
    inputs = source.prepare(Prompt(text))
    (sides,) = inputs.sides.values()
    recorder = Recorder([inputs])
    source.forward([inputs], [recorder])
    weights = np.stack(list(recorder.maps().values()))
    inner = np.arange(2, len(sides.queries) - 2)
    if not len(inner):
        return None
    beside = [weights[:, :, inner, inner + step] for step in (-1, 1)]
    heads = [np.unravel_index(side.mean(-1).argmax(), side.shape[:2]) for side in beside]
    least = np.minimum(*(side[head] for side, head in zip(beside, heads, strict=True)))
    position = int(inner[least.argmax()])
    looks = tuple(
        Arc(f"{layer}.{head}", position, position + step)
        for (layer, head), step in zip(heads, (-1, 1), strict=True)
    )
    if min(side[head].mean() for side, head in zip(beside, heads, strict=True)) < SURE:
        return None
    return float(least.max()), Opening(text, position, None, looks, None)
