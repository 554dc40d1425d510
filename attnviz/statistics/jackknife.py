"""What an estimate is without one of its texts: the one that moves it most (Tukey 1958)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from attnviz.statistics.exact import Floats


def most_moved(
    center: Callable[[Sequence[int]], Floats], count: int
) -> tuple[list[int], list[float]]:
    """Of every estimate the text without which it is farthest from what it is with all.

    Args:
        center: the estimates [K] of some texts, by their places.
        count: texts, at least two.

    Returns:
        Places of the texts, and the estimates without them, K each.
    """
    whole = center(range(count))
    left_out = np.stack(
        [center([place for place in range(count) if place != left]) for left in range(count)]
    )
    places = np.abs(np.nan_to_num(left_out - whole)).argmax(0)
    return places.tolist(), np.take_along_axis(left_out, places[None], 0)[0].tolist()
