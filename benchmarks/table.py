"""The table that every benchmark prints."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Row:
    """One measurement: a ratio, and the target it must not exceed (None: for orientation)."""

    what: str
    against: str
    ratio: float
    target: float | None
    detail: str = ""

    def __post_init__(self) -> None:
        """Tell the figure as soon as it is there; tables follow when they are whole."""
        line = f"{self.what}: {times(self.ratio)} of {self.against} ({self.detail})\n"
        sys.stderr.write(line)
        sys.stderr.flush()

    @property
    def good(self) -> bool:
        """Whether the target is met; True where there is none."""
        return self.target is None or self.ratio <= self.target


def times(ratio: float) -> str:
    """Return a ratio as people say it: 1.25×, and a small one as 1/80."""
    return f"{ratio:.3g}×" if ratio >= 0.1 else f"1/{1 / ratio:.3g}"


def show(title: str, rows: Sequence[Row]) -> bool:
    """Print the rows; returns whether all targets are met."""
    table = Table(title=title, title_justify="left")
    for name in ("what", "against", "ratio", "at most", "", "measured"):
        table.add_column(name, justify="right" if name in ("ratio", "at most") else "left")
    for row in rows:
        target = "" if row.target is None else times(row.target)
        verdict = "" if row.target is None else ("ok" if row.good else "MISSED")
        table.add_row(row.what, row.against, times(row.ratio), target, verdict, row.detail)
    Console().print(table)
    return all(row.good for row in rows)
