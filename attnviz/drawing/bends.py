"""Arrows of a graph that go round what stands between their ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Point = tuple[float, float]
OTHERS = tuple(turn * away for away in (0.1, 0.2, 0.3, 0.4, 0.5) for turn in (1, -1))
"""By how much an arrow is bent otherwise where something is in its way."""


def clear_bend(
    start: Point,
    end: Point,
    own: float,
    room: float,
    nodes: Sequence[Point],
    labels: Sequence[Point] = (),
) -> float:
    """How an arrow is bent: as it would be, or the next bend that nothing is in the way of.

    Where there is none, it goes round nodes alone; where that cannot be either, it stays as far
    from them as it can.

    Args:
        start: of the arrow, a quadratic Bezier curve as matplotlib's ``arc3``.
        end: of the arrow.
        own: its own bend, the distance of the curve's control point in lengths of the arrow.
        room: what the least distance from the middles of nodes and labels has to be.
        nodes: the middles of all other nodes.
        labels: of what is written beside them.
    """
    first, last = np.array(start), np.array(end)
    across = np.array([end[1] - start[1], start[0] - end[0]])
    along = np.linspace(0, 1, 65)[:, None]

    def least(bend: float, things: Sequence[Point]) -> float:
        control = (first + last) / 2 + bend * across
        curve = (1 - along) ** 2 * first + 2 * along * (1 - along) * control + along**2 * last
        away = np.linalg.norm(curve[:, None] - np.array(things).reshape(-1, 2), axis=-1)
        return float(away.min(initial=np.inf))

    bends = [own, *(own + more for more in OTHERS)]
    clear = [bend for bend in bends if least(bend, nodes) > room]
    if not clear:
        return max(bends, key=lambda bend: least(bend, nodes))
    return next((bend for bend in clear if least(bend, labels) > room / 2), clear[0])
