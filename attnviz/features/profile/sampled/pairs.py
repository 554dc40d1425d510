"""Pairs of tokens, by 64 bits each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np

from attnviz.features.profile.sampled.sample import Hashes
from attnviz.statistics.sketch import spread

PAIR_UNIT = 1 << 20
"""Uniform attention's pairs are counted in units of 2⁻²⁰ rows."""
LONGEST_TOKEN = 40
"""Characters of a token that are kept."""


@lru_cache(maxsize=1 << 16)
def hashed(text: str) -> int:
    """64 bits of a text."""
    said = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(said, digest_size=8).digest())


def token_keys(texts: Sequence[str]) -> Hashes:
    """64 bits of the text of each token, [n]."""
    return np.array([hashed(text[:LONGEST_TOKEN]) for text in texts], np.uint64)


def paired(queries: Hashes, keys: Hashes) -> Hashes:
    """One key for a pair of tokens."""
    with np.errstate(over="ignore"):
        return spread(queries) * np.uint64(3) + keys


def pair_keys(pairs: Sequence[tuple[str, str]]) -> Hashes:
    """The keys under which pairs of tokens are counted, [n]."""
    names = token_keys([text for pair in pairs for text in pair])
    return paired(*names.reshape(-1, 2).T)
