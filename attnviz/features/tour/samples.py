"""The sample inputs: files of every kind that commands read, for whoever has no clone."""

from __future__ import annotations

from pathlib import Path

from attnviz import files
from attnviz.corpus.texts import samples
from attnviz.errors import OutputError, system_errors

_NOT = {".pyc", ".part"}


def copy(to: Path) -> Path:
    """Copy them all into a folder."""
    origin = samples()
    names = [
        path.relative_to(origin)
        for path in sorted(origin.rglob("*"))
        if path.is_file() and path.suffix not in _NOT
    ]
    with system_errors(OutputError, f"cannot write to {to}"):
        there = next((to / name for name in names if (to / name).exists()), None)
        if there is not None:
            raise OutputError(f"{there} is there already; name another folder")
        for name in names:
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            files.write(to / name, (origin / name).read_bytes())
    return to
