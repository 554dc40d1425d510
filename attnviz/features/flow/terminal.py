"""A flow on the terminal: the maps, lines across layers, and a followed token's shares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.style import Style as Paint
from rich.text import Text

from attnviz.drawing.heatmap_terminal import TerminalMap
from attnviz.drawing.labels import fit, percent, signs, visible
from attnviz.drawing.palette import mix
from attnviz.drawing.renderable import coloured, renderable, table_of
from attnviz.drawing.signed import BLUE
from attnviz.drawing.style import Style
from attnviz.drawing.terminal import Line
from attnviz.features.flow import words
from attnviz.features.flow.canvas import LEVELS as _LEVELS
from attnviz.features.flow.canvas import PLAIN as _PLAIN
from attnviz.features.flow.canvas import Dots
from attnviz.features.flow.result import Flow
from attnviz.features.flow.words import WEIGHTS, FlowLine, asked, drawing, heading, number, ranked

_STYLE = Style()
_GROUND = "#808080"
_WEAKEST = 0.02
"""A share of a followed position that is still drawn, dotted."""
_LABEL = 16
"""Cells of a token."""
_LEAST_LABEL = 3
_LEAST_STEP, _LARGEST_STEP = 3, 14
"""Cells of a layer."""
_MOST = 48
"""Tokens whose lines are drawn."""
_LISTED = 12
"""Tokens whose shares are listed."""
_BAR = 20
_FIGURES = 36
"""Cells of what stands beside token and bars."""


class _FlowMap(TerminalMap):
    """The map of a flow, which has no queries and keys."""

    AXES = "↓ positions after the last layer  → tokens"
    BLANK = "cannot be reached"
    noun = "share of the position"


def parts(report: Flow, style: Style = _STYLE) -> Iterator[RenderableType]:
    """What is printed: the maps or a followed token's shares, lines, how it was measured."""
    if report.followed:
        yield shares_table(report)
    else:
        yield from maps(report, style)
        for sentence in words.beside(report):
            yield Line(sentence)
    yield ""
    yield Lines(report)
    yield ""
    yield Line(words.formula(report), "dim")
    yield Line(words.closing(report), "dim")


def maps(report: Flow, style: Style) -> Iterator[RenderableType]:
    """The flow as a map, and the mean of the weights on the same scale."""
    drawn = words.maps(report)
    kinds = ((_FlowMap, heading(report)), (TerminalMap, f"{WEIGHTS}, over all heads and layers"))
    top = max(float(table.max()) for table in drawn)
    for table, (kind, title) in zip(drawn, kinds, strict=True):
        yield kind(table, words.sides(report), title=title, style=style, top=top)
        yield ""


@dataclass(frozen=True)
class Lines:
    """A renderable: tokens downwards, layers to the right, lines as thick as shares."""

    report: Flow

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw for this console; layers and tokens that do not fit are merged or left out."""
        report, plain, traced = self.report, options.ascii_only, self.report.followed
        texts = [visible(text, ascii_only=plain) for text in report.tokens.texts]
        figures = 5 * (traced is not None)
        spare = options.max_width - figures - 2
        label = min(max(map(cell_len, texts)), _LABEL, max(spare // 3, _LEAST_LABEL))
        room = max(spare - 2 * label, _LEAST_STEP)
        to = traced is not None and traced.direction == "to"
        least = _WEAKEST if to else _LEVELS[-1]
        drawn = drawing(report, columns=room // _LEAST_STEP, tokens=_MOST, least=least)
        step = min(room // len(drawn.columns), _LARGEST_STEP)
        rows = {node: row for row, node in enumerate(drawn.nodes)}
        dots = Dots(len(rows), step * len(drawn.columns), braille=not plain)
        for line in drawn.lines if traced else _strongest(drawn.lines):
            first = rows[line.before], line.column * step
            dots.line(first, (rows[line.after], first[1] + step - 1), line.share)
        pad = " " * (label + 1 + figures * to)
        names = "".join(f"{name:^{step}}" for name in drawn.columns)
        yield Text(signs(pad + names.rstrip(), plain), "dim", no_wrap=True)
        for row, node in enumerate(drawn.nodes):
            chosen = traced is not None and node in traced.positions
            style = "bold" if chosen else ""
            share = percent(float(drawn.ends[node])).rjust(figures) if traced else ""
            text = Text(no_wrap=True)
            text.append(fit(texts[node], label, "right", ascii_only=plain), style)
            text.append((share if to else "") + " ", "dim")
            for column in range(dots.bits.shape[1]):
                strength = float(dots.shares[row, column])
                text.append(dots.character(row, column), _paint(console, strength))
            text.append(" " + fit(texts[node], label, ascii_only=plain), style)
            text.append("" if to else share, "dim")
            text.rstrip()
            yield text
        yield Text(signs(self._legend(len(rows), to, plain), plain), "dim")

    def _legend(self, shown: int, to: bool, plain: bool) -> str:
        marks = [f"{mark} from {percent(least)}" for mark, least in zip(_PLAIN if plain else
                 ("thick", "two dots", "one"), _LEVELS, strict=False)]  # fmt: skip
        if to:
            marks.append(f"{_PLAIN[-1] if plain else 'dotted'} from {percent(_WEAKEST)}")
        said = f"tokens downwards, layers →; {', '.join(marks)}"
        if not self.report.followed:
            said += "; of each position the strongest other token"
        if shown < len(self.report.tokens):
            said += f"; the {shown} tokens through which most goes"
        return said


def _strongest(lines: Sequence[FlowLine]) -> Iterator[FlowLine]:
    """Of every position in every layer the strongest line from another token."""
    last = {(line.column, line.after): line for line in lines if line.before != line.after}
    yield from last.values()


@renderable
def shares_table(console: Console, options: ConsoleOptions, report: Flow) -> RenderResult:
    """What the followed token gets or gives, by flow and by weights, the largest first."""
    plain = options.ascii_only
    traced = report.followed
    assert traced is not None
    yield Text(signs(asked(report, traced, ascii_only=plain), plain), "bold")
    shares = ranked(report, traced)
    top = max((max(share.flow, share.weight) for share in shares), default=0.0) or 1.0
    texts = [visible(text, ascii_only=plain) for text in report.tokens.texts]
    label = min(max(map(cell_len, texts)), max(options.max_width // 4, _LEAST_LABEL))
    bar = min(max((options.max_width - label - _FIGURES) // 2, 0), _BAR)
    first = "token" if traced.direction == "to" else "position"
    table = table_of(first, ">", f">{report.method}", "", ">weights", "")
    for share in shares[:_LISTED]:
        if not share.flow and not share.weight:
            continue
        table.add_row(
            fit(texts[share.node], label, ascii_only=plain).rstrip(),
            str(number(report, share.node)),
            percent(share.flow), _bar(console, round(share.flow / top * bar), plain),
            percent(share.weight),
            _bar(console, round(share.weight / top * bar), plain, _GROUND),
        )  # fmt: skip
    yield table
    left = len([share for share in shares[_LISTED:] if share.flow or share.weight])
    if left:
        rest = sum(share.flow for share in shares[_LISTED:])
        said = (
            f"{left} more tokens give {percent(rest)}"
            if first == "token"
            else f"{left} more positions"
        )
        yield Text(said, "dim")


def _paint(console: Console, share: float) -> Paint:
    """The colour of a line, stronger for a larger share."""
    if not coloured(console) or not share:
        return Paint()
    return Paint(color=mix(_GROUND, "#4aa3ff", min(share**0.5, 1.0)))


def _bar(console: Console, cells: int, plain: bool, color: str = BLUE) -> Text:
    bar = ("#" if plain else "█") * cells
    return Text(bar, Paint(color=color) if coloured(console) else Paint())
