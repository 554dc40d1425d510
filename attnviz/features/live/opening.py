"""What the page opens on: a word that the model predicts, the heads that find it, and a switch.

It is chosen by measurement when the page is made, on the numbers that the page stores; a model that
shows nothing of the kind opens with a plain text.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from attnviz.core.prompt import Prompt
from attnviz.features.live.checked import LessonPasses
from attnviz.features.live.lesson import LessonStep
from attnviz.features.live.seen import LessonPass
from attnviz.models.native.source import Native

TEXT = "the cat river moon stone bread the cat river moon stone"
"""Words in no order, and then all but the last again."""
SURE = 0.5
"""So much the predicted word has, and so much of their weight the two heads have where they look;
half of the word's probability goes at least where the head below is off."""


@dataclass(frozen=True, slots=True)
class Opening:
    """A word that two heads in a row find (Olsson et al. 2022, arXiv:2209.11895).

    Attributes:
        text: what the model reads.
        answer: the id of the word that it predicts.
        key: the place where that word stood before.
        reader: the head that looks from the last token to that place.
        writer: the head below it that looks from there to the token before; the switch is its.
    """

    text: str
    answer: int
    key: int
    reader: str
    writer: str


def opening(source: Native, text: str = TEXT) -> Opening | None:
    """The clearest such pair of heads, if there is one.

    Of the heads that look from an earlier place of the predicted word to the token before it, the
    one with the largest weight is switched off; the reader is the head above it that thereby looks
    away most.

    Args:
        source: the model with its numbers as the page stores them.
        text: what it reads.
    """
    if not source.portable().causal:
        return None
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
    return Opening(text, answer, key, reader, writer) if sure else None


def _fall(head: str, key: int, plain: LessonPass, ablated: LessonPass) -> float:
    """What the last token's weight on a key loses."""
    return plain.w(head, -1, key) - ablated.w(head, -1, key)
