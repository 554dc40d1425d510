"""What a cut changes: a number for a text, from logits at some positions, in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnviz.core.arrays import Array, doubles, on_numpy
from attnviz.statistics.exact import Floats


@dataclass(frozen=True, slots=True)
class CutMetric:
    """A metric of one text.

    Attributes:
        name: ``loss``, ``kl``, ``logit-diff``, ``prob`` or ``log-prob``.
        targets: ids that belong at the positions, for the loss.
        answer: an id; -1 where none is asked for, as for ``against`` (of labels, whose logit may
            stand by itself).
        against: an id.
    """

    name: str
    targets: tuple[int, ...] = ()
    answer: int = -1
    against: int = -1

    def of(self, logits: Floats, whole: Floats) -> float:
        """The metric.

        ``logits`` [n, V], at n positions.
        """
        if self.name == "logit-diff":
            other = logits[:, self.against] if self.against >= 0 else 0.0
            return float((logits[:, self.answer] - other).mean())
        chances = on_numpy.log_softmax(logits)
        if self.name == "kl":
            before = on_numpy.log_softmax(whole)
            return float((np.exp(before) * (before - chances)).sum(-1).mean())
        if self.name == "loss":
            return float(-chances[np.arange(len(chances)), list(self.targets)].mean())
        log = chances[:, self.answer]
        return float((np.exp(log) if self.name == "prob" else log).mean())


def at(logits: Array, item: int, positions: Sequence[int]) -> Floats:
    """Logits [B, T, V] of an item at some positions, float64 [n, V]."""
    return doubles(logits[item][list(positions)])
