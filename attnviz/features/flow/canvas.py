"""Lines in a terminal: dots of Braille, eight a character, or plain characters."""

from __future__ import annotations

import numpy as np

from attnviz.drawing import braille

LEVELS = (0.5, 0.2, 0.05)
"""Shares from which a line is three dots thick, two, and one without gaps."""
PLAIN = "#=-."
"""The same without Braille."""
_GAP = 3


class Dots:
    """A field of characters that lines are drawn into."""

    def __init__(self, rows: int, columns: int, *, braille: bool) -> None:
        self.braille = braille
        self.bits = np.zeros((rows, columns), np.uint8)
        self.shares = np.zeros((rows, columns))

    def line(self, first: tuple[int, int], last: tuple[int, int], share: float) -> None:
        """Draw from one character to another, given as row and column, as thick as its share."""
        level = sum(share < least for least in LEVELS)
        high, wide = (braille.HIGH, braille.WIDE) if self.braille else (1, 1)
        steps = max((last[1] - first[1] + 1) * wide, abs(last[0] - first[0]) * high + 1, 2)
        x = np.linspace(first[1] * wide, (last[1] + 1) * wide - 1, steps).round().astype(int)
        middle = (high - 1) // 2
        y = np.linspace(first[0] * high + middle, last[0] * high + middle, steps)
        for place, (column, row) in enumerate(
            zip(x.tolist(), y.round().astype(int).tolist(), strict=True)
        ):
            if self.braille and level == len(LEVELS) and place % _GAP:
                continue
            for extra in range(max(3 - level, 1) if self.braille else 1):
                self._dot(row + (0, 1, -1)[extra], column, high, wide, level)
            at = row // high, column // wide
            self.shares[at] = max(self.shares[at], share)

    def _dot(self, row: int, column: int, high: int, wide: int, level: int) -> None:
        if not 0 <= row < len(self.bits) * high:
            return
        at = row // high, column // wide
        if self.braille:
            self.bits[at] |= braille.bit(row, column)
        else:  # the thickest line wins
            self.bits[at] = max(int(self.bits[at]), len(PLAIN) - level)

    def character(self, row: int, column: int) -> str:
        """What stands there."""
        bits = int(self.bits[row, column])
        if not bits:
            return " "
        return braille.character(bits) if self.braille else PLAIN[len(PLAIN) - bits]
