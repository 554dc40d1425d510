"""A lens on the terminal: words by layer and position, one position in detail, or heads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.style import Style
from rich.text import Text

from attnviz.drawing.labels import closing, fit, percent, shorten, signs, visible
from attnviz.drawing.palette import DEFAULT_PALETTE, ink, ramp
from attnviz.drawing.renderable import coloured, every_few, renderable, rows_shown, table_of
from attnviz.drawing.signed import SignedGrid, signed
from attnviz.drawing.terminal import Line
from attnviz.features.lens import words
from attnviz.features.lens.result import HeadWrites, Lens, LensToken, TokenEffect

_WORDS = 5
"""Words of a state or a head that a table has room for."""
_LEAST, _MOST = 5, 11
"""Cells of a column."""
_BANDS = 4
"""Bands of columns that are drawn; of longer texts the last positions."""
_LONGEST = 14
_FULL = ramp(DEFAULT_PALETTE)


def parts(result: Lens) -> Iterator[RenderableType]:
    """The table of states and the last position in detail; or what every head writes."""
    if result.heads:
        yield Line(words.title(result), "bold")
        yield head_table(result)
        if result.chance is not None:
            yield Line(
                "in text: rows in which the word raised most stands in the text up to there; "
                + words.chance(result), "dim",
            )  # fmt: skip
    else:
        if len(result.positions) > 1:
            yield Layers(result)
            yield ""
        yield from _detail(result, result.positions[-1])
        yield ""
        yield Line(words.checked(result), "dim")
    yield Line(closing(result.source), "dim")


def _detail(result: Lens, position: int) -> Iterator[RenderableType]:
    yield Line(words.sentence(result, position), "bold")
    yield along(result, position)
    cells = result.along(position)
    if result.token and cells[-1].added is not None:
        yield ""
        heads = result.layout.heads[result.layout.kinds[-1]]
        by_head = {}
        for cell in cells[1:]:
            if cell.added is not None and cell.layer is not None:
                for index, value in enumerate(cell.added.heads[: heads[cell.layer]]):
                    head = next(h for h in result.layout
                                if h.layer == cell.layer and h.index == index)  # fmt: skip
                    by_head[head] = value
        most = max(map(abs, by_head.values()), default=0.0)
        yield SignedGrid(result.layout, by_head, most, words.UP)
        yield Line(f"logits of {visible(result.token)} that each head adds to its layer's state; "
                   "blue: raises, orange: lowers", "dim")  # fmt: skip


class Layers:
    """A renderable: the most probable word of every state, coloured by its probability."""

    def __init__(self, result: Lens) -> None:
        self.result = result

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Draw for this console, in bands of as many positions as fit."""
        result, plain = self.result, options.ascii_only
        color = coloured(console)
        longest = max(
            cell_len(visible(word, ascii_only=plain))
            for word in (*(c.top[0].token for c in result.cells), *result.tokens)
        )
        size = max(min(longest + (0 if color else 3), _MOST), _LEAST)
        states = every_few(result.states())
        names = [words.label(row[0].layer) for row in states]
        left = max(map(len, names))
        fitting = max((options.max_width - left) // (size + 1), 1)
        count = len(result.positions)
        first = max(0, count - _BANDS * fitting)
        yield Line("layer ↓  token →, the most probable word"
                   + ("; brighter: more probable" if color else ", and its probability in %"),
                   "dim")  # fmt: skip
        if len(states) < len(result.states()):
            yield Line(f"{len(states)} of {len(result.states())} states, at even steps", "dim")
        if first:
            yield Line(f"the last {count - first} of {count} positions", "dim")
        for start in range(first, count, fitting):
            yield from self._band(range(start, min(start + fitting, count)), names, left, size,
                                  color=color, plain=plain)  # fmt: skip
            yield Text("")

    def _band(
        self,
        columns: Sequence[int],
        names: Sequence[str],
        left: int,
        size: int,
        *,
        color: bool,
        plain: bool,
    ) -> Iterator[Text]:
        result = self.result
        texts = [result.tokens[result.positions[n]] for n in columns]
        yield self._plain_line(left, texts, size, plain)
        for name, row in zip(names, every_few(result.states()), strict=True):
            line = Text(f"{name:>{left}}", "dim", no_wrap=True)
            for n in columns:
                line.append(" ")
                line.append(*_cell(row[n].top[0], size, color, plain))
            yield line
        if result.next and any(result.next[n] for n in columns):
            yield self._plain_line(left, [result.next[n] for n in columns], size, plain, "next")

    def _plain_line(
        self, left: int, texts: Sequence[str], size: int, plain: bool, name: str = ""
    ) -> Text:
        line = Text(f"{name:>{left}}", "dim", no_wrap=True)
        for text in texts:
            shown = visible(text, ascii_only=plain) if text else ""
            line.append(" " + fit(shown, size, ascii_only=plain))
        line.rstrip()
        return line


def _cell(word: LensToken, size: int, color: bool, plain: bool) -> tuple[str, Style]:
    text = visible(word.token, ascii_only=plain)
    if not color:
        share = f"{100 * word.probability:.0f}"
        return f"{fit(text, size - 3, ascii_only=plain)}{share:>3}", Style()
    paint = _FULL[round(255 * word.probability)]
    return fit(text, size, ascii_only=plain), Style(color=ink(paint), bgcolor=paint)


@renderable
def along(console: Console, options: ConsoleOptions, result: Lens, position: int) -> RenderResult:
    """One position layer by layer, with the token that is followed."""
    plain = options.ascii_only
    cells = every_few(result.along(position))
    token = shorten(
        visible(words.token_of(result, position), ascii_only=plain), _LONGEST,
        ascii_only=plain,
    )  # fmt: skip
    room = options.max_width - 52
    count = max(1, min(_WORDS, room // 16))
    table = table_of(
        ">layer", f">rank of {token}", ">probability", ">entropy", ">KL to last", "most probable"
    )
    for cell in cells:
        top = ", ".join(
            f"{shorten(visible(word.token, ascii_only=plain), _LONGEST, ascii_only=plain)} "
            f"{percent(word.probability)}"
            for word in cell.top[:count]
        )
        table.add_row(words.label(cell.layer), f"{cell.rank:,}", percent(cell.probability),
                      f"{cell.entropy:.2f}", f"{cell.kl:.2f}", top)  # fmt: skip
    yield table
    yield Line("entropy and KL in nats", "dim")


@renderable
def head_table(console: Console, options: ConsoleOptions, result: Lens) -> RenderResult:
    """The words that every head raises and lowers."""
    plain = options.ascii_only
    many = result.rows > 1
    columns = ["head", ">norm", "raises most", "lowers most"]
    table = table_of(*columns, *(["recurs, % of rows", ">in text"] if many else []))
    count = max(1, min(_WORDS, (options.max_width - (40 if many else 16)) // 26))
    listed = result.heads
    if rows_shown(len(listed)) < len(listed):
        listed = tuple(sorted(listed, key=lambda writes: -writes.norm)[: rows_shown(len(listed))])
    for writes in listed:
        moved = [_words(some[:count], plain) for some in (writes.raises, writes.lowers)]
        more = _over_rows(writes, plain) if many else []
        table.add_row(result.layout.name(writes.head), f"{writes.norm:.2f}", *moved, *more)
    yield table
    if len(listed) < len(result.heads):
        said = f"the {len(listed)} heads with the largest norm of {len(result.heads):,}"
        yield Line(f"{said}; a table has all of them", "dim")
    scale = "mean over the rows; " if many else ""
    yield Line(signs(f"logits against the mean of the vocabulary, {scale}norm: "
                     "‖z W_O‖", plain), "dim")  # fmt: skip


def _over_rows(writes: HeadWrites, plain: bool) -> list[str]:
    often = " ".join(
        f"{shorten(visible(word.token, ascii_only=plain), _LONGEST, ascii_only=plain)} "
        f"{100 * word.rows:.0f}"
        for word in writes.recurring[:3]
    )
    return [often, "" if writes.in_text is None else words.share(writes.in_text)]


def _words(effects: Sequence[TokenEffect], plain: bool) -> str:
    return " ".join(
        f"{shorten(visible(word.token, ascii_only=plain), _LONGEST, ascii_only=plain)} "
        f"{signed(word.value)}"
        for word in effects
    )
