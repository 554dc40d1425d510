"""The whole layer as one drawing: widths proportional, heads coloured, from X down to Y.

Everything as wide as D in the model is as wide as D in the picture; a head's queries, keys,
weights, outputs and its rows of W_O share one colour. Heights mean nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from matplotlib import patheffects
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, PathPatch, Polygon, Rectangle
from matplotlib.path import Path

from attnviz.attention.walkthrough import Walk
from attnviz.drawing.canvas import picture
from attnviz.drawing.palette import ink, mix
from attnviz.features.shapes.table import MIXED, NEUTRAL, head_colour

INK, SOFT = MIXED, "#6b7280"
SCALE = 0.034  # inches a unit


class Box(NamedTuple):
    """A rectangle; y grows downwards."""

    x: float
    y: float
    width: float
    height: float

    @property
    def centre(self) -> float:
        """The middle, across."""
        return self.x + self.width / 2

    @property
    def bottom(self) -> float:
        """The lower edge."""
        return self.y + self.height

    def pull(self, x: float) -> float:
        """Return the point of the lower edge that is nearest to ``x``."""
        inset = min(4.0, self.width / 2)
        return min(max(x, self.x + inset), self.x + self.width - inset)


class Scene:
    """A figure without axes, in units of which y grows downwards."""

    def __init__(self, left: float, right: float, top: float, bottom: float) -> None:
        self.left, self.right, self.top = left, right, top
        self.figure = Figure(figsize=((right - left) * SCALE, (bottom - top) * SCALE))
        self.axes = self.figure.add_axes((0.0, 0.0, 1.0, 1.0))
        self.axes.set_axis_off()
        self.axes.set_xlim(left, right)
        self.axes.set_ylim(bottom, top)

    def crop(self, bottom: float) -> None:
        """End the page here."""
        self.figure.set_size_inches((self.right - self.left) * SCALE, (bottom - self.top) * SCALE)
        self.axes.set_ylim(bottom, self.top)

    def rect(self, x: float, y: float, width: float, height: float, colour: str = "") -> None:
        """Draw a filled rectangle, or an outline where there is no colour."""
        fill: Any = {"facecolor": colour, "linewidth": 0}
        line: Any = {"fill": False, "edgecolor": INK, "linewidth": 0.7}
        self.axes.add_artist(Rectangle((x, y), width, height, **(fill if colour else line)))

    def bar(self, x: float, y: float, width: float, height: float, colour: str, text: str) -> Box:
        """Draw a filled rectangle with text in it, or beside it where it is too narrow."""
        self.rect(x, y, width, height, colour)
        if text and width > 2.3 * len(text):
            self.text(x + width / 2, y + height / 2, text, size=8, colour=ink(colour))
        elif text:
            self.text(x + width + 3, y + height / 2, text, size=8, align="left")
        return Box(x, y, width, height)

    def band(self, box: Box, colour: str, share: float, *, causal: bool) -> None:
        """Draw the allowed part of a map: a triangle (causal), cut to a band by a window."""
        x, y, width, height = box
        self.rect(*box, "white")
        low = [(x, y), (x + width, y + height)]
        sides = [[*low, (x + width * (1 - share), y + height), (x, y + height * share)]]
        if share >= 1:
            sides = [[*low, (x, y + height)]]
        if not causal:
            sides.append([*low, (x + width, y + height * (1 - share)), (x + width * share, y)])
        for points in sides:
            self.axes.add_patch(Polygon(points, closed=True, facecolor=colour, linewidth=0))

    def arrow(self, x0: float, y0: float, x1: float, y1: float, colour: str = NEUTRAL) -> None:
        """Draw a straight arrow."""
        style: Any = {"arrowstyle": "-|>", "mutation_scale": 7, "shrinkA": 1, "shrinkB": 1}
        arrow = FancyArrowPatch((x0, y0), (x1, y1), color=colour, linewidth=1.0, **style)
        self.axes.add_patch(arrow)

    def curve(self, x0: float, y0: float, x1: float, y1: float, colour: str, **style: Any) -> None:
        """Draw a soft line that leaves and arrives upright."""
        middle = (y0 + y1) / 2
        points = [(x0, y0), (x0, middle), (x1, middle), (x1, y1)]
        path = Path(points, [Path.MOVETO, *[Path.CURVE4] * 3])
        style = {"linestyle": "solid", "alpha": 0.85} | style
        self.axes.add_patch(PathPatch(path, fill=False, edgecolor=colour, linewidth=1.0, **style))

    def text(
        self, x: float, y: float, text: str, *, size: float, bold: bool = False,
        align: str = "center", colour: str = INK, halo: bool = False,
    ) -> None:  # fmt: skip
        """Write text centred on ``y``."""
        effects = [patheffects.withStroke(linewidth=2.2, foreground="white")] if halo else None
        style: Any = {"fontweight": "bold" if bold else "normal", "path_effects": effects}
        style |= {"horizontalalignment": align, "verticalalignment": "center"}
        self.axes.text(x, y, text, fontsize=size, color=colour, **style)


COLUMN, GAP = 100.0, 18.0
FULL = 3 * COLUMN + 2 * GAP
MARGIN = 12.0
SHAPES = FULL + 16
MAX_HEADS = 12
LABELLED = 16
ROPE = "#d98880"


@picture
def draw(walk: Walk, dpi: float) -> Figure:
    """Draw a layer; sizes that are unset stay letters."""
    drawing = _Drawing(walk)
    drawing.draw()
    return drawing.scene.figure


class _Drawing:
    """Rows of boxes from top to bottom; ``y`` is where the next row starts."""

    def __init__(self, walk: Walk) -> None:
        self.walk, self.spec = walk, walk.spec
        spec = walk.spec
        widest = max(spec.d_model, spec.heads * max(spec.score_dim, spec.value_dim), spec.latent)
        self.unit = COLUMN / widest
        self.deep = 34.0 if spec.kind == "mla" else 0.0
        self.shown = self._shown_heads()
        self.scene = Scene(-MARGIN, SHAPES + 122, -26.0, 300.0 + self.deep)

    def _shown_heads(self) -> list[int]:
        heads = self.spec.heads
        if heads <= MAX_HEADS:
            return list(range(heads))
        group = min(self.spec.group, MAX_HEADS - 3)
        first = max(group, MAX_HEADS - 2 - (MAX_HEADS - 2) % group) if group > 1 else MAX_HEADS - 2
        return [*range(first), heads - 1]

    def width(self, size: int) -> float:
        return size * self.unit

    def draw(self) -> None:
        title = self.walk.spec.title
        self.scene.text(self.scene.left + 4, -16.0, title, size=12, bold=True, align="left")
        y = self.inputs(0.0)
        q, k, v, y = self.projections(y)
        y = self.heads(q, k, v, y)
        self.output(y)
        self.legend()

    def shape(self, key: str, y: float) -> None:
        """Write the step's name and shapes at the right of its row."""
        step = self.walk.step(key)
        self.scene.text(SHAPES, y, step.name, size=8.5, bold=True, align="left")
        self.scene.text(SHAPES + 36, y, step.symbols, size=8, align="left")
        self.scene.text(SHAPES + 76, y, step.concrete, size=8, align="left", colour=SOFT)

    def shapes(self, keys: tuple[str, ...], y: float) -> None:
        """Write the shapes of those of some steps that there are, below each other."""
        steps = {step.key for step in self.walk.steps}
        for row, key in enumerate(key for key in keys if key in steps):
            self.shape(key, y + 7 * row)

    def inputs(self, y: float) -> float:
        """X across the top; with cross-attention X over Q and C over K and V."""
        width = self.width(self.spec.d_model)
        if self.spec.kind == "cross":
            self.x = self.scene.bar(self._middle(0, width), y, width, 9, NEUTRAL, "X, queries")
            middle = COLUMN + GAP + (2 * COLUMN + GAP - width) / 2
            self.c = self.scene.bar(
                middle, y, width, 9, mix(NEUTRAL, "#5a4632", 0.55), "C, the other sequence"
            )
            self.shape("x", y + 1)
            self.shape("context", y + 8)
        else:
            self.x = self.c = self.scene.bar(
                (FULL - width) / 2, y, width, 9, NEUTRAL, "X, one row a token"
            )
            self.shape("x", y + 4.5)
        return y + 24

    def _middle(self, column: int, width: float) -> float:
        return column * (COLUMN + GAP) + (COLUMN - width) / 2

    def projections(self, y: float) -> tuple[list[Box], list[Box], list[Box], float]:
        """Return the learned matrices, and Q, K and V cut into heads."""
        spec, scene = self.spec, self.scene
        low = y + self.deep
        source, asking, above = self.c, self.x, y
        rope = None
        if spec.kind == "mla":
            source, rope = self.latent(y)
        if spec.query_latent:
            asking, above = self.query_latent(y), low
        columns = (
            ("W_Q", spec.heads, spec.score_dim, asking, above),
            ("W_K", spec.kv_heads, spec.score_dim, source, low),
            ("W_V", spec.kv_heads, spec.value_dim, source, low),
        )
        cut = []
        for number, (name, heads, dim, origin, top) in enumerate(columns):
            width = self.width(heads * dim)
            left = self._middle(number, width)
            raw = self.width(heads * spec.head_dim) if name == "W_K" else width
            block = self.stripes(self._middle(number, raw), top, raw, low + 24 - top, heads, name)
            scene.arrow(origin.pull(block.centre), origin.bottom, block.centre, top)
            cut.append(self.segments(left, low + 36, heads, dim, "QKV"[number]))
            scene.arrow(block.centre, block.bottom, block.centre, low + 36)
        if rope is not None:
            self.join(rope, cut[1][-1])
        self.shapes(("w_q", "w_k", "w_v"), low + 4)
        self.shapes(("view", "view_kv", "transpose", "transpose_kv", "cache", "rope_k"), low + 35)
        return cut[0], cut[1], cut[2], low + 46

    def query_latent(self, y: float) -> Box:
        """MLA's latent of the queries, as wide as it is, above W_Q."""
        width = max(self.width(self.spec.query_latent), 3.0)
        box = self.scene.bar(self._middle(0, width), y + 2, width, 9, "#3d6f9c", "")
        label = f"c_Q, latent {self.spec.query_latent:,}"
        self.scene.text(box.x - 3, y + 6.5, label, size=8, align="right")
        self.scene.arrow(self.x.pull(box.centre), self.x.bottom, box.centre, y + 2)
        return box

    def join(self, rope: Box, last: Box) -> None:
        """Draw the rotary key, rotated, at the end of every head's key: the pale parts of K."""
        part = last.width * self.spec.rope_dim / self.spec.score_dim
        self.scene.curve(rope.centre, rope.bottom, last.x + last.width - part / 2, last.y, ROPE)
        right = last.x + last.width + 3
        self.scene.text(right, last.y - 4.2, "the same k_rope", size=7, align="left", colour=SOFT)

    def latent(self, y: float) -> tuple[Box, Box | None]:
        """MLA's latent c, from which K and V are rebuilt, and the rotary key beside it."""
        spec = self.spec
        width, rope = max(self.width(spec.latent), 3.0), max(self.width(spec.rope_dim), 1.5)
        left = 2 * COLUMN + 1.5 * GAP - (width + rope) / 2
        box = self.scene.bar(left, y + 2, width, 9, "#9c3d3d", "")
        self.scene.text(left - 3, y + 6.5, f"c, latent {spec.latent}", size=8, align="right")
        caption, rotary = "this is what a cache keeps", None
        if spec.rope_dim:
            rotary = self.scene.bar(left + width + 1, y + 2, rope, 9, ROPE, "")
            self.scene.arrow(self.x.pull(rotary.centre), self.x.bottom, rotary.centre, y + 2)
            caption = f"k_rope {spec.rope_dim}; a cache keeps these two"
        self.scene.text(left + width + rope + 4, y + 6.5, caption, size=8, align="left")
        self.scene.arrow(self.x.pull(box.centre), self.x.bottom, box.centre, y + 2)
        self.shapes(("w_q_latent", "w_latent", "w_k_rope"), y)
        return Box(left, y + 2, width, 9), rotary

    def stripes(
        self, x: float, y: float, width: float, height: float, heads: int, name: str
    ) -> Box:
        """Return a learned matrix whose columns belong to heads."""
        for h in range(heads):
            shade = mix(self.tone(h, heads), "#ffffff", 0.55)
            self.scene.rect(x + h * width / heads, y, width / heads, height, shade)
        self.scene.rect(x, y, width, height)
        middle, align = (x + width / 2, "center") if width > 14 else (x - 3, "right")
        self.scene.text(middle, y + height / 2, name, size=10, bold=True, align=align)
        return Box(x, y, width, height)

    def tone(self, index: int, heads: int) -> str:
        """Query heads that share a key are shades of the shared key's colour."""
        spec = self.spec
        if spec.group == 1 or heads == spec.kv_heads:
            return head_colour(index)
        group, member = divmod(index, spec.group)
        return mix(head_colour(group), "#ffffff", 0.5 * member / max(1, spec.group - 1))

    def segments(self, x: float, y: float, heads: int, dim: int, name: str) -> list[Box]:
        """One bar cut into heads."""
        size = self.width(dim)
        gap = min(1.0, size * 0.12)
        boxes = []
        for h in range(heads):
            tone = self.tone(h, heads)
            box = Box(x + h * size + gap / 2, y, size - gap, 10)
            self.scene.rect(box.x, y, box.width, 10, tone)
            rope = self.spec.rope_dim if name in "QK" else 0
            if rope:
                part = box.width * rope / dim
                self.scene.rect(box.x + box.width - part, y, part, 10, mix(tone, "#ffffff", 0.5))
            if heads <= LABELLED and box.width > 4.5:
                self.scene.text(box.centre, y + 5, str(h), size=7, colour=ink(tone))
            boxes.append(box)
        label = f"{name}: {heads} head{'s' * (heads > 1)} of {dim}"
        beside = x + heads * size / 2 - 3
        self.scene.text(beside, y - 4.2, label, size=7, colour=SOFT, align="right")
        return boxes

    def heads(self, q: list[Box], k: list[Box], v: list[Box], y: float) -> float:
        """One map a head, fed by its queries and the keys it reads; below it what it hands on."""
        spec, scene = self.spec, self.scene
        slots = len(self.shown) + (len(self.shown) < spec.heads)
        slot = FULL / slots
        side = min(30.0, slot * 0.72)
        width, height = self._map_size(side)
        top = y + 38
        centres = {}
        for number, head in enumerate(self.shown):
            skip = len(self.shown) < spec.heads and head == spec.heads - 1
            centres[head] = (number + skip + 0.5) * slot
        if len(self.shown) < spec.heads:
            scene.text((slots - 1.5) * slot, top + height / 2, "…", size=16, colour=SOFT)
        groups: dict[int, list[int]] = {}
        for head in self.shown:
            groups.setdefault(head // spec.group, []).append(head)
        if spec.group > 1:
            self._group_boxes(groups, centres, width, top, height)
        for head in self.shown:
            centre, group = centres[head], head // spec.group
            tone = self.tone(head, spec.heads)
            scene.curve(q[head].centre, y, centre - width * 0.28, top, tone)
            tones, right = self.tone(group, len(k)), centre + width * 0.28
            scene.curve(k[group].centre, y, centre, top, tones, linestyle=(0, (3, 2)))
            scene.curve(v[group].centre, y, right, top, tones, alpha=0.4)
            self._map(centre - width / 2, top, width, height, tone)
            if slot > 14:
                scene.text(centre, top - 3, f"head {head}", size=7, halo=True)
        bottom = top + height
        size = max(self.width(spec.value_dim), 0.6)
        self.outputs = {}
        for head in self.shown:
            tone = self.tone(head, spec.heads)
            box = Box(centres[head] - size / 2, bottom + 13, size, 9)
            scene.arrow(centres[head], bottom, centres[head], bottom + 13, tone)
            scene.rect(box.x, box.y, size, 9, tone)
            self.outputs[head] = box
        self.shape("scores", top + height / 2 - 4)
        self.shape("softmax", top + height / 2 + 4)
        self.shape("heads", bottom + 17.5)
        note = "softmax(Q Kᵀ"
        note += f" · {spec.scale_text}" if spec.scaled else ""
        note += " + M) V" if spec.causal or spec.window else ") V"
        self.scene.text(SHAPES, top + height / 2 - 13, note, size=8, align="left", colour=SOFT)
        return bottom + 22

    def _map_size(self, side: float) -> tuple[float, float]:
        """S wide and T high, not too far from square."""
        t, s = self.walk.step("scores").sizes[2:]
        if t is None or s is None:
            return (side, side) if self.spec.kind != "cross" else (side, side * 0.7)
        ratio = min(max(t / s, 0.25), 1.6)
        return (side, side * ratio) if ratio <= 1 else (side / ratio, side)

    def _map(self, x: float, y: float, width: float, height: float, tone: str) -> None:
        """Draw a map [T, S]; what the mask blocks is left white."""
        spec = self.spec
        one_row = self.walk.run.cache is not None
        light = mix(tone, "#ffffff", 0.35)
        if one_row or not (spec.causal or spec.window):
            self.scene.rect(x, y, width, height, light)
        else:
            band = 1.0
            if spec.window is not None:
                t = self.walk.run.seq
                band = min(1.0, spec.window / t) if t else 0.35
            self.scene.band(Box(x, y, width, height), light, band, causal=spec.causal)
        self.scene.rect(x, y, width, height)

    def _group_boxes(
        self, groups: dict[int, list[int]], centres: dict[int, float],
        width: float, top: float, height: float,
    ) -> None:  # fmt: skip
        """Draw a tinted field behind the query heads that read the same keys and values."""
        for group, heads in groups.items():
            left = min(centres[h] for h in heads) - width * 0.62
            right = max(centres[h] for h in heads) + width * 0.62
            tint, middle = mix(head_colour(group), "#ffffff", 0.86), (left + right) / 2
            self.scene.rect(left, top - 8, right - left, height + 18, tint)
            below = top + height + 5.5
            self.scene.text(middle, below, f"read K, V {group}", size=6.5, colour=SOFT)

    def output(self, y: float) -> None:
        """Draw the concat, W_O whose rows belong to heads, and Y."""
        spec, scene = self.spec, self.scene
        size = self.width(spec.value_dim)
        total = size * spec.heads
        left, top = (FULL - total) / 2, y + 20
        for h in range(spec.heads):
            tone = self.tone(h, spec.heads)
            scene.rect(left + h * size, top, size, 9, tone)
            if h in self.outputs:
                box = self.outputs[h]
                scene.curve(box.centre, box.bottom, left + (h + 0.5) * size, top, tone)
        scene.rect(left, top, total, 9)
        scene.text(left - 3, top + 4.5, "concat", size=8, align="right")
        width, block = self.width(spec.d_model), top + 21
        x = (FULL - width) / 2
        height = 26.0
        for h in range(spec.heads):
            shade = mix(self.tone(h, spec.heads), "#ffffff", 0.55)
            scene.rect(x, block + h * height / spec.heads, width, height / spec.heads, shade)
        scene.rect(x, block, width, height)
        scene.text(FULL / 2, block + height / 2, "W_O", size=10, bold=True, halo=True)
        caption = "its rows belong to heads:\nhere they are mixed"
        scene.text(x - 3, block + height / 2, caption, size=7, align="right", colour=SOFT)
        scene.arrow(FULL / 2, top + 9, FULL / 2, block)
        scene.bar(x, block + height + 12, width, 9, MIXED, "Y, all heads mixed")
        scene.arrow(FULL / 2, block + height, FULL / 2, block + height + 12)
        self.shape("untranspose", top - 6)
        self.shape("concat", top + 5)
        self.shape("w_o", block + height + 16)
        self.bottom = block + height + 24

    def legend(self) -> None:
        """Draw the scale, and say what the lines are."""
        self.scene.crop(self.bottom + 12)
        text = "widths in proportion; line styles: solid Q, dashed K, faint V"
        if self.spec.group > 1:
            text += "; heads of one hue share a key head"
        if self.spec.causal or self.spec.window:
            text += "; white in a map: masked"
        self.scene.text(-MARGIN + 4, self.bottom + 5, text, size=7, align="left", colour=SOFT)
