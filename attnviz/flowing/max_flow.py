"""Attention flow (Abnar & Zuidema 2020, arXiv:2005.00928): how much could pass, as through pipes.

Layers and positions are a graph; the edge from j before layer l to i after it has the capacity that
rollout gives it, Ã_l[i, j]. What reaches i from token j is the maximum flow between the two, found
by networkx; rows are then divided by their sums, as the authors do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.errors import InputError, UsageError
from attnviz.flows import Step

_UNIT = 1 << 30
"""Capacities are whole numbers, for which the algorithm is exact and sure to end."""

LONGEST = 64
"""Tokens; there is one maximum flow to find for every pair of them."""


def check(count: int) -> None:
    """Refuse too many tokens, and say what to install where networkx is missing.

    Raises:
        InputError: too many tokens.
        UsageError: networkx is missing.
    """
    if count > LONGEST:
        raise InputError(
            f"{count} tokens are too many for max-flow, which takes up to {LONGEST}; shorten the "
            "text, or take rollout"
        )
    try:
        import networkx  # noqa: F401
    except ImportError:
        raise UsageError(
            "max-flow needs networkx: pip install 'attnviz[flow]'; rollout does not"
        ) from None


def max_flow(
    steps: Sequence[Step], progress: Callable[[int, int], None] = lambda done, all_: None
) -> NDArray[np.float64]:
    """Maximum flows to every position from every token, rows divided by their sums, [n, n].

    Args:
        steps: capacities, see :mod:`attnviz.flowing.rollout`.
        progress: called with how many positions are done, and how many there are.
    """
    raw = flows(steps, progress)
    sums = raw.sum(axis=1, keepdims=True)
    shares: NDArray[np.float64] = np.divide(raw, sums, out=np.zeros_like(raw), where=sums > 0)
    return shares


def flows(
    steps: Sequence[Step], progress: Callable[[int, int], None] = lambda done, all_: None
) -> NDArray[np.float64]:
    """The maximum flows themselves, [n, n]; arguments as for :func:`max_flow`."""
    from networkx.algorithms.flow import build_residual_network, preflow_push

    count = len(steps[0].shares)
    found = np.zeros((count, count))
    for end in range(count):
        graph, tokens = _upstream(steps, end)
        residual = build_residual_network(graph, "capacity")
        top = (len(steps), end)
        for token in tokens:
            solved: Any = preflow_push(graph, (0, token), top, residual=residual, value_only=True)
            found[end, token] = solved.graph["flow_value"] / _UNIT
        progress(end + 1, count)
    return found


def _upstream(steps: Sequence[Step], end: int) -> tuple[Any, list[int]]:
    """The part of the graph from which a position after the last layer is reached, and its tokens.

    Edges go from (layer, position) to (layer + 1, position).
    """
    import networkx as nx

    graph = nx.DiGraph()
    ends = [end]
    for layer in range(len(steps), 0, -1):
        below: dict[int, None] = {}
        for i in ends:
            row = steps[layer - 1].shares[i]
            for j in np.flatnonzero(row).tolist():
                graph.add_edge((layer - 1, j), (layer, i), capacity=round(float(row[j]) * _UNIT))
                below[j] = None
        ends = sorted(below)
    return graph, ends
