"""What can be said of every head over traces: its kurtosis, its control, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from attnviz.core.heads import Layout
from attnviz.features.thoughts.result import ReceiverHead
from attnviz.features.thoughts.scores import number_or_none
from attnviz.statistics.clusters import merge_copies
from attnviz.statistics.exact import Floats
from attnviz.statistics.order import medians

HALVES = 200
"""Random halves of the traces that reliability is a mean over."""


def judged(
    layout: Layout,
    tails: Floats,
    controls: Floats,
    names: Sequence[str],
) -> tuple[ReceiverHead, ...]:
    """Every head, judged with all others.

    ``tails``: kurtoses [traces, N], NaN where there is none; ``controls`` likewise.
    """
    excess = _distinct(tails - controls, names)
    means, random = _means(_distinct(tails, names)), _means(_distinct(controls, names))
    found = medians(excess)
    low, high = found.joint_low, found.joint_high
    return tuple(
        ReceiverHead(
            head,
            number_or_none(means[n]),
            number_or_none(random[n]),
            number_or_none(found.center[n]),
            number_or_none(low[n]),
            number_or_none(high[n]),
            None if math.isnan(low[n]) else bool(low[n] > 0),
        )
        for n, head in enumerate(layout)
    )


def reliability(tails: Floats, names: Sequence[str], seed: int) -> float | None:
    """The split-half reliability of kurtoses: their mean correlation over heads.

    ``tails``: kurtoses [traces, N].
    """
    own = _distinct(tails, names)
    own = own[:, ~np.isnan(own).any(0)]
    count = len(own)
    if count < 2 or own.shape[1] < 2:
        return None
    draw = np.random.default_rng([seed, count])
    correlations = []
    for _ in range(HALVES):
        order = draw.permutation(count)
        first, second = own[order[: count // 2]].mean(0), own[order[count // 2 :]].mean(0)
        if first.std() > 0 and second.std() > 0:
            correlations.append(float(np.corrcoef(first, second)[0, 1]))
    return sum(correlations) / len(correlations) if correlations else None


def _distinct(values: Floats, names: Sequence[str]) -> Floats:
    """[traces, N] of the traces that differ."""
    sums, rows = merge_copies(names, values, np.ones(len(values), np.int64))
    distinct: Floats = sums / rows[:, None]
    return distinct


def _means(values: Floats) -> Floats:
    """Means over the traces that have a number; NaN where none has."""
    known = ~np.isnan(values)
    sums = np.where(known, values, 0.0).sum(0)
    means: Floats = sums / np.where(known.any(0), known.sum(0), np.nan)
    return means
