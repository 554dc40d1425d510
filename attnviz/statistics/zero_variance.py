"""Clusters that all say the same: their spread is 0, and still they are few.

Of G clusters with one and the same value, other clusters may differ. With q the share of clusters
that have this value, all G have it with probability q^G, so q is at least (α/2)^(1/G) with 1 - α/2
(Clopper & Pearson 1934), and what the rest can do is to lie at the ends of the scale.
"""

from __future__ import annotations

from attnviz.statistics.clusters import LEVEL


def ends(
    value: float, clusters: int, least: float, most: float, level: float = LEVEL
) -> tuple[float, float]:
    """The interval of a mean that all clusters agree on.

    Args:
        value: of every cluster.
        clusters: G, at least 1.
        least: the end of the scale, ``most`` the other one.
        most: see ``least``.
        level: of the interval.
    """
    share = ((1 - level) / 2) ** (1 / clusters)
    return share * value + (1 - share) * least, share * value + (1 - share) * most


def p_positive(value: float, clusters: int, least: float) -> float:
    """How likely all clusters agree on a value above 0, if the mean is not above 0.

    Args:
        value: of every cluster.
        clusters: G.
        least: the end of the scale, below 0.
    """
    if value <= 0:
        return 1.0
    return float((-least / (value - least)) ** clusters)
