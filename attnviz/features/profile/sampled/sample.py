"""Rows drawn at random from a corpus, whatever its size and order, for all chosen heads at once.

Every row of a text that counts has 64 random bits of its own, from the seed, the text and its
position; the rows with the smallest bits are the sample. So each row is as likely to be in it as
any other, the sample of a corpus is that of its parts put together, and memory does not grow.

Notation in shapes: n rows, H chosen heads, L their layers, R relations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.corpus.relations import RELATIONS
from attnviz.features.profile.parts import SampledText, SpecificToken
from attnviz.features.profile.tasks import mixed
from attnviz.statistics.histogram import spread

ROWS = 4096  # rows that rules and pairs are found on
WHOLE = 512  # the first of them, which are kept with all their weights, to be shown
CRITERIA = ("weight", "norm", "effect")
"""What deciles are of: the largest weight of a row, the largest α_ij‖f(x_j)‖, and the effect."""

Hashes = NDArray[np.uint64]

_SECOND = np.uint64(0xD1B54A32D192ED03)  # any bits that are like no other constant here


def hashes(key: int, rows: int, seed: int) -> Hashes:
    """Return the random bits of each row of a text."""
    text_seed = int(mixed(seed, np.array([0]))[0]) ^ key
    return mixed(text_seed, np.arange(rows))


def second(bits: Hashes) -> NDArray[np.float64]:
    """Numbers from 0 to 1 that are independent of which rows have the smallest bits."""
    remixed = spread(bits ^ _SECOND) >> np.uint64(11)
    return remixed.astype(np.float64) / (1 << 53)


@dataclass(frozen=True, slots=True)
class WholeRow:
    """A row with all that can be shown of it."""

    weights: NDArray[np.uint16]  # uint16 [H, S], in units of 1/65,535
    # float32 [H, d or d_v] by name, of :data:`~.watch.VECTORS`.
    vectors: Mapping[str, NDArray[np.float32]]
    sigma: float  # what the last normalization divides by; NaN where that is not known
    next: int  # the id of the token that follows; -1 at the end of a text


_ARRAYS: Mapping[str, tuple[Any, tuple[str, ...]]] = {
    "hash": (np.uint64, ()),
    "text": (np.uint64, ()),
    "cluster": (np.uint64, ()),
    "alike": (np.uint64, ()),
    "row": (np.int32, ()),
    "condition": (np.int64, ()),
    "query_class": (np.int8, ()),
    "query": (object, ()),
    "choices": (np.int32, ("L",)),
    "chance": (np.float32, ("L", "R")),
    "key": (np.int32, ("H",)),
    "hits": (np.int64, ("H",)),
    "key_class": (np.int8, ("H",)),
    "name": (object, ("H",)),
    "values": (np.float32, ("H", "C")),
    "written": (np.float32, ("H",)),
}
"""The columns of a sample, their types and their axes behind the rows."""
COLUMNS = tuple(_ARRAYS)


@dataclass
class RowSample:
    """The rows with the smallest bits, by these bits."""

    # arrays [n, ...]: ``hash``, the ``text`` and the ``row`` in it, the ``cluster`` of texts that
    # are not independent, and what copies are ``alike`` in; ``condition`` and ``query_class`` of
    # the query, ``query`` its text; ``choices``, keys that are allowed, and ``chance``, the share
    # of them that are targets of each relation, by layer; and of each head the ``key`` with the
    # largest weight, its ``name`` and ``key_class``, a bit in ``hits`` for every relation whose
    # target it is, the ``values`` of the criteria, and ``written``, the norm of what it wrote.
    columns: dict[str, NDArray[Any]]
    # the first :data:`WHOLE` rows, by their bits
    whole: dict[int, WholeRow] = field(default_factory=dict)
    # those of the whole rows, by their keys
    texts: dict[int, SampledText] = field(default_factory=dict)

    @classmethod
    def empty(cls, heads: int, layers: int) -> RowSample:
        """No rows of so many heads in so many layers."""
        sizes = {"H": heads, "L": layers, "R": len(RELATIONS), "C": len(CRITERIA)}
        return cls(
            {
                name: np.zeros((0, *(sizes[axis] for axis in axes)), dtype)
                for name, (dtype, axes) in _ARRAYS.items()
            }
        )

    def __len__(self) -> int:
        return len(self.columns["hash"])

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]

    def merge(self, *others: RowSample) -> None:
        """Keep the rows with the smallest bits of all."""
        samples = (self, *others)
        bits = np.concatenate([sample.columns["hash"] for sample in samples])
        smallest = np.argsort(bits, kind="stable")[:ROWS]
        self.columns = {
            name: np.concatenate([sample.columns[name] for sample in samples])[smallest]
            for name in COLUMNS
        }
        self.columns["values"][WHOLE:, :, CRITERIA.index("effect")] = np.nan  # known by chance
        for other in others:
            self.whole.update(other.whole)
            self.texts.update(other.texts)
        first = set(self.columns["hash"][:WHOLE].tolist())
        self.whole = {bit: row for bit, row in self.whole.items() if bit in first}
        texts = set(self.columns["text"][:WHOLE].tolist())
        self.texts = {key: text for key, text in self.texts.items() if key in texts}

    def independent(self) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """Give what each row counts with [n], and whether it is of the one copy that counts [n]."""
        _, alike = np.unique(self["alike"], return_inverse=True)
        _, cluster = np.unique(self["cluster"], return_inverse=True)
        root = self["cluster"].copy()
        while True:  # the smallest, from copy to copy and through groups of texts
            smallest = root
            for label in (alike, cluster):
                lowest = np.full(label.max(initial=-1) + 1, np.iinfo(np.uint64).max, np.uint64)
                np.minimum.at(lowest, label, smallest)
                smallest = lowest[label]
            if (smallest == root).all():
                break
            root = smallest
        first = np.full(alike.max(initial=-1) + 1, np.iinfo(np.uint64).max, np.uint64)
        np.minimum.at(first, alike, self["text"])
        return root, self["text"] == first[alike]

    def renumber(self, offset: int) -> None:
        """Count the texts from ``offset`` on, since others came before them."""
        self.texts = {
            key: replace(text, number=text.number + offset) for key, text in self.texts.items()
        }


class Threshold:
    """The smallest bits that a worker has seen, at most ``count``.

    Rows or texts with larger ones are in no sample of the corpus, whatever other workers find.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._bits: Hashes = np.zeros(0, np.uint64)

    def may_have(self, bits: Hashes) -> NDArray[np.bool_]:
        """Which may be in the sample of all that there is."""
        if not self._count:
            return np.zeros(len(bits), np.bool_)
        if len(self._bits) < self._count:
            return np.ones(len(bits), np.bool_)
        return bits <= self._bits[-1]

    def add(self, bits: Sequence[Hashes]) -> None:
        """Take in some bits; those that come again count once."""
        self._bits = np.unique(np.concatenate([self._bits, *bits]))[: self._count]


def plane(
    moments: NDArray[np.float64], count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], tuple[float, float]]:
    """Find the widest plane [d, 2], mean [d] and shares of variance of ``moments`` [d + 1, d]."""
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


TOKENS = 10  # specific tokens that are named, and unspecific ones
_LEAST = 3  # rows' worth of uniform attention that a token has to be called unspecific


@dataclass(frozen=True, eq=False, slots=True)
class TokenShares:
    """How much weight token strings get: shares [n] of a head's, and of uniform attention's.

    ``rows`` is how many rows uniform attention gives each string, [n].
    """

    texts: Sequence[str]
    weight: NDArray[np.float64]
    uniform: NDArray[np.float64]
    rows: NDArray[np.float64]


def specific(tokens: TokenShares) -> tuple[tuple[SpecificToken, ...], tuple[SpecificToken, ...]]:
    """Tokens with the most weight for their frequency by w log(w / u), and those with the least."""
    often = tokens.rows >= _LEAST
    w, u = tokens.weight, tokens.uniform.clip(1e-12)
    with np.errstate(divide="ignore", invalid="ignore"):
        telling = np.where((w > u) & (w > 0), w * np.log(w / u), 0.0)
    lacking = np.where(often & (w < u), u - w, 0.0)
    sides = []
    for size in (telling, lacking):
        places: list[int] = np.flatnonzero(size > 0).tolist()
        order = sorted(places, key=lambda n: (-size[n], tokens.texts[n]))
        sides.append(
            tuple(
                SpecificToken(tokens.texts[n], float(w[n]), float(tokens.uniform[n]))
                for n in order[:TOKENS]
            )
        )
    return sides[0], sides[1]


PAIR_UNIT = 1 << 20  # uniform attention's pairs are counted in units of 2⁻²⁰ rows
LONGEST_TOKEN = 40  # characters of a token that are kept


@lru_cache(maxsize=1 << 16)
def hashed(text: str) -> int:
    """64 bits of a text."""
    encoded = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(encoded, digest_size=8).digest())


def token_keys(texts: Sequence[str]) -> Hashes:
    """64 bits of the text of each token, [n]."""
    return np.array([hashed(text[:LONGEST_TOKEN]) for text in texts], np.uint64)


def paired(queries: Hashes, keys: Hashes) -> Hashes:
    """One key for a pair of tokens."""
    with np.errstate(over="ignore"):
        return spread(queries) * np.uint64(3) + keys


def pair_keys(pairs: Sequence[tuple[str, str]]) -> Hashes:
    """Return the keys under which pairs of tokens are counted, [n]."""
    names = token_keys([text for pair in pairs for text in pair])
    return paired(*names.reshape(-1, 2).T)
