"""What can be said of each cut: its changes, those of the controls, and how sure they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from attnviz.core.heads import Head
from attnviz.features.knockout.result import WORSE, CutChange, CutEffect
from attnviz.features.knockout.settings import KnockoutSettings
from attnviz.statistics.clusters import LEVEL
from attnviz.statistics.copies import together
from attnviz.statistics.exact import Floats
from attnviz.statistics.maximum import ROUNDING
from attnviz.statistics.robust import per_text
from attnviz.statistics.trimmed import trimmed_means

Kind = Literal["all", "heads", "window"]


@dataclass(frozen=True, slots=True)
class Knock:
    """One cut, in every text that has it.

    Attributes:
        rows: names of the queries, ``keys`` of the keys.
        keys: see ``rows``.
        kind: see :class:`~attnviz.features.knockout.result.CutEffect`, as for the others.
        name: of the heads.
        heads: in which it is made.
        layer: of a window.
    """

    rows: str
    keys: str
    kind: Kind
    name: str
    heads: tuple[Head, ...]
    layer: int | None = None


def judged(
    knocks: Sequence[Knock],
    values: Floats,
    names: Sequence[str],
    metric: str,
    settings: KnockoutSettings,
) -> tuple[tuple[CutEffect, ...], int]:
    """Every cut with what can be said of it, judged together, and the size of the family.

    Args:
        knocks: K cuts.
        values: [texts, cuts, 5]: lost, matched, base, change and control, NaN where a text has no
            such edge.
        names: of the texts; equal ones count once.
        metric: its name.
        settings: how.
    """
    control = values[:, :, 4]
    changes = _settled(values[:, :, 3], values[:, :, 2])
    columns = (
        [changes, _settled(changes - control, values[:, :, 2])] if settings.draws else [changes]
    )
    kinds = [knock.kind for knock in knocks]
    means = _trimmed(np.concatenate(columns, 1), kinds * len(columns), names, settings.seed)
    controls = _trimmed(control, kinds, names, settings.seed, joint=False)[0]
    distance = not WORSE[metric]
    made = []
    for number, knock in enumerate(knocks):
        lost, matched, base = (float(np.nanmean(values[:, number, part])) for part in range(3))
        excess = _change(means, len(knocks) + number, True) if settings.draws else None
        made.append(
            CutEffect(
                knock.rows,
                knock.keys,
                knock.kind,
                knock.name,
                knock.heads,
                knock.layer,
                lost,
                base,
                _change(means, number, not distance),
                float(controls[number]) if settings.draws else None,
                matched if settings.draws else None,
                excess,
                int((~np.isnan(changes[:, number])).sum()),
            )
        )
    return tuple(made), len(columns) * len(knocks)


def _settled(changes: Floats, bases: Floats) -> Floats:
    """Changes, 0 for cuts that do no more than rounding in any text: their spread says nothing."""
    large = np.abs(changes) > ROUNDING * np.maximum(1.0, np.abs(bases))
    settled: Floats = np.where(large.any(0) | np.isnan(changes), changes, 0.0)
    return settled


def _trimmed(
    values: Floats, kinds: Sequence[Kind], names: Sequence[str], seed: int, *, joint: bool = True
) -> Floats:
    """Trimmed means and the ends of their intervals, their own and joint: [5, K].

    Pairs of parts, heads and windows are families that share the level, so that the tails of one
    do not widen the intervals of others; so are means over other texts than the rest.

    Args:
        values: [texts, K], NaN where a text has no such edge.
        kinds: of each mean.
        names: of the texts; equal ones count once.
        seed: of the bootstrap.
        joint: whether intervals are to hold together.
    """
    there = ~np.isnan(values)
    sums, rows = together(names, np.where(there, values, 0.0), there.astype(np.int64))
    means = per_text(sums, rows)
    made = np.full((5, values.shape[1]), np.nan)
    families: dict[tuple[Kind, bytes], list[int]] = {}
    for column, kind in enumerate(kinds):
        families.setdefault((kind, np.isnan(means[:, column]).tobytes()), []).append(column)
    level = 1 - (1 - LEVEL) / len(families)
    for some in families.values():
        own = means[~np.isnan(means[:, some[0]])][:, some]
        if not len(own):
            continue
        each = trimmed_means(own, LEVEL, seed=seed, joint=False)
        made[:3, some] = each.center, each.low, each.high
        if joint:
            all_ = trimmed_means(own, level, seed=seed)
            made[3:, some] = all_.joint_low, all_.joint_high
    return made


def _change(means: Floats, place: int, tells: bool) -> CutChange:
    """A column of :func:`_trimmed`; ``tells`` whether a difference from 0 says anything."""
    value, *ends = (float(number) for number in means[:, place])
    low, high, least, most = (end if math.isfinite(end) else None for end in ends)
    sure = None if least is None or most is None or not tells else least > 0 or most < 0
    return CutChange(value, low, high, least, most, sure)
