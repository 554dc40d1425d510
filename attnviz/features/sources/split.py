"""A row of scores as sums over sources, and the proof that they are sums.

With the scale of every normalization held at its value here, query and key are linear in what was
written to the residual stream at their positions: q_i = Σ_a q_a, k_j = Σ_b k_b
(:mod:`attnviz.models.decomposition`). So s q_i·k_j = Σ_ab s q_a·k_b, a matrix over pairs of
sources (the terms of Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", with
what rotary positions and normalizations make of them on this text). The difference to another key
is the same with k_j - k_j'; that to the rest of the row with k_j - Σ_j' w_j' k_j' over the others,
w their weights among themselves, is the derivative of the logarithm of the odds α_j / (1 - α_j).

Shapes: N sources of the query, M of the key, S keys, d width of a query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnviz.core import arrays
from attnviz.core.heads import Head
from attnviz.core.prompt import Inputs
from attnviz.core.reasons import HeadTerms, Origin
from attnviz.core.source import Source
from attnviz.errors import ModelError
from attnviz.models.decomposition import Decomposition, Parts
from attnviz.models.following import decompositions

Floats = NDArray[np.float64]

LOW = {"float16": 5e-2, "bfloat16": 5e-2}
EXACT = 1e-4
"""Largest difference of sum and score, relative to the score where that is larger than 1."""


@dataclass(frozen=True, eq=False)
class SplitHead:
    """A head's queries and keys on one text, taken apart.

    Attributes:
        head: which.
        terms: as the model has them, of a pass that nothing listened to.
        anatomist: of the pass that was listened to.
        keys: every key of the text.
        exact: the tolerance.
        model: its name.
    """

    head: Head
    terms: HeadTerms
    anatomist: Decomposition
    keys: Parts
    exact: float
    model: str

    @property
    def key_origins(self) -> tuple[Origin, ...]:
        """M sources of the keys."""
        return self.keys.origins

    def query(self, place: int) -> Parts:
        """One query."""
        return self.anatomist.query(self.head, [place])

    def queries(self, places: Sequence[int]) -> Parts:
        """Several queries, and the proof that their scores with every key add up."""
        asked = self.anatomist.query(self.head, places)
        q, k = (arrays.to_numpy(parts.values.sum(0)) for parts in (asked, self.keys))
        for place, row in zip(places, q @ k.T, strict=True):
            self.check(self.terms.scale * row, self.scores(place))
        return asked

    def scores(self, place: int) -> Floats:
        """[S], s q·k of one query with every key, as the model has it."""
        q, k = self.terms.query[place], self.terms.key
        scores: Floats = self.terms.scale * (k.astype(np.float64) @ q.astype(np.float64))
        return scores

    def by_key(self, place: int) -> Floats:
        """[M, S], what every source of the keys adds to the scores of one query."""
        q = self.terms.query[place].astype(np.float64)
        added: Floats = self.terms.scale * (arrays.to_numpy(self.keys.values) @ q)
        self.check(added.sum(0), self.scores(place))
        return added

    def matrix(self, query: Parts, mix: Floats) -> Floats:
        """[N, M], what pairs of sources add to a mixture of scores.

        ``mix`` [S], the factor on the score of every key.
        """
        key = np.einsum("s,msd->md", mix, arrays.to_numpy(self.keys.values))
        products: Floats = self.terms.scale * (arrays.to_numpy(query.values[:, 0]) @ key.T)
        return products

    def check(self, sums: Floats, scores: Floats) -> None:
        """ModelError where sums are not the scores."""
        off = np.abs(sums - scores) / np.maximum(1.0, np.abs(scores))
        worst = int(off.argmax())
        if not off[worst] <= self.exact:
            raise ModelError(
                f"the sources of {self.model} add up to {sums[worst]:.5g} and the score of "
                f"{self.head.qualified} is {scores[worst]:.5g}: not every way from what layers "
                "write to its queries and keys is linear once normalizations are held, so that "
                "nothing is shown"
            )


def split(source: Source, inputs: Inputs, head: Head, terms: HeadTerms) -> SplitHead:
    """Take a head's queries and keys apart on one text."""
    exact = LOW.get(source.info.dtype, EXACT)
    best: SplitHead | None = None
    fault: ModelError | None = None
    for anatomist in decompositions(source, inputs, head):
        try:
            keys = anatomist.key(head, range(len(terms.key)))
            split_head = SplitHead(head, terms, anatomist, keys, exact, source.info.model)
            best = best or split_head
            split_head.queries([len(terms.query) - 1])
        except ModelError as error:
            fault = fault or error
            continue
        return split_head
    if best is None:
        assert fault is not None
        raise fault
    return best  # which says what does not add up
