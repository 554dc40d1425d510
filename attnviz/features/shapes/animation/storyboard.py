"""Multi-head attention as an animation: still pictures between which boxes move, from real numbers.

A :class:`Frame` places boxes by name; a box that is in two frames moves from one place to the
other. ``animation.py`` puts it into a page that plays it.
"""

from __future__ import annotations

from attnviz.drawing.palette import mix
from attnviz.errors import UsageError
from attnviz.features.shapes.animation.stage import (
    HOLD,
    LEFT,
    STAGE,
    TOP,
    WIDTH,
    Frame,
    Stage,
    StageBox,
    some,
)
from attnviz.features.shapes.drawing.colours import MIXED, head_colour
from attnviz.features.shapes.worked.by_hand import NumericWalk

MAX_TOKENS, MAX_HEADS, MAX_WIDTH = 8, 4, 12
ROW_HOLD, LONG_HOLD = 1.1, 3.2


def storyboard(walked: NumericWalk) -> tuple[Frame, ...]:
    """The animation of a numeric walk.

    Raises:
        UsageError: an input without X and W_O, or too large to be seen.
    """
    given = walked.given
    if given.x is None or given.w_o is None:
        raise UsageError(
            "an animation needs token vectors X and all matrices, not Q, K and V alone"
        )
    queries, keys = len(given.tokens), len(given.key_tokens)
    tall = given.heads * max(queries, keys)
    if (
        max(queries, keys) > MAX_TOKENS
        or given.heads > MAX_HEADS
        or tall > 2 * MAX_TOKENS
        or given.x.shape[1] > MAX_WIDTH
    ):
        raise UsageError(
            "an animation shows at most {} tokens (4 with more than 2 heads), {} heads and a "
            "d-model of {}; this is {} tokens, {} heads, d-model {}",
            MAX_TOKENS,
            MAX_HEADS,
            MAX_WIDTH,
            max(queries, keys),
            given.heads,
            given.x.shape[1],
        )
    return _Animation(walked).frames()


class _Animation(Stage):
    """Plays the steps, one after the other."""

    def frames(self) -> tuple[Frame, ...]:
        self.start()
        self.projections()
        self.split()
        self.rows()
        self.values()
        self.mix()
        return tuple(self.made)

    def start(self) -> None:
        given = self.given
        size = (min(72.0, (WIDTH - 340) / self.width / (1 + self.cross)), 44.0)
        x, y = 120.0, 80.0
        boxes = self.label("X", x, y - 26, "X", align="start")
        boxes |= self.matrix("X", some(given.x), x, y, self.plain(self.t, self.width), size)
        boxes |= self.names("Xn", self.queries, x - 8, y, size[1])
        shapes = f"X [T, D] = [{self.t}, {self.width}]"
        caption = f"Every token is a row of D = {self.width} numbers."
        if given.context is not None:
            left = x + self.width * size[0] + 120
            boxes |= self.label("C", left, y - 26, "C, the other sequence", align="start")
            fills = self.plain(self.s, self.width, "#8a6d3b")
            boxes |= self.matrix("C", given.context, left, y, fills, size)
            boxes |= self.names("Cn", self.keys, left - 8, y, size[1])
            shapes += f"   C [S, D] = [{self.s}, {self.width}]"
        self.show(boxes, caption, shapes)

    def projections(self) -> None:
        """W_Q, W_K, W_V beside X, then Q, K, V below them."""
        given = self.given
        columns = self.inner + 2 * given.kv_heads * self.d
        wide = min(52.0, (WIDTH - LEFT - 130) / (columns + self.width))
        high = min(34.0, (STAGE - TOP - 90) / (self.width + max(self.t, self.s) + 1))
        x0, y0 = LEFT + 10, TOP + 28
        below = y0 + self.width * high + 58
        boxes = self.label("X", x0, below - 24, "X", align="start")
        size = (wide, high)
        boxes |= self.matrix("X", some(given.x), x0, below, self.plain(self.t, self.width), size)
        boxes |= self.names("Xn", self.queries, x0 - 6, below, high)
        gap = (WIDTH - x0 - 20 - wide * (self.width + columns)) / 3
        left = x0 + self.width * wide + gap
        learned = dict(boxes)
        results: dict[str, StageBox] = {}
        if given.context is not None:
            learned |= self.label("C", x0, y0 - 24, "C", align="start")
            fills = self.plain(self.s, self.width, "#8a6d3b")
            learned |= self.matrix("C", given.context, x0, y0, fills, size)
            learned |= self.names("Cn", self.keys, x0 - 6, y0, high)
        for letter, part in (("Q", given.w_q), ("K", given.w_k), ("V", given.w_v)):
            heads = self.h if letter == "Q" else given.kv_heads
            learned |= self.label(f"W{letter}", left, y0 - 24, f"W_{letter}", align="start")
            fills = self.by_head(self.width, heads, self.d, 0.28)
            learned |= self.matrix(f"W{letter}", some(part), left, y0, fills, size)
            source = "C" if self.cross and letter != "Q" else "X"
            text = f"{letter} = {source} W_{letter}"
            results |= self.label(f"{letter}l", left, below - 24, text, align="start")
            for h in range(heads):
                head = self.walked.heads[h * (self.h // heads)]
                matrix = {"Q": head.q, "K": head.k, "V": head.v}[letter]
                fills = [[mix(self.tone(h, heads), "#ffffff", 0.5)] * self.d] * len(matrix)
                results |= self.matrix(
                    f"{letter}{h}", matrix, left + h * self.d * wide, below, fills, size
                )
            left += heads * self.d * wide + gap
        each = f"[{self.width}, {self.inner}]"
        self.show(
            learned,
            "Each head has projections of its own: its columns of W_Q, W_K and W_V.",
            f"W_Q [D, H·d] = {each}   H = {self.h}   d = {self.d}",
        )
        self.show(
            learned | results,
            "One product makes the queries of all heads at once; keys and values likewise.",
            f"Q, K, V [T, H·d] = [{self.t}, {self.inner}]",
            LONG_HOLD,
        )

    def split(self) -> None:
        text = "Cut into heads: .view and .transpose move no number, only how they are counted."
        if self.given.kv_heads < self.h:
            text += " Heads of one group read the same keys and values."
        shapes = f"[T, H·d] → [T, H, d] → [H, T, d] = [{self.h}, {self.t}, {self.d}]"
        self.show(self.lanes(), text, shapes, LONG_HOLD)

    def rows(self) -> None:
        """The weights, row by row: scores, then softmax."""
        masked = " -∞ hides what comes later." if self.given.causal else ""
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
        """The weighted values, row by row."""
        shapes = f"Z [H, T, d] = [{self.h}, {self.t}, {self.d}]"
        for i, token in enumerate(self.queries):
            boxes = self.lanes(row=i, values=True) | self.maps(i, "weights")
            boxes |= {k: v for k, v in self.maps(self.t, "none").items() if k not in boxes}
            text = f"The output of “{token}” is the average of V's rows, by its weights."
            self.show(boxes | self.outputs(i + 1), text, shapes, HOLD if i == 0 else ROW_HOLD)

    def mix(self) -> None:
        """Concatenation, W_O, each head's contribution, and their sum."""
        given, walked = self.given, self.walked
        w_o = some(given.w_o)
        d_v = walked.heads[0].output.shape[1]
        wide = min(54.0, (WIDTH - LEFT - 200) / (self.inner + 2 * self.width))
        high = min(34.0, (STAGE - TOP - 130) / (max(self.t, self.inner) + self.t))
        size, y = (wide, high), TOP + 40
        x = LEFT + 10
        boxes = self.label("concat", x, y - 24, "Z = concat of the heads", align="start")
        boxes |= self.names("zn", self.queries, x - 6, y, high)
        for h, head in enumerate(walked.heads):
            fills = [[head_colour(h)] * d_v] * self.t
            boxes |= self.matrix(f"Z{h}", head.output, x + h * d_v * wide, y, fills, size)
        shapes = f"[H, T, d] → [T, H·d] = [{self.t}, {self.inner}]"
        text = "Side by side again: .transpose, .contiguous, .view. The heads have not met yet."
        self.show(boxes, text, shapes, LONG_HOLD)
        right = x + self.inner * wide + 56
        boxes |= self.label("WO", right, y - 24, "W_O", align="start")
        fills = [
            [mix(head_colour(i // d_v), "#ffffff", 0.65)] * self.width for i in range(self.inner)
        ]
        boxes |= self.matrix("WO", w_o, right, y, fills, size)
        text = "W_O mixes them: its rows belong to heads."
        self.show(boxes, text, f"W_O [H·d, D] = [{self.inner}, {self.width}]")
        lower = y + max(self.t, self.inner) * high + 56
        lower_high = min(high, (STAGE - lower) / self.t)
        columns = self.h + 1
        narrow = min(wide, (WIDTH - LEFT - 36 * columns) / (columns * self.width))
        step = self.width * narrow + 36
        parts, moved = dict(boxes), dict[str, StageBox]()
        goal = x + self.h * step
        for h, part in enumerate(walked.contributions):
            fills = [[mix(head_colour(h), "#ffffff", 0.35)] * self.width] * self.t
            here = (narrow, lower_high)
            parts |= self.label(
                f"c{h}l",
                x + h * step,
                lower - 22,
                f"Z_{h} W_O[{h * d_v}:{(h + 1) * d_v}]",
                head_colour(h),
                "start",
            )
            parts |= self.matrix(f"m{h}", part, x + h * step, lower, fills, here)
            parts |= self.matrix(f"c{h}", part, x + h * step, lower, fills, here)
            moved |= self.matrix(f"m{h}", part, goal, lower, fills, here)
        text = "Each head's part of the output: its Z times its own rows of W_O."
        self.show(
            parts, text, f"{self.h} × [T, D] = {self.h} × [{self.t}, {self.width}]", LONG_HOLD
        )
        final = self.matrix(
            "Y", walked.output, goal, lower, [[MIXED] * self.width] * self.t, (narrow, lower_high)
        )
        plus = " + b_O" if "b_o" in given.biases else ""
        final |= self.label("Yl", goal, lower - 22, f"Y = their sum{plus}", align="start")
        self.show(
            {name: box for name, box in parts.items() if name not in moved} | moved | final,
            "Added up they are Y. Forget W_O, and every head writes into its own columns only.",
            f"Y [T, D] = [{self.t}, {self.width}]",
            LONG_HOLD + 1,
        )
