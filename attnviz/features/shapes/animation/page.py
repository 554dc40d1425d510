"""Multi-head attention as an animation in one HTML file that loads nothing, from real numbers.

A :class:`Frame` places boxes by name; a box that is in two frames moves from one place to the
other. The stage says where every matrix stands, and the page plays the frames.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from attnviz.core.provenance import Made
from attnviz.drawing.labels import shorten, visible
from attnviz.drawing.palette import ink, mix
from attnviz.errors import UsageError
from attnviz.features.shapes.drawing.by_hand import number
from attnviz.features.shapes.table import MIXED, NEUTRAL, head_colour, plural
from attnviz.features.shapes.worked import NumericWalk
from attnviz.web.page import html_page, parts, safe_json

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

WIDTH = 960
TOP, LEFT = 24.0, 64.0
STAGE = 486.0
CAPTION_TOP = 490  # where pictures end and captions begin
OTHER = "#8a6d3b"
"""The colour of the other sequence."""
LETTER = 7.4  # about the width of a letter of a name
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


MAX_TOKENS, MAX_HEADS, MAX_WIDTH = 8, 4, 12
ROW_HOLD, LONG_HOLD = 1.1, 3.2


def storyboard(walked: NumericWalk) -> tuple[Frame, ...]:
    """Animate a numeric walk; UsageError without X and W_O, or for one too large to be seen."""
    tiny = walked.tiny
    if tiny.x is None or tiny.w_o is None:
        raise UsageError(
            "an animation needs token vectors X and all matrices, not Q, K and V alone"
        )
    longest, width = max(len(tiny.tokens), len(tiny.key_tokens)), tiny.x.shape[1]
    large = longest > MAX_TOKENS or tiny.heads > MAX_HEADS or width > MAX_WIDTH
    if large or tiny.heads * longest > 2 * MAX_TOKENS:
        raise UsageError(
            "an animation shows at most {} tokens (4 with more than 2 heads), {} heads and a "
            "d-model of {}; this is {} tokens, {} heads, d-model {}",
            MAX_TOKENS,
            MAX_HEADS,
            MAX_WIDTH,
            longest,
            tiny.heads,
            width,
        )
    animation = _Animation(walked)
    animation.start()
    animation.projections()
    animation.split()
    animation.rows()
    animation.values()
    animation.mix()
    return tuple(animation.frames)


class _Animation:
    """Sizes of everything, the pieces that pictures are made of, and the steps, one by one."""

    def __init__(self, walked: NumericWalk) -> None:
        self.walked, self.tiny = walked, walked.tiny
        tiny = walked.tiny
        self.queries = [shorten(visible(token), 6) for token in tiny.tokens]
        self.keys = [shorten(visible(token), 6) for token in tiny.key_tokens]
        self.t, self.s, self.h = len(self.queries), len(self.keys), tiny.heads
        self.d = walked.heads[0].q.shape[1]
        self.inner = self.h * self.d
        self.frames: list[Frame] = []
        x = tiny.x
        self.width = x.shape[1] if x is not None else 0
        self.cross = tiny.context is not None
        self.lane = (STAGE - TOP) / self.h
        cells = 3 * self.d + self.s + self.d
        self.gap = 58.0
        self.cw = min(58.0, (WIDTH - LEFT - 24 - 4 * self.gap) / cells)
        self.ch = min(36.0, (self.lane - 62) / max(self.t, self.s))

    def show(
        self, boxes: dict[str, StageBox], caption: str, shapes: str, seconds: float = HOLD
    ) -> None:
        """Add a frame to the animation."""
        self.frames.append(Frame(dict(boxes), caption, shapes, seconds))

    def matrix(
        self, name: str, matrix: Matrix, x: float, y: float, fills: Sequence[Sequence[str]],
        size: tuple[float, float], *, ring: Sequence[int] = (),
    ) -> dict[str, StageBox]:  # fmt: skip
        """One box a number, named ``name.row.column``."""
        width, height = size
        boxes = {}
        for i, row in enumerate(matrix.tolist()):
            for j, value in enumerate(row):
                fill = fills[i][j]
                text = number(value, 2)
                bounds = x + j * width, y + i * height, width - 1.5, height - 1.5
                boxes[f"{name}.{i}.{j}"] = StageBox(*bounds, fill, text, ink(fill), ring=i in ring)
        return boxes

    def label(
        self, name: str, x: float, y: float, text: str, colour: str = MIXED
    ) -> dict[str, StageBox]:
        """Write a line of bold text, named."""
        return {name: StageBox(x, y, 0, 14, "", text, colour, bold=True, align="start")}

    def titled(
        self, title: str, name: str, matrix: Matrix | None, x: float, y: float,
        fills: Sequence[Sequence[str]], size: tuple[float, float],
        tokens: Sequence[str] = (), *, above: float = 24, beside: float = 6,
    ) -> dict[str, StageBox]:  # fmt: skip
        """Lay out a matrix that must be there, under its title and with tokens at its rows."""
        if matrix is None:
            raise ValueError("a matrix of the walk is missing")
        boxes = self.label(name, x, y - above, title) | self.matrix(name, matrix, x, y, fills, size)
        return boxes | self.names(f"{name}n", tokens, x - beside, y, size[1])

    def names(
        self, name: str, tokens: Sequence[str], x: float, y: float, high: float
    ) -> dict[str, StageBox]:
        """Token names beside a matrix, one a row."""
        return {
            f"{name}.{i}": StageBox(x, y + i * high, 0, high - 1.5, "", token, NEUTRAL, align="end")
            for i, token in enumerate(tokens)
        }

    def by_head(self, rows: int, heads: int, dim: int, strength: float = 0.35) -> list[list[str]]:
        """Return fills of a matrix whose columns belong to heads."""
        tones = [self.tone(h, heads) for h in range(heads)]
        return [[mix(tones[j // dim], "#ffffff", 1 - strength) for j in range(heads * dim)]] * rows

    def tone(self, h: int, heads: int) -> str:
        """Get a head's colour; a shared key head has that of the first query head that reads it."""
        return head_colour(h * (self.h // heads))

    def plain(self, rows: int, columns: int, colour: str = NEUTRAL) -> list[list[str]]:
        """Return fills of a matrix that belongs to no head."""
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
            shared = h // (self.h // self.tiny.kv_heads)
            for slot, (letter, matrix) in enumerate((("Q", head.q), ("K", head.k), ("V", head.v))):
                x = self.at(slot)
                ring: Sequence[int] = ()
                if row is not None and letter == "Q":
                    ring = (row,)
                if row is not None and (letter == "V" if values else letter == "K"):
                    ring = range(len(matrix))
                owner = h if letter == "Q" else shared
                first = letter == "Q" or h % (self.h // self.tiny.kv_heads) == 0
                name = f"{letter}{owner}" if first else f"{letter}{owner}copy{h}"
                boxes |= self.label(f"{letter}l{h}", x, y - 18, letter, tone)
                colour = tone if letter == "Q" else self.tone(shared, self.tiny.kv_heads)
                fills = [[mix(colour, "#ffffff", 0.5)] * self.d] * len(matrix)
                boxes |= self.matrix(name, matrix, x, y, fills, (self.cw, self.ch), ring=ring)
            boxes |= self.names(f"q{h}n", self.queries, self.at(0) - 6, y, self.ch)
            boxes |= self.names(f"k{h}n", self.keys, self.at(1) - 6, y, self.ch)
        return boxes

    def top(self, h: int) -> float:
        """Where a head's lane starts."""
        return TOP + h * self.lane + 46

    def at(self, slot: int) -> float:
        """Where Q, K, V, A and Z of a lane start."""
        widths = [self.d, self.d, self.d, self.s, self.d]
        return LEFT + sum((w * self.cw + self.gap for w in widths[:slot]), 0.0)

    def maps(self, row: int, stage: str) -> dict[str, StageBox]:
        """Draw every head's map so far: rows of weights up to ``row``, of scores at it."""
        boxes: dict[str, StageBox] = {}
        x, room = self.at(3), max(1, int((self.cw - 4) / LETTER))
        for h, head in enumerate(self.walked.heads):
            tone, y = head_colour(h), self.top(h)
            boxes |= self.label(f"Al{h}", x, y - 38, "A", tone)
            for j, key in enumerate(self.keys):
                word, centre = shorten(visible(key), room), x + (j + 0.5) * self.cw
                boxes[f"A{h}k.{j}"] = StageBox(centre, y - 17, 0, 14, "", word, NEUTRAL)
            for i in range(min(row + (stage != "none"), self.t)):
                weighted = i < row or stage == "weights"
                for j, value in enumerate((head.weights if weighted else head.masked)[i].tolist()):
                    text, fill = number(value, 2), "#eceef1"
                    if weighted and text != "NaN":
                        fill = mix("#ffffff", tone, 0.08 + 0.92 * value)
                    bounds = x + j * self.cw, y + i * self.ch, self.cw - 1.5, self.ch - 1.5
                    cell = StageBox(*bounds, fill, text, ink(fill), ring=i == row)
                    boxes[f"A{h}.{i}.{j}"] = cell
        return boxes

    def outputs(self, rows: int) -> dict[str, StageBox]:
        """Every head's output, its first ``rows`` rows."""
        boxes: dict[str, StageBox] = {}
        for h, head in enumerate(self.walked.heads):
            x, y, tone = self.at(4), self.top(h), head_colour(h)
            boxes |= self.label(f"Zl{h}", x, y - 18, "Z = A V", tone)
            fills = [[tone] * head.output.shape[1]] * rows
            boxes |= self.matrix(
                f"Z{h}", head.output[:rows], x, y, fills, (self.cw, self.ch), ring=(rows - 1,)
            )
        return boxes

    def start(self) -> None:
        tiny = self.tiny
        size = (min(72.0, (WIDTH - 340) / self.width / (1 + self.cross)), 44.0)
        x, y = 120.0, 80.0
        fills, gaps = self.plain(self.t, self.width), {"above": 26, "beside": 8}
        boxes = self.titled("X", "X", tiny.x, x, y, fills, size, self.queries, **gaps)
        shapes = f"X [T, D] = [{self.t}, {self.width}]"
        caption = f"Every token is a row of D = {self.width} numbers."
        if tiny.context is not None:
            left = x + self.width * size[0] + 120
            fills, name = self.plain(self.s, self.width, OTHER), "C, the other sequence"
            boxes |= self.titled(name, "C", tiny.context, left, y, fills, size, self.keys, **gaps)
            shapes += f"   C [S, D] = [{self.s}, {self.width}]"
        self.show(boxes, caption, shapes)

    def projections(self) -> None:
        """W_Q, W_K, W_V beside X, then Q, K, V below them."""
        tiny = self.tiny
        columns = self.inner + 2 * tiny.kv_heads * self.d
        width = min(52.0, (WIDTH - LEFT - 130) / (columns + self.width))
        height = min(34.0, (STAGE - TOP - 90) / (self.width + max(self.t, self.s) + 1))
        x0, y0 = LEFT + 10, TOP + 28
        below = y0 + self.width * height + 58
        size, fills = (width, height), self.plain(self.t, self.width)
        boxes = self.titled("X", "X", tiny.x, x0, below, fills, size, self.queries)
        gap = (WIDTH - x0 - 20 - width * (self.width + columns)) / 3
        left = x0 + self.width * width + gap
        learned = dict(boxes)
        results: dict[str, StageBox] = {}
        if tiny.context is not None:
            fills = self.plain(self.s, self.width, OTHER)
            learned |= self.titled("C", "C", tiny.context, x0, y0, fills, size, self.keys)
        for letter, part in (("Q", tiny.w_q), ("K", tiny.w_k), ("V", tiny.w_v)):
            heads = self.h if letter == "Q" else tiny.kv_heads
            fills = self.by_head(self.width, heads, self.d, 0.28)
            learned |= self.titled(f"W_{letter}", f"W{letter}", part, left, y0, fills, size)
            source = "C" if self.cross and letter != "Q" else "X"
            text = f"{letter} = {source} W_{letter}"
            results |= self.label(f"{letter}l", left, below - 24, text)
            for h in range(heads):
                head = self.walked.heads[h * (self.h // heads)]
                matrix = {"Q": head.q, "K": head.k, "V": head.v}[letter]
                fills = [[mix(self.tone(h, heads), "#ffffff", 0.5)] * self.d] * len(matrix)
                results |= self.matrix(
                    f"{letter}{h}", matrix, left + h * self.d * width, below, fills, size
                )
            left += heads * self.d * width + gap
        shape = f"[{self.width}, {self.inner}]"
        self.show(
            learned,
            "Each head has projections of its own: its columns of W_Q, W_K and W_V.",
            f"W_Q [D, H·d] = {shape}   H = {self.h}   d = {self.d}",
        )
        self.show(
            learned | results,
            "One product makes the queries of all heads at once; keys and values likewise.",
            f"Q, K, V [T, H·d] = [{self.t}, {self.inner}]",
            LONG_HOLD,
        )

    def split(self) -> None:
        text = "Cut into heads: .view and .transpose move no number, only how they are counted."
        if self.tiny.kv_heads < self.h:
            text += " Heads of one group read the same keys and values."
        shapes = f"[T, H·d] → [T, H, d] → [H, T, d] = [{self.h}, {self.t}, {self.d}]"
        self.show(self.lanes(), text, shapes, LONG_HOLD)

    def rows(self) -> None:
        """Draw the weights, row by row: scores, then softmax."""
        masked = " -∞ hides what comes later." if self.tiny.causal else ""
        shapes = f"A [H, T, S] = [{self.h}, {self.t}, {self.s}]"
        for i, token in enumerate(self.queries):
            boxes = self.lanes(row=i)
            scores = f"Scores of “{token}”: its query against every key, times 1/√{self.d}.{masked}"
            weights = f"Softmax makes weights of them: the row of “{token}” sums to 1."
            hold = HOLD if i == 0 else ROW_HOLD
            self.show(
                boxes | self.maps(i, "scores"), scores, f"scores = Q Kᵀ / √d   {shapes}", hold
            )
            self.show(boxes | self.maps(i, "weights"), weights, f"A = softmax   {shapes}", hold)

    def values(self) -> None:
        """Draw the weighted values, row by row."""
        shapes = f"Z [H, T, d] = [{self.h}, {self.t}, {self.d}]"
        for i, token in enumerate(self.queries):
            boxes = self.lanes(row=i, values=True) | self.maps(i, "weights")
            boxes |= {k: v for k, v in self.maps(self.t, "none").items() if k not in boxes}
            text = f"The output of “{token}” is the average of V's rows, by its weights."
            self.show(boxes | self.outputs(i + 1), text, shapes, HOLD if i == 0 else ROW_HOLD)

    def mix(self) -> None:
        """Concatenation, W_O, each head's contribution, and their sum."""
        tiny, walked = self.tiny, self.walked
        d_v = walked.heads[0].output.shape[1]
        width = min(54.0, (WIDTH - LEFT - 200) / (self.inner + 2 * self.width))
        height = min(34.0, (STAGE - TOP - 130) / (max(self.t, self.inner) + self.t))
        size, y = (width, height), TOP + 40
        x = LEFT + 10
        boxes = self.label("concat", x, y - 24, "Z = concat of the heads")
        boxes |= self.names("zn", self.queries, x - 6, y, height)
        for h, head in enumerate(walked.heads):
            fills = [[head_colour(h)] * d_v] * self.t
            boxes |= self.matrix(f"Z{h}", head.output, x + h * d_v * width, y, fills, size)
        shapes = f"[H, T, d] → [T, H·d] = [{self.t}, {self.inner}]"
        text = "Side by side again: .transpose, .contiguous, .view. The heads have not met yet."
        self.show(boxes, text, shapes, LONG_HOLD)
        right = x + self.inner * width + 56
        fills = [
            [mix(head_colour(i // d_v), "#ffffff", 0.65)] * self.width for i in range(self.inner)
        ]
        boxes |= self.titled("W_O", "WO", tiny.w_o, right, y, fills, size)
        text = "W_O mixes them: its rows belong to heads."
        self.show(boxes, text, f"W_O [H·d, D] = [{self.inner}, {self.width}]")
        lower = y + max(self.t, self.inner) * height + 56
        lower_high = min(height, (STAGE - lower) / self.t)
        columns = self.h + 1
        narrow = min(width, (WIDTH - LEFT - 36 * columns) / (columns * self.width))
        step = self.width * narrow + 36
        parts, moved = dict(boxes), dict[str, StageBox]()
        goal = x + self.h * step
        for h, part in enumerate(walked.contributions):
            fills = [[mix(head_colour(h), "#ffffff", 0.35)] * self.width] * self.t
            small = (narrow, lower_high)
            left, title = x + h * step, f"Z_{h} W_O[{h * d_v}:{(h + 1) * d_v}]"
            parts |= self.label(f"c{h}l", left, lower - 22, title, head_colour(h))
            for letter in "mc":
                parts |= self.matrix(f"{letter}{h}", part, left, lower, fills, small)
            moved |= self.matrix(f"m{h}", part, goal, lower, fills, small)
        text = "Each head's part of the output: its Z times its own rows of W_O."
        self.show(
            parts, text, f"{self.h} × [T, D] = {self.h} × [{self.t}, {self.width}]", LONG_HOLD
        )
        final = self.matrix(
            "Y", walked.output, goal, lower, [[MIXED] * self.width] * self.t, (narrow, lower_high)
        )
        plus = " + b_O" if "b_o" in tiny.biases else ""
        final |= self.label("Yl", goal, lower - 22, f"Y = their sum{plus}")
        self.show(
            {name: box for name, box in parts.items() if name not in moved} | moved | final,
            "Added up they are Y. Forget W_O, and every head writes into its own columns only.",
            f"Y [T, D] = [{self.t}, {self.width}]",
            LONG_HOLD + 1,
        )


def animation_page(walked: NumericWalk) -> bytes:
    """Play a numeric walk, with pause, steps and speed; keyboard and reduced motion are heeded."""
    template, style, script = parts(__package__, "main")
    tiny = walked.tiny
    words = " ".join(tiny.tokens)
    frames = storyboard(walked)
    about = (
        f"“{words}”: {plural(len(tiny.tokens), 'token')}, "
        f"{plural(tiny.heads, 'head')}. Every number is real: float64, shown to two digits."
    )
    return html_page(
        template,
        title=f"attnviz: attention over “{words}”",
        style=style,
        script=script,
        of=Made.now(),
        still=_still(frames),
        about=html.escape(about),
        data=animation_json(frames),
        width=str(WIDTH),
        height=str(CAPTION_TOP),
    )


def _still(frames: tuple[Frame, ...]) -> str:
    """Return what each step says, and the shapes in it, for browsers without a script."""
    lines = dict.fromkeys((frame.caption, frame.shapes) for frame in frames)
    steps = (f"<li>{html.escape(f'{text} {shapes}'.strip())}</li>" for text, shapes in lines)
    return f"<ol>{''.join(steps)}</ol>"


def animation_json(frames: tuple[Frame, ...]) -> str:
    """Return the frames, each box and name written once, safe inside a script element."""
    names: dict[str, int] = {}
    boxes: dict[tuple[object, ...], int] = {}
    pictures = []
    for frame in frames:
        places = []
        for name, box in frame.boxes.items():
            rounded = tuple(round(v, 2) if isinstance(v, float) else v for v in box)
            places.append(
                [names.setdefault(name, len(names)), boxes.setdefault(rounded, len(boxes))]
            )
        pictures.append({**frame._asdict(), "boxes": places})
    animation = {"names": list(names), "boxes": [list(box) for box in boxes], "frames": pictures}
    return safe_json(animation)
