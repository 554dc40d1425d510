"""A lens as rows: a state and position each, or a head each."""

from __future__ import annotations

from attnviz.drawing.tables import Row
from attnviz.features.lens.result import HeadWrites, Lens, LensCell

COLUMNS = (
    "layer", "position", "token", "top", "probability", "logit", "entropy", "kl",
    "followed", "followed_rank", "followed_probability", "top_all",
)  # fmt: skip


def rows(found: Lens) -> list[Row]:
    """A row for each state and position; where heads were read, for each head."""
    if found.heads:
        return [_head(found, one) for one in found.heads]
    followed = dict(zip(found.positions, found.followed, strict=True))
    return [_cell(found, cell, followed[cell.position]) for cell in found.cells]


def _cell(found: Lens, cell: LensCell, followed: str) -> Row:
    best = cell.top[0]
    every = " ".join(f"{word.token.strip()}:{word.probability:.4g}" for word in cell.top)
    values = (
        cell.layer, cell.position, found.tokens[cell.position], best.token, best.probability,
        best.logit, cell.entropy, cell.kl, followed, cell.rank, cell.probability, every,
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def _head(found: Lens, one: HeadWrites) -> Row:
    share = one.in_text
    return {
        "layer": one.head.layer,
        "head": one.head.index,
        "norm": one.norm,
        "raises": " ".join(f"{word.token.strip()}:{word.value:.4g}" for word in one.raises),
        "lowers": " ".join(f"{word.token.strip()}:{word.value:.4g}" for word in one.lowers),
        "recurring": " ".join(f"{word.token.strip()}:{word.rows:.4g}" for word in one.recurring),
        "in_text": None if share is None else share.share,
        "in_text_low": None if share is None else share.low,
        "in_text_high": None if share is None else share.high,
        "rows": found.rows,
    }
