"""Sentence by sentence: mean weights, vertical scores and their kurtosis (arXiv:2506.19143).

And what can be said of every head over traces: its kurtosis, its control, and how sure that is.

Notation in shapes: H heads of a layer, N heads of the model, n sentences.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from attnviz.core import arrays
from attnviz.core.arrays import Array, to_numpy
from attnviz.core.heads import Layout, Site
from attnviz.core.source import Rows
from attnviz.core.spans import Range
from attnviz.features.thoughts.result import ReceiverHead
from attnviz.statistics.clusters import merge_copies
from attnviz.statistics.exact import Floats, none_if_nan
from attnviz.statistics.order import medians

SAME = 1e-12  # vertical scores that differ by less than this share of the largest are the same
LEAST = 4  # from fewer vertical scores there is no kurtosis: of two it is -2 whatever they are


class SentenceObserver:
    """An observer of the weights from sentence to sentence, of one text."""

    def __init__(self, sentences: Sequence[Range], length: int, layout: Layout) -> None:
        self._members = np.zeros((length, len(sentences)))
        for number, (start, stop) in enumerate(sentences):
            self._members[start:stop, number] = 1.0
        self._sites = tuple(dict.fromkeys(head.site for head in layout))
        self._sums: dict[Site, Array] = {}

    def observe(self, rows: Rows) -> None:
        """Add up a block."""
        like = rows.weights[0]
        on = arrays.of(like)
        double = on.float64
        if on.largest_float(like) != double:
            like = like.cpu()
        count, width = like.shape[1:]
        queries = on.asarray(self._members[rows.start : rows.start + count], double, like)
        keys = on.asarray(self._members[rows.key_start : rows.key_start + width], double, like)
        sums = queries.T @ (on.cast(like, double) @ keys)  # [H, n, n]
        before = self._sums.get(rows.site)
        self._sums[rows.site] = sums if before is None else before + sums

    def means(self) -> Floats:
        """[N, n, n], mean weight from the tokens of one sentence (row) to those of another."""
        sizes = self._members.sum(0)
        whole = np.concatenate([to_numpy(self._sums[site]) for site in self._sites])
        return whole / (sizes[:, None] * sizes)


def vertical_scores(matrices: Floats, apart: int) -> Floats:
    """[..., n], the mean over sentences a ≥ b + ``apart`` of A[a, b]; NaN where there is none."""
    count = matrices.shape[-1]
    scores = np.full(matrices.shape[:-1], np.nan)
    for sentence in range(max(count - apart, 0)):
        scores[..., sentence] = matrices[..., sentence + apart :, sentence].mean(-1)
    return scores


def kurtosis(scores: Floats) -> Floats:
    """Take the excess kurtosis m₄ / m₂² - 3 of scores [..., n]; NaN from fewer than LEAST."""
    known = ~np.isnan(scores)
    count = known.sum(-1)
    values = np.where(known, scores, 0.0)
    size = np.maximum(count, 1)[..., None]
    apart = np.where(known, values - values.sum(-1, keepdims=True) / size, 0.0)
    second, fourth = ((apart**power).sum(-1) / size[..., 0] for power in (2, 4))
    differ = np.sqrt(second) > SAME * np.abs(values).max(-1)
    fine = differ & (count >= LEAST)
    return np.where(fine, fourth / np.where(fine, second, 1.0) ** 2 - 3, np.nan)


HALVES = 200  # random halves of the traces that reliability is a mean over


def judged(
    layout: Layout, tails: Floats, controls: Floats, names: Sequence[str]
) -> tuple[ReceiverHead, ...]:
    """Judge all heads together, by kurtoses ``tails`` and ``controls`` [traces, N] with NaN."""
    excess = _distinct(tails - controls, names)
    means, random = _means(_distinct(tails, names)), _means(_distinct(controls, names))
    found = medians(excess)
    low, high = found.joint_low, found.joint_high
    return tuple(
        ReceiverHead(
            head,
            none_if_nan(means[n]),
            none_if_nan(random[n]),
            none_if_nan(found.center[n]),
            none_if_nan(low[n]),
            none_if_nan(high[n]),
            None if math.isnan(low[n]) else bool(low[n] > 0),
        )
        for n, head in enumerate(layout)
    )


def reliability(tails: Floats, names: Sequence[str], seed: int) -> float | None:
    """Take kurtoses' split-half reliability: their mean correlation over heads."""
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
    return sums / rows[:, None]


def _means(values: Floats) -> Floats:
    """Means over the traces that have a number; NaN where none has."""
    known = ~np.isnan(values)
    sums = np.where(known, values, 0.0).sum(0)
    return sums / np.where(known.any(0), known.sum(0), np.nan)
