"""Records the moving picture of the README: ``python -m docs.moving``.

Commands run as at a terminal with colours, and what they print becomes docs/images/tour.svg: each
command is typed, its output stands for some seconds and moves up where it is longer than the
picture. One file for light and dark; where motion is not wanted the first output stands still.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path

from rich.ansi import AnsiDecoder
from rich.cells import cell_len
from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.text import Text

from attnviz.features.tour.stops import INDUCTION, SENTENCE, WORDS

TARGET = Path(__file__).parent / "images" / "tour.svg"
COMMANDS = (
    f'attnviz heads "{SENTENCE}"',
    f'attnviz heatmap "{WORDS}" --select {INDUCTION}',
    f'attnviz explain "{WORDS}"',
)
COLUMNS, ROWS = 100, 25
"""Of the terminal, without the line of the command."""
CELL, LINE, MARGIN = 7.2, 16, 14
"""Width of a character, height of a line, and what is left free around them, in pixels."""
TYPING, READING, SCROLLING = 1.6, 4.0, 0.35
"""Seconds for a command, for what it prints, and for each line that moves up."""
OPENING = TYPING + 0.5
"""Seconds of the loop that have passed when it begins: the first output is there, not a blank."""

_STYLE = """\
.paper{fill:#fff}.frame{fill:none;stroke:#d0d7de}text{fill:#1f2328;white-space:pre;\
font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}\
.dim{opacity:.65}.bold{font-weight:700}.scene{opacity:0}.scene:first-of-type{opacity:1}
@media (prefers-color-scheme:dark){.paper{fill:#0d1117}.frame{stroke:#30363d}text{fill:#e6edf3}}
"""


def recorded(command: str) -> list[Text]:
    """Return what a command prints at a terminal, line by line.

    In a process of its own, for styles of rich keep the colours of the first console they meet.
    """
    terminal = {"FORCE_COLOR": "1", "COLORTERM": "truecolor", "TERM": "xterm-256color",
                "COLUMNS": str(COLUMNS), "PYTHONIOENCODING": "utf-8"}  # fmt: skip
    others = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    printed = subprocess.run(
        [sys.executable, "-m", "attnviz", *shlex.split(command)[1:], "--quiet"],
        env={**others, **terminal}, encoding="utf-8", stdout=subprocess.PIPE, check=True,
    ).stdout  # fmt: skip
    return list(AnsiDecoder().decode(printed.rstrip()))


def picture(scenes: list[tuple[str, list[Text]]]) -> str:
    """Return the moving picture of commands and what they print."""
    width = 2 * MARGIN + CELL * COLUMNS
    height = 2 * MARGIN + LINE * (ROWS + 2)
    lasting = [_seconds(lines) for _, lines in scenes]
    whole, start = sum(lasting), 0.0
    rules, drawn = [], []
    for number, ((command, lines), seconds) in enumerate(zip(scenes, lasting, strict=True)):
        rules += _rules(number, len(command), lines, start, seconds, whole)
        drawn.append(_scene(number, command, lines, width))
        start += seconds
    motion = "\n".join(rules)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">\n'
        f"<title>attnviz at a terminal</title>\n<desc>{_described(scenes)}</desc>\n"
        f"<style>\n{_STYLE}"
        f"@media (prefers-reduced-motion:no-preference){{\n{motion}\n}}\n</style>\n"
        f'<clipPath id="screen"><rect x="0" y="{MARGIN + 2 * LINE}" width="{width:g}" '
        f'height="{LINE * ROWS + 2}"/></clipPath>\n'
        f'<rect class="paper" width="{width:g}" height="{height:g}" rx="8"/>\n'
        + "\n".join(drawn)
        + f'\n<rect class="frame" x=".5" y=".5" width="{width - 1:g}" height="{height - 1:g}" '
        'rx="8"/>\n</svg>\n'
    )


def _seconds(lines: list[Text]) -> float:
    return TYPING + READING + SCROLLING * max(0, len(lines) - ROWS) * 2


def _rules(
    number: int, letters: int, lines: list[Text], start: float, seconds: float, whole: float
) -> Iterator[str]:
    """Give the animation of one scene: when it shows, how the command is typed, how it moves up."""

    def at(second: float) -> str:
        return f"{100 * second / whole:.2f}%"

    end, typed = start + seconds, start + TYPING
    up = LINE * max(0, len(lines) - ROWS)
    first = "0%" if not start else f"0%,{at(start - 0.01)}{{opacity:0}}{at(start)}"
    last = "" if end >= whole else f"{at(end + 0.01)},100%{{opacity:0}}"
    yield f"@keyframes s{number}{{{first},{at(end)}{{opacity:1}}{last}}}"
    yield (
        f"@keyframes c{number}{{0%,{at(start)}{{transform:translateX(0);"
        f"animation-timing-function:steps({letters})}}"
        f"{at(typed)},100%{{transform:translateX({CELL * (letters + 2):g}px)}}}}"
    )
    yield f"@keyframes o{number}{{0%,{at(typed)}{{opacity:0}}{at(typed + 0.01)},100%{{opacity:1}}}}"
    moves = typed + READING / 2
    yield (
        f"@keyframes u{number}{{0%,{at(moves)}{{transform:translateY(0)}}"
        f"{at(end - READING / 2)},100%{{transform:translateY(-{up}px)}}}}"
    )
    for part, linear in (("s", ""), ("c", ""), ("o", ""), ("u", " linear")):
        timing = f"{whole:g}s{linear} -{OPENING:g}s infinite"
        yield f"#{part}{number}{{animation:{part}{number} {timing}}}"


def _scene(number: int, command: str, lines: list[Text], width: float) -> str:
    top = MARGIN + LINE - 4
    shown = "\n".join(
        part for row, line in enumerate(lines) for part in _line(line, top + (row + 2) * LINE)
    )
    return (
        f'<g class="scene" id="s{number}">\n'
        f'<text class="bold" x="{MARGIN}" y="{top}" textLength="{CELL * (len(command) + 2):g}">'
        f"$ {escape(command, quote=False)}</text>\n"
        f'<rect class="paper" id="c{number}" x="{MARGIN + 2 * CELL:g}" y="{top - LINE + 4}" '
        f'width="{width - 2 * MARGIN:g}" height="{LINE}" transform="translate({width:g})"/>\n'
        f'<g clip-path="url(#screen)"><g id="o{number}"><g id="u{number}">\n{shown}\n</g></g></g>\n'
        "</g>"
    )


def _line(line: Text, y: float) -> Iterator[str]:
    """Yield the pieces of a line that look alike, each at its columns."""
    column = 0
    for segment in line.render(Console(), end=""):
        piece, style = segment.text, segment.style or Style()
        x, size = MARGIN + CELL * column, CELL * cell_len(piece)
        if style.bgcolor is not None:
            yield (
                f'<rect x="{x:g}" y="{y - LINE + 4:g}" width="{size:g}" height="{LINE}" '
                f'fill="{_hex(style.bgcolor)}"/>'
            )
        inside = piece.strip()
        if inside:
            before = cell_len(piece) - cell_len(piece.lstrip())
            faint = style.dim and style.bgcolor is None  # on a colour it would be hard to read
            looks = " ".join(name for name, on in (("dim", faint), ("bold", style.bold)) if on)
            colour = f' style="fill:{_hex(style.color)}"' if style.color is not None else ""
            kind = f' class="{looks}"' if looks else ""
            yield (
                f'<text{kind}{colour} x="{x + CELL * before:g}" y="{y:g}" '
                f'textLength="{CELL * cell_len(inside):g}">{escape(inside, quote=False)}</text>'
            )
        column += cell_len(piece)


def _hex(color: Color) -> str:
    return color.get_truecolor().hex


def _described(scenes: list[tuple[str, list[Text]]]) -> str:
    """Return what is to be seen, for those who do not see it."""
    said = "; ".join(f"{command} and the {len(lines)} lines it prints" for command, lines in scenes)
    return escape(f"A recording of {said}.", quote=False)


def made() -> str:
    """Return the picture as it is today."""
    return picture([(command, recorded(command)) for command in COMMANDS])


if __name__ == "__main__":
    TARGET.write_text(made(), "utf-8")
    print(f"{TARGET}: {TARGET.stat().st_size / 1e3:.0f} kB")
