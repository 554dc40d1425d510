"""The tests mirror the package."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
"""Of the repository."""


def mostly_slow(names: Iterable[str], *quick: str) -> list[Any]:
    """Parameters: ``make test`` runs a few, one of each kind, and ``make slow`` the rest."""
    import pytest

    names = list(names)
    missing = set(quick) - set(names)
    assert not missing, missing
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]
