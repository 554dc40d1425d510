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
from attnviz.statistics.clusters import merge_copies
from attnviz.statistics.exact import Floats
from attnviz.statistics.order import ROUNDING, medians, per_text
from attnviz.statistics.ratios import ratios

Kind = Literal["all", "heads", "window"]
LEAST_MATCHED = 0.5
"""A control takes at least this share of the weight that is cut, or there is none."""


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

    ``values`` [texts, cuts, 5]: lost, matched, base, change and control, NaN where a text has no
    such edge.
    """
    control, changes = values[:, :, 4], values[:, :, 3]
    matches = np.array([float(np.nanmean(values[:, number, 1])) for number in range(len(knocks))])
    against = np.flatnonzero(matches >= LEAST_MATCHED) if settings.draws else np.empty(0, np.int64)
    columns = np.concatenate([changes, (changes - control)[:, against]], 1)
    rounding = ROUNDING * np.maximum(1.0, np.nanmax(np.abs(values[:, :, 2]), 0, initial=0))
    found = _judged(columns, np.concatenate([rounding, rounding[against]]), names)
    places = {int(number): len(knocks) + place for place, number in enumerate(against)}
    distance = not WORSE[metric]
    made = []
    for number, knock in enumerate(knocks):
        lost, base = (float(np.nanmean(values[:, number, part])) for part in (0, 2))
        held = number in places
        excess = _change(found, places[number], True) if held else None
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
                _change(found, number, not distance),
                float(np.nanmedian(control[:, number])) if held else None,
                float(matches[number]) if settings.draws else None,
                excess,
                int((~np.isnan(changes[:, number])).sum()),
            )
        )
    return tuple(made), columns.shape[1]


def _judged(values: Floats, rounding: Floats, names: Sequence[str]) -> Floats:
    """Judge K changes together: of the typical text and of the mean, [8, K].

    ``values`` [texts, K], NaN where a text has no such edge; ``rounding`` [K], the size of a change
    that rounding alone makes.
    """
    there = ~np.isnan(values)
    sums, rows = merge_copies(names, np.where(there, values, 0.0), there.astype(np.int64))
    found = medians(per_text(sums, rows), rounding=rounding)
    mean = ratios(
        sums, rows, list(dict.fromkeys(names)), size=rows * rounding / ROUNDING, joint=False
    )
    return np.stack(
        [found.center, found.low, found.high, found.joint_low, found.joint_high,
         mean.value, mean.low, mean.high]
    )  # fmt: skip


def _change(found: Floats, place: int, tells: bool) -> CutChange:
    """A column of :func:`_judged`; ``tells`` whether a difference from 0 says anything."""
    value, *ends = (float(number) for number in found[:, place])
    low, high, least, most, mean, mean_low, mean_high = (
        end if math.isfinite(end) else None for end in ends
    )
    sure = None if least is None or most is None or not tells else least > 0 or most < 0
    return CutChange(value, low, high, least, most, sure, mean, mean_low, mean_high)
