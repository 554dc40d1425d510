"""A lens on the terminal: a table of words by layer and position, and one position in figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.style import Style
from rich.table import Table
from rich.text import Text

from attnviz.drawing.labels import fit, percent, signs, visible
from attnviz.drawing.palette import ink, ramp
from attnviz.drawing.signed import coloured
from attnviz.drawing.terminal import Line
from attnviz.features.lens.result import Lens, LensCell
from attnviz.features.lens.words import (
    checked,
    closing,
    how_heads,
    moved,
    place,
    row_name,
    share,
    strongest,
    title,
)

_NARROWEST, _WIDEST = 7, 12
"""Cells of a column."""
_FIGURE = 4
"""Cells of a probability, where there are no colours."""
_BANDS = 4
"""Tables one below the other at most."""
_HEADS = 24
"""Heads that are listed."""
_WORDS = 3


def parts(found: Lens) -> Iterator[RenderableType]:
    """The table of states and the last position along the layers; or the heads."""
    yield Line(title(found), "bold")
    if found.heads:
        yield HeadReadings(found)
        yield Line(how_heads(found), "dim")
    else:
        yield LensTable(found)
        yield ""
        yield AlongLayers(found)
        yield Line(checked(found), "dim")
    yield ""
    yield Line(closing(found), "dim")


class LensTable:
    """A renderable: states downwards, positions across, the most probable word in each cell.

    Colour is its probability; without colours the cell ends with it, in per cent.
    """

    def __init__(self, report: Lens) -> None:
        self.report = report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw for this console, in as many bands as its width needs."""
        report, plain = self.report, options.ascii_only
        states = report.states()
        gutter = max(len(row_name(state[0].layer)) for state in states) + 1
        least = _NARROWEST + (0 if coloured(console) else _FIGURE)
        room = max(options.max_width - gutter, least + 1)
        count = len(report.positions)
        wide = min(max(room // count - 1, least), _WIDEST)
        fitting = max(room // (wide + 1), 1)
        bands = [range(n, min(n + fitting, count)) for n in range(0, count, fitting)]
        if len(bands) > _BANDS:
            left = bands[-_BANDS].start
            yield Line(
                f"the first {left} of {count} positions are left out; choose one, or draw them all",
                "dim",
            )
            bands = bands[-_BANDS:]
        for band in bands:
            heads = [visible(report.tokens[report.positions[n]], ascii_only=plain) for n in band]
            yield _labels(gutter, heads, wide, plain)
            for state in states:
                yield self._row(console, gutter, state, band, wide, plain)
            if not report.masked:
                follows = [visible(t, ascii_only=plain) if (t := report.next[n]) else ""
                           for n in band]  # fmt: skip
                yield _labels(gutter, follows, wide, plain, signs("→", plain))
            yield ""
        yield self._legend(console, plain)

    def _row(
        self,
        console: Console,
        gutter: int,
        state: Sequence[LensCell],
        band: range,
        wide: int,
        plain: bool,
    ) -> Text:
        line = Text(f"{row_name(state[0].layer):>{gutter - 1}} ", "dim", no_wrap=True)
        colors = ramp("viridis")
        for n in band:
            best = state[n].top[0]
            word = visible(best.token, ascii_only=plain)
            if coloured(console):
                paint = colors[round(best.probability * 255)]
                line.append(
                    fit(word, wide, ascii_only=plain), Style(color=ink(paint), bgcolor=paint)
                )
            else:
                part = f"{round(100 * best.probability):>{_FIGURE}}"
                line.append(fit(word, wide - _FIGURE, ascii_only=plain) + part)
            line.append(" ")
        line.rstrip()
        return line

    def _legend(self, console: Console, plain: bool) -> Text:
        of = "at" if self.report.masked else "after"
        said = f"rows: states after each layer; columns: {of} this token"
        if not self.report.masked:
            said += "; below: the token that does follow"
        line = Text("probability ")
        if coloured(console):
            line.append("0 ")
            for step in range(16):
                line.append(" ", Style(bgcolor=ramp("viridis")[step * 17]))
            line.append(" 1  ")
        else:
            line = Text("word and its probability in %; ")
        line.append(signs(said, plain), "dim")
        return line


class AlongLayers:
    """A renderable: one position along the layers: words, entropy, KL, the followed token."""

    def __init__(self, report: Lens) -> None:
        self.report = report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw for this console."""
        report, plain = self.report, options.ascii_only
        position = report.positions[-1]
        followed = visible(report.followed[-1], ascii_only=plain)
        where = place(report, position, ascii_only=plain)
        yield Text(f"{where[0].upper()}{where[1:]}", "bold")
        table = _table(("layer", ">"), ("most probable", "<"), ("entropy", ">"),
                       ("KL to last", ">"), (f"rank of {followed}", ">"),
                       ("probability", ">"))  # fmt: skip
        for cell in report.along(position):
            words = ", ".join(
                f"{visible(word.token, ascii_only=plain)} {percent(word.probability)}"
                for word in cell.top[:_WORDS]
            )
            table.add_row(
                row_name(cell.layer), words, f"{cell.entropy:.2f}", f"{cell.kl:.2f}",
                f"{cell.rank:,}", percent(cell.probability),
            )  # fmt: skip
        yield table
        yield Line("entropy and KL(last | this state) in nats", "dim")


class HeadReadings:
    """A renderable: the words that each head raises and lowers, those that write most first."""

    def __init__(self, report: Lens) -> None:
        self.report = report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw for this console; narrow ones get fewer words."""
        report, plain = self.report, options.ascii_only
        words = _WORDS if options.max_width >= 90 else 2
        several = report.rows > 1
        table = _table(("head", "<"), ("norm", ">"), ("raises most", "<"), ("lowers most", "<"))
        if several:
            table.add_column("recurs in", overflow="fold")
            table.add_column("in the text", no_wrap=True)
        listed = strongest(report)[:_HEADS]
        for one in listed:
            row = [
                report.layout.name(one.head), f"{one.norm:.3g}",
                moved(one.raises, words, ascii_only=plain),
                moved(one.lowers, words, ascii_only=plain),
            ]  # fmt: skip
            if several:
                recurring = (
                    f"{visible(word.token, ascii_only=plain)} {percent(word.rows)}"
                    for word in one.recurring[:words]
                )
                row += [", ".join(recurring), share(one.in_text)]
            table.add_row(*row)
        yield table
        if len(listed) < len(report.heads):
            yield Line(
                f"the {len(listed)} heads that write most, of {len(report.heads)}; JSON and "
                "CSV have all",
                "dim",
            )


def _labels(gutter: int, texts: Sequence[str], wide: int, plain: bool, sign: str = "") -> Text:
    line = Text(f"{sign:>{gutter - 1}} ", "dim", no_wrap=True)
    line.append(" ".join(fit(text, wide, ascii_only=plain) for text in texts), "bold")
    line.rstrip()
    return line


def _table(*columns: tuple[str, str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    for name, side in columns:
        table.add_column(name, justify="right" if side == ">" else "left", overflow="fold")
    return table
