"""Student's t, for intervals from few texts.

SciPy is imported where a quantile is asked for: ``heads`` without intervals never waits for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def half_width(freedom: float, level: float = 0.95) -> float:
    """The t with P(|T| <= t) = ``level``.

    Args:
        freedom: degrees of freedom, at least 1; need not be a whole number.
        level: the probability inside, between 0 and 1.

    Raises:
        ValueError: there is no such quantile.
    """
    if not freedom >= 1 or not 0 < level < 1:
        raise ValueError(f"freedom {freedom} and level {level} have no quantile")
    return float(half_widths(freedom, level))


def half_widths(freedom: ArrayLike, level: float = 0.95) -> Floats:
    """The same of an array; NaN where there is less than one degree of freedom."""
    from scipy.special import stdtrit

    degrees = np.asarray(freedom, np.float64)
    known = np.where(degrees >= 1, degrees, np.nan)
    widths: Floats = stdtrit(known, (1 + level) / 2)
    return widths


def p_above(t: ArrayLike, freedom: ArrayLike) -> Any:
    """P(T >= t), element by element; NaN where there is less than one degree of freedom."""
    from scipy.special import stdtr

    degrees = np.asarray(freedom, np.float64)
    return stdtr(np.where(degrees >= 1, degrees, np.nan), -np.asarray(t, np.float64))
