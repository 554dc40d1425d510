"""Where the arcs of a sentence go: what the terminal and the figure share.

Gold arcs stand above the words, predicted ones below. An arc leaves the head at one of its sides
and arrives at the middle of the dependent. Lengths are cells or inches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from attnviz.drawing.description import interval, percent
from attnviz.drawing.labels import signs, visible
from attnviz.features.syntax.result import Direction, Parse, Syntax

SHORT: Mapping[Direction, str] = {"to_head": "row", "from_head": "column"}
"""Directions in a cell of a table."""
RIGHT, WRONG = "✓", "✗"


@dataclass(frozen=True, slots=True)
class DrawnArc:
    """An arc to be drawn."""

    head: int  # number of a word, from 0
    dependent: int  # of another
    label: str  # what stands in its line
    right: bool | None = None  # whether it was predicted rightly; None for a gold arc

    @property
    def left(self) -> int:
        """The word at its left end."""
        return min(self.head, self.dependent)

    @property
    def end(self) -> int:
        """The word at its right end."""
        return max(self.head, self.dependent)


def drawn_arcs(parse: Parse, *, ascii_only: bool = False) -> tuple[list[DrawnArc], list[DrawnArc]]:
    """Return the arcs above, and those below."""
    above, below = [], []
    for arc in parse.arcs:
        name = visible(arc.relation, ascii_only=ascii_only)
        mark = signs(RIGHT if arc.right else WRONG, ascii_only)
        above.append(DrawnArc(arc.head, arc.dependent, name))
        below.append(DrawnArc(arc.predicted, arc.dependent, f"{mark} {name}", arc.right))
    return above, below


def levels(arcs: Sequence[DrawnArc]) -> list[int]:
    """How far each arc is from the words, from 1: an arc runs outside of those that it spans."""
    heights = [0] * len(arcs)
    order = sorted(range(len(arcs)), key=lambda n: (arcs[n].end - arcs[n].left, arcs[n].left))
    for rank, number in enumerate(order):
        mine = arcs[number]
        under = [
            heights[shorter]
            for shorter in order[:rank]
            if max(mine.left, arcs[shorter].left) < min(mine.end, arcs[shorter].end)
        ]
        heights[number] = 1 + max(under, default=0)
    return heights


@dataclass(frozen=True, slots=True)
class WordLine:
    """Words beside each other, with room for the labels of their arcs."""

    lefts: tuple[float, ...]  # where each word begins
    widths: tuple[float, ...]  # of the words
    side: float  # how far from the middle of a word arcs leave it

    @property
    def width(self) -> float:
        """From the first word to the end of the last one."""
        return self.lefts[-1] + self.widths[-1]

    def middle(self, word: int) -> float:
        """Where arcs arrive at a word."""
        return self.lefts[word] + self.widths[word] / 2

    def ends(self, arc: DrawnArc) -> tuple[float, float]:
        """Where an arc leaves its head, and where it arrives."""
        side = self.side if arc.dependent > arc.head else -self.side
        return self.middle(arc.head) + side, self.middle(arc.dependent)


def line_up(
    widths: Sequence[float], gap: float, side: float, arcs: Sequence[tuple[DrawnArc, float]]
) -> WordLine:
    """Put words side by side, as close as they and the labels of their arcs allow."""
    lefts: list[float] = []
    for word, width in enumerate(widths):
        left = lefts[-1] + widths[word - 1] + gap if lefts else 0.0
        middle = left + width / 2
        for arc, room in arcs:
            if arc.end == word:
                start = lefts[arc.left] + widths[arc.left] / 2
                left = max(left, left + room - (middle - start - side))
        lefts.append(left)
    return WordLine(tuple(lefts), tuple(widths), side)


def lines(report: Syntax) -> Iterator[str]:
    """Which head is shown for each relation, and how the sentences were chosen."""
    if report.shown:
        yield from _heads(report)
        yield _rule(report)


def _heads(report: Syntax) -> Iterator[str]:
    """For each relation that is shown, the head, and how often it is right."""
    names = {arc.chosen_for for parse in report.shown for arc in parse.arcs}
    for relation in report.relations:
        best = relation.best
        if relation.name in names and best is not None:
            ends = "" if best.accuracy.low is None else f" (95 %: {interval(best.accuracy)})"
            offset = best.offset_accuracy
            beside = "" if offset is None else f"; the best offset finds {100 * offset:.0f} %"
            yield (
                f"{visible(relation.name)}: head {report.layout.name(best.head)} by "
                f"{SHORT[best.direction]}, right in {percent(best.accuracy)} %{ends} of "
                f"{best.count:,} cases on {report.measured_on}{beside}"
            )


def _rule(report: Syntax) -> str:
    """How the sentences were chosen, and what the lines mean."""
    names = dict.fromkeys(arc.chosen_for for parse in report.shown for arc in parse.arcs)
    having = "" if list(names) == ["all"] else f" with {' and '.join(map(visible, names))}"
    count = len(report.shown)
    first = "first sentence" if count == 1 else f"first {count} sentences"
    return (
        f"the {first} of {report.measured_on}{having}; above: the treebank, below: where the head "
        f"points ({RIGHT} and solid: right, {WRONG} and dashed: wrong)"
    )
