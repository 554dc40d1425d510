"""One colour a head, and one for what belongs to no head; the same in every picture."""

from __future__ import annotations

HEADS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7f6fd1", "#a0a02c")
"""Eight colours that stay apart for colour-blind readers (after Okabe & Ito 2008); they repeat."""

NEUTRAL = "#8a8f98"
"""X, C and everything before heads exist."""

MIXED = "#3b4252"
"""Y and W_O: all heads at once."""


def head_colour(head: int) -> str:
    """The colour of a head, as hex."""
    return HEADS[head % len(HEADS)]


def ansi(colour: str, *, background: bool = False) -> str:
    """A hex colour as an ANSI truecolor code."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"{48 if background else 38};2;{red};{green};{blue}"
