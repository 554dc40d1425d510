"""Attention flow (Abnar & Zuidema 2020, arXiv:2005.00928): how much could pass, as through pipes.

Layers and positions are a graph; the edge from j before layer l to i after it has the capacity that
rollout gives it, Ã_l[i, j]. What reaches i from token j is the maximum flow between the two, found
by Dinic's algorithm in SciPy; rows are then divided by their sums, as the authors do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.errors import InputError
from attnviz.features.flow.result import LayerFlow

_UNIT = 1 << 30
"""Capacities are whole numbers of 2⁻³⁰, for which the algorithm is exact.

What arrives at a position is 1 in all, so that no flow leaves the 32 bits that SciPy has for it.
"""

LONGEST = 128
"""Tokens; there is one maximum flow to find for every pair of them."""


def check(count: int) -> None:
    """Raise InputError for too many tokens."""
    if count > LONGEST:
        raise InputError(
            f"{count} tokens are too many for max-flow, which takes up to {LONGEST}; shorten the "
            "text, or take rollout"
        )


def max_flow(
    steps: Sequence[LayerFlow], progress: Callable[[int, int], None] = lambda done, all_: None
) -> NDArray[np.float64]:
    """Maximum flows to every position from every token, rows divided by their sums, [n, n]."""
    raw = flows(steps, progress)
    sums = raw.sum(axis=1, keepdims=True)
    shares: NDArray[np.float64] = np.divide(raw, sums, out=np.zeros_like(raw), where=sums > 0)
    return shares


def flows(
    steps: Sequence[LayerFlow], progress: Callable[[int, int], None] = lambda done, all_: None
) -> NDArray[np.float64]:
    """The maximum flows themselves, [n, n]; arguments as for :func:`max_flow`."""
    from scipy.sparse.csgraph import maximum_flow

    tables = [np.rint(step.shares.astype(np.float64) * _UNIT).astype(np.int32) for step in steps]
    count = len(tables[0])
    totals = np.zeros((count, count))
    for end in range(count):
        graph, tokens = _upstream(tables, end)
        for node, token in enumerate(tokens):
            totals[end, token] = maximum_flow(graph, node, graph.shape[0] - 1).flow_value / _UNIT
        progress(end + 1, count)
    return totals


def _upstream(tables: Sequence[NDArray[np.int32]], end: int) -> tuple[Any, NDArray[np.int64]]:
    """The part of the graph from which a position behind the last layer is reached."""
    from scipy.sparse import csr_array

    ends = [np.array([end])]
    for table in reversed(tables):
        ends.insert(0, np.flatnonzero(table[ends[0]].any(axis=0)))
    starts = np.cumsum([0, *map(len, ends)])
    edges = []
    for layer, table in enumerate(tables):
        some = table[np.ix_(ends[layer + 1], ends[layer])]
        after, before = np.nonzero(some)
        edges.append((before + starts[layer], after + starts[layer + 1], some[after, before]))
    rows, columns, capacities = map(np.concatenate, zip(*edges, strict=True))
    places = rows.astype(np.int32), columns.astype(np.int32)  # older SciPys take no others
    return csr_array((capacities, places), shape=(starts[-1], starts[-1])), ends[0]
