"""Which token a model writes next: the likeliest, or one drawn from the likely ones."""

from __future__ import annotations

import numpy as np

from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.prompt import Generation


class Choice:
    """Chooses tokens one after the other; the same logits and seed give the same tokens."""

    def __init__(self, generation: Generation) -> None:
        self._how, self._draw = generation, np.random.default_rng(generation.seed or 0)

    def __call__(self, logits: Array) -> int:
        """The next token of logits [V]; the lowest id where several are as likely."""
        if self._how.greedy:
            return int(logits.argmax())
        scores = arrays.doubles(logits) / (self._how.temperature or 1.0)
        likely = np.exp(scores - scores.max())
        order = np.argsort(-likely, kind="stable")
        chances = likely[order] / likely.sum()
        before = chances.cumsum() - chances
        chances = chances * (before < (1.0 if self._how.top_p is None else self._how.top_p))
        ends = chances.cumsum()
        drawn = self._draw.random() * ends[-1]
        place = int(np.searchsorted(ends, drawn, side="right"))
        return int(order[min(place, int((chances > 0).sum()) - 1)])
