"""What benchmarks share: two things timed in turn, the row of a figure, the table of the rows.

``python -m benchmarks.table NAME`` measures, and tells no more than the figures.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

Clock = Callable[[], float]

ROWS = "ATTNVIZ_BENCH_ROWS"
"""The environment variable with a file that keeps every row of a run of all benchmarks."""
_LONG = 2.0  # seconds from which the first measurement counts, where all benchmarks run


@dataclass(frozen=True)
class Row:
    """One measurement: a ratio, and the target it must not exceed (None: for orientation)."""

    what: str
    against: str
    ratio: float
    target: float | None
    detail: str = ""
    told: bool = False

    def __post_init__(self) -> None:
        """Tell the figure as soon as it is there; tables follow when they are whole."""
        if self.told:
            return
        line = f"{self.what}: {times(self.ratio)} of {self.against} ({self.detail})\n"
        sys.stderr.write(line)
        sys.stderr.flush()
        if kept := os.environ.get(ROWS):
            with Path(kept).open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(replace(self, told=True))) + "\n")

    @property
    def good(self) -> bool:
        """Whether the target is met; True where there is none."""
        return self.target is None or self.ratio <= self.target


def rounds(count: int) -> int:
    """How often a thing is measured: so often, and once where all benchmarks run."""
    return 1 if ROWS in os.environ else count


class Turns(NamedTuple):
    """Two things that ran in turn."""

    ratio: float  # the median of the rounds' ratios
    mine: float  # median seconds, as for the other
    theirs: float

    def row(self, what: str, against: str, target: float | None, more: str = "") -> Row:
        """Return the row of their ratio."""
        detail = f"{self.mine:.2f} s, {self.theirs:.2f} s{more}"
        return Row(what, against, self.ratio, target, detail)


def in_turn(
    mine: Callable[[], object],
    theirs: Callable[[], object],
    count: int = 3,
    clock: Clock = time.process_time,
) -> Turns:
    """Run two things in turn, A B A B, so many rounds after one for warming up."""
    found = [(seconds(mine, clock), seconds(theirs, clock))]
    if ROWS not in os.environ or max(*found[0]) < _LONG:
        found = [(seconds(mine, clock), seconds(theirs, clock)) for _ in range(rounds(count))]
    ratio = statistics.median(mine / theirs for mine, theirs in found)
    return Turns(ratio, *(statistics.median(side) for side in zip(*found, strict=True)))


def seconds(call: Callable[[], object], clock: Clock = time.process_time) -> float:
    """How long a call takes."""
    start = clock()
    call()
    return clock() - start


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


if __name__ == "__main__":
    import_module(f"benchmarks.{sys.argv[1]}").measure()
