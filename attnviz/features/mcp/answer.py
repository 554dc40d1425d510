"""An answer of at most 2,000 tokens: figures first, then how they were measured, then the file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

MOST = 2000
"""Tokens of an answer."""
_TAIL = 600
"""Of these, tokens that are kept for what follows the last table."""
_PIECE = re.compile(r"[A-Za-z]{1,4}|[0-9]{1,2}|\n+| {2,16}|[^\sA-Za-z0-9]")
_RULE = re.compile(r"[\s─━═-]+")


@dataclass(frozen=True)
class ToolAnswer:
    """What a tool gives back.

    Attributes:
        text: figures, how they were measured, and where the whole result is kept.
        picture: PNG, where one was asked for.
    """

    text: str
    picture: bytes | None = None


def tokens(text: str) -> int:
    """At most how many tokens a text is, whatever the tokenizer.

    A token for four letters, two digits or a run of spaces, and one for every other character,
    with one more where that is not ASCII: more than byte-pair encodings of 30,000 tokens and up
    need for such text.
    """
    return sum(1 + (not piece.isascii()) for piece in _PIECE.findall(text))


def fitted(figures: str, told: Sequence[str], more: str) -> str:
    """Figures and what is told of them, within :data:`MOST` tokens."""
    below = "\n".join(told)
    room = MOST - tokens(below) - tokens(more) - 20
    lines = _plain(figures)
    end = len(lines)
    while end and lines[end - 1].strip() and _sum(lines[end - 1 :]) < min(_TAIL, room // 2):
        end -= 1
    tail = lines[end:]
    room -= _sum(tail)
    fitting: list[str] = []
    for line in lines[:end]:
        room -= tokens(line + "\n")
        if room < 0:
            break
        fitting.append(line)
    left = end - len(fitting)
    cut = [f"({left} lines left out: {more})", ""] if left else []
    return "\n".join([*fitting, *cut, *tail, "", below]).strip()


def _sum(lines: Sequence[str]) -> int:
    return sum(tokens(line + "\n") for line in lines)


def _plain(text: str) -> list[str]:
    """Lines without rules and without more than one empty line in a row."""
    lines: list[str] = []
    for line in text.splitlines():
        if line.strip() and _RULE.fullmatch(line):
            continue
        if line.strip() or (lines and lines[-1]):
            lines.append(line.rstrip())
    return lines
