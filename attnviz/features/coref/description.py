"""Heads that find antecedents described: the grid, kinds of mentions, the best heads, findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import itemgetter
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from attnviz.core.heads import Head
from attnviz.core.result import Figures, Finding, Measure, known
from attnviz.drawing.console import FULL, Tile, coloured, renderable, tile_grid
from attnviz.drawing.description import (
    Column,
    Listing,
    by_case,
    estimate,
    estimate_column,
    head_column,
    interval,
    percent,
    plain,
    plain_percent,
    plain_share,
    points,
)
from attnviz.drawing.labels import ran_on, signs
from attnviz.drawing.terminal import Line
from attnviz.features.coref import result as records

SHORT: Mapping[records.NameDirection, str] = {"to_name": "row", "from_name": "column"}
"""Directions in a cell of a table."""
CANDIDATES: Mapping[records.Candidates, str] = {
    "names": "two names",
    "words": "any other word",
    "mentions": "head words of earlier mentions",
}
MARK = "*"  # behind the figure of a head that finds antecedents by the rule for roles


def baseline_name(result: records.Coref, name: str) -> str:
    """Return a baseline in words: ``nearest name``, ``same head word``."""
    if name == "same_word":
        return "same head word"
    return f"{name} {'name' if result.data == 'names' else 'mention'}"


def choice_line(result: records.Coref) -> str:
    """Return what is known of the chosen head, in one line."""
    best = result.best
    if best is None or best.accuracy.value is None:
        return "no head has a held-out figure"
    role = " (coreference)" if any(role.head == best.head for role in result.roles) else ""
    return (
        f"head {result.layout.name(best.head)} by {SHORT[best.direction]}{role}: "
        f"{percent(best.accuracy)} % (95 %: {interval(best.accuracy)}) of {best.count:,} examples "
        f"on {result.measured_on}; the {baseline_name(result, best.baseline)} is right in "
        f"{plain_percent(best.baseline_accuracy)} %, {points(best.margin)} points "
        f"(95 %: {interval(best.margin)})"
    )


def measured(result: records.Coref) -> str:
    """Return what was measured on what, in one line."""
    parts = [
        f"{result.examples:,} examples from {result.texts:,} {result.unit}",
        f"in windows of at most {result.window} tokens" if result.window else "",
        f"head and baseline chosen on {result.chosen_on}, measured on {result.measured_on}",
        ran_on(result.source),
    ]
    return " · ".join(filter(None, parts))


def parts(result: records.Coref, *, top: int = 10) -> Iterator[RenderableType]:
    """Yield the grid, the kinds of examples, so many heads, and the legends."""
    yield coref_grid(result)
    yield Listing(
        _of_kinds(result), result.kinds,
        lambda kind: kind.best is None or kind.best.accuracy.value is None,
    ).table(no_wrap=True)  # fmt: skip
    yield ""
    yield heads_table(result, top)
    yield ""
    yield Line(choice_line(result))
    yield Line(legend(result), "dim")
    yield Line(measured(result), "dim")


def coref_tiles(report: records.Coref) -> dict[Head, Tile]:
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
def coref_grid(console: Console, options: ConsoleOptions, report: records.Coref) -> RenderResult:
    """Layers downwards, heads across, each with how often it is right."""
    ranked = report.everything.ranked
    if not ranked:
        return
    yield tile_grid(report.layout, coref_tiles(report))
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


def _of_kinds(report: records.Coref) -> list[Column]:
    """Describe a kind of example: the chosen head, and the best baseline."""

    def best(name: str) -> Callable[[records.MentionKind], Any]:
        return lambda kind: kind.best and getattr(kind.best, name)

    return [
        Column("", "name", "", left=True),
        Column("", "count", "count", "{:,}".format),
        Column("", best("head"), "head", report.layout.name, left=True),
        Column("", best("direction"), "by", SHORT.__getitem__, left=True),
        Column("", best("accuracy"), "%", percent, interval),
        Column("", best("baseline"), "baseline", partial(baseline_name, report), left=True),
        Column("", best("baseline_accuracy"), "baseline %", plain_percent),
        Column("", best("margin"), "points", points, interval),
    ]


def heads_table(report: records.Coref, top: int) -> Table:
    """Return the heads that are right most often where heads are chosen, and the baselines."""
    everything = report.everything
    on_all = {head.head: head for head in everything.heads}
    columns = [
        *_of_heads(report),
        Column("", lambda head: on_all[head.head].to_name, "row, all", plain_percent),
        Column("", lambda head: on_all[head.head].from_name, "column, all", plain_percent),
    ]
    table = Listing(columns, everything.ranked).table(top, no_wrap=True)
    table.add_section()
    for baseline in everything.baselines:
        cells = (percent(baseline.held_out), interval(baseline.held_out), "", "")
        name = baseline_name(report, baseline.name)
        table.add_row(name, "", *cells, plain_percent(baseline.accuracy), "", style="dim")
    return table


def legend(report: records.Coref) -> str:
    """Return what the tables show, in one line."""
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


def listing(result: records.Coref) -> Listing:
    """List each kind of example and head that can be chosen for it, the best first."""
    columns = [
        Column("kind", itemgetter(0)),
        *(column.under(itemgetter(1)) for column in _of_heads(result)),
    ]
    return Listing(columns, [(kind.name, head) for kind in result.kinds for head in kind.ranked])


def _of_heads(result: records.Coref) -> list[Column]:
    """Describe a head of a kind of example."""
    return [
        head_column(result.layout),
        Column("direction", "direction", "by", SHORT.__getitem__, left=True),
        estimate_column("accuracy", "accuracy", "%", percent, interval),
        *plain("count", "baseline", "baseline_accuracy"),
        estimate_column("margin", "margin", "points", points, interval),
    ]


def finding(result: records.Coref, name: str) -> Finding:
    """How often each head points at what a mention refers to."""
    heads = {
        result.layout.name(head.head): head
        for head in result.everything.ranked
        if head.accuracy.value is not None
    }
    sentences = {}
    for label, head in heads.items():
        beside = f"{head.baseline} {plain_share(head.baseline_accuracy)}"
        sentences[label] = [f"{estimate(head.accuracy)} of {head.count:,}, {beside}"]
    values = known({label: head.accuracy for label, head in heads.items()})
    method = (
        f"How often it is right in {result.measured_on} that no head was chosen on, the best "
        "rule without attention beside it; 95 % intervals."
    )
    measure = Measure("accuracy", "how often it finds what is referred to", "", 0, values)
    return Finding.of("coref", name, "What a mention refers to", method, sentences, [measure])


def figures(result: records.Coref) -> Figures:
    """Accuracies on all data, by kind of mention and direction, and the heads with the role."""
    settings = {"data": result.data, "candidates": result.candidates}
    return by_case(result, result.kinds, records.NAME_DIRECTIONS, settings)
