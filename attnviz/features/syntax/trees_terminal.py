"""What heads make of whole sentences, on the terminal: their trees, and all of them together."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from attnviz.drawing.shares import interval, percent, points
from attnviz.features.syntax.parses import Combined, Trees
from attnviz.features.syntax.result import Syntax
from attnviz.statistics.share import CaseShare

Row = tuple[str, CaseShare, CaseShare | None]
"""What was measured, its share, and by how much it is above the row that it is held against."""


def whole_table(report: Syntax) -> RenderableType:
    """One line for each way to a whole tree, baselines first."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    table.add_column("dependencies in whole sentences", no_wrap=True)
    for title in ("%", "95 %", "points", "95 %"):
        table.add_column(title, justify="right", no_wrap=True)
    if report.trees is not None:
        _add(table, "undirected (UUAS)", _trees(report, report.trees))
    if report.combined is not None:
        if report.trees is not None:
            table.add_section()
        _add(table, "directed (UAS)", _combined(report.combined))
    return table


def whole_lines(report: Syntax) -> Iterator[str]:
    """How the lines of the table were made."""
    if report.trees is not None:
        yield (
            "trees: the maximum spanning tree over a head's weights, both ways added; points above "
            f"the chain; chosen on {report.chosen_on}, measured on {report.measured_on}"
        )
    combined = report.combined
    if combined is not None:
        unit = report.unit
        line = (
            f"all heads: a softmax of weighted sums of attention, {2 * len(report.layout)} "
            f"weights trained on {combined.trained:,} dependencies of even {unit}, measured on "
            f"{combined.count:,} of odd ones; points above untrained weights"
        )
        if combined.left_out:
            line += (
                f"; {combined.left_out:,} of {combined.sentences + combined.left_out:,} sentences "
                "were not trained on, since their features take too much memory"
            )
        yield line


def _trees(report: Syntax, trees: Trees) -> Iterator[Row]:
    best = trees.best
    if best is None:
        return
    yield "chain of neighbours", CaseShare(best.chain), None
    for untrained in report.untrained:
        drawn = None if untrained.trees is None else untrained.trees.best
        if drawn is not None:
            name = report.layout.name(drawn.head)
            yield f"tree of untrained head {name}", drawn.uuas, drawn.margin
    yield f"tree of head {report.layout.name(best.head)}", best.uuas, best.margin


def _combined(combined: Combined) -> Iterator[Row]:
    yield f"best offset, {combined.offset:+d}", CaseShare(combined.offset_accuracy), None
    yield "all heads, untrained weights", combined.untrained, None
    yield "all heads", combined.uas, combined.margin


def _add(table: Table, title: str, rows: Iterator[Row]) -> None:
    table.add_row(Text(title, "dim"))
    for name, share, margin in rows:
        more = ("", "") if margin is None else (points(margin), interval(margin))
        known = "" if share.low is None else interval(share)
        table.add_row(Text(f"  {name}"), percent(share), known, *more)
