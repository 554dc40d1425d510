"""Which tokens get weight for what they are, and not for how frequent they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnviz.features.profile.parts import SpecificToken

TOKENS = 10
"""Specific tokens that are named, and unspecific ones."""
_LEAST = 3
"""Rows' worth of uniform attention that a token has to be called unspecific."""


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
