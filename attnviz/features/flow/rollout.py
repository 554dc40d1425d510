"""Attention rollout (Abnar & Zuidema 2020, arXiv:2005.00928): half attention, half residual path.

Ã = rows of (mean over heads A + I), normalized; R_l = Ã_l R_{l-1}. How much a head writes, and how
large the residual stream is beside it, do not count: that is what ALTI measures.
"""

from __future__ import annotations

from attnviz.features.flow.stack import AttentionShares, Table


def block(weights: Table) -> AttentionShares:
    """A layer's mean weights [T, S] with the residual path; they are divided in place.

    A row that sums to less than 1 (a learned sink, a query without keys) leaves more to the
    residual path.
    """
    sums = weights.sum(axis=1) + 1
    weights /= sums[:, None]
    return AttentionShares(weights, 1 / sums)
