"""Which documents heads are chosen on, and which they are measured on."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Selection = Literal["halves", "all"]
"""Choose on even documents and measure on odd ones, so that the best of many does not flatter; or
do both on everything."""
HALVES: Selection = "halves"
EVERYTHING: Selection = "all"


def halves(
    documents: NDArray[np.integer[Any]], select_on: Selection
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which of some documents, by their numbers from 1, are chosen on, and which are measured."""
    if select_on == EVERYTHING:
        everything = np.ones(len(documents), np.bool_)
        return everything, everything
    even = documents % 2 == 0
    return even, ~even


def chosen_on(select_on: Selection, unit: str) -> str:
    """The documents that heads are chosen on, in words."""
    return f"{'all' if select_on == EVERYTHING else 'even'} {unit}"


def measured_on(select_on: Selection, unit: str) -> str:
    """Those that figures are from."""
    return f"{'all' if select_on == EVERYTHING else 'odd'} {unit}"
