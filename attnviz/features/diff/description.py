"""A difference described: its sentences, the largest changes, rows, Markdown, findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from statistics import median

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from attnviz import __version__
from attnviz.core.heads import Head
from attnviz.core.result import Finding, Measure, Value, bare
from attnviz.drawing.console import coloured, renderable, table_of
from attnviz.drawing.grid import on_terminal, signed
from attnviz.drawing.labels import fit, number, signs, token_labels, visible
from attnviz.drawing.markdown import plain, table
from attnviz.drawing.tables import HEAD, Row, which_head
from attnviz.drawing.terminal import Line
from attnviz.features.diff.result import ADDED, MOVING, OTHER_UNITS, Diff, FigureChange, HeadChange

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
    """Return what was found, in a sentence about heads."""
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
    """Return what was compared, and how."""
    if report.kind == "adapter":
        return "‖ΔW‖ (Frobenius) of what is added to each head's matrices, from the file alone"
    if report.kind != "maps":
        return f"reports of {report.kind}"
    texts = f"{report.texts:,} text{'s' * (report.texts != 1)}"
    return f"Jensen-Shannon distance of rows, 0 to 1 · {texts} · rows matched by {report.align}"


def strongest(head: HeadChange) -> FigureChange | None:
    """Give the largest change of a share or an effect; one whose interval leaves out zero first."""
    listed = [change for change in head.changes if change.name not in OTHER_UNITS]
    return max(listed, key=lambda figure: (figure.sure, abs(figure.change)), default=None)


def phrase(change: FigureChange | None) -> str:
    """``induction -0.21 (typical text -0.25 to -0.17)``."""
    if change is None or not change.change:
        return ""
    ends = typical(change)
    return f"{change.name} {signed(change.change)}{f' ({ends})' * bool(ends)}"


def typical(change: FigureChange) -> str:
    """Write the typical text's interval that holds with all others; empty for none."""
    if change.joint_low is None or change.joint_high is None:
        return ""
    return f"typical text {signed(change.joint_low)} to {signed(change.joint_high)}"


def roles(head: HeadChange) -> str:
    """``+induction -first``."""
    return " ".join([f"+{name}" for name in head.gained] + [f"-{name}" for name in head.lost])


def ranking(report: Diff, top: int) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of a table that ranks heads by each thing that moved, and what is added."""
    ranked: dict[str, list[tuple[float, str]]] = {}
    for head in report.heads:
        for figure in head.moved:
            size = abs(figure.change if figure.typical is None else figure.typical)
            if size and (report.kind == "adapter" or figure.name in (*MOVING, ADDED)):
                ranked.setdefault(figure.name, []).append((size, f"{head.name}  {amount(figure)}"))
    listed = [sorted(column, key=lambda pair: -pair[0])[:top] for column in ranked.values()]
    rows = zip_longest(*([text for _, text in column] for column in listed), fillvalue="")
    return [f"{name} (nats)" if name == "need" else name for name in ranked], [*map(list, rows)]


def amount(figure: FigureChange) -> str:
    """``0.12 [0.10, 0.15]*``: the typical text, its joint interval, whether that leaves out 0."""
    write = signed if figure.name == "need" else number
    if figure.typical is None or figure.joint_low is None or figure.joint_high is None:
        return write(figure.change if figure.typical is None else figure.typical)
    ends = f"[{write(figure.joint_low)}, {write(figure.joint_high)}]"
    return f"{write(figure.typical)} {ends}{'*' * figure.sure}"


def sentences(report: Diff) -> Iterator[str]:
    """Say what could have been seen, whether anything was, and whether where much is added."""
    moved = [f for head in report.heads for f in head.moved]
    seen = []
    for kind in MOVING:
        least = [f.detectable for f in moved if f.name == kind and f.detectable is not None]
        if least:
            unit = " nats" if kind == "need" else ""
            seen.append(f"{kind} {median(least):.2g}{unit} (of all heads at most {max(least):.2g})")
    if seen:
        none = "" if any(f.sure for f in moved) else "No change seen. "
        yield f"{none}Smallest that could have been seen of the median head: {', '.join(seen)}."
    along = [f"{row.what} {signed(row.rho)} (p {row.p:.2g}, within layers {row.p_within:.2g})"
             for row in report.along]  # fmt: skip
    if along:
        yield f"Rank correlation of what is added and how far heads moved: {', '.join(along)}."
    if report.elsewhere:
        names = ", ".join(map(visible, report.elsewhere[:2]))
        yield f"The adapter also changes what is of no head: {len(report.elsewhere)} ({names} …)."


def columns(report: Diff) -> list[str]:
    """Return what a table of heads has, numbers with a ``>``."""
    far = [">distance", ">largest", "at"] if report.kind == "maps" else []
    return ["head", *far, "largest change", "roles"]


def cells(report: Diff, head: HeadChange, write: Callable[[str], str]) -> list[str]:
    """Return a line of that table."""
    row = [head.name]
    if report.kind == "maps":
        distance = head.distance
        if distance is None:
            row += ["", "", ""]
        else:
            text = f", text {distance.text + 1}" if report.texts > 1 else ""
            position = f"{write(distance.token)} ({distance.row}){text}"
            row += [number(distance.mean), number(distance.largest), position]
    return [*row, phrase(strongest(head)), roles(head)]


def differing(report: Diff, top: int) -> Sequence[HeadChange]:
    """Return the heads that differ most, those that do not differ at all left out."""
    return [
        head for head in report.heads[:top] if head.largest() > 0 or head.gained or head.lost
        or any(figure.typical for figure in head.moved)
    ]  # fmt: skip


def mapped(report: Diff, top: int) -> list[tuple[Head, HeadChange]]:
    """Return the heads that differ most and whose maps are there."""
    by_name = {report.layout.name(head): head for head in report.maps}
    pairs = [(by_name[change.name], change) for change in report.heads if change.name in by_name]
    return [pair for pair in pairs[:top] if pair[1].largest() > 0]


_FIGURE = (
    "figure", "before", "after", "change", "low", "high", "typical", "joint_low", "joint_high",
)  # fmt: skip
COLUMNS = ("name", *HEAD, *_FIGURE)


def rows(report: Diff) -> list[Row]:
    """Return a row for each figure of each head; the distance of its maps first."""
    listed: list[Row] = []
    by_name = {report.layout.name(head): head for head in report.layout}
    for head in report.heads:
        single = (by_name[head.name],) if head.name in by_name else ()
        which = {"name": head.name} | which_head(report.layout, *single)
        if head.distance is not None:
            distance = {"figure": "js distance", "change": head.distance.mean}
            listed.append(which | dict.fromkeys(_FIGURE) | distance)
        for figure in (*head.changes, *head.moved):
            numbers = {name: getattr(figure, name) for name in _FIGURE[1:]}
            listed.append(which | {"figure": figure.name} | numbers)
    return listed


_CELL = 2
_LABEL = 14
_CLEAR = 0.05  # without colours, a smaller difference of weights is a dot


def parts(report: Diff, top: int = 10) -> Iterator[RenderableType]:
    """Yield what is printed: so many heads, and of a single text the signed map of the first."""
    headings, ranked = ranking(report, top)
    if ranked and report.kind != "adapter":  # two tables, and room for one
        ranked, top = ranked[: max(top // 2, 1)], max(top // 3, 1)
    if ranked:
        yield movements(report, headings, ranked)
    yield from sentences(report)
    if report.kind != "adapter":
        yield "" if ranked else Line(title(report), "bold")
        yield differences(report, top)
    if report.maps:
        yield ""
        yield signed_map(report)


@renderable
def movements(
    console: Console, options: ConsoleOptions, report: Diff, headings: list[str],
    ranked: list[list[str]],
) -> RenderResult:  # fmt: skip
    """Yield a table of the heads that moved most, a column for each thing that moves."""
    yield Line(title(report), "bold")
    meaning = "how far heads moved in the typical text; *: surely, all taken together"
    yield Line(below(report) if report.kind == "adapter" else meaning, "dim")
    yield Text("")
    table = table_of("", *headings, fold=False)
    for rank, row in enumerate(ranked, 1):
        table.add_row(str(rank), *(signs(cell, options.ascii_only) for cell in row))
    yield table


@renderable
def differences(console: Console, options: ConsoleOptions, report: Diff, top: int) -> RenderResult:
    """Yield a table of heads, the largest difference first."""
    plain = options.ascii_only
    yield Line(below(report), "dim")
    yield Text("")
    listed = differing(report, top)
    if not listed:
        comparable = report.largest is not None
        yield Line(
            "nothing changed: no head differs"
            if comparable
            else "no head has anything to compare in both runs"
        )
        return
    table = table_of(*columns(report), fold=False)
    write = partial(visible, ascii_only=plain)
    for head in listed:
        *compared, change, roles = cells(report, head, write)
        table.add_row(*compared, signs(change, plain), roles)
    yield table
    remaining = len(report.heads) - len(listed)
    if remaining:
        yield Line(f"{remaining} heads differ less or not at all", "dim")


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
    largest = float(abs(values).max())
    yield Text(f"head {change.name}", "bold")
    for label, row in zip(queries, values, strict=True):
        line = Text(fit(label, gutter, "right", ascii_only=plain) + " ", no_wrap=True)
        for value in row:
            if colours:
                line.append(" " * _CELL, on_terminal(float(value), largest, UP))
            else:
                mark = "." if abs(value) < _CLEAR else ("+" if value > 0 else "-")
                line.append(mark.center(_CELL))
        yield line
    meaning = f"+ more in the second run, - less, by at least {_CLEAR}"
    if colours:
        meaning = f"{MEANING}, full colour at a difference of {largest:.2g}"
    yield Line(f"rows: queries, columns: keys; {meaning}", "dim")


def finding(result: Diff, name: str) -> Finding:
    """How far apart each head's rows are, or how its figures differ."""
    names = {result.layout.name(head) for head in result.layout}
    heads = [head for head in result.heads if head.name in names]
    far = bare({head.name: head.distance.mean for head in heads if head.distance is not None})
    measures = [Measure("distance", "mean distance of its rows", "", 0, far)]
    changes: dict[str, dict[str, Value]] = {}
    for name_ in (*MOVING, ADDED):
        values = {
            head.name: (moved.change if moved.typical is None else moved.typical,
                        moved.joint_low, moved.joint_high)
            for head in heads for moved in head.moved if moved.name == name_
        }  # fmt: skip
        unit, sign = ("nats", UP) if name_ == "need" else ("", 0)
        measures.append(
            Measure(f"moved: {name_}", f"how far it moved: {name_}", unit, sign, values)
        )
    for head in heads:
        for figure in head.changes:
            if figure.name not in OTHER_UNITS:
                value = (figure.change, figure.low, figure.high)
                changes.setdefault(figure.name, {})[head.name] = value
    measures += [
        Measure(f"change: {key}", f"change of {key}", "", UP, values)
        for key, values in changes.items()
    ]
    method = f"{title(result)}: {below(result)}."
    lines = {head.name: _lines(head, result.texts) for head in heads}
    return Finding.of("diff", name, "What changed", method, lines, measures)


def _lines(head: HeadChange, texts: int) -> Iterator[str]:
    if head.distance is not None:
        distance = head.distance
        position = f"{visible(distance.token)} ({distance.row})" + (
            f", text {distance.text + 1}" if texts > 1 else ""
        )
        largest = number(distance.largest)
        yield f"its rows are {number(distance.mean)} apart, at most {largest} at {position}"
    for figure in head.moved:
        yield f"{figure.name}: {amount(figure)}{' nats' * (figure.name == 'need')}"
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
    headings, ranked = ranking(result, top)
    if ranked:
        lines += [table(headings, [list(map(plain, row)) for row in ranked]), ""]
    lines += [f"{plain(sentence)}\n" for sentence in sentences(result)]
    listed = differing(result, top)
    if listed:
        lines += [_table(result, top), ""]
        remaining = len(result.heads) - len(listed)
        if remaining:
            lines += [f"{remaining} heads differ less or not at all.", ""]
    lines += [f"> {plain(note)}" for note in result.notes]
    lines += [""] * bool(result.notes)
    about = below(result).replace(" ·", ";")
    lines.append(f"<sub>{plain(about)}; attnviz {__version__}</sub>")
    return "\n".join(lines) + "\n"


def _sentence(result: Diff, limit: float | None) -> str:
    """How far the heads are apart, and whether that is too far."""
    if result.kind == "adapter":
        return f"**{plain(below(result))}.**"
    if result.largest is None:
        return "**No head has anything to compare in both runs.**"
    measure = "mean distance" if result.kind == "maps" else "change of a share or effect"
    first = result.heads[0]
    largest = f"the largest {measure} is {number(result.largest)} ({first.name})"
    if limit is None:
        count = len(differing(result, len(result.heads)))
        return f"**{count} of {len(result.heads)} heads differ**; {largest}."
    over = sum(head.largest() > limit for head in result.heads)
    lacking = len(result.uncompared)
    unknown = f" {lacking} heads cannot be compared." if lacking else ""
    verdict = f"{over} of {len(result.heads)} heads differ" if over else "No head differs"
    return f"{'❌' if over else '✅'} **{verdict} by more than {limit:g}**; {largest}.{unknown}"


def _table(result: Diff, top: int) -> str:
    heads = differing(result, top)
    lines = []
    for head in heads:
        *compared, change, roles = cells(result, head, plain)
        lines.append([*compared, plain(change) if change else "", plain(roles) if roles else ""])
    return table(columns(result), lines)
