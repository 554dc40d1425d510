"""Vectors in the plane that keeps the most of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def plane(
    moments: NDArray[np.float64], count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], tuple[float, float]]:
    """The two directions in which vectors differ most, from their sums.

    ``moments`` [d + 1, d], the sum of the vectors and below it that of x xᵀ; returns [d, 2], the
    mean [d], and the shares of the variance. A direction points to where its largest component is
    above 0.
    """
    mean = moments[0] / max(count, 1)
    covariance = moments[1:] / max(count, 1) - np.outer(mean, mean)
    sizes, directions = np.linalg.eigh((covariance + covariance.T) / 2)
    axes = directions[:, ::-1][:, :2]
    if axes.shape[1] < 2:
        axes = np.pad(axes, ((0, 0), (0, 2 - axes.shape[1])))
    largest = np.take_along_axis(axes, abs(axes).argmax(0)[None], 0)
    axes = axes * np.where(largest < 0, -1, 1)
    sizes = np.pad(sizes.clip(0)[::-1], (0, 2))
    total = max(float(sizes.sum()), 1e-300)
    return axes, mean, (float(sizes[0] / total), float(sizes[1] / total))
