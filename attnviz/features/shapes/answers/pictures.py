"""Where a view puts its picture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from attnviz.errors import UsageError

FIGURES = ("svg", "png", "pdf")


def save(out: Path, known: tuple[str, ...], draw: Callable[[str], bytes]) -> int:
    """Draw a picture into a file, whole or not at all.

    Args:
        out: the file; its name says the format.
        known: the formats that there are.
        draw: makes the picture in a format.

    Returns:
        How many bytes it takes.

    Raises:
        UsageError: an unknown format. OutputError: a file that cannot be written.
    """
    from attnviz.files import check_writable, write

    format = out.suffix.lower().removeprefix(".")
    if format not in known:
        kinds = ", ".join("." + name for name in known)
        raise UsageError(f"cannot tell the format of {out.name!r}; end it in {kinds}")
    check_writable(out)
    data = draw(format)
    write(out, data)
    return len(data)
