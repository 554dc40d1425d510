"""A lens as a figure: words by layer and position, one position in detail, or words of heads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from attnviz.drawing.canvas import picture
from attnviz.drawing.charts import GREY, HeadedFigure, open_sides
from attnviz.drawing.grid import BLUE, ORANGE, signed
from attnviz.drawing.labels import percent, shorten, visible
from attnviz.drawing.palette import DEFAULT_PALETTE, ink, ramp
from attnviz.errors import UsageError
from attnviz.features.lens import description
from attnviz.features.lens.result import HeadWrites, Lens, LensCell

_MARGIN = 0.2
_HIGH = 0.25  # of a cell, in inches
_LONGEST = 12  # cells of a word
_A_LINE = 14  # positions beside each other; more go on below
_BANDS = 12
_LISTED = 5
_CURVE = 1.5
_HEADS = 24
_SIZE = 7.0
_FULL = ramp(DEFAULT_PALETTE)


@picture
def draw(result: Lens, dpi: float) -> Figure:
    """Draw the figure that fits what was read."""
    if len(result.positions) > _A_LINE * _BANDS:
        raise UsageError(
            "a picture has room for {} positions, and there are {:,}; choose one with {position}, "
            "or save a page",
            _A_LINE * _BANDS,
            len(result.positions),
            position=...,
        )
    sheet = _Sheet(result, dpi)
    if result.heads:
        return sheet.heads()
    return sheet.along(result.positions[0]) if len(result.positions) == 1 else sheet.layers()


def _texts(result: Lens) -> Iterator[str]:
    """Yield all words that may be drawn."""
    for writes in result.heads:
        yield from (_short(word.token) for word in (*writes.raises, *writes.lowers)[: 4 * _LISTED])
    if not result.heads:
        yield from (_short(word.token) for cell in result.cells for word in cell.top[:_LISTED])
        yield from map(_short, (*result.tokens, *result.next))


def _short(token: str) -> str:
    return shorten(visible(token), _LONGEST) if token else ""


class _Sheet(HeadedFigure):
    """Fonts and sizes of one figure."""

    def __init__(self, result: Lens, dpi: float) -> None:
        self.result = result
        listed = list(_texts(result))
        below = ["logits against the vocabulary's mean"]
        if result.cells:
            sentence = description.sentence(result, result.positions[-1])
            below = [sentence, description.checked(result)]
        super().__init__(description.title(result), below, dpi, listed, _MARGIN)
        self.widest = self.ruler.widest([self.text(line) for line in listed], _SIZE)
        self.names = [description.label(row[0].layer) for row in result.states()]
        self.left = 0.15 + self.ruler.widest([*self.names, "next"], _SIZE)

    def under(self, width: float, body: float) -> tuple[Figure, float]:
        """Return an empty figure under its heading, and where the body begins, in inches."""
        top = self.begin(width) + 0.2
        return self.figure(top + body + _MARGIN), top

    def axes(self, x: float, y: float, wide: float, high: float) -> Axes:
        """Return the same without ticks and lines."""
        axes = super().axes(x, y, wide, high)
        axes.tick_params(length=0, labelsize=_SIZE)
        open_sides(axes)
        return axes

    def cell(self, axes: Axes, x: int, y: int, token: str, share: float) -> None:
        """Draw a word on the colour of its probability."""
        paint = _FULL[round(255 * share)]
        axes.add_patch(Rectangle((x, y), 1, 1, facecolor=paint, edgecolor="white", linewidth=0.5))
        axes.text(x + 0.5, y + 0.5, self.text(_short(token)), ha="center", va="center",
                  fontsize=_SIZE, color=ink(paint), family=self.families)  # fmt: skip

    def layers(self) -> Figure:
        """Layers downwards, positions across, in as many bands as they need."""
        result, states = self.result, self.result.states()
        count = len(result.positions)
        across = min(count, _A_LINE)
        room = max(0.45, self.widest + 0.1)
        lines = len(states) + 1 + bool(result.next)
        bands = -(-count // across)
        width = max(2 * _MARGIN + self.left + across * room, 5.0)
        step = lines * _HIGH + 0.2
        figure, top = self.under(width, bands * step + 0.35)
        for band in range(bands):
            columns = range(band * across, min((band + 1) * across, count))
            y = top + band * step
            axes = self.axes(_MARGIN + self.left, y, len(columns) * room, lines * _HIGH)
            axes.set_xlim(0, len(columns))
            axes.set_ylim(lines, 0)
            for x, n in enumerate(columns):
                self.word(axes, x, 0, result.tokens[result.positions[n]], bold=True)
                for line, row in enumerate(states, start=1):
                    self.cell(axes, x, line, row[n].top[0].token, row[n].top[0].probability)
                if result.next:
                    self.word(axes, x, lines - 1, result.next[n])
            axes.set_xticks([])
            names = ["", *self.names, *(["next"] if result.next else [])]
            axes.set_yticks([n + 0.5 for n in range(lines)], names)
        self.bar(figure, top + bands * step)
        return figure

    def word(self, axes: Axes, x: int, y: int, token: str, *, bold: bool = False) -> None:
        """Draw a word of the text."""
        color = "black" if bold else GREY
        axes.text(x + 0.5, y + 0.5, self.text(_short(token)), ha="center", va="center",
                  fontsize=_SIZE, color=color, family=self.families)  # fmt: skip

    def bar(self, figure: Figure, y: float) -> None:
        """Draw the colours of probabilities."""
        axes = self.axes(_MARGIN + self.left, y, 1.6, 0.1)
        axes.imshow(
            [list(range(256))], aspect="auto", cmap=ListedColormap(list(_FULL)), extent=(0, 1, 0, 1)
        )
        axes.set_yticks([])
        axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
        figure.text((_MARGIN + self.left + 1.75) / figure.get_size_inches()[0],
                    1 - (y + 0.1) / figure.get_size_inches()[1], "probability of the word shown",
                    fontsize=_SIZE, color=GREY)  # fmt: skip

    def along(self, position: int) -> Figure:
        """One position: the top words across, and what changes along the layers beside them."""
        cells = self.result.along(position)
        count = min(_LISTED, len(cells[0].top))
        room = max(0.6, self.widest + 0.1)
        high = len(cells) * _HIGH
        width = 2 * _MARGIN + self.left + count * room + 3 * (_CURVE + 0.25)
        figure, top = self.under(width, high + 0.75)
        axes = self.axes(_MARGIN + self.left, top + 0.15, count * room, high)
        axes.set_xlim(0, count)
        axes.set_ylim(len(cells), 0)
        for row, cell in enumerate(cells):
            for column, word in enumerate(cell.top[:count]):
                self.cell(axes, column, row, word.token, word.probability)
        axes.set_xticks([n + 0.5 for n in range(count)], [str(n + 1) for n in range(count)])
        axes.xaxis.tick_top()
        axes.set_yticks([n + 0.5 for n in range(len(cells))], self.names)
        x = _MARGIN + self.left + count * room + 0.25
        token = self.text(_short(description.token_of(self.result, position)))
        for name, values, labels in self._curves(cells, token):
            self._curve(self.axes(x, top + 0.15, _CURVE, high), name, values, labels)
            x += _CURVE + 0.25
        self.bar(figure, top + high + 0.35)
        return figure

    @staticmethod
    def _curves(
        cells: Sequence[LensCell], token: str
    ) -> Iterator[tuple[str, list[list[float]], list[str]]]:
        yield (f"probability of {token}", [[c.probability for c in cells]],
               [percent(c.probability) for c in cells])  # fmt: skip
        ranks = [c.rank for c in cells]
        yield f"rank of {token} (log)", [list(map(float, ranks))], [f"{n:,}" for n in ranks]
        yield ("entropy, KL to last (dashed), nats",
               [[c.entropy for c in cells], [c.kl for c in cells]], [])  # fmt: skip

    def _curve(self, axes: Axes, name: str, values: list[list[float]], labels: list[str]) -> None:
        """Draw what changes along the layers."""
        places = [n + 0.5 for n in range(len(values[0]))]
        if "rank" in name:
            axes.set_xscale("log")
            axes.set_xlim(0.6, 8 * max(10.0, *values[0]))
        elif "probability" in name:
            axes.set_xlim(0, max(values[0]) * 1.45 or 1)
        for line, style, color in zip(values, ("solid", "dashed"), (BLUE, ORANGE), strict=False):
            axes.plot(
                line, places, linestyle=style, color=color, linewidth=1.2, marker=".", markersize=4
            )
        for place, value, text in zip(places, values[0], labels, strict=False):
            axes.annotate(text, (value, place), (4, 0), textcoords="offset points", va="center",
                          fontsize=6)  # fmt: skip
        axes.set_ylim(len(places), 0)
        axes.set_yticks([])
        axes.minorticks_off()
        if labels:
            axes.set_xticks([])
        axes.set_title(name, fontsize=_SIZE, family=self.families)
        axes.spines["left"].set_visible(True)
        axes.tick_params(axis="x", labelsize=6)

    def heads(self) -> Figure:
        """Return the words that heads raise, blue, and lower, orange."""
        result = self.result
        listed: list[HeadWrites] = sorted(result.heads, key=lambda writes: -writes.norm)[:_HEADS]
        listed.sort(key=result.heads.index)
        count = min(_LISTED, len(listed[0].raises))
        room = max(0.75, self.widest + 0.45)
        width = 2 * _MARGIN + 0.6 + 2 * count * room
        figure, top = self.under(width, len(listed) * _HIGH + 0.25)
        axes = self.axes(_MARGIN + 0.6, top + 0.2, 2 * count * room, len(listed) * _HIGH)
        axes.set_xlim(0, 2 * count)
        axes.set_ylim(len(listed), 0)
        for y, writes in enumerate(listed):
            for first, moved, color in ((0, writes.raises, BLUE), (count, writes.lowers, ORANGE)):
                for x, word in enumerate(moved[:count]):
                    text = f"{self.text(_short(word.token))} {signed(word.value)}"
                    axes.text(first + x, y + 0.5, text, va="center", fontsize=_SIZE, color=color,
                              family=self.families)  # fmt: skip
        axes.set_xticks([0.02, count + 0.02], ["raises most", "lowers most"], ha="left")
        axes.xaxis.tick_top()
        axes.set_yticks([n + 0.5 for n in range(len(listed))],
                        [result.layout.name(writes.head) for writes in listed])  # fmt: skip
        return figure
