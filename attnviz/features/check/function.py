"""``attnviz.check``: is a file what the recording format asks for?"""

from __future__ import annotations

from pathlib import Path

from attnviz.captures.files import read_recorded
from attnviz.core.capture import Capture
from attnviz.core.interface import interface
from attnviz.core.problems import FileProblem
from attnviz.errors import AttnvizError, InputError
from attnviz.features.check.result import FileCheck
from attnviz.models.recorded import JSON, sources
from attnviz.models.recorded.format import read_fields
from attnviz.models.recorded.reading import count_items, read_item
from attnviz.models.recorded.validator import damaged, find_in_weights, find_problems


@interface
def check(path: str | Path) -> FileCheck:
    """Check recorded attention before it is used: every problem, with its path in the file.

    Args:
        path: a recording (docs/recording.md), or a file or folder that :func:`attnviz.read` takes.

    Raises:
        InputError: it is not there, is no such file at all, or cannot be opened safely.
    """
    path = Path(path)
    if not sources.is_recording(path):
        return _foreign(path)
    try:
        fields = read_fields(path)
    except InputError as error:
        if path.suffix != JSON or "is damaged" not in str(error):
            raise
        return _made(path, "recording", (damaged(error, str(path)),), None, 1)
    items = count_items(fields)
    wrong = list(find_problems(fields))
    wrong += find_in_weights(fields) if wrong else ()
    captures: list[Capture | None] = []
    for item in range(0 if wrong else items):
        try:
            captures.append(read_item(path, fields, item, wrong.append))
        except AttnvizError as error:
            line = str(error).removeprefix(f"{path}: ")
            where = f"item {item}" if items > 1 else ""
            wrong.append(FileProblem(where, "a recording that can be read", line))
    return _made(path, "recording", tuple(wrong), None if wrong else captures[0], items)


def _foreign(path: Path) -> FileCheck:
    """Another tool's file: whether it can be read."""
    items = sources.items(path)
    source = sources.find(path, 0 if items > 1 else None)
    try:
        capture = read_recorded(path, item=0 if items > 1 else None)
    except InputError as error:
        wrong = (FileProblem("", "attention weights that can be read", str(error)),)
        return _made(path, source.format, wrong, None, items)
    return _made(path, source.format, (), capture, items)


def _made(
    path: Path, format: str, wrong: tuple[FileProblem, ...], capture: Capture | None, items: int
) -> FileCheck:
    shapes: dict[str, tuple[int, ...]] = {}
    for site, maps in capture.maps.items() if capture is not None else ():
        shapes[site.kind] = (shapes.get(site.kind, (0,))[0] + 1, *maps.shape)
    return FileCheck(
        file=path.name,
        format=format,
        problems=wrong,
        shapes=shapes,
        items=items,
        notes=capture.inputs.notes if capture is not None else (),
    )
