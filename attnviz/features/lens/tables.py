"""A lens as rows: the words of every state, or the words that every head moves."""

from __future__ import annotations

from attnviz.drawing.tables import Row
from attnviz.features.lens.result import Lens

COLUMNS = (
    "layer", "position", "token", "place", "word", "id", "logit", "probability", "entropy", "kl",
    "followed", "followed_rank", "followed_probability",
)  # fmt: skip


def rows(found: Lens) -> list[Row]:
    """A row for each word of each state; of heads for each word that one raises or lowers."""
    return _of_heads(found) if found.heads else _of_states(found)


def _of_states(found: Lens) -> list[Row]:
    followed = dict(zip(found.positions, found.followed, strict=True))
    return [
        {
            "layer": cell.layer,
            "position": cell.position,
            "token": found.tokens[cell.position],
            "place": place,
            "word": word.token,
            "id": word.id,
            "logit": word.logit,
            "probability": word.probability,
            "entropy": cell.entropy,
            "kl": cell.kl,
            "followed": followed[cell.position],
            "followed_rank": cell.rank,
            "followed_probability": cell.probability,
        }
        for cell in found.cells
        for place, word in enumerate(cell.top, start=1)
    ]


def _of_heads(found: Lens) -> list[Row]:
    return [
        {
            "head": found.layout.name(one.head),
            "norm": one.norm,
            "in_text": one.in_text and one.in_text.share,
            "in_text_low": one.in_text and one.in_text.low,
            "in_text_high": one.in_text and one.in_text.high,
            "does": does,
            "place": place,
            "word": word.token,
            "id": word.id,
            "value": word.value,
        }
        for one in found.heads
        for does, words in (("raises", one.raises), ("lowers", one.lowers))
        for place, word in enumerate(words, start=1)
    ]
