"""Sentences with their arcs on the terminal, in box-drawing characters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from attnviz.drawing.labels import isolate, shorten, signs, visible
from attnviz.drawing.renderable import renderable
from attnviz.features.syntax.arcs import DrawnArc, WordLine, drawn_arcs, levels, line_up
from attnviz.features.syntax.parses import Parse

_GAP = 2
"""Cells between two words."""
_LONGEST = 24
"""Cells of a word."""
_UP, _DOWN, _LEFT, _RIGHT = 1, 2, 4, 8
_BOXES = {
    _UP: "│", _DOWN: "│", _UP | _DOWN: "│", _LEFT: "─", _RIGHT: "─", _LEFT | _RIGHT: "─",
    _RIGHT | _DOWN: "╭", _LEFT | _DOWN: "╮", _RIGHT | _UP: "╰", _LEFT | _UP: "╯",
    _UP | _DOWN | _RIGHT: "├", _UP | _DOWN | _LEFT: "┤",
    _LEFT | _RIGHT | _DOWN: "┬", _LEFT | _RIGHT | _UP: "┴",
}  # fmt: skip
_DASHED = {"─": "╌", "│": "╎"}
_PLAIN = {"─": "-", "│": "|", "╌": ".", "╎": ":", "▼": "v", "▲": "^"}
_STYLES = {None: "", True: "#3f8fd2", False: "#d0701c"}
"""Of gold, right and wrong arcs; they read on light and on dark terminals."""


@renderable
def arc_sentence(console: Console, options: ConsoleOptions, parse: Parse) -> RenderResult:
    """A sentence with gold arcs above and predicted ones below."""
    ascii_only = options.ascii_only
    words = [
        shorten(visible(word, ascii_only=ascii_only), _LONGEST, ascii_only=ascii_only)
        for word in parse.words
    ]
    above, below = drawn_arcs(parse, ascii_only=ascii_only)
    first, last = _window([cell_len(word) for word in words], above, below, options.max_width)
    pairs = [
        (_moved(up, first), _moved(down, first))
        for up, down in zip(above, below, strict=True)
        if first <= min(up.left, down.left) and max(up.end, down.end) < last
    ]
    shown = words[first:last]
    line = _line([cell_len(word) for word in shown], [arc for pair in pairs for arc in pair])
    yield Text(visible(parse.name, ascii_only=ascii_only), "dim")
    yield from _rows([up for up, _ in pairs], line, ascii_only, upwards=True)
    text, end = Text(no_wrap=True), 0
    for word, left in zip(shown, line.lefts, strict=True):
        text.append(" " * (int(left) - end) + isolate(word), "bold")
        end = int(left) + cell_len(word)
    yield text
    yield from _rows([down for _, down in pairs], line, ascii_only, upwards=False)
    cut, gone = len(words) - len(shown), len(above) - len(pairs)
    if cut:
        note = (
            f"too wide: {cut} of {len(words)} words and {gone} of {len(above)} arcs are cut; "
            "a picture has all of them"
        )
        yield Text(signs(note, ascii_only), "dim")
    yield Text("")


def _moved(arc: DrawnArc, first: int) -> DrawnArc:
    return DrawnArc(arc.head - first, arc.dependent - first, arc.label, arc.right)


def _line(widths: Sequence[int], arcs: Sequence[DrawnArc]) -> WordLine:
    """Whole cells for everything."""
    wide = [float(width - (width + 1) % 2) for width in widths]  # so that a middle is a cell
    line = line_up(
        [max(w, 1.0) for w in wide], _GAP + 1, 1, [(arc, cell_len(arc.label) + 3.0) for arc in arcs]
    )
    return WordLine(tuple(float(int(left)) for left in line.lefts), line.widths, 1)


def _window(
    widths: Sequence[int], above: Sequence[DrawnArc], below: Sequence[DrawnArc], room: int
) -> tuple[int, int]:
    """The words to draw, the first and the one after the last: all, or where most arcs fit."""
    best, most = (0, 1), -1
    for first in range(len(widths)):
        last = first + 1
        for end in range(first + 1, len(widths) + 1):
            inside = [
                _moved(arc, first)
                for pair in zip(above, below, strict=True)
                if first <= min(b.left for b in pair) and max(b.end for b in pair) < end
                for arc in pair
            ]
            line = _line(widths[first:end], inside)
            if line.lefts[-1] + widths[end - 1] > room:
                break
            last, count = end, len(inside)
            if count > most:
                best, most = (first, end), count
        if best[0] == first:
            best = (first, last)
        if last == len(widths):
            break
    return best


def _rows(
    arcs: Sequence[DrawnArc], line: WordLine, ascii_only: bool, *, upwards: bool
) -> Iterator[Text]:
    """The lines of text above or below the words."""
    heights = levels(arcs)
    wide = int(line.width) + 4
    cells: dict[tuple[int, int], tuple[int, bool | None]] = {}
    letters: dict[tuple[int, int], tuple[str, bool | None]] = {}

    def add(row: int, column: int, bits: int, right: bool | None) -> None:
        before, _ = cells.get((row, column), (0, None))
        cells[row, column] = before | bits, right

    for arc, height in sorted(zip(arcs, heights, strict=True), key=lambda pair: -pair[1]):
        start, arrow = (int(end) for end in line.ends(arc))
        left, right = sorted((start, arrow))
        for column in (start, arrow):
            for row in range(height):
                add(row, column, _UP | _DOWN, arc.right)
            add(height, column, (_DOWN if upwards else _UP), arc.right)
        for column in range(left, right + 1):
            bits = (_LEFT if column > left else 0) | (_RIGHT if column < right else 0)
            add(height, column, bits, arc.right)
        letters[0, arrow] = "▼" if upwards else "▲", arc.right
        label = f" {arc.label} " if right - left > cell_len(arc.label) + 2 else arc.label
        column = left + (right - left + 1 - cell_len(label)) // 2
        for letter in label:
            letters[height, column] = letter, arc.right
            column += cell_len(letter)
    rows = range(max(heights, default=0) + 1)
    for row in reversed(rows) if upwards else rows:
        text, column = Text(no_wrap=True), 0
        while column < wide:
            letter, shade = letters.get((row, column), ("", None))
            if not letter:
                bits, shade = cells.get((row, column), (0, None))
                letter = _BOXES.get(bits, "┼") if bits else " "
                letter = _DASHED.get(letter, letter) if shade is False else letter
                if ascii_only and letter != " ":
                    letter = _PLAIN.get(letter, "+")
            elif ascii_only:
                letter = _PLAIN.get(letter, letter)
            text.append(letter, _STYLES[shade])
            column += cell_len(letter)
        text.rstrip()
        if text.plain:
            yield text
