"""How attention maps look: one value, passed whole to every renderer, one set of defaults.

Plain Python, so that the command line can read the defaults without loading NumPy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from attnviz.core.quantities import QUANTITIES, quantity_named
from attnviz.core.settings import Settings, setting
from attnviz.drawing.labels import number
from attnviz.drawing.palette import DEFAULT_PALETTE, anchors
from attnviz.errors import UsageError

DECADES = 4  # a logarithmic scale ends at this many powers of ten below its largest weight

SINK_NOTE = "without the first token and separators; rows renormalized"
"""What a picture without the sink says of itself."""

_LEAST_GAP = 0.09  # between two numbers of a colour bar, as a share of its length


STYLE = "Input"
HIDDEN = ("sink", "labels")


@dataclass(frozen=True)
class Style(Settings, panel=STYLE):
    """How attention maps look."""

    palette: str = setting(
        DEFAULT_PALETTE, "viridis, magma, cividis, blues or greys.", metavar="PALETTE"
    )
    normalize: Literal["global", "head", "row"] = setting(
        "global",
        "Upper end of the colour scale: the largest weight shown (global), of each head (head) or "
        "of each row (row).",
    )
    scale: Literal["linear", "sqrt", "log"] = setting(
        "linear", "How colour scales with weight; long texts show more with log."
    )
    size: float | None = setting(
        None,
        "Longer side of a map in inches; by default it follows from the tokens.",
        metavar="INCHES",
        least=0.2,
        most=50,
    )
    dpi: float = setting(150.0, "Resolution in dots per inch.", metavar="DPI", least=20, most=1200)
    words: bool = setting(False, "Merge subwords into words: sum over keys, mean over queries.")
    hide: str = setting(
        "",
        "sink, labels or both. The sink is the first token and separators, without which rows are "
        "renormalized; labels are the tokens along the axes.",
        metavar="WHAT",
        shown="",
    )
    values: bool | None = setting(
        None, "Print weights in the cells, where they fit.", shown="few tokens"
    )
    quantity: str = setting("weights", "What the maps are of.", command=False, python=False)

    def check(self) -> None:
        """Raise UsageError for a palette or a quantity that there is not."""
        anchors(self.palette)
        quantity_named(self.quantity)
        for name in self._hidden:
            if name not in HIDDEN:
                raise UsageError("{hide} takes {}, not {!r}", ", ".join(HIDDEN), name, hide=...)

    @property
    def hide_sink(self) -> bool:
        """Whether the first token and separators are left out."""
        return "sink" in self._hidden

    @property
    def labels(self) -> bool:
        """Whether tokens stand along the axes."""
        return "labels" not in self._hidden

    @property
    def _hidden(self) -> list[str]:
        return [name for name in map(str.strip, self.hide.split(",")) if name]

    def relative(self, maps: int) -> bool:
        """Whether the colour bar of so many maps shows shares, not weights."""
        return self.normalize == "row" or (self.normalize == "head" and maps > 1)

    def meaning(self, maps: int) -> str:
        """Return what the colour bar of a picture of so many maps shows."""
        text = f"share of {self.formula}" if self.rescaled else self.formula
        if self.relative(maps):
            text = f"share of the {self.normalize}'s largest {self.noun}"
        return text + {"linear": "", "sqrt": " (square root)", "log": " (logarithmic)"}[self.scale]

    @property
    def formula(self) -> str:
        """What the maps are of, as the colour bar has it."""
        return QUANTITIES[self.quantity].formula

    @property
    def signed(self) -> bool:
        """Whether the maps have signs; the middle of their colours is then 0."""
        return QUANTITIES[self.quantity].signed

    @property
    def noun(self) -> str:
        """The same, to stand after "largest"."""
        return "weight" if self.quantity == "weights" else self.formula

    @property
    def rescaled(self) -> bool:
        """Whether maps of norms show shares of rows, for the sink is left out."""
        return self.hide_sink and self.quantity != "weights"

    def place(self, share: float) -> float:
        """Where a share (0..1) of the largest weight stands on the colour scale, 0..1."""
        if self.scale == "linear" or share <= 0:
            return max(share, 0.0)
        if self.scale == "sqrt":
            return math.sqrt(share)
        return max(1 + math.log10(share) / DECADES, 0.0)

    @property
    def left_out(self) -> str:
        """What the picture does not show, in words; empty where it shows everything."""
        return SINK_NOTE if self.hide_sink else ""

    def ticks(self, top: float) -> list[tuple[float, str]]:
        """Round numbers for a colour bar that ends at ``top``: their places, 0..1, and texts."""
        if top <= 0:
            return [(0.0, "0")]
        if self.signed:
            sides = [(self.place(value / top) / 2, text) for value, text in _even(top) if value > 0]
            below = [(0.5 - position, f"−{text}") for position, text in reversed(sides)]
            return [*below, (0.5, "0"), *((0.5 + position, text) for position, text in sides)]
        if self.scale == "linear":
            return [(value / top, text) for value, text in _even(top)]
        least = f"<{_plain(top * 10**-DECADES)}" if self.scale == "log" else "0"
        ticks = [(0.0, least)]
        above = 1.0 + _LEAST_GAP
        for value in _round_numbers(top):
            position = self.place(value / top)
            if position <= _LEAST_GAP:
                break
            if above - position >= _LEAST_GAP:
                ticks.append((position, _plain(value)))
                above = position
        return [ticks[0], *reversed(ticks[1:])]

    def note(self, top: float, maps: int) -> str:
        """Return the colour scale in words, for pictures without a bar."""
        if self.relative(maps):
            sentence = f"each {self.normalize} by its largest {self.noun}"
        else:
            of = "" if self.quantity == "weights" else f" of {self.formula}"
            least = f"−{number(top)}" if self.signed else "0"
            sentence = f"one scale{of}, from {least} to {number(top)}"
        scales = {"linear": "", "sqrt": ", square-root scale", "log": ", log scale"}
        return sentence + scales[self.scale]


def _even(top: float) -> list[tuple[float, str]]:
    """At most six round numbers at even steps from 0 to ``top``, with their texts."""
    decade = 10.0 ** math.floor(math.log10(top / 5))
    step = next(m * decade for m in (1, 2, 2.5, 5, 10) if top / (m * decade) <= 5.001)
    digits = max(0, -math.floor(math.log10(step) + 1e-9) + (1 if step / decade == 2.5 else 0))
    count = math.floor(top / step + 1e-6)
    return [(n * step, f"{n * step:.{digits}f}") for n in range(count + 1)]


def _round_numbers(top: float) -> list[float]:
    """1, 2 and 5 times powers of ten, from ``top`` down to where no scale shows them."""
    first = math.floor(math.log10(top))
    tens = range(first, first - DECADES - 1, -1)
    values = [digit * 10.0**ten for ten in tens for digit in (5, 2, 1)]
    return [value for value in values if value <= top * (1 + 1e-9)]


def _plain(value: float) -> str:
    """Return a round number without an exponent: ``0.0005``."""
    digits = max(0, -math.floor(math.log10(value) + 1e-9))
    return f"{value:.{digits}f}"
