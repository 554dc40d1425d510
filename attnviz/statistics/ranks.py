"""Do two measures put things in the same order?

scipy.stats has this too, but importing it takes longer than importing NumPy and SciPy's special
functions together, which everybody who ablates heads would wait for.
"""

from __future__ import annotations

import numpy as np

from attnviz.statistics.exact import Floats


def spearman(a: Floats, b: Floats) -> float | None:
    """Spearman's rank correlation, ties sharing their mean rank; None where it is not defined.

    Args:
        a: [n].
        b: [n], of the same things.
    """
    if len(a) < 3:
        return None
    x, y = ranks(a), ranks(b)
    x, y = x - x.mean(), y - y.mean()
    size = float(np.sqrt((x * x).sum() * (y * y).sum()))
    return float((x * y).sum()) / size if size > 0 else None


def ranks(values: Floats) -> Floats:
    """Ranks from 1, equal values at the mean of theirs."""
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = counts.cumsum()
    shared: Floats = (last - (counts - 1) / 2)[where]
    return shared
