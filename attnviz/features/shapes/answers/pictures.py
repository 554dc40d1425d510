"""Where a view puts its picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from attnviz import files

FIGURES = ("svg", "png", "pdf")

Out = str | Path | Sequence[str | Path] | None
"""Files to draw into, one or several."""


def save(out: Out, known: tuple[str, ...], draw: Callable[[str], bytes]) -> tuple[Path, ...]:
    """Draw a picture into files, each whole or not at all.

    Args:
        out: the files; their names say the format.
        known: the formats that there are.
        draw: makes the picture in a format.

    Returns:
        The files.

    Raises:
        UsageError: an unknown format. OutputError: a file that cannot be written.
    """
    paths = tuple(map(Path, files.listed(out)))
    for path in paths:
        files.check_suffix(path, [f".{name}" for name in known])
        files.check_writable(path)
    for path in paths:
        files.write(path, draw(_format(path)))
    return paths


def _format(path: Path) -> str:
    return path.suffix.lower().removeprefix(".")
