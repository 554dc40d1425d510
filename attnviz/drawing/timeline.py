"""A sound along an axis of its frames: its peaks frame by frame, and round times."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.media import Sound
from attnviz.core.tokens import Tokens

_STEPS = (1, 2, 5, 10)


@dataclass(frozen=True, slots=True)
class Timeline:
    """Frames of equal length one after the other, from the first token of a sequence on.

    Attributes:
        start: of the first frame, in seconds; ``step`` how long each is.
        step: see ``start``.
        frames: how many there are before the sound's end.
    """

    start: float
    step: float
    frames: int

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """At most about so many round times: where each is, in frames from 0, and its name."""
        least = self.frames * self.step / max(most, 1)
        unit = 10 ** math.floor(math.log10(least))
        apart = unit * next(step for step in _STEPS if step * unit >= least * (1 - 1e-9))
        end = self.start + self.frames * self.step
        first = math.ceil(max(self.start, 0) / apart - 1e-9)
        times = [n * apart for n in range(first, math.floor(end / apart + 1e-9) + 1)]
        return [((time - self.start) / self.step, f"{time:.6g} s") for time in times]

    def peaks(self, sound: Sound, parts: int) -> NDArray[np.float64]:
        """The least and the largest sample in equal parts of every frame.

        Args:
            sound: whose frames they are.
            parts: of a frame.

        Returns:
            [frames * parts, 2], from -1 to 1 as shares of the loudest sample.
        """
        edges = self.start + self.step * np.arange(self.frames * parts + 1) / parts
        at = np.clip(np.rint(edges * sound.rate).astype(int), 0, len(sound.samples))
        loudest = float(np.abs(sound.samples).max()) or 1.0
        extremes: Any = [
            (sound.samples[low:high].min(), sound.samples[low:high].max()) if high > low else (0, 0)
            for low, high in pairwise(at)
        ]
        return np.array(extremes, np.float64) / loudest


def timeline(tokens: Tokens) -> Timeline | None:
    """The frames that a sequence is made of; None where it is not, or has a single one."""
    if tokens.space != "frames":
        return None
    pairs = zip(tokens.places, tokens.special, strict=True)
    times = [place[0] for place, special in pairs if not special]
    if len(times) < 2 or any(tokens.special[: len(times)]):
        return None
    step = (times[-1] - times[0]) / (len(times) - 1)
    return Timeline(times[0] - step / 2, step, len(times))
