"""Sentences that ship with attnviz, for what has to be measured on more than a user's own text."""

from __future__ import annotations

from functools import cache
from importlib import resources


@cache
def sentences() -> tuple[str, ...]:
    """Plain English, none of it in other files of attnviz."""
    text = resources.files(__package__).joinpath("sentences.txt").read_text("utf-8")
    return tuple(text.splitlines())
