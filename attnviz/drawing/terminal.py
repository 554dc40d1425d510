"""What the terminal shows: the grid of heads, the table of evidence, one line of origin, a map.

Each function takes records and returns a rich renderable that adapts itself, when printed, to the
console's width, colours and encoding. Token texts never reach the console raw, and never as
markup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from attnviz.core.capture import Capture
from attnviz.core.heads import SITE_PREFIX, Head, Layout
from attnviz.core.quantities import QUANTITIES
from attnviz.core.result import Finding
from attnviz.core.scores import (
    SINK,
    SINK_SHARE,
    HeadScores,
    PrefixMatching,
    Score,
    ScoredHeads,
    SinkRate,
    UserDefined,
)
from attnviz.core.tokens import Sides
from attnviz.drawing import labels
from attnviz.drawing.console import coloured, renderable, table_of
from attnviz.drawing.grid import tile_style
from attnviz.drawing.palette import NO_ROLE
from attnviz.scoring.roles import FEW_ROWS, SHOWN, does_something, drawn, in_order

if TYPE_CHECKING:
    from attnviz.drawing.style import Style


def heads_table(
    report: ScoredHeads, heads: Sequence[HeadScores] | None = None, *, score: str | None = None
) -> HeadsTable:
    """Return the evidence, one line a head."""
    chosen = [h for h in report.heads if h.roles] if heads is None else list(heads)
    return HeadsTable(report, chosen, score)


def heads_cells(report: ScoredHeads) -> tuple[list[str], list[list[str]]]:
    """Give the same evidence as plain texts: the titles of columns that say something, and rows."""
    table = heads_table(report)
    rows = [[cell.plain for cell in table.row(scores)] for scores in table.heads]
    columns = [n for n in range(len(_COLUMNS)) if any(row[n] for row in rows)]
    return [_COLUMNS[p][0] for p in columns], [[row[p] for p in columns] for row in rows]


def closing_line(result: ScoredHeads | Capture, *captures: Capture) -> RenderableType:
    """Model, backend, exactness, tokens and device, in one line, for all texts together."""
    return Line(labels.origin(result, *captures), "dim")


def heatmap(
    weights: NDArray[np.floating[Any]],
    sides: Sides,
    *,
    title: str = "",
    style: Style | None = None,
    top: float | None = None,
) -> RenderableType:
    """One attention map [T, S]: queries downwards, keys across.

    Few tokens are drawn as wide cells with the weight in them, more as square cells under upright
    labels, many as half-blocks under numbers with the tokens listed below, and more than fit are
    binned, which is said. Without colours (a pipe, NO_COLOR) characters of rising density stand
    for the weights.
    """
    from attnviz.drawing.heatmap_terminal import TerminalMap
    from attnviz.drawing.style import Style

    return TerminalMap(weights, sides, title=title, style=style or Style(), top=top)


def resting_line(report: ScoredHeads) -> str:
    """How many heads have no role but a place to rest, in one line; empty where none has."""
    resting = [h for h in report.heads if h.roles and not does_something(h)]
    if not resting:
        return ""
    counts = Counter(scores.roles[0].name for scores in resting)
    named = ", ".join(f"{name} {counts[name]}" for name in in_order(counts))
    heads = "1 head attends" if len(resting) == 1 else f"{len(resting)} heads attend"
    return f"{heads} only to sinks or diffusely: {named}"


def user_defined_line(names: Sequence[UserDefined]) -> str:
    """Return what is no part of attnviz, with the functions that measured it."""
    named = ", ".join(f"{name.what} {name.name} ({name.function})" for name in names)
    return f"user-defined: {named}"


class Line:
    """A line of our own words and names."""

    def __init__(self, text: str, style: str = "") -> None:
        self.text, self.style = text, style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Print it with the signs this console can show."""
        text = labels.signs(self.text, options.ascii_only)
        yield Text(labels.visible(text, ascii_only=options.ascii_only), style=self.style)


_COLUMNS: tuple[tuple[str, Literal["left", "right"]], ...] = (
    ("head", "left"),
    ("role", "left"),
    ("score", "right"),
    ("chance", "right"),
    ("lift", "right"),
    ("rows", "right"),
    ("of all", "left"),
    ("", "left"),
    ("sink", "left"),
    ("also", "left"),
)


_NARROW = 52  # columns of a console that has room for little
_ENDLESS = 1 << 12  # columns in which any table has room
_SINK_ROOM = 96  # columns of a console that has room for the sink
_ALSO = 12  # columns that what heads also do takes at least
_SORTED_ROOM = 12  # columns more where the score stands that a table is sorted by
_TOKEN = 8  # characters of a token in the table
_SCORE = 2  # the column before which the score stands that a table is sorted by


class HeadsTable:
    """The table of evidence; see :func:`heads_table`."""

    def __init__(
        self, report: ScoredHeads, heads: Sequence[HeadScores], score: str | None = None
    ) -> None:
        self.report = report
        self.heads = heads
        self.score = score

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Draw for this console; narrow ones get fewer columns."""
        if not self.heads:
            roles = any(head.roles for head in self.report.heads)
            reason = "no head to list" if roles else "no head shows a role on this input"
            if roles and not any(map(does_something, self.report.heads)):
                reason = "no head does more than attend to a sink on this input"
            yield Text(f"{reason}\n", style="dim")
            return
        roomy, narrow = options.max_width >= 72, options.max_width < _NARROW
        colors = coloured(console)
        shaded = colors and not narrow
        rows = [self.row(scores, narrow=narrow, colors=shaded) for scores in self.heads]
        sorted_by = self.score not in (None, SINK)
        room = options.max_width >= _SINK_ROOM + _SORTED_ROOM * sorted_by
        fits = (True, True, True, not narrow, True, True, roomy, not narrow, room, roomy)
        beside = None if room and self.score == SINK else self.score
        columns = [p for p, fit in enumerate(fits) if fit and any(row[p].plain for row in rows)]
        table = self._table(columns, rows, beside, options)
        while roomy and self._least(table, rows, console, options) > options.max_width:
            columns = columns[:-1]
            table = self._table(columns, rows, beside, options)
        yield table
        yield Text("")

    def _table(
        self,
        columns: Sequence[int],
        rows: Sequence[Sequence[Text]],
        beside: str | None,
        options: ConsoleOptions,
    ) -> Table:
        """Return these columns, and a score beside them."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1),
                      collapse_padding=options.max_width < _NARROW)  # fmt: skip
        for column in columns:
            title, justify = _COLUMNS[column]
            if column == _SCORE and beside is not None:
                table.add_column(beside, justify="right", no_wrap=True)
            also = title == "also"
            table.add_column(
                title, justify=justify, no_wrap=not also, min_width=_ALSO if also else None
            )
        for scores, row in zip(self.heads, rows, strict=True):
            cells = [_signed(row[column], options.ascii_only) for column in columns]
            if beside is not None:
                score = scores.scores.get(beside)
                mean = None if score is None else score.mean
                cells.insert(_SCORE, Text("–" if mean is None else labels.number(mean)))
            table.add_row(*cells)
        return table

    @staticmethod
    def _least(
        table: Table, rows: Sequence[Sequence[Text]], console: Console, options: ConsoleOptions
    ) -> int:
        """Give the width without which something of it is cut; only what heads also do may wrap."""
        width = console.measure(table, options=options.update(width=_ENDLESS)).maximum
        if table.columns[-1].no_wrap:
            return width
        return width - max(0, max(row[-1].cell_len for row in rows) - _ALSO)

    def row(self, scores: HeadScores, *, narrow: bool = False, colors: bool = False) -> list[Text]:
        """Return a line, with a cell for every column."""
        name = Text(self.report.layout.name(scores.head))
        role, evidence = Text(), None
        best = scores.roles[0] if scores.roles else None
        if best is not None:
            evidence = best.evidence
            if colors:
                strength = min(max(evidence.mean or 0.0, 0.0), 1.0)
                role.append("  ", tile_style(drawn(best.name).color, strength, True))
                role.append(" ")
            places = best.rests and best.name != "diffuse"
            role.append(f"sink: {best.name}" if places else labels.role_name(best))
        else:
            shares = ((n, scores.scores[n]) for n in SHOWN if n in scores.scores)
            ranked = [(s.mean, n) for n, s in shares if s.mean and s.chance]
            label = f"({max(ranked)[1]})" if ranked else ""
            evidence = scores.scores[max(ranked)[1]] if ranked else None
            role.append(f"{'   ' if colors else ''}{NO_ROLE} {label}", "dim")
        if evidence is None:
            return [name, role, *(Text("") for _ in range(6)), self._sink(scores), Text("")]
        few = evidence.rows < FEW_ROWS
        share = "" if best is None else labels.possible(best)
        also = (
            labels.rest_phrase(r) if r.rests else labels.role_phrase(r) for r in scores.roles[1:]
        )
        return [
            name,
            role,
            *_numbers(evidence, diffuse=best is not None and best.name == "diffuse"),
            Text(f"{evidence.rows} few" if few and narrow else str(evidence.rows)),
            Text(share),
            Text("few rows" if few else ""),
            self._sink(scores),
            Text(", ".join(also)),
        ]

    def _sink(self, scores: HeadScores) -> Text:
        """Find the token with the most weight in all, where it is a sink, its place and weight."""
        sink = scores.scores.get(SINK)
        least = 0.0 if self.score == SINK else SINK_SHARE
        if scores.sink is None or sink is None or (sink.mean or 0.0) <= least:
            return Text("")
        texts = self.report.inputs.sides[scores.head.site.kind].keys.texts
        token = labels.shorten(labels.visible(texts[scores.sink]), _TOKEN)
        return Text(f"{token} ({scores.sink}) {labels.number(sink.mean or 0.0)}")


@renderable
def mixing_table(console: Console, options: ConsoleOptions, report: ScoredHeads) -> RenderResult:
    """Yield the mixing ratios of layers, by weights and by what is written."""
    if not report.mixing:
        return
    formula = labels.signs(QUANTITIES[report.quantity].formula, options.ascii_only)
    table = table_of("layer", ">mixing by weights", f">by {formula}", ">rows", fold=False)
    several = len(report.layout.kinds) > 1
    for mixing in report.mixing:
        site = f"{SITE_PREFIX[mixing.site.kind]}:" if several else ""
        means = (
            "–" if m is None else labels.number(m) for m in (mixing.layer_weights, mixing.layer)
        )
        cells = (f"{site}{mixing.site.layer}", *means, str(mixing.rows))
        table.add_row(*(labels.signs(cell, options.ascii_only) for cell in cells))
    yield table
    yield Text("")


def _numbers(evidence: Score, *, diffuse: bool) -> list[Text]:
    """Score, chance and lift; of a diffuse head the share of the largest entropy there is."""
    if evidence.mean is None:
        return [Text("–"), Text("–"), Text("–")]
    if diffuse:
        return [Text(labels.percent(evidence.mean)), Text("of"), Text("max")]
    chance = "–" if evidence.chance is None else labels.number(evidence.chance)
    return [Text(labels.number(evidence.mean)), Text(chance), Text(labels.times(evidence))]


def _signed(cell: Text, ascii_only: bool) -> Text:
    return Text(labels.signs(cell.plain, True), style=cell.style) if ascii_only else cell


def finding_lines(findings: Sequence[Finding], names: Collection[str]) -> Iterator[Line | Text]:
    """Each result, what it says first of the heads named, and how it knows."""
    for finding in findings:
        listed = [name for name in names if name in finding.said]
        yield Line(f"{finding.title} ({finding.name})", "bold")
        width = max(map(len, listed), default=0)
        for name in listed:
            yield Line(f"{name:<{width}}  {finding.said[name][0]}")
        if not listed:
            yield Line("nothing on the heads above")
        yield Line(finding.how, "dim")
        yield Text()


SINKS, MATCHING = "Sink rate (Gu et al. 2024)", "Prefix matching (Olsson et al. 2022)"
_BEST = 5  # heads that a line names


def matching_line(matching: PrefixMatching, layout: Layout, among: Collection[Head]) -> str:
    """Return the heads that match prefixes best, of some."""
    rows = zip(layout, matching.means, matching.halves, strict=True)
    ranked = sorted((-mean, half, head) for head, mean, half in rows if head in among)
    best = [f"{layout.name(head)} {-mean:.2f} ± {half:.2f}" for mean, half, head in ranked[:_BEST]]
    return (
        f"{MATCHING}, best: {', '.join(best)}; a perfect head has 0.5, "
        f"uniform attention {labels.number(matching.chance)}; {matching.probes} probes of "
        f"{matching.copies}×{matching.length} random tokens, 95 % intervals"
    )


def sink_line(sinks: SinkRate) -> str:
    """Return the share of heads that are attention sinks."""
    texts = labels.counted(sinks.texts, "text")
    over = "no interval from a single text"
    if sinks.half is not None:
        low, high = max(sinks.rate - sinks.half, 0.0), min(sinks.rate + sinks.half, 1.0)
        over = f"95 % {labels.percent(low)} to {labels.percent(high)}"
    return (
        f"{SINKS}: {labels.percent(sinks.rate)} of the heads, {over}; mean weight on "
        f"the first token above {sinks.threshold:g} over the first {sinks.length} rows, {texts} "
        "long enough"
    )
