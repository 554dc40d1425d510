"""Whether recorded maps are what they claim to be: shapes, signs, sums of rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attnviz.core.heads import Site
from attnviz.core.tokens import Sides
from attnviz.errors import InputError
from attnviz.models.recorded.fields import Array

SUM_TOLERANCE = 1e-3
MOST_ROUNDED = 4e-3
"""A weight of 1 in 8 bits is off by at most this."""
MOST_ROUNDED_SUM = 0.1
"""No row is farther from its sum than this, however many rounded weights it has."""


def distributions(
    path: Path, name: str, array: Array, sides: Sides, *, signed: bool = False
) -> Array:
    """[L, H, T, S] in float32 or float64, finite and, but for maps with signs, not negative."""
    array = array.astype(np.float64 if array.dtype.itemsize == 8 else np.float32)
    if 0 in array.shape:
        raise InputError(f"{path}: {name} has shape {array.shape}, which holds no weights")
    for axis, what, count in ((2, "query", len(sides.queries)), (3, "key", len(sides.keys))):
        if array.shape[axis] != count:
            raise InputError(
                f"{path}: {name} has {array.shape[axis]} {what} positions but there are {count} "
                "tokens; they must agree"
            )
    if not np.isfinite(array).all():
        raise InputError(f"{path}: {name} has NaN or infinite weights; record it again")
    if (array < 0).any() and not signed:
        raise InputError(
            f"{path}: {name} has negative weights (lowest {array.min():.4g}); "
            "store them after softmax"
        )
    return array


def slack(meta: Mapping[str, Any], keys: int) -> float:
    """How far a row may be from its sum: more where a file says how far its weights are rounded.

    Weights that a page saved are off by at most the ``error`` that it declares.
    """
    error = meta.get("error")
    if type(error) is not float or not 0 <= error <= MOST_ROUNDED:
        return SUM_TOLERANCE
    return SUM_TOLERANCE + min(error * keys, MOST_ROUNDED_SUM)


def check_sums(path: Path, site: Site, weights: Array, slack: float, *, sink: bool) -> None:
    """Every row of [H, T, S] sums to 1, or to 0 where masked, or to less with a learned sink."""
    sums = weights.sum(-1, dtype=np.float64)
    wrong = (abs(sums - 1) > slack) & weights.any(-1)
    if sink:
        wrong = sums > 1 + slack
    if wrong.any():
        head, row = np.argwhere(wrong)[0]
        raise InputError(
            f"{path}: row {row} of head {site.layer}.{head} of the {site.kind} sums to "
            f"{sums[head, row]:.4g}, not 1 (or 0 where masked); store weights after softmax"
        )
