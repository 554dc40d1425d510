"""What heads make of whole sentences, on the terminal: their trees, and all of them together."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from attnviz.core.interval import Interval
from attnviz.drawing.renderable import table_of
from attnviz.drawing.shares import interval, percent, points
from attnviz.features.syntax.parses import Combined, CombinedControl, TreeChoice, Trees
from attnviz.features.syntax.result import Syntax
from attnviz.features.syntax.words import WITHOUT, scales
from attnviz.models.controls import Scale

Row = tuple[str, Interval, Interval | None]
"""What was measured, its share, and by how much it is above what its column says."""


def whole_table(report: Syntax) -> RenderableType:
    """One line for each way to a whole tree, baselines first."""
    first = "dependencies in whole sentences"
    table = table_of(first, ">%", ">95 %", ">points", ">95 %", no_wrap=True)
    for title, rows in _blocks(report):
        table.add_row(Text(title, "dim"))
        for name, share, margin in rows:
            more = ("", "") if margin is None else (points(margin), interval(margin))
            known = "" if share.low is None else interval(share)
            table.add_row(Text(f"  {name}"), percent(share), known, *more)
    return table


def whole_lines(report: Syntax) -> Iterator[str]:
    """How the lines of the table were made."""
    if report.trees is not None:
        yield ("undirected trees: the maximum spanning tree over a head's weights, both ways added")
    if report.rooted is not None:
        yield (
            "trees from the root: the maximum arborescence from the gold root, from the word that "
            "looks to the one that is looked at (Htut et al. 2019)"
        )
    if report.trees is not None or report.rooted is not None:
        yield (
            f"points above the chain; heads chosen on {report.chosen_on}, measured on "
            f"{report.measured_on}"
        )
    combined = report.combined
    if combined is not None:
        unit = report.unit
        line = (
            f"all heads: a softmax of weighted sums of attention, {2 * len(report.layout)} "
            f"weights trained on {combined.trained:,} dependencies of even {unit}, measured on "
            f"{combined.count:,} of odd ones; of weights without training the seed with the "
            "highest figure stands there"
        )
        if combined.left_out:
            line += (
                f"; {combined.left_out:,} of {combined.sentences + combined.left_out:,} sentences "
                "were not trained on, since their features take too much memory"
            )
        yield line


def _blocks(report: Syntax) -> Iterator[tuple[str, list[Row]]]:
    """Titles and rows, each block against what its title says."""
    for title, trees, drawn in (
        ("undirected trees (UUAS), points above the chain", report.trees,
         [(control.scale, control.trees) for control in report.untrained]),
        ("trees from the root (UUAS), points above the chain", report.rooted,
         [(control.scale, control.rooted) for control in report.untrained]),
    ):  # fmt: skip
        if trees is not None and trees.best is not None:
            yield title, list(_trees(report, trees.best, drawn))
    combined = report.combined
    if combined is not None:
        yield (
            "directed (UAS), points above the best offset",
            [
                (f"best offset, {combined.offset:+d}", Interval(combined.offset_accuracy), None),
                ("all heads", combined.uas, combined.margin),
            ],
        )
        yield (
            "directed (UAS), points of all heads above these",
            [
                (f"all heads, {WITHOUT[control.scale]}", control.uas, control.margin)
                for control in strongest_controls(combined)
            ],
        )


def strongest_controls(combined: Combined) -> list[CombinedControl]:
    """Of each kind of weights without training the seed with the highest figure."""
    highest: dict[str, CombinedControl] = {}
    for control in combined.controls:
        before = highest.get(control.scale)
        if before is None or (control.uas.value or 0.0) > (before.uas.value or 0.0):
            highest[control.scale] = control
    return list(highest.values())


def _trees(
    report: Syntax, best: TreeChoice, drawn: list[tuple[Scale, Trees | None]]
) -> Iterator[Row]:
    yield "chain of neighbours", Interval(best.chain), None
    for scale in scales(report):
        choices = [trees.best for kind, trees in drawn if kind == scale and trees and trees.best]
        if choices:
            strongest = max(choices, key=lambda choice: choice.uuas.value or 0.0)
            yield (
                f"{WITHOUT[scale]}, head {report.layout.name(strongest.head)}",
                strongest.uuas,
                strongest.margin,
            )
    yield f"head {report.layout.name(best.head)}", best.uuas, best.margin
