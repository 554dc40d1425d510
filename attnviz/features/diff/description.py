"""A difference described: its sentences, the largest changes, rows, Markdown, findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from attnviz import __version__
from attnviz.core.findings import Finding, Measure, Value, bare
from attnviz.core.heads import Head
from attnviz.drawing.html import plain, table
from attnviz.drawing.labels import fit, number, signs, token_labels, visible
from attnviz.drawing.renderable import coloured, renderable, table_of
from attnviz.drawing.signed import on_terminal, signed
from attnviz.drawing.tables import HEAD, Row, which_head
from attnviz.drawing.terminal import Line
from attnviz.features.diff.result import OTHER_UNITS, Diff, FigureChange, HeadChange

UP = -1
"""More weight in the second run is blue, less is orange: the sign that is orange."""
_SHORT = 40  # letters of the names of two runs that a headline has room for
MEANING = "blue: more in the second run, orange: less"


def title(report: Diff) -> str:
    """Which runs."""
    return f"{visible(report.before)} and then {visible(report.after)}"


def same(report: Diff) -> bool:
    """Whether all that could be compared is equal, and something could."""
    return report.largest is not None and not differing(report, len(report.heads))


def headline(report: Diff) -> str:
    """What was found, in a sentence about heads."""
    before, after = visible(report.before), visible(report.after)
    runs = f"{before} and {after}" if len(before) + len(after) <= _SHORT else "the two runs"
    if same(report):
        return f"Nothing changed: no head differs between {runs}"
    first = report.heads[0] if report.heads else None
    if first is None or first.distance is None:
        return f"What changed: {title(report)}"
    distance = first.distance
    return (
        f"Head {first.name} changed most between {runs}: by {number(distance.mean)} on average, "
        f"and by {number(distance.largest)} at {visible(distance.token)} ({distance.row})"
    )


def below(report: Diff) -> str:
    """What was compared, and how."""
    if report.kind != "maps":
        return f"reports of {report.kind}"
    texts = f"{report.texts:,} text{'s' * (report.texts != 1)}"
    return f"Jensen-Shannon distance of rows, 0 to 1 · {texts} · rows matched by {report.align}"


def strongest(head: HeadChange) -> FigureChange | None:
    """The largest change of a share or an effect; one whose interval leaves out zero first."""
    listed = [change for change in head.changes if change.name not in OTHER_UNITS]
    return max(listed, key=lambda figure: (figure.sure, abs(figure.change)), default=None)


def phrase(change: FigureChange | None) -> str:
    """``induction -0.21 (typical text -0.25 to -0.17)``."""
    if change is None or not change.change:
        return ""
    ends = typical(change)
    return f"{change.name} {signed(change.change)}{f' ({ends})' * bool(ends)}"


def typical(change: FigureChange) -> str:
    """The interval of the typical text that holds with all others; empty where there is none."""
    if change.joint_low is None or change.joint_high is None:
        return ""
    return f"typical text {signed(change.joint_low)} to {signed(change.joint_high)}"


def roles(head: HeadChange) -> str:
    """``+induction -first``."""
    return " ".join([f"+{name}" for name in head.gained] + [f"-{name}" for name in head.lost])


def columns(report: Diff) -> list[str]:
    """What a table of heads has, numbers with a ``>``."""
    far = [">distance", ">largest", "at"] if report.kind == "maps" else []
    return ["head", *far, "largest change", "roles"]


def cells(report: Diff, head: HeadChange, shown: Callable[[str], str]) -> list[str]:
    """A line of that table."""
    row = [head.name]
    if report.kind == "maps":
        distance = head.distance
        if distance is None:
            row += ["", "", ""]
        else:
            text = f", text {distance.text + 1}" if report.texts > 1 else ""
            place = f"{shown(distance.token)} ({distance.row}){text}"
            row += [number(distance.mean), number(distance.largest), place]
    return [*row, phrase(strongest(head)), roles(head)]


def differing(report: Diff, top: int) -> Sequence[HeadChange]:
    """The heads that differ most, those that do not differ at all left out."""
    return [head for head in report.heads[:top] if head.largest() > 0 or head.gained or head.lost]


def mapped(report: Diff, top: int) -> list[tuple[Head, HeadChange]]:
    """The heads that differ most and whose maps are there."""
    by_name = {report.layout.name(head): head for head in report.maps}
    pairs = [(by_name[change.name], change) for change in report.heads if change.name in by_name]
    return [pair for pair in pairs[:top] if pair[1].largest() > 0]


_FIGURE = (
    "figure", "before", "after", "change", "low", "high", "typical", "joint_low", "joint_high",
)  # fmt: skip
COLUMNS = ("name", *HEAD, *_FIGURE)


def rows(report: Diff) -> list[Row]:
    """A row for each figure of each head; the distance of its maps first."""
    listed: list[Row] = []
    known = {report.layout.name(head): head for head in report.layout}
    for head in report.heads:
        single = (known[head.name],) if head.name in known else ()
        which = {"name": head.name} | which_head(report.layout, *single)
        if head.distance is not None:
            apart = {"figure": "js distance", "change": head.distance.mean}
            listed.append(which | dict.fromkeys(_FIGURE) | apart)
        for figure in head.changes:
            numbers = {name: getattr(figure, name) for name in _FIGURE[1:]}
            listed.append(which | {"figure": figure.name} | numbers)
    return listed


_CELL = 2
_LABEL = 14
_CLEAR = 0.05  # without colours, a smaller difference of weights is a dot


def parts(report: Diff, top: int = 10) -> Iterator[RenderableType]:
    """What is printed: so many heads, and of a single text the signed map of the first."""
    yield differences(report, top)
    if report.maps:
        yield ""
        yield signed_map(report)


@renderable
def differences(console: Console, options: ConsoleOptions, report: Diff, top: int) -> RenderResult:
    """A table of heads, the largest difference first."""
    plain = options.ascii_only
    yield Line(title(report), "bold")
    yield Line(below(report), "dim")
    yield Text("")
    listed = differing(report, top)
    if not listed:
        known = report.largest is not None
        yield Line(
            "nothing changed: no head differs"
            if known
            else "no head has anything to compare in both runs"
        )
        return
    table = table_of(*columns(report), fold=False)
    shown = partial(visible, ascii_only=plain)
    for head in listed:
        *compared, change, roles = cells(report, head, shown)
        table.add_row(*compared, signs(change, plain), roles)
    yield table
    left = len(report.heads) - len(listed)
    if left:
        yield Line(f"{left} heads differ less or not at all", "dim")


@renderable
def signed_map(console: Console, options: ConsoleOptions, report: Diff) -> RenderResult:
    """Where a head looks more, and where less, in a single text.

    Nothing where the text is too long for the console.
    """
    largest_maps = mapped(report, 1)
    if not largest_maps:
        return
    ((head, change),) = largest_maps
    values = report.maps[head]
    sides = report.sides[head.site.kind]
    plain, colours = options.ascii_only, coloured(console)
    queries, keys = (token_labels(t, ascii_only=plain) for t in (sides.queries, sides.keys))
    gutter = min(max(map(cell_len, queries)), _LABEL)
    if gutter + 1 + _CELL * len(keys) > options.max_width:
        yield Line("the signed map does not fit here; draw it with a file", "dim")
        return
    most = float(abs(values).max())
    yield Text(f"head {change.name}", "bold")
    for label, row in zip(queries, values, strict=True):
        line = Text(fit(label, gutter, "right", ascii_only=plain) + " ", no_wrap=True)
        for value in row:
            if colours:
                line.append(" " * _CELL, on_terminal(float(value), most, UP))
            else:
                mark = "." if abs(value) < _CLEAR else ("+" if value > 0 else "-")
                line.append(mark.center(_CELL))
        yield line
    meaning = f"+ more in the second run, - less, by at least {_CLEAR}"
    if colours:
        meaning = f"{MEANING}, full colour at a difference of {most:.2g}"
    yield Line(f"rows: queries, columns: keys; {meaning}", "dim")


def finding(result: Diff, name: str) -> Finding:
    """How far apart each head's rows are, or how its figures differ."""
    known = {result.layout.name(head) for head in result.layout}
    heads = [head for head in result.heads if head.name in known]
    far = bare({head.name: head.distance.mean for head in heads if head.distance is not None})
    measures = [Measure("distance", "mean distance of its rows", "", 0, far)]
    changes: dict[str, dict[str, Value]] = {}
    for head in heads:
        for figure in head.changes:
            if figure.name not in OTHER_UNITS:
                value = (figure.change, figure.low, figure.high)
                changes.setdefault(figure.name, {})[head.name] = value
    measures += [
        Measure(f"change: {key}", f"change of {key}", "", UP, values)
        for key, values in changes.items()
    ]
    how = f"{title(result)}: {below(result)}."
    said = {head.name: _lines(head, result.texts) for head in heads}
    return Finding.of("diff", name, "What changed", how, said, measures)


def _lines(head: HeadChange, texts: int) -> Iterator[str]:
    if head.distance is not None:
        distance = head.distance
        where = f"{visible(distance.token)} ({distance.row})" + (
            f", text {distance.text + 1}" if texts > 1 else ""
        )
        most = number(distance.largest)
        yield f"its rows are {number(distance.mean)} apart, at most {most} at {where}"
    change = strongest(head)
    if change is not None and change.change:
        ends = typical(change)
        yield (
            f"{change.name} from {number(change.before)} to {number(change.after)} "
            f"({signed(change.change)}{f', {ends}' * bool(ends)})"
        )
    if head.gained or head.lost:
        yield f"roles: {roles(head)}"


_TOP = 10


def markdown(result: Diff, top: int = _TOP, limit: float | None = None) -> str:
    """Which heads differ most, in a heading, a sentence, a table and a line of origin."""
    lines = [
        f"### Attention heads: {plain(result.before)} → {plain(result.after)}",
        "",
        _sentence(result, limit),
        "",
    ]
    listed = differing(result, top)
    if listed:
        lines += [_table(result, top), ""]
        left = len(result.heads) - len(listed)
        if left:
            lines += [f"{left} heads differ less or not at all.", ""]
    lines += [f"> {plain(note)}" for note in result.notes]
    lines += [""] * bool(result.notes)
    about = below(result).replace(" ·", ";")
    lines.append(f"<sub>{plain(about)}; attnviz {__version__}</sub>")
    return "\n".join(lines) + "\n"


def _sentence(result: Diff, limit: float | None) -> str:
    """How far the heads are apart, and whether that is too far."""
    if result.largest is None:
        return "**No head has anything to compare in both runs.**"
    what = "mean distance" if result.kind == "maps" else "change of a share or effect"
    first = result.heads[0]
    largest = f"the largest {what} is {number(result.largest)} ({first.name})"
    if limit is None:
        some = sum(head.largest() > 0 for head in result.heads)
        return f"**{some} of {len(result.heads)} heads differ**; {largest}."
    over = sum(head.largest() > limit for head in result.heads)
    lacking = len(result.uncompared)
    unknown = f" {lacking} heads cannot be compared." if lacking else ""
    said = f"{over} of {len(result.heads)} heads differ" if over else "No head differs"
    return f"{'❌' if over else '✅'} **{said} by more than {limit:g}**; {largest}.{unknown}"


def _table(result: Diff, top: int) -> str:
    heads = differing(result, top)
    lines = []
    for head in heads:
        *compared, change, roles = cells(result, head, plain)
        lines.append([*compared, plain(change) if change else "", plain(roles) if roles else ""])
    return table(columns(result), lines)
