"""Whether a user's score can be added up: tried on random rows when it is registered.

A text's rows come in blocks of any number of rows, heads come a few at a time, and keys that no row
of a block may attend to are left out. A score that is used has to give every row the same value in
all of these, a finite one, and leave the weights as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from attnviz.core.arrays import exact
from attnviz.core.heads import SiteKind
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import UsageError
from attnviz.scoring.axes import Axes
from attnviz.scoring.block import Block, Place
from attnviz.scoring.scores import ScoreDef
from attnviz.scoring.totals import Totals

_TEXT = "The keys to the 12 cabinets are on the table , and the keys to the 7 doors are not ."
_WORDS = tuple(_TEXT.split(" "))
_HEADS, _WINDOW = 3, 6
_BLOCKS = (64, 7, 1)
"""Rows of a block: all of them, some, one."""
_NEAR = 1e-5
"""Values of one row that differ by more, relatively, are not the same."""


def check(score: ScoreDef, named: str) -> None:
    """Try a score on random rows."""
    kinds: tuple[SiteKind, ...] = ("cross",) if score.crossed else ("decoder", "encoder", "cross")
    for kind in kinds:
        if kind == "cross" and score.ordered:
            continue
        for window in (None, _WINDOW) if kind == "decoder" else (None,):
            whole, *parts = (_values(score, named, kind, window, step) for step in _BLOCKS)
            for step, part in zip(_BLOCKS[1:], parts, strict=True):
                _check_same(named, whole, part, f"blocks of {step} row{'s' * (step > 1)}")
            alone = _values(score, named, kind, window, _BLOCKS[0], one_head=True)
            _check_same(named, whole, alone, "one head at a time")


def _check_values(score: ScoreDef, named: str, values: Tensor, what: str) -> None:
    """That what counts is finite and in the range of its unit."""
    most = 1.0 if score.unit == "share" else math.inf
    wrong = ~values.isfinite() | (values < -_NEAR) | (values > most + _NEAR)
    if wrong.any():
        bounds = "between 0 and 1" if score.unit == "share" else "finite, and 0 or more"
        raise UsageError(
            f"the {named} gives {float(values[wrong][0]):g} {what}; a score in {score.unit} is "
            f"{bounds} on every row that counts: leave other rows out by rows="
        )


def _check_same(named: str, whole: Tensor, other: Tensor, how: str) -> None:
    """That the rows have the same values however they come."""
    same = (whole - other).abs() <= _NEAR * (1 + whole.abs())
    same |= (whole == other) | (whole.isnan() & other.isnan())
    if same.all():
        return
    head, row = (~same).nonzero()[0].tolist()
    raise UsageError(
        f"the {named} depends on the block that a row comes in: row {row} of head {head} has "
        f"{float(whole[head, row]):.4g} where all rows come at once and "
        f"{float(other[head, row]):.4g} in {how}; find places by block.positions and "
        "block.key_positions, and let a row depend on no other"
    )


def _values(
    score: ScoreDef,
    named: str,
    kind: SiteKind,
    window: int | None,
    step: int,
    *,
    one_head: bool = False,
) -> Tensor:
    """The score of every row, float64 [H, T]; those that count are checked."""
    rows: dict[int, list[Tensor]] = {}
    for block in _blocks(kind, window, step, one_head=one_head):
        before = block.weights.clone()
        assert score.function is not None
        result = score.function(block)
        values, defined = Totals([score], 1, block.weights.shape[1]).add(block)
        if not torch.equal(before, block.weights):
            raise UsageError(f"the {named} changes the weights of its block; let it take a copy")
        _check_values(score, named, values[defined], "for a row")
        expected = block.place.expected
        assert expected is not None
        chances = expected.chances[expected.possible & block.place.countable[:, :, None]]
        _check_values(score, named, chances, "as chance")
        rows.setdefault(block.place.start, []).append(result[0])
    return exact(torch.cat([torch.cat(parts) for _, parts in sorted(rows.items())], 1))


def _blocks(kind: SiteKind, window: int | None, step: int, *, one_head: bool) -> Iterator[Block]:
    """Random attention, as it would come by; always the same."""
    tokens = Tokens(
        tuple(f" {word}" for word in _WORDS),
        tuple(sorted(set(_WORDS)).index(word) + 5 for word in _WORDS),
        special=tuple(place == 0 for place in range(len(_WORDS))),
    )
    length = len(tokens)
    keys = (
        Tokens(tokens.texts[: length - 5], tokens.ids[: length - 5]) if kind == "cross" else tokens
    )
    allowed = torch.ones(length, len(keys), dtype=torch.bool)
    if kind == "decoder":
        allowed = allowed.tril()
    if window is not None:
        allowed &= allowed.triu(1 - window)
    drawn = torch.randn(_HEADS, length, len(keys), generator=torch.Generator().manual_seed(0))
    weights = (2 * drawn).masked_fill(~allowed, -math.inf).softmax(-1)
    axes = Axes([Sides(tokens, keys)], kind, weights)
    groups = [slice(n, n + 1) for n in range(_HEADS)] if one_head else [slice(0, _HEADS)]
    for heads in groups:
        for start in range(0, length, step):
            rows = slice(start, min(start + step, length))
            seen = allowed[rows].any(0).nonzero().flatten()
            columns = slice(int(seen[0]), int(seen[-1]) + 1)
            own = weights[None, heads, rows, columns].clone()
            place = Place(
                axes, slice(0, 1), start, columns.start, allowed[None, None, rows, columns],
                torch.empty(own.numel()),
            )  # fmt: skip
            yield Block(own, place)
