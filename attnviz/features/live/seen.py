"""Passes that lessons are checked on: what a model gives to tokens and expects next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class LessonPass:
    """What a pass over a text gave, beside the plain one.

    Attributes:
        tokens: the texts of the tokens.
        weights: [layers, heads, T, T].
        shares: [V], the probabilities of what comes next.
        vocabulary: the text of every id.
        root: √d.
        plain: the pass with nothing changed, where something is.
    """

    tokens: tuple[str, ...]
    weights: NDArray[np.floating[Any]]
    shares: NDArray[np.floating[Any]]
    vocabulary: tuple[str, ...]
    root: float
    plain: LessonPass | None = None

    @property
    def before(self) -> LessonPass:
        """The pass with nothing changed."""
        return self.plain or self

    @property
    def top(self) -> str:
        """The likeliest token."""
        return self.vocabulary[int(self.shares.argmax())]

    def p(self, token: str) -> float:
        """The probability of a token."""
        return float(self.shares[self.vocabulary.index(token)])

    def w(self, head: str, query: int, key: int) -> float:
        """A weight."""
        return float(self._map(head)[query, key])

    def previous(self, head: str) -> float:
        """The mean weight on the token before, over rows from the third on."""
        return float(np.diagonal(self._map(head), -1)[1:].mean())

    def largest(self, head: str, query: int, divisor: float | None = None) -> float:
        """The largest weight of a row if its products were divided by something else than √d.

        Weights to a power, rescaled, are the softmax of scores times that power.
        """
        row = self._map(head)[query].astype(np.float64)
        if divisor is not None:
            row = row ** (self.root / divisor)
        return float(row.max() / row.sum())

    def same_key(self, head: str, key: int) -> bool:
        """Whether q·k of the last query with a key is as in the plain pass, as far as ratios show.

        The ratio of two weights of a row is e to the difference of their scores, so it stays where
        neither changed.
        """
        after, before = (seen._map(head)[-1].astype(np.float64) for seen in (self, self.before))
        return bool(np.isclose(after[key] / after[-1], before[key] / before[-1], rtol=1e-4))

    def _map(self, head: str) -> NDArray[np.floating[Any]]:
        layer, number = head.split(".")
        head_map: NDArray[np.floating[Any]] = self.weights[int(layer), int(number)]
        return head_map
