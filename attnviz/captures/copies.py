"""Texts that are there more than once say the same thing, so that they count once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

from attnviz.core.prompt import Inputs
from attnviz.core.split import same_text
from attnviz.drawing.labels import counted

T = TypeVar("T")


def same_as(inputs: Inputs) -> Hashable:
    """What texts that are the same have in common; None for pictures and sounds."""
    if inputs.features:
        return None
    return tuple(
        (kind, both.queries.identity, both.keys.identity) for kind, both in inputs.sides.items()
    )


def near_copy(inputs: Inputs) -> Hashable:
    """What a text has in common with its copies, whatever their case and white space; see there."""
    words = tuple(map(same_text, inputs.texts))
    return same_as(inputs) if inputs.features or not any(words) else words


def distinct(items: Sequence[T], names: Sequence[Hashable]) -> tuple[list[T], tuple[str, ...]]:
    """The first of the items of each name, and what to say of the others."""
    first: dict[Hashable, T] = {}
    for number, (item, name) in enumerate(zip(items, names, strict=True)):
        first.setdefault((number,) if name is None else (name,), item)
    return list(first.values()), repeated(len(items) - len(first))


def repeated(count: int) -> tuple[str, ...]:
    """The note on so many copies; none for none."""
    if not count:
        return ()
    verb = "repeats" if count == 1 else "repeat"
    return (f"{counted(count, 'text')} {verb} another one word for word: copies count once.",)
