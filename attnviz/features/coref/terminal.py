"""Heads that find antecedents on the terminal: the grid, kinds of mentions, the best heads."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from attnviz.core.heads import Head
from attnviz.drawing.labels import signs
from attnviz.drawing.renderable import coloured, renderable, table_of
from attnviz.drawing.shares import interval, percent, plain_percent, points
from attnviz.drawing.terminal import Line
from attnviz.drawing.tiles import FULL, Tile, TileGrid
from attnviz.features.coref.result import Coref
from attnviz.features.coref.words import (
    CANDIDATES,
    MARK,
    SHORT,
    baseline_name,
    choice_line,
    measured,
)


def parts(result: Coref, *, top: int = 10) -> Iterator[RenderableType]:
    """The grid, the kinds of examples, so many heads, and the legends."""
    yield coref_grid(result)
    yield kinds_table(result)
    yield ""
    yield heads_table(result, top)
    yield ""
    yield Line(choice_line(result))
    yield Line(legend(result), "dim")
    yield Line(measured(result), "dim")


def coref_tiles(report: Coref) -> dict[Head, Tile]:
    """How often each head is right, marked where it has the role, coloured by its margin."""
    sure = {role.head for role in report.roles}
    return {
        head.head: Tile(
            plain_percent(head.accuracy.value) + MARK * (head.head in sure),
            (head.margin.value or 0.0) / FULL,
        )
        for head in report.everything.ranked
    }


@renderable
def coref_grid(console: Console, options: ConsoleOptions, report: Coref) -> RenderResult:
    """Layers downwards, heads across, each with how often it is right."""
    ranked = report.everything.ranked
    if not ranked:
        return
    yield TileGrid(report.layout, coref_tiles(report))
    end = f", full colour {100 * FULL:.0f} points above it" if coloured(console) else ""
    best = baseline_name(report, ranked[0].baseline)
    yield Text(
        signs(
            f"% right on {report.measured_on}; dim: not above {best}{end}; "
            f"{MARK} significantly above it, by ten points or more",
            options.ascii_only,
        ),
        "dim",
    )
    yield Text("")


def kinds_table(report: Coref) -> RenderableType:
    """One line for each kind of example: the chosen head, and the best baseline."""
    table = table_of(
        "", ">count", "head", "by", ">%", ">95 %", "baseline", ">baseline %", ">points", ">95 %",
        no_wrap=True,
    )  # fmt: skip
    for kind in report.kinds:
        best = kind.best
        cells = [kind.name, f"{kind.count:,}"]
        if best is None or best.accuracy.value is None:
            table.add_row(*cells, *("–",) * 8, style="dim")
            continue
        cells += [report.layout.name(best.head), SHORT[best.direction], percent(best.accuracy)]
        cells += [interval(best.accuracy), baseline_name(report, best.baseline)]
        cells += [plain_percent(best.baseline_accuracy), points(best.margin)]
        table.add_row(*cells, interval(best.margin))
    return table


def heads_table(report: Coref, top: int) -> RenderableType:
    """The heads that are right most often where heads are chosen, and the baselines."""
    everything = report.everything
    on_all = {head.head: head for head in everything.heads}
    table = table_of(
        "head", "by", ">%", ">95 %", ">points", ">95 %", ">row, all", ">column, all", no_wrap=True
    )
    for head in everything.ranked[:top]:
        table.add_row(
            report.layout.name(head.head),
            SHORT[head.direction],
            percent(head.accuracy),
            interval(head.accuracy),
            points(head.margin),
            interval(head.margin),
            plain_percent(on_all[head.head].to_name),
            plain_percent(on_all[head.head].from_name),
        )
    table.add_section()
    for baseline in everything.baselines:
        cells = (percent(baseline.held_out), interval(baseline.held_out), "", "")
        name = baseline_name(report, baseline.name)
        table.add_row(name, "", *cells, plain_percent(baseline.accuracy), "", style="dim")
    return table


def legend(report: Coref) -> str:
    """What the tables show, in one line."""
    if report.data == "names":
        parts = ["row: which name the pronoun looks at; column: which name looks at it"]
    else:
        among = CANDIDATES[report.candidates]
        parts = [
            "row: where a mention looks; column: who looks most at it; right is the head word of "
            f"an earlier mention of the same entity; heads choose from: {among}"
        ]
    parts.append("all: on all data, where picking the best of many overestimates")
    return "; ".join(parts)
