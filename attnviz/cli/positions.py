"""Positions of tokens as options give them: a number, or a word for several."""

from __future__ import annotations

import typer

from attnviz.cli.voice import option


def number_or(name: str, text: str | None, *words: str) -> int | str | None:
    """A whole number or one of these words; None for an option that is not given.

    Args:
        name: of the option's parameter.
        text: what was given.
        words: what it may be beside a number.

    Raises:
        typer.BadParameter: anything else.
    """
    if text is None or text in words:
        return text
    try:
        return int(text)
    except ValueError:
        *most, last = ["a whole number", *words]
        raise typer.BadParameter(
            f"{option(name)} is {', '.join(most)} or {last}, not {text[:40]!r}"
        ) from None
