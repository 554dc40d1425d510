"""Which rules say where a head's strongest key is: a small tree, by the bits that it saves.

Naming one of n keys takes log₂ n bits. A rule "the strongest key is a target of r" that holds in a
share p of the rows names it in -log₂ p + log₂(n c) bits where it holds, c being the share of the n
keys that are targets, and adds -log₂(1 - p) where it does not. So a rule saves

    Σ over rows where it holds (-log₂ c) - N · H(p)

bits over N rows: much where narrow targets are met often, and less than nothing where targets are
met as often as chance would (minimum description length, Rissanen 1978). Rules are taken one after
the other, each for the rows that those before it left over, as long as each saves; then the rows
are divided by what their query is wherever that lets both sides save more. What is chosen so on one
half of the texts is measured on the other.

Notation: N rows, R relations, C conditions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnviz.core.arrays import Bools, Floats

RULES = 4  # rules of a leaf at most
DEEPEST = 3  # divisions above a leaf at most
LEAST = 24  # rows that a side of a division has at least, and rows on which a rule is chosen
PRICE = 8.0  # bits that a rule or a division has to save beyond its name and its share
LEAST_SHARE = 0.02  # of all rows, in which a rule holds at least
LEAST_PRECISION = 0.3
"""Of the rows that are left to a rule, in which it holds at least: what the least of a role's
evidence is (docs/roles.md). What holds more seldom is a leaning, and every random head has some."""


@dataclass(frozen=True)
class Leaf:
    """Rules for some rows, in their order; none where nothing is known."""

    rules: tuple[int, ...]


@dataclass(frozen=True)
class Division:
    """Rows of two kinds."""

    condition: int  # its place in :data:`~.relations.CONDITIONS`.
    holds: Tree  # the tree of the rows for which it holds; ``otherwise`` of the others
    otherwise: Tree


Tree = Leaf | Division


@dataclass(frozen=True, eq=False)
class Rows:
    """What rules are found on."""

    hits: Bools  # bool [N, R], whether the strongest key is a target
    chance: Floats  # [N, R], the share of the allowed keys that are targets
    conditions: Bools  # bool [N, C]

    def __len__(self) -> int:
        return len(self.hits)

    def of(self, mask: Bools) -> Rows:
        """Return some of the rows."""
        return Rows(self.hits[mask], self.chance[mask], self.conditions[mask])


def saved(hits: Bools, chance: Floats) -> float:
    """Bits that a rule saves over some rows, [N] each; see above."""
    n = len(hits)
    if not n:
        return 0.0
    p = hits.mean()
    gain = -np.log2(chance[hits].clip(1e-9)).sum()
    return float(gain - n * _entropy(float(p)))


def _entropy(p: float) -> float:
    if p <= 0 or p >= 1:
        return 0.0
    return float(-p * np.log2(p) - (1 - p) * np.log2(1 - p))


def listed(rows: Rows, least: int) -> tuple[tuple[int, ...], float]:
    """Return the rules of a leaf, and the bits that they save."""
    chosen: list[int] = []
    total, remaining = 0.0, np.ones(len(rows), np.bool_)
    while len(chosen) < RULES and remaining.sum() >= LEAST:
        price = PRICE + np.log2(rows.hits.shape[1]) + 0.5 * np.log2(remaining.sum())
        gains = []
        for relation in range(rows.hits.shape[1]):
            hits = rows.hits[remaining, relation]
            often = hits.sum() >= max(least, LEAST_PRECISION * len(hits))
            enough = relation not in chosen and often
            gains.append(saved(hits, rows.chance[remaining, relation]) if enough else -np.inf)
        best = int(np.argmax(gains))
        if gains[best] <= price:
            break
        chosen.append(best)
        total += gains[best] - price
        remaining &= ~rows.hits[:, best]
    return tuple(chosen), total


def grown(rows: Rows) -> Tree:
    """Return the tree that saves the most bits, as far as one division after the other finds it."""
    return _grown(rows, DEEPEST, max(LEAST // 2, round(LEAST_SHARE * len(rows))))[0]


def _grown(rows: Rows, deepest: int, least: int) -> tuple[Tree, float]:
    rules, bits = listed(rows, least)
    best: tuple[Tree, float] = (Leaf(rules), bits)
    if deepest == 0 or len(rows) < 2 * LEAST:
        return best
    price = PRICE + np.log2(rows.conditions.shape[1])
    gains = []
    for number in range(rows.conditions.shape[1]):
        holds = rows.conditions[:, number]
        if min(holds.sum(), (~holds).sum()) < LEAST:
            continue
        sides = [listed(rows.of(side), least)[1] for side in (holds, ~holds)]
        gains.append((sum(sides) - price, -number))
    if not gains or max(gains)[0] <= bits + PRICE:
        return best
    number = -max(gains)[1]
    holds = rows.conditions[:, number]
    first, first_bits = _grown(rows.of(holds), deepest - 1, least)
    second, second_bits = _grown(rows.of(~holds), deepest - 1, least)
    return Division(number, first, second), first_bits + second_bits - price


@dataclass(frozen=True, eq=False)
class Reached:
    """A leaf and the rows that reach it."""

    path: tuple[tuple[int, bool], ...]  # conditions on the way, each with whether it holds
    rows: Bools  # bool [N]
    # its rules, each with the rows [N] that it decides and those in which it holds
    rules: tuple[tuple[int, Bools, Bools], ...]


def reached(tree: Tree, rows: Rows) -> list[Reached]:
    """Return what becomes of rows in a tree, leaf by leaf."""
    return _reached(tree, rows, np.ones(len(rows), np.bool_), ())


def _reached(
    tree: Tree, rows: Rows, mask: Bools, path: tuple[tuple[int, bool], ...]
) -> list[Reached]:
    if isinstance(tree, Division):
        holds = rows.conditions[:, tree.condition]
        return [
            *_reached(tree.holds, rows, mask & holds, (*path, (tree.condition, True))),
            *_reached(tree.otherwise, rows, mask & ~holds, (*path, (tree.condition, False))),
        ]
    decided, remaining = [], mask.copy()
    for rule in tree.rules:
        decided.append((rule, remaining.copy(), remaining & rows.hits[:, rule]))
        remaining &= ~rows.hits[:, rule]
    return [Reached(path, mask, tuple(decided))]


Path = tuple[tuple[int, bool], ...]  # conditions on the way to a leaf, each with whether it holds


def pruned(tree: Tree, significant: Collection[tuple[Path, int]], path: Path = ()) -> Tree:
    """Leave out rules of leaves, and divisions that then have no rule on either side."""
    if isinstance(tree, Leaf):
        return Leaf(tuple(rule for rule in tree.rules if (path, rule) in significant))
    sides = [
        pruned(side, significant, (*path, (tree.condition, holds)))
        for side, holds in ((tree.holds, True), (tree.otherwise, False))
    ]
    return Leaf(()) if sides == [Leaf(()), Leaf(())] else Division(tree.condition, *sides)


def unpacked(bits: NDArray[np.int64], count: int) -> Bools:
    """[N] with a bit for each of so many -> bool [N, count]."""
    return (bits[:, None] >> np.arange(count)) & 1 > 0


def behaviours_of(leaves: Sequence[Reached]) -> dict[int, Bools]:
    """Return the rows in which each relation's rule holds, over all leaves."""
    rows: dict[int, Bools] = {}
    for leaf in leaves:
        for relation, _, holds in leaf.rules:
            rows[relation] = rows.get(relation, np.zeros_like(holds)) | holds
    return rows
