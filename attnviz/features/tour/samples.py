"""The sample inputs: files of every kind that commands read, for whoever has no clone."""

from __future__ import annotations

from pathlib import Path

from attnviz import files
from attnviz.errors import OutputError, system_errors

_NAME = "sample_inputs"
_PACKAGE = Path(__file__).parents[2]
_NOT = {".pyc", ".part"}


def folder() -> Path:
    """Where they are: in the wheel, or beside the package in a clone."""
    inside = _PACKAGE / _NAME
    return inside if inside.is_dir() else _PACKAGE.parent / _NAME


def copy(to: Path) -> Path:
    """Copy them all into a folder."""
    origin = folder()
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
