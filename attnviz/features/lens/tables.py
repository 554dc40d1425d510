"""A lens as rows: the words of every state, or the words that every head moves."""

from __future__ import annotations

from attnviz.drawing.tables import Row, which_head
from attnviz.features.lens.result import Lens

COLUMNS = (
    "layer", "position", "token", "place", "word", "id", "logit", "probability", "entropy", "kl",
    "followed", "followed_rank", "followed_probability",
)  # fmt: skip


def rows(result: Lens) -> list[Row]:
    """A row for each word of each state; of heads for each word that one raises or lowers."""
    return _of_heads(result) if result.heads else _of_states(result)


def _of_states(result: Lens) -> list[Row]:
    targets = dict(zip(result.positions, result.followed, strict=True))
    return [
        {
            "layer": cell.layer,
            "position": cell.position,
            "token": result.tokens[cell.position],
            "place": place,
            "word": word.token,
            "id": word.id,
            "logit": word.logit,
            "probability": word.probability,
            "entropy": cell.entropy,
            "kl": cell.kl,
            "followed": targets[cell.position],
            "followed_rank": cell.rank,
            "followed_probability": cell.probability,
        }
        for cell in result.cells
        for place, word in enumerate(cell.top, start=1)
    ]


def _of_heads(result: Lens) -> list[Row]:
    return [
        {
            **which_head(result.layout, writes.head),
            "norm": writes.norm,
            "in_text": writes.in_text and writes.in_text.share,
            "in_text_low": writes.in_text and writes.in_text.low,
            "in_text_high": writes.in_text and writes.in_text.high,
            "does": does,
            "place": place,
            "word": word.token,
            "id": word.id,
            "value": word.value,
        }
        for writes in result.heads
        for does, words in (("raises", writes.raises), ("lowers", writes.lowers))
        for place, word in enumerate(words, start=1)
    ]
