"""The stage of the animation: where every matrix stands, and how its numbers become boxes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from attnviz.drawing.labels import visible
from attnviz.drawing.palette import ink, mix
from attnviz.features.shapes.drawing.colours import MIXED, NEUTRAL, head_colour
from attnviz.features.shapes.worked.by_hand import HeadNumbers, NumericWalk

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

WIDTH = 960
TOP, LEFT = 24.0, 64.0
STAGE = 486.0
CAPTION_TOP = 490
"""Where pictures end and captions begin."""
LETTER = 7.4
"""About the width of a letter of a name."""
HOLD = 2.2


class StageBox(NamedTuple):
    """A filled box with text; or text alone, where ``fill`` is empty."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    text: str
    colour: str
    bold: bool = False
    ring: bool = False
    align: str = "middle"


class Frame(NamedTuple):
    """A picture: its boxes by name, what it shows, the shapes in it, and how long it stays."""

    boxes: dict[str, StageBox]
    caption: str
    shapes: str
    seconds: float


class Stage:
    """Sizes of everything, and the pieces that pictures are made of."""

    def __init__(self, walked: NumericWalk) -> None:
        self.walked, self.given = walked, walked.given
        given = walked.given
        self.queries = [_short(token) for token in given.tokens]
        self.keys = [_short(token) for token in given.key_tokens]
        self.t, self.s, self.h = len(self.queries), len(self.keys), given.heads
        self.d = walked.heads[0].q.shape[1]
        self.inner = self.h * self.d
        self.made: list[Frame] = []
        x = given.x
        self.width = x.shape[1] if x is not None else 0
        self.cross = given.context is not None
        self.lane = (STAGE - TOP) / self.h
        cells = 3 * self.d + self.s + self.d
        self.gap = 58.0
        self.cw = min(58.0, (WIDTH - LEFT - 24 - 4 * self.gap) / cells)
        self.ch = min(36.0, (self.lane - 62) / max(self.t, self.s))

    def show(
        self, boxes: dict[str, StageBox], caption: str, shapes: str, seconds: float = HOLD
    ) -> None:
        """Add a frame to the animation."""
        self.made.append(Frame(dict(boxes), caption, shapes, seconds))

    def matrix(
        self,
        name: str,
        matrix: Matrix,
        x: float,
        y: float,
        fills: Sequence[Sequence[str]],
        size: tuple[float, float],
        *,
        ring: Sequence[int] = (),
    ) -> dict[str, StageBox]:
        """One box a number, named ``name.row.column``."""
        wide, high = size
        boxes = {}
        for i, row in enumerate(matrix.tolist()):
            for j, value in enumerate(row):
                fill = fills[i][j]
                text = "-∞" if value == float("-inf") else f"{round(value, 2) + 0.0:.2f}"
                boxes[f"{name}.{i}.{j}"] = StageBox(
                    x + j * wide,
                    y + i * high,
                    wide - 1.5,
                    high - 1.5,
                    fill,
                    text,
                    ink(fill),
                    ring=i in ring,
                )
        return boxes

    def label(
        self, name: str, x: float, y: float, text: str, colour: str = MIXED, align: str = "middle"
    ) -> dict[str, StageBox]:
        """A line of bold text, named."""
        return {name: StageBox(x, y, 0, 14, "", text, colour, bold=True, align=align)}

    def names(
        self, name: str, tokens: Sequence[str], x: float, y: float, high: float
    ) -> dict[str, StageBox]:
        """Token names beside a matrix, one a row."""
        return {
            f"{name}.{i}": StageBox(x, y + i * high, 0, high - 1.5, "", token, NEUTRAL, align="end")
            for i, token in enumerate(tokens)
        }

    def by_head(self, rows: int, heads: int, wide: int, strength: float = 0.35) -> list[list[str]]:
        """Fills of a matrix whose columns belong to heads."""
        tones = [self.tone(h, heads) for h in range(heads)]
        return [
            [mix(tones[j // wide], "#ffffff", 1 - strength) for j in range(heads * wide)]
        ] * rows

    def tone(self, h: int, heads: int) -> str:
        """A head's colour; a shared key head has that of the first query head that reads it."""
        return head_colour(h * (self.h // heads))

    def plain(self, rows: int, columns: int, colour: str = NEUTRAL) -> list[list[str]]:
        """Fills of a matrix that belongs to no head."""
        return [[mix(colour, "#ffffff", 0.75)] * columns] * rows

    def lanes(self, *, row: int | None = None, values: bool = False) -> dict[str, StageBox]:
        """Every head in a lane of its own: Q, K and V; ``row`` rings a query."""
        boxes = {}
        for h, head in enumerate(self.walked.heads):
            y = self.top(h)
            tone = head_colour(h)
            boxes[f"lane{h}"] = StageBox(
                LEFT - 46, y - 38, 0, 14, "", f"head {h}", tone, bold=True, align="start"
            )
            shared = h // (self.h // self.given.kv_heads)
            for place, (letter, matrix) in enumerate((("Q", head.q), ("K", head.k), ("V", head.v))):
                x = self.at(place)
                ring: Sequence[int] = ()
                if row is not None and letter == "Q":
                    ring = (row,)
                if row is not None and (letter == "V" if values else letter == "K"):
                    ring = range(len(matrix))
                owner = h if letter == "Q" else shared
                first = letter == "Q" or h % (self.h // self.given.kv_heads) == 0
                name = f"{letter}{owner}" if first else f"{letter}{owner}copy{h}"
                boxes |= self.label(f"{letter}l{h}", x, y - 18, letter, tone, "start")
                colour = tone if letter == "Q" else self.tone(shared, self.given.kv_heads)
                fills = [[mix(colour, "#ffffff", 0.5)] * self.d] * len(matrix)
                boxes |= self.matrix(name, matrix, x, y, fills, (self.cw, self.ch), ring=ring)
            boxes |= self.names(f"q{h}n", self.queries, self.at(0) - 6, y, self.ch)
            boxes |= self.names(f"k{h}n", self.keys, self.at(1) - 6, y, self.ch)
        return boxes

    def top(self, h: int) -> float:
        """Where a head's lane starts."""
        return TOP + h * self.lane + 46

    def at(self, place: int) -> float:
        """Where Q, K, V, A and Z of a lane start."""
        widths = [self.d, self.d, self.d, self.s, self.d]
        return LEFT + sum((w * self.cw + self.gap for w in widths[:place]), 0.0)

    def map_of(self, h: int, head: HeadNumbers, done: int, stage: str) -> dict[str, StageBox]:
        """A head's map so far: ``done`` rows of weights, and one row of scores if that is shown."""
        tone, y, x = head_colour(h), self.top(h), self.at(3)
        boxes = self.label(f"Al{h}", x, y - 38, "A", tone, "start")
        for j, key in enumerate(self.keys):
            boxes[f"A{h}k.{j}"] = StageBox(
                x + (j + 0.5) * self.cw,
                y - 17,
                0,
                14,
                "",
                _short(key, max(1, int((self.cw - 4) / LETTER))),
                NEUTRAL,
            )
        for i in range(self.t):
            if i > done or (i == done and stage == "none"):
                continue
            for j in range(self.s):
                weight = float(head.weights[i, j])
                if i < done or stage == "weights":
                    fill, text = mix("#ffffff", tone, 0.08 + 0.92 * weight), f"{weight:.2f}"
                else:
                    score = float(head.masked[i, j])
                    fill = "#eceef1"
                    text = "-∞" if score == float("-inf") else f"{round(score, 2) + 0.0:.2f}"
                boxes[f"A{h}.{i}.{j}"] = StageBox(
                    x + j * self.cw,
                    y + i * self.ch,
                    self.cw - 1.5,
                    self.ch - 1.5,
                    fill,
                    text,
                    ink(fill),
                    ring=i == done,
                )
        return boxes

    def maps(self, done: int, stage: str) -> dict[str, StageBox]:
        """Every head's map; see :meth:`map_of`."""
        boxes: dict[str, StageBox] = {}
        for h, head in enumerate(self.walked.heads):
            boxes |= self.map_of(h, head, done, stage)
        return boxes

    def outputs(self, done: int) -> dict[str, StageBox]:
        """Every head's output, as far as its first ``done`` rows."""
        boxes: dict[str, StageBox] = {}
        for h, head in enumerate(self.walked.heads):
            x, y, tone = self.at(4), self.top(h), head_colour(h)
            boxes |= self.label(f"Zl{h}", x, y - 18, "Z = A V", tone, "start")
            fills = [[tone] * head.output.shape[1]] * done
            boxes |= self.matrix(
                f"Z{h}", head.output[:done], x, y, fills, (self.cw, self.ch), ring=(done - 1,)
            )
        return boxes


def some(matrix: Matrix | None) -> Matrix:
    """The matrix, which must be there."""
    if matrix is None:
        raise ValueError("a matrix of the walk is missing")
    return matrix


def _short(token: str, most: int = 6) -> str:
    shown = visible(token)
    return shown if len(shown) <= most else shown[: most - 1] + "…"
