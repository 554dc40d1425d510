"""What the page opens on: one thing that heads of the model do, and a switch where it can be tried.

It is chosen by measurement when the page is made, on the numbers that the page stores; a model that
shows nothing of the kind opens with a plain text.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core import arrays
from attnviz.core.prompt import Prompt
from attnviz.core.source import ForwardRequest
from attnviz.features.live.checked import LessonPasses
from attnviz.features.live.lesson import LessonStep
from attnviz.features.live.seen import LessonPass
from attnviz.models.native.source import Native
from attnviz.scoring.observe import Recorder

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
    """What heads do at one place of a text.

    Attributes:
        text: what the model reads.
        at: the place.
        answer: the id of the word that is predicted there, or None of models that predict none.
        looks: in causal models two heads in a row that find the word (Olsson et al. 2022,
            arXiv:2209.11895), the upper one first; of a mask the one head that matters; where no
            word is predicted those that look at the token before and at the one behind.
        switch: the head that goes off, or None.
    """

    text: str
    at: int
    answer: int | None
    looks: tuple[Arc, ...]
    switch: str | None


def opening(source: Native, text: str | None = None) -> Opening | None:
    """The clearest such thing, if there is one."""
    model = source.portable()
    if model.causal:
        return _repeated(source, text or TEXT)
    mask = model.vocabulary.mask
    if model.words and mask is not None:
        texts = [sentence.format(model.vocabulary.texts[mask]) for sentence in MASKED]
        openings = [_filled(source, each, mask) for each in ([text] if text else texts)]
        return max(filter(None, openings), key=lambda pair: pair[0], default=(0.0, None))[1]
    sides = [_beside(source, each) for each in ([text] if text else PLAIN)]
    return max(filter(None, sides), key=lambda pair: pair[0], default=(0.0, None))[1]


def _repeated(source: Native, text: str) -> Opening | None:
    """A word that two heads in a row find.

    Of the heads that look from an earlier place of the predicted word to the token before it, the
    one with the largest weight is switched off; the reader is the head above it that thereby looks
    away most.
    """
    passes = LessonPasses(source)
    plain = passes.of(LessonStep("", text, "0.0"))
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
    ablated = passes.of(LessonStep("", text, writer, off=(writer,)))
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
    """What the last token's weight on a key loses."""
    return plain.w(head, -1, key) - ablated.w(head, -1, key)


def _filled(source: Native, text: str, mask: int) -> tuple[float, Opening] | None:
    """The word at a mask, and the head that looks at one token from there and matters most.

    With it, how much of the word's probability goes without that head.
    """
    inputs = source.prepare(Prompt(text))
    (sides,) = inputs.sides.values()
    if mask not in sides.queries.ids:
        return None
    at = sides.queries.ids.index(mask)
    recorder = Recorder([inputs])

    def shares(*off: str) -> NDArray[np.floating[Any]]:
        with source.gated(dict.fromkeys(off, 0.0)):
            asked = ForwardRequest(logits=True)
            logits = source.forward([inputs], [] if off else [recorder], asked).logits
        assert logits is not None
        probabilities: NDArray[np.floating[Any]] = arrays.to_numpy(
            arrays.of(logits).softmax(logits[0, at], None)
        )
        return probabilities

    plain = shares()
    answer = int(plain.argmax())
    rows = np.stack(list(recorder.maps().values()))[:, :, at]
    keys = rows.argmax(-1)
    looks = [
        Arc(f"{layer}.{head}", at, int(keys[layer, head]))
        for layer, head in zip(*np.nonzero(rows.max(-1) >= SURE), strict=True)
        if keys[layer, head] != at and not sides.queries.special[keys[layer, head]]
    ]
    falls = [(float(plain[answer] - shares(arc.head)[answer]), arc) for arc in looks]
    fall, arc = max(falls, key=lambda pair: pair[0], default=(0.0, None))
    if arc is None or plain[answer] < SURE or fall < SURE * plain[answer]:
        return None
    return fall, Opening(text, at, answer, (arc,), arc.head)


def _beside(source: Native, text: str) -> tuple[float, Opening] | None:
    """The heads that look most at the token before and at the one behind, where both do.

    With it, the smaller of the two weights.
    """
    inputs = source.prepare(Prompt(text))
    (sides,) = inputs.sides.values()
    recorder = Recorder([inputs])
    source.forward([inputs], [recorder])
    weights = np.stack(list(recorder.maps().values()))
    inner = np.arange(2, len(sides.queries) - 2)
    if not len(inner):
        return None
    beside = [weights[:, :, inner, inner + step] for step in (-1, 1)]
    heads = [np.unravel_index(some.mean(-1).argmax(), some.shape[:2]) for some in beside]
    both = np.minimum(*(some[head] for some, head in zip(beside, heads, strict=True)))
    at = int(inner[both.argmax()])
    looks = tuple(
        Arc(f"{layer}.{head}", at, at + step)
        for (layer, head), step in zip(heads, (-1, 1), strict=True)
    )
    if min(some[head].mean() for some, head in zip(beside, heads, strict=True)) < SURE:
        return None
    return float(both.max()), Opening(text, at, None, looks, None)
