"""One row of the table: what is known, what attnviz says, and whether they agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Proof(NamedTuple):
    """A row.

    Attributes:
        what: is compared.
        known: the published or exact value, and where it is from.
        ours: what attnviz says.
        within: the interval of ours, or the tolerance.
        holds: whether they agree; None where it could not be tried, with the reason in ``ours``.
        command: that computes the row anew.
    """

    what: str
    known: str
    ours: str
    within: str
    holds: bool | None
    command: str

    @property
    def fails(self) -> bool:
        """Whether it was tried and they do not agree."""
        return self.holds is not None and not self.holds

    @property
    def verdict(self) -> str:
        """The same in a word."""
        return "**FAILS**" if self.fails else "not run" if self.holds is None else "holds"


def missing(what: str, known: str, why: str, command: str) -> Proof:
    """Return a row that needs data that are not here."""
    return Proof(what, known, f"needs {why}", "", None, command)


def table(rows: Sequence[Proof]) -> str:
    """As Markdown."""
    head = ("what", "known", "attnviz", "interval or tolerance", "verdict", "command")
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in rows:
        cells = (row.what, row.known, row.ours, row.within, row.verdict, f"`{row.command}`")
        lines.append(f"| {' | '.join(cell.replace('|', '∣') for cell in cells)} |")
    return "\n".join(lines)
