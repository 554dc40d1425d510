"""Which files of gold annotation are treebanks, and which are about antecedents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from attnviz.files import listed

COREF = "coref="
"""Stands before a treebank whose entities are meant, not its dependencies."""

_TABLES = (".tsv", ".csv", ".txt")
"""Suffixes of tables of pronouns; other files are treebanks."""


def split_gold(gold: str | Path | Sequence[str | Path] | None) -> tuple[list[str], list[str]]:
    """The files for syntax, and those for coref: tables of pronouns, and ``coref=FILE``."""
    treebanks: list[str] = []
    antecedents: list[str] = []
    for name in listed(gold):
        if name.startswith(COREF):
            antecedents.append(name.removeprefix(COREF))
        elif Path(name).suffix.lower() in _TABLES:
            antecedents.append(name)
        else:
            treebanks.append(name)
    return treebanks, antecedents
