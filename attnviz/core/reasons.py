"""Why a weight is what it is: a head's queries and keys on one text, and one of its weights.

The weight of query i on key j is softmax over j of c tanh(s q_i·k_j / c) + b_ij, where key j is
allowed (Vaswani et al. 2017, arXiv:1706.03762; c as in Gemma 2, arXiv:2408.00118). What the head
writes for it has the norm α_ij ‖f(x_j)‖ (Kobayashi et al. 2020, arXiv:2004.10102).

Notation: T queries, S keys, d width of a query.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

from attnviz.core.heads import Head, Layout, Site

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class HeadOrigins:
    """What a head's queries and keys were made of, by what wrote it to the residual stream."""

    query: tuple[Origin, ...]  # N sources of the queries
    queries: NDArray[np.floating[Any]]  # what they add, [N, T, d]
    key: tuple[Origin, ...]  # M sources of the keys
    keys: NDArray[np.floating[Any]]  # what they add, [M, S, d]


@dataclass(frozen=True, eq=False)
class HeadTerms:
    """What the weights of one head on one text are made of."""

    query: NDArray[np.floating[Any]]  # [T, d], queries as they meet keys
    key: NDArray[np.floating[Any]]  # [S, d], keys as they meet queries
    scale: float  # s, the factor on q·k
    norms: NDArray[np.floating[Any]]  # [S], ‖f(x_j)‖ of every key's value; else ‖v_j‖
    written: bool = True  # whether norms are of values as W_O writes them, not of the values alone
    softcap: float | None = None  # c, or None
    # b, [T, S], what is added to the scores, 0 where a key is blocked; None for nothing
    bias: NDArray[np.floating[Any]] | None = None
    sink: float | None = None  # the score of a learned sink, which is not a key, or None
    # whether queries and keys were turned by their positions (rotary embeddings); None if not known
    turned: bool | None = None
    origins: HeadOrigins | None = None  # of both; None where nobody asked, or it is not known

    @property
    def noun(self) -> str:
        """What ``norms`` are of."""
        return "‖f(x)‖" if self.written else "‖v‖"

    def scores(self, allowed: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return what softmax is taken of, [T, S], -inf where a key is not allowed, bool [T, S]."""
        import numpy as np

        scores = self.scale * (self.query.astype(np.float64) @ self.key.astype(np.float64).T)
        if self.softcap is not None:
            scores = self.softcap * np.tanh(scores / self.softcap)
        if self.bias is not None:
            scores = scores + self.bias
        return np.where(allowed, scores, -np.inf)

    def weights(self, allowed: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Give the weights, [T, S], computed anew in double precision; 0 in rows without a key."""
        import numpy as np

        scores = self.scores(allowed)
        tops = scores.max(1, keepdims=True)
        if self.sink is not None:
            tops = np.maximum(tops, self.sink)
        powers = np.exp(scores - np.where(np.isfinite(tops), tops, 0.0))
        sums = powers.sum(1, keepdims=True)
        if self.sink is not None:
            sums = sums + np.exp(self.sink - tops)
        return powers / np.where(sums > 0, sums, 1.0)


@dataclass(frozen=True, eq=False)
class Reason:
    """One weight, taken apart.

    Attributes:
        head: its name.
        query: position of the query; ``key`` of the key.
        key: see ``query``.
        queries: the text of every query; ``keys`` of every key.
        keys: see ``queries``.
        terms: of the head.
        allowed: bool [S], the keys that the query may attend to.
        shown: the weight as the capture has it.
        unselected: whether the layer's indexer left out the key, which the query could have seen.
    """

    head: str
    query: int
    key: int
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    terms: HeadTerms
    allowed: NDArray[np.bool_]
    shown: float
    unselected: bool = False

    @property
    def q(self) -> NDArray[np.floating[Any]]:
        """[d], the query."""
        return self.terms.query[self.query]

    @property
    def k(self) -> NDArray[np.floating[Any]]:
        """[d], the key."""
        return self.terms.key[self.key]

    @property
    def products(self) -> NDArray[np.float64]:
        """[d], q times k dimension by dimension."""
        return self.q.astype("float64") * self.k

    @property
    def dot(self) -> float:
        """q·k."""
        return float(self.products.sum())

    @property
    def scaled(self) -> float:
        """The product times its factor, s q·k."""
        return self.terms.scale * self.dot

    @property
    def capped(self) -> float:
        """The same capped, c tanh(s q·k / c), where the model does that."""
        cap = self.terms.softcap
        return self.scaled if cap is None else cap * math.tanh(self.scaled / cap)

    @property
    def added(self) -> float:
        """b, 0 for nothing."""
        bias = self.terms.bias
        return 0.0 if bias is None else float(bias[self.query, self.key])

    @property
    def score(self) -> float:
        """What softmax takes; -inf where the key is blocked."""
        return float(self.row[self.key])

    @cached_property
    def row(self) -> NDArray[np.float64]:
        """[S], the scores of the query's whole row."""
        bias = self.terms.bias
        bias = None if bias is None else bias[self.query][None]
        row = replace(self.terms, query=self.q[None], bias=bias)
        return row.scores(self.allowed[None])[0]

    @property
    def top(self) -> float:
        """The largest score of the row, a sink among them; -inf in a row without keys."""
        sink = self.terms.sink
        return max(float(self.row.max()), -math.inf if sink is None else sink)

    @property
    def total(self) -> float:
        """Σ e^(score - top) over the row, a sink among it: what the weight's own is divided by."""
        import numpy as np

        if not math.isfinite(self.top):
            return 0.0
        sink = self.terms.sink
        total = float(np.exp(self.row - self.top).sum())
        return total if sink is None else total + math.exp(sink - self.top)

    @property
    def weight(self) -> float:
        """The weight, computed from the above."""
        total = self.total
        return math.exp(self.score - self.top) / total if total else 0.0

    @property
    def norm(self) -> float:
        """‖f(x_j)‖ of the key's value, or ‖v_j‖, see :attr:`HeadTerms.noun`."""
        return float(self.terms.norms[self.key])

    def to_records(self) -> list[dict[str, Any]]:
        """Give a row a dimension, the largest product first: its number, query, key and product."""
        products = self.products
        order = sorted(range(len(products)), key=lambda i: -abs(products[i]))
        return [
            {
                "dimension": i,
                "query": float(self.q[i]),
                "key": float(self.k[i]),
                "product": float(products[i]),
            }
            for i in order
        ]


OriginKind = Literal["token", "position", "segment", "embedding", "head", "mixer", "mlp", "bias"]

ORIGIN_KINDS: tuple[OriginKind, ...] = get_args(OriginKind)


@dataclass(frozen=True, slots=True)
class Origin:
    """Something that writes to the residual stream.

    Attributes:
        kind: ``token``, ``position`` and ``segment`` embeddings; ``embedding`` for what matrices
            make before the first attention layer; ``head``; ``mixer`` for what mixes tokens
            without attention (a layer with a state, a convolution); ``mlp``; ``bias`` for all
            constants together: b_O of attention, β of normalizations, and the bias of W_Q or W_K
            itself.
        head: which, for heads.
        layer: the attention layer that an MLP comes after, or that of a mixer; None elsewhere.
    """

    kind: OriginKind
    head: Head | None = None
    layer: Site | None = None

    def name(self, layout: Layout) -> str:
        """In a word or two: ``1.4``, ``MLP 1``, ``token``."""
        if self.head is not None:
            return layout.name(self.head)
        if self.layer is not None:
            single = len(layout.kinds) == 1
            stack = "encoder" if self.layer.kind == "encoder" else "decoder"
            name = f"{'mixer' if self.kind == 'mixer' else 'MLP'} {self.layer.layer}"
            return name if single else f"{stack} {name}"
        return _NAMES[self.kind]


_NAMES = {
    "token": "token", "position": "position", "segment": "segment", "embedding": "embedding",
    "bias": "biases",
}  # fmt: skip
