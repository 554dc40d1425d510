"""The arithmetic of map figures: cells, labels, pages, and a sound or brackets along an axis.

Brackets are the named parts of a text along an axis. A part inside of another stands nearer to the
map, and one that comes in several pieces has a bracket for each. A name that is longer than its
bracket is cut.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.media import Sound
from attnviz.core.spans import depth
from attnviz.core.tokens import Sides, Tokens
from attnviz.drawing import paper
from attnviz.drawing.labels import visible
from attnviz.drawing.palette import SPAN_COLORS
from attnviz.drawing.shades import Map, Mask
from attnviz.errors import UsageError

if TYPE_CHECKING:
    from attnviz.drawing.fonts import Ruler

_STEPS = (1, 2, 5, 10)


@dataclass(frozen=True, slots=True)
class Timeline:
    """Frames of equal length one after the other, from the first token of a sequence on."""

    start: float  # of the first frame, in seconds; ``step`` how long each is
    step: float
    frames: int  # how many there are before the sound's end

    def ticks(self, count: int) -> list[tuple[float, str]]:
        """At most about so many round times: where each is, in frames from 0, and its name."""
        least = self.frames * self.step / max(count, 1)
        unit = 10 ** math.floor(math.log10(least))
        spacing = unit * next(step for step in _STEPS if step * unit >= least * (1 - 1e-9))
        end = self.start + self.frames * self.step
        first = math.ceil(max(self.start, 0) / spacing - 1e-9)
        times = [n * spacing for n in range(first, math.floor(end / spacing + 1e-9) + 1)]
        return [((time - self.start) / self.step, f"{time:.6g} s") for time in times]

    def peaks(self, sound: Sound, parts: int) -> NDArray[np.float64]:
        """Return the least and the largest sample in equal parts of every frame."""
        edges = self.start + self.step * np.arange(self.frames * parts + 1) / parts
        samples = np.clip(np.rint(edges * sound.rate).astype(int), 0, len(sound.samples))
        loudest = float(np.abs(sound.samples).max()) or 1.0
        extremes: Any = [
            (sound.samples[low:high].min(), sound.samples[low:high].max()) if high > low else (0, 0)
            for low, high in pairwise(samples)
        ]
        return np.array(extremes, np.float64) / loudest


def timeline(tokens: Tokens) -> Timeline | None:
    """Return the frames that a sequence is made of; None where it is not, or has a single one."""
    if tokens.space != "frames":
        return None
    pairs = zip(tokens.places, tokens.special, strict=True)
    times = [interval[0] for interval, special in pairs if not special]
    if len(times) < 2 or any(tokens.special[: len(times)]):
        return None
    step = (times[-1] - times[0]) / (len(times) - 1)
    return Timeline(times[0] - step / 2, step, len(times))


LEVEL, BRACKET_TEXT = 0.17, 6.0
"""The room of a row of brackets in inches, and the size of their names."""
_LEAST_NAMED = 0.12  # a bracket has to be so long to have a name, in inches


@dataclass(frozen=True, slots=True)
class Bracket:
    """A run of tokens with a name."""

    name: str  # of the span
    start: int  # its first token; ``end`` the one after the last
    end: int
    level: int  # how many rows of brackets are between it and the map
    color: str  # of the span


def brackets(tokens: Tokens, names: Sequence[str] = ()) -> tuple[Bracket, ...]:
    """Return the brackets along an axis of these tokens."""
    order = list(dict.fromkeys((*names, *(span.name for span in tokens.spans))))
    depths = {
        (span.name, run): depth(span, run, tokens.spans)
        for span in tokens.spans
        for run in span.ranges
    }
    deepest = max(depths.values(), default=0)
    return tuple(
        Bracket(
            visible(span.name),
            *run,
            deepest - depths[span.name, run],
            SPAN_COLORS[order.index(span.name) % len(SPAN_COLORS)],
        )
        for span in tokens.spans
        for run in span.ranges
    )


def bracket_room(brackets: Sequence[Bracket]) -> float:
    """Return what they take beside a map, in inches."""
    return (1 + max(bracket.level for bracket in brackets)) * LEVEL + 0.03 if brackets else 0.0


def bracket_name(name: str, length: float, ruler: Ruler) -> str:
    """Return a name cut to a length in inches; empty where there is no room for a letter."""
    if ruler.width(name, BRACKET_TEXT) <= length:
        return name
    for count in range(len(name) - 1, 0, -1):
        if length >= _LEAST_NAMED and ruler.width(f"{name[:count]}…", BRACKET_TEXT) <= length:
            return f"{name[:count]}…"
    return ""


_LARGEST_TEXT, _SMALLEST_TEXT, _THINNED_TEXT = 9.0, 4.5, 6.0
LEADING = 1.2  # from one line of text to the next, in sizes of the text
LONGEST_LABEL = 24  # letters of a token that a picture shows at most
RULED = 40  # the number of tokens up to which cells have lines between them
WRITTEN_NOTE = "lines: prompt | output; the row a → b is the step that chose b"
NUMBERED, LEAST_NUMBERED = 12, 0.2  # tokens up to which cells have numbers; the least cell, inches
_LONGEST_SIDE, _PAGE = 10.5, 15.0  # the longest side of a map, and of a grid of maps, in inches
_FULL_SIDE = 128  # the number of tokens from which on a map has the longest side
_LARGEST_CELL, _LARGEST_GRID_CELL = 0.5, 0.25
_TIME_ROOM, _TIME_TEXT = 0.5, 7.0
"""From one time on an axis to the next in inches, and the size of their letters."""
_PEAKS = 400  # about so many peaks of a sound along an axis

Peaks = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a map: its length in inches, its labels and how they are set.

    Where its tokens are frames of a sound, ``line`` says when they are, and ``peaks`` how loud;
    ``brackets`` are its named parts.
    """

    cell: float
    labels: tuple[str, ...]
    every: int
    size: float
    line: Timeline | None = None
    peaks: Peaks | None = None
    brackets: tuple[Bracket, ...] = ()

    @property
    def length(self) -> float:
        """In inches."""
        return self.cell * len(self.labels)

    @property
    def places(self) -> range:
        """The tokens that are labelled."""
        return range(0, len(self.labels), self.every)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Where labels stand, in tokens, and the labels; round times on an axis of frames."""
        if self.line is None:
            return [(token, self.labels[token]) for token in self.places]
        length = self.cell * self.line.frames
        return [(frame - 0.5, text) for frame, text in self.line.ticks(int(length / _TIME_ROOM))]

    @property
    def shown(self) -> list[str]:
        """The labels."""
        return [text for _, text in self.ticks]

    def pool(self, dpi: float) -> int:
        """How many tokens have to share a pixel."""
        return max(math.ceil(len(self.labels) / (self.length * dpi)), 1)


@dataclass(frozen=True, slots=True)
class Panel:
    """One map with its title, ready to be placed."""

    title: list[str]
    shades: Map
    weights: Map
    mask: Mask | None
    rows: Axis
    columns: Axis
    turned: bool
    pool: tuple[int, int]
    breaks: tuple[tuple[int, ...], tuple[int, ...]]
    unselected: Mask | None = None

    @property
    def axes(self) -> tuple[Axis, Axis]:
        """The axes of queries and of keys."""
        return self.rows, self.columns


def sentence_breaks(tokens: Tokens) -> tuple[int, ...]:
    """Where one sentence of a pair, or a prompt, ends: the first tokens of what comes after."""
    pairs = pairwise(tokens.segments)
    breaks = {token for token, (segment, following) in enumerate(pairs, 1) if segment != following}
    if 0 < tokens.written < len(tokens):
        breaks.add(len(tokens) - tokens.written)
    return tuple(sorted(breaks))


def axis(labels: tuple[str, ...], cell: float) -> Axis:
    """Set labels along an axis: as large as the cells allow, thinned below the smallest size."""
    size = min(_LARGEST_TEXT, cell * 72 / LEADING)
    if size >= _SMALLEST_TEXT:
        return Axis(cell, labels, 1, size)
    step = math.ceil(_THINNED_TEXT * LEADING / 72 / cell)
    return Axis(cell, labels, step, _THINNED_TEXT)


def time_axis(tokens: Tokens, cell: float, sound: Sound | None) -> Axis | None:
    """Give the axis of a sound's frames, with seconds in place of labels; None for other tokens."""
    line = None if sound is None else timeline(tokens)
    if sound is None or line is None:
        return None
    peaks = line.peaks(sound, max(1, _PEAKS // line.frames))
    return Axis(cell, ("",) * len(tokens), 1, _TIME_TEXT, line, peaks)


def cells(queries: int, keys: int, across: int, down: int) -> tuple[float, float]:
    """Size a cell in inches, in a grid of maps; sides grow by √tokens up to what fits."""
    tokens = max(queries, keys)
    if across == down == 1:
        side = _LONGEST_SIDE * min(math.sqrt(tokens / _FULL_SIDE), 1.0)
        cell = min(side / tokens, _LARGEST_CELL)
    else:
        room = max(_PAGE / max(across, down), 1.0)
        side = min(_LONGEST_SIDE * math.sqrt(tokens / _FULL_SIDE), room)
        cell = min(side / tokens, _LARGEST_GRID_CELL)
    readable = _LARGEST_TEXT * LEADING / 72
    least = max(cell, readable)
    return (
        cell if queries == tokens else min(least, side / queries),
        cell if keys == tokens else min(least, side / keys),
    )


def maps_a_line(count: int) -> int:
    """How many maps to put side by side: a little wider than high, with few empty places."""
    ideal = math.sqrt(1.4 * count)

    def cost(across: int) -> tuple[float, int]:
        return -count % across + abs(across - ideal), across

    return min(range(1, count + 1), key=cost)


def titles_of(maps: Sequence[tuple[str, Any, Sides]], *, bare: bool = False) -> list[str]:
    """Give what stands above maps: one by the paper's wish; of several always which head it is."""
    titles, chosen = [title for title, _, _ in maps], paper.current().title
    if chosen is None:
        return [""] if bare else titles
    if len(titles) == 1:
        return [chosen]
    if chosen:
        raise UsageError("{title} is for a picture of one map, not of {}", len(titles), title=...)
    return [title.partition(":")[0] for title in titles]
