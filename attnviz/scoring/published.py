"""Published measures under their own names, where our scores of a like name are defined otherwise.

``induction`` is the weight on all targets of a row, over the rows that have one; prefix matching
averages single entries of the map. ``first`` is the mean weight of one head over rows i >= 2; the
sink rate counts heads, and its mean takes in the rows that can hardly look anywhere else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.scores import SINK_SHARE

PREFIX_LENGTH, PREFIX_COPIES = 25, 4
"""Olsson et al.: 25 random tokens, four times over."""

SINK_LENGTH, SINK_THRESHOLD = 64, SINK_SHARE
"""Gu et al.: sequences of 64 tokens; a head with more than this on the first one is a sink."""

Map = NDArray[np.floating[Any]]


def prefix_matching(
    weights: Map,
    *,
    length: int = PREFIX_LENGTH,
    copies: int = PREFIX_COPIES,
    start: int = 0,
) -> NDArray[np.float64]:
    """Prefix matching score (Olsson et al. 2022, arXiv:2209.11895, "Head Activation Evaluators").

    The mean of all entries of the map that go from a token to one that followed the same token in
    an earlier copy. With four copies a perfect head gets 0.5: a row has only 1 to share among up
    to three such entries.

    ``weights`` [H, T, T] on random tokens, none twice, repeated: T = start + length · copies;
    returns float64 [H].
    """
    size = start + length * copies
    if copies < 2 or length < 2 or weights.shape[1:] != (size, size):
        raise ValueError(
            f"prefix matching needs maps [H, {size}, {size}] of at least two copies of two tokens; "
            f"these are {list(weights.shape)}, {copies} copies of {length}"
        )
    queries = np.arange(start + length, size)
    pairs = [
        (i, i - back * length + 1)
        for i in queries.tolist()
        for back in range(1, (i - start) // length + 1)
    ]
    rows, keys = np.array(pairs).T
    scores: NDArray[np.float64] = weights[:, rows, keys].mean(1, dtype=np.float64)
    return scores


def sink_rate(
    maps: Iterable[Map], *, length: int = SINK_LENGTH, threshold: float = SINK_THRESHOLD
) -> float:
    """Share of heads that are attention sinks (Gu et al. 2024, arXiv:2410.10781, section 3).

    A head is one where the first token's mean weight, over all rows i >= 0 of a sequence, exceeds
    the threshold.

    ``maps`` [H, T, S] of each layer on one causal sequence; its first ``length`` tokens count.
    """
    means = []
    for weights in maps:
        if weights.shape[1] < length:
            raise ValueError(
                f"a sink rate at {length} tokens needs as many, not {weights.shape[1]}"
            )
        means.append(weights[:, :length, 0].mean(1, dtype=np.float64))
    if not means:
        raise ValueError("a sink rate needs at least one layer")
    return float((np.concatenate(means) > threshold).mean())
