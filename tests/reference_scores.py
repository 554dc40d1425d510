"""The scores of docs/roles.md in float64 NumPy: each target key by its formula."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from attnviz.core.tokens import Sides

Array = NDArray[np.float64]
Result = tuple[float | None, float | None, int]
"""Mean, chance and number of rows."""


class Pair:
    """The facts about one map's tokens that the formulas speak of."""

    def __init__(self, sides: Sides, cross: bool) -> None:
        self.cross = cross
        self.query_names, self.key_names = sides.queries.identity, sides.keys.identity
        self.query_special, self.key_special = sides.queries.special, sides.keys.special
        self.query_separator, self.separator = sides.queries.separators, sides.keys.separators
        self.query_mark = [punctuation(text) for text in sides.queries.texts]
        self.mark = [punctuation(text) for text in sides.keys.texts]
        self.key_names_shown = sides.keys.texts
        self.places = sides.keys.places
        self.space = sides.keys.space

    def sink(self, j: int) -> bool:
        return j == 0 or self.key_special[j]

    def targets(self, name: str, length: int, width: int) -> NDArray[np.bool_]:
        """[T, S], the keys that a score asks for."""
        wanted = TARGETS[name]
        return np.array([[wanted(self, i, j) for j in range(width)] for i in range(length)])


def punctuation(text: str) -> bool:
    text = text.strip()
    if text.startswith("##") and len(text) > 2:
        text = text[2:]
    return text != "" and {unicodedata.category(c)[0] for c in text} == {"P"}


def _previous(p: Pair, i: int, j: int) -> bool:
    return j == i - 1 and not p.sink(j)


def _next(p: Pair, i: int, j: int) -> bool:
    return j == i + 1 and not p.sink(j)


def _self(p: Pair, i: int, j: int) -> bool:
    return j == i and not p.sink(j)


def _local(p: Pair, i: int, j: int) -> bool:
    if p.space == "patches":
        there = len(p.places[i]) == len(p.places[j]) == 2
        return (
            there
            and max(abs(a - b) for a, b in zip(p.places[i], p.places[j], strict=True)) <= 2
            and not p.sink(j)
        )
    return abs(i - j) <= 2 and not p.sink(j)


def _registers(p: Pair, i: int, j: int) -> bool:
    return p.key_names_shown[j].startswith("[REG")


def _first(p: Pair, i: int, j: int) -> bool:
    return j == 0


def _separator(p: Pair, i: int, j: int) -> bool:
    return p.separator[j] and j > 0


def _punctuation(p: Pair, i: int, j: int) -> bool:
    return p.mark[j] and not p.sink(j)


def _duplicate(p: Pair, i: int, j: int) -> bool:
    return j <= i - 2 and not p.sink(j) and p.key_names[j] == p.query_names[i]


def _induction(p: Pair, i: int, j: int) -> bool:
    return 1 <= j <= i - 2 and not p.sink(j) and p.key_names[j - 1] == p.query_names[i]


TARGETS: dict[str, Callable[[Pair, int, int], bool]] = {
    "previous": _previous, "next": _next, "self": _self, "first": _first, "separator": _separator,
    "punctuation": _punctuation, "local": _local, "duplicate": _duplicate,
    "induction": _induction, "registers": _registers,
}  # fmt: skip
SPACES = {
    **{name: {"text", "frames"} for name in ("previous", "next")},
    **{name: {"text"} for name in ("separator", "punctuation", "duplicate", "induction")},
    "registers": {"patches"},
}
ORDERED = {"previous", "next", "self", "local", "duplicate", "induction", "distance"}


def values(name: str, w: Array, keys: Array, p: Pair) -> Array:
    """One score of every row, [H, T, S] -> [H, T], NaN where it is not defined.

    ``keys`` [H, T] is the number of allowed keys.
    """
    length, width = w.shape[1:]
    undefined = np.full(w.shape[:2], np.nan)
    if name.endswith("_no_sink"):
        rest = 1 - w[..., [p.sink(j) for j in range(width)]].sum(-1)
        share = values(name.removesuffix("_no_sink"), w, keys, p)
        return np.where(rest < 0.1, np.nan, share / np.where(rest < 0.1, 1, rest))
    if (name in ORDERED and p.cross) or p.space not in SPACES.get(name, {p.space}):
        return undefined
    if name == "diagonal":
        return diagonal(w, p) if p.cross else undefined
    if name in ("entropy", "entropy_share"):
        bits = -(w * np.log2(np.where(w > 0, w, 1))).sum(-1)
        return bits if name == "entropy" else bits / np.log2(np.maximum(keys, 2))
    if name == "distance" and p.space != "text":
        return placed_distance(w, p)
    if name == "distance":
        return (w * [[abs(i - j) for j in range(width)] for i in range(length)]).sum(-1)
    if name == "top":
        return w.max(-1)
    if name == "gate":  # of no attention without one
        return undefined
    found = (w * p.targets(name, length, width)).sum(-1)
    for i in range(length):
        near_start = name == "first" and i < 2 and not p.cross
        own_separator = name == "separator" and p.query_separator[i]
        own_mark = name == "punctuation" and p.query_mark[i]
        if near_start or own_separator or own_mark:
            found[:, i] = np.nan
    return found


def placed_distance(w: Array, p: Pair) -> Array:
    """Mean distance to the keys that have a place, [H, T]; 0 where no such key got weight."""
    found = np.full(w.shape[:2], np.nan)
    keys = [j for j, place in enumerate(p.places) if place]
    for h, i in np.ndindex(found.shape):
        there = math.fsum(w[h, i, j] for j in keys)
        if p.places[i]:
            far = math.fsum(w[h, i, j] * math.dist(p.places[i], p.places[j]) for j in keys)
            found[h, i] = far / there if there else 0.0
    return found


def diagonal(w: Array, p: Pair) -> Array:
    """Kendall's way to count, [H, T]: pairs of a row's keys and those of all rows before it."""
    heads, length, width = w.shape
    found = np.full((heads, length), np.nan)
    free = [j for j in range(width) if not p.sink(j)]
    for h in range(heads):
        before: list[tuple[Array, float]] = []
        for i in range(length):
            if p.query_special[i]:
                continue
            first = not any(not p.query_special[k] for k in range(i))
            rest = 1 - w[h, i, [j for j in range(width) if p.sink(j)]].sum()
            if rest < 0.1 or not w[h, i].any():  # a row without keys draws none
                continue
            own = w[h, i, free] / rest
            later = [
                sum(
                    own[a] * old[b] * ((a > b) + (a == b) / 2)
                    for a in range(len(free))
                    for b in range(len(free))
                )
                for old, _ in before
            ]
            if not first:
                found[h, i] = np.mean(later) if later else 0.5
            before.append((own, 1.0))
    return found


def sink(
    weights: Array, mask: NDArray[np.bool_], head: int
) -> tuple[int, list[float], list[float]]:
    """Where one head's sink is; weights on it, and what is uniform there, row by row."""
    columns = [math.fsum(column) for column in weights[head].T]
    place = next(j for j, one in enumerate(columns) if one >= max(columns) * (1 - 1e-6))
    if not columns[place]:
        return -1, [], []
    own = mask[head % len(mask)]
    rows = [i for i in range(len(own)) if own[i, place]]
    chances = [1 / own[i].sum() for i in rows]
    return place, [float(weights[head, i, place]) for i in rows], chances


def score(
    name: str, maps: Sequence[Array], allowed: Sequence[NDArray[np.bool_]], sides: Sequence[Sides],
    cross: bool = False,
) -> list[Result]:  # fmt: skip
    """Mean, chance and rows of every head, all items pooled: maps [H, T, S], allowed as well."""
    means: list[list[float]] = [[] for _ in maps[0]]
    chances: list[list[float]] = [[] for _ in maps[0]]
    for weights, mask, side in zip(maps, allowed, sides, strict=True):
        if name == "sink":
            for head in range(len(weights)):
                _, own, uniform = sink(weights, mask, head)
                means[head] += own
                chances[head] += uniform
            continue
        found, chance, counts = rows(name, weights, mask, Pair(side, cross))
        for head, own in enumerate(counts):
            means[head] += list(found[head, own])
            chances[head] += list(chance[head % len(chance), own])
    return [
        (math.fsum(m) / len(m), math.fsum(c) / len(c), len(m)) if m else (None, None, 0)
        for m, c in zip(means, chances, strict=True)
    ]


def rows(
    name: str, weights: Array, mask: NDArray[np.bool_], pair: Pair
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Values, chances and which rows count, [H, T] each, of one item."""
    keys = mask.sum(-1)
    found = values(name, weights, keys, pair)
    chance = values(name, mask / np.maximum(keys, 1)[..., None], keys, pair)
    if name == "diagonal":  # rows that attend alike
        chance = np.where(np.isnan(chance), np.nan, 0.5)
    counts = (keys >= 2) & weights.any(-1) & ~np.array(pair.query_special)
    counts &= ~np.isnan(found) & ~np.isnan(chance)
    if name.removesuffix("_no_sink") in TARGETS:
        counts &= (np.nan_to_num(chance) > 1e-9) & (np.nan_to_num(chance) < 1 - 1e-9)
    return found, chance, counts


def shares(
    name: str, weights: Array, mask: NDArray[np.bool_], pair: Pair,
    targets: Mapping[str, NDArray[np.bool_]],
) -> dict[str, Array]:  # fmt: skip
    """[H] by target, over the rows of one score, the summed weight on the targets of another."""
    _, _, counts = rows(name, weights, mask, pair)
    left_out = np.zeros(weights.shape[2], np.bool_)
    rest = np.ones(weights.shape[:2])
    if name.endswith("_no_sink"):
        left_out[:] = [pair.sink(j) for j in range(len(left_out))]
        rest = np.where(counts, 1 - weights[..., left_out].sum(-1), 1)
    return {
        other: ((weights * (keys & ~left_out)).sum(-1) / rest * counts).sum(-1)
        for other, keys in targets.items()
    }
