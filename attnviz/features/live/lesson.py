"""What a lesson of the page is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from attnviz.features.live.seen import LessonPass

Holds = Callable[[LessonPass], bool]


@dataclass(frozen=True, slots=True)
class LessonStep:
    """One step of a lesson.

    What it changes (``off``, ``places``, ``other``, ``divisor``, ``noise``) comes with the answer,
    where it asks something first.

    Attributes:
        say: what is to be seen.
        text: what the model reads.
        head: the head that is shown, such as ``"2.4"``.
        at: the token whose row is shown, or None for the last; ``key`` the one looked at.
        off: heads that are off.
        places: False where the mean position vector stands at every place.
        other: a text of as many tokens, which the second pass reads.
        figure: what is drawn: ``shares``, the softmax of the row, ``products`` of random
            vectors, or ``heads``, one of them against two; ``divisor`` of the scores, or None
            for √d; ``noise``, the variance of the length of a key.
        spot: what is pointed at, by the names of ``js/spot.js``.
        ask: what the reader is asked before ``told`` is shown; ``choices`` and which is ``right``.
        hides: what would give the answer away: ``words``, ``map`` or both.
        holds: whether what it says is true of a pass.
    """

    say: str
    text: str
    head: str
    at: int | None = None
    key: int | None = None
    off: tuple[str, ...] = ()
    places: bool = True
    other: str | None = None
    figure: str = ""
    divisor: float | None = None
    noise: float = 0.0
    spot: str = "words"
    ask: str = ""
    choices: tuple[str, ...] = ()
    right: int = 0
    told: str = ""
    hides: str = ""
    holds: Holds = lambda seen: True


@dataclass(frozen=True, slots=True)
class Lesson:
    """A lesson: its name in the address, its title, what it is about, and its steps."""

    name: str
    title: str
    about: str
    steps: tuple[LessonStep, ...]
