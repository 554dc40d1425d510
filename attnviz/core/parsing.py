"""What the command line reads where a setting is no plain value: positions, lists, fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attnviz.errors import UsageError


def number_or(*words: str) -> Callable[[str], int | str]:
    """What reads a whole number or one of these words; it raises UsageError for anything else."""

    def read(text: str) -> int | str:
        if text in words:
            return text
        try:
            return int(text)
        except ValueError:
            *most, last = ["a whole number", *words]
            known = f"{', '.join(most)} or {last}"
            raise UsageError(f"{known} is needed here, not {text[:40]!r}") from None

    return read


def without_clearest(heads: str | None) -> tuple[str | None, int | None]:
    """A selection of heads, and the number of its ``clearest:N``: of these the N clearest."""
    number, others = None, []
    for item in () if heads is None else heads.split(","):
        name, colon, count = item.strip().partition(":")
        if name != "clearest" or not colon:
            others.append(item)
        elif not (count.isascii() and count.isdigit() and int(count[:9]) > 0 and len(count) < 10):
            raise UsageError("clearest:N takes a number of heads such as 3, not {!r}", count[:40])
        else:
            number = int(count)
    return ",".join(others) if others else None, number


def number_or_text(text: str) -> int | str:
    """A whole number where the text is one, and else the text."""
    try:
        return int(text)
    except ValueError:
        return text


def numbers(kind: type[int] | type[float]) -> Callable[[Any], tuple[float, ...]]:
    """What reads numbers with commas between them; it raises UsageError for anything else."""

    def read(text: Any) -> tuple[float, ...]:
        if not isinstance(text, str):  # the default
            return tuple(text)
        try:
            return tuple(kind(part) for part in text.split(",") if part.strip())
        except ValueError:
            raise UsageError(f"numbers such as 1,2,5 are needed here, not {text[:40]!r}") from None

    return read


def fields(*names: str) -> Callable[[Any], dict[str, str]]:
    """What reads ``name=FIELD,name=FIELD``; it raises UsageError for another name."""

    def read(text: Any) -> dict[str, str]:
        if not isinstance(text, str):  # the default
            return dict(text)
        pairs = [part.partition("=") for part in text.split(",")]
        for name, equals, field in pairs:
            if name.strip() not in names or not equals or not field.strip():
                known = ",".join(f"{name}=FIELD" for name in names)
                raise UsageError(f"fields are named as {known}, not {text[:60]!r}")
        return {name.strip(): field.strip() for name, _, field in pairs}

    return read
