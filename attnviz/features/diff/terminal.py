"""differences on the terminal: the heads that differ most, and the signed map of the first."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from attnviz.drawing.labels import fit, signs, token_labels, visible
from attnviz.drawing.renderable import coloured, renderable, table_of
from attnviz.drawing.signed import on_terminal
from attnviz.drawing.terminal import Line
from attnviz.features.diff import words
from attnviz.features.diff.result import Diff

_CELL = 2
_LABEL = 14
_CLEAR = 0.05
"""Without colours, a smaller difference of weights is a dot."""


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
    yield Line(words.title(report), "bold")
    yield Line(words.below(report), "dim")
    yield Text("")
    listed = words.differing(report, top)
    if not listed:
        known = report.largest is not None
        yield Line(
            "nothing changed: no head differs"
            if known
            else "no head has anything to compare in both runs"
        )
        return
    table = table_of(*words.columns(report), fold=False)
    shown = partial(visible, ascii_only=plain)
    for head in listed:
        *cells, change, roles = words.cells(report, head, shown)
        table.add_row(*cells, signs(change, plain), roles)
    yield table
    left = len(report.heads) - len(listed)
    if left:
        yield Line(f"{left} heads differ less or not at all", "dim")


@renderable
def signed_map(console: Console, options: ConsoleOptions, report: Diff) -> RenderResult:
    """Where a head looks more, and where less, in a single text.

    Nothing where the text is too long for the console.
    """
    mapped = words.mapped(report, 1)
    if not mapped:
        return
    ((head, _),) = mapped
    values = report.maps[head]
    sides = report.sides[head.site.kind]
    plain, colours = options.ascii_only, coloured(console)
    queries, keys = (token_labels(t, ascii_only=plain) for t in (sides.queries, sides.keys))
    gutter = min(max(map(cell_len, queries)), _LABEL)
    if gutter + 1 + _CELL * len(keys) > options.max_width:
        yield Line("the signed map does not fit here; draw it with a file", "dim")
        return
    most = float(abs(values).max())
    yield Text(f"head {mapped[0][1].name}", "bold")
    for label, row in zip(queries, values, strict=True):
        line = Text(fit(label, gutter, "right", ascii_only=plain) + " ", no_wrap=True)
        for value in row:
            if colours:
                line.append(" " * _CELL, on_terminal(float(value), most, words.UP))
            else:
                mark = "." if abs(value) < _CLEAR else ("+" if value > 0 else "-")
                line.append(mark.center(_CELL))
        yield line
    meaning = f"+ more in the second run, - less, by at least {_CLEAR}"
    if colours:
        meaning = f"{words.MEANING}, full colour at a difference of {most:.2g}"
    yield Line(f"rows: queries, columns: keys; {meaning}", "dim")
