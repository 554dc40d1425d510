"""N-gram baselines: an interpolated modified Kneser-Ney trigram, and bigram guesses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .tokens import Ids

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Order:
    """One order of the model: discounted counts of n-grams, and the mass left to the next order.

    An n-gram is one number, ``context * vocabulary + token``; both arrays of keys are sorted.
    """

    ngrams: Ids
    discounted: Floats
    contexts: Ids
    totals: Floats
    left: Floats

    @classmethod
    def of(cls, ngrams: Ids, counts: Ids, vocabulary: int) -> Order:
        """From the distinct n-grams, sorted, and how often each was counted.

        The discounts are those of Chen and Goodman (1999): one for n-grams counted once, one
        for twice, one for more often, from the numbers of n-grams counted 1 to 4 times.
        """
        n = [max(1, int((counts == k).sum())) for k in (1, 2, 3, 4)]
        y = n[0] / (n[0] + 2 * n[1])
        amounts = [min(k, max(0.0, k - (k + 1) * y * n[k] / n[k - 1])) for k in (1, 2, 3)]
        discounts = np.asarray([0.0, *amounts])[np.minimum(counts, 3)]
        contexts, place = np.unique(ngrams // vocabulary, return_inverse=True)
        return cls(
            ngrams,
            counts - discounts,
            contexts,
            np.bincount(place, counts).astype(np.float64),
            np.bincount(place, discounts).astype(np.float64),
        )

    def interpolate(self, contexts: Ids, tokens: Ids, vocabulary: int, lower: Floats) -> Floats:
        """P(token | context), with ``lower`` the probabilities of the next lower order."""
        keys = contexts * vocabulary + tokens
        at = np.minimum(np.searchsorted(self.ngrams, keys), len(self.ngrams) - 1)
        counted = np.where(self.ngrams[at] == keys, self.discounted[at], 0.0)
        at = np.minimum(np.searchsorted(self.contexts, contexts), len(self.contexts) - 1)
        seen = self.contexts[at] == contexts
        return np.where(seen, (counted + self.left[at] * lower) / self.totals[at], lower)


@dataclass(frozen=True)
class Trigram:
    """Interpolated modified Kneser-Ney over a closed vocabulary."""

    vocabulary: int
    orders: tuple[Order, Order, Order]

    @classmethod
    def of(cls, stream: Ids, vocabulary: int) -> Trigram:
        """Count ``stream``. Lower orders count in how many contexts an n-gram continues."""
        pairs = stream[:-1] * vocabulary + stream[1:]
        triples, counts = np.unique(pairs[:-1] * vocabulary + stream[2:], return_counts=True)
        twos, after = np.unique(triples % vocabulary**2, return_counts=True)
        ones, follow = np.unique(twos % vocabulary, return_counts=True)
        return cls(
            vocabulary,
            (
                Order.of(ones, follow, vocabulary),
                Order.of(twos, after, vocabulary),
                Order.of(triples, counts, vocabulary),
            ),
        )

    def probabilities(self, first: Ids, second: Ids, tokens: Ids) -> Floats:
        """P(token | first, second), elementwise."""
        uniform = np.full(len(tokens), 1 / self.vocabulary)
        one, two, three = self.orders
        unigram = one.interpolate(np.zeros_like(tokens), tokens, self.vocabulary, uniform)
        bigram = two.interpolate(second, tokens, self.vocabulary, unigram)
        context = first * self.vocabulary + second
        return three.interpolate(context, tokens, self.vocabulary, bigram)

    def losses(self, stream: Ids) -> Floats:
        """-log P of each token of ``stream`` but the first two."""
        return -np.log(self.probabilities(stream[:-2], stream[1:-1], stream[2:]))


def likeliest_after(stream: Ids, vocabulary: int) -> Ids:
    """For each token, the token most often after it; the commonest one after unseen tokens."""
    pairs, counts = np.unique(stream[:-1] * vocabulary + stream[1:], return_counts=True)
    best = np.full(vocabulary, np.bincount(stream).argmax(), dtype=np.int64)
    order = np.argsort(counts, kind="stable")
    best[pairs[order] // vocabulary] = pairs[order] % vocabulary
    return best
