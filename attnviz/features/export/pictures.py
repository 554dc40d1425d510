"""From weights to the bytes of a file: what a worker does. No torch here, so workers stay small."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from attnviz import files
from attnviz.core.arrays import Reals
from attnviz.core.tokens import Sides
from attnviz.drawing.style import Style
from attnviz.drawing.tables import arrays_bytes
from attnviz.errors import OutputError
from attnviz.features.export import paths


@dataclass(frozen=True, eq=False, slots=True)
class ExportPicture:
    """One file to make."""

    name: str  # its file name, with the suffix
    kind: str  # of :data:`attnviz.features.export.paths.LAYOUTS`, or ``weights``.
    title: str  # above an overview
    caption: str  # below it: the model and the text
    sides: Sides  # the tokens on the axes of all its maps
    # for each head its title, (layer, head) and weights [T, S]
    maps: tuple[tuple[str, tuple[int, int], Reals], ...]


@dataclass(frozen=True, eq=False, slots=True)
class Job:
    """Files of one input: the unit that a worker takes and the journal learns of."""

    folder: str  # the input's folder, whose parent must be there
    pictures: tuple[ExportPicture, ...]  # what to make
    style: Style  # how they look


@dataclass(frozen=True, slots=True)
class Written:
    """A file that is there."""

    name: str
    sha256: str
    size: int  # in bytes
    map: Box | None = None  # where its maps stand, where that is known


Box = tuple[int, int, int, int]
"""The left, the top, the width and the height of a part of a picture, in pixels."""


def drawing() -> Callable[[Job], list[Written]]:
    """Return the set-up of a worker, which has nothing to load."""
    return make


def make(job: Job) -> list[Written]:
    """Draw and write the files of a job."""
    folder = paths.folder(Path(job.folder))
    try:
        if not folder.is_dir():
            folder.mkdir(exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write into {folder}: {error.strerror or error}") from None
    out = []
    for picture in job.pictures:
        try:
            data, box = drawn(picture, job.style)
        except (OSError, MemoryError) as error:  # a font that cannot be opened, no memory
            reason = getattr(error, "strerror", None) or str(error) or "out of memory"
            raise OutputError(f"cannot draw {folder / picture.name}: {reason}") from None
        files.place(folder / picture.name, (data,))
        out.append(Written(picture.name, hashlib.sha256(data).hexdigest(), len(data), box))
    return out


def drawn(picture: ExportPicture, style: Style) -> tuple[bytes, Box | None]:
    """Return the bytes of one file, and where its maps stand if it is a PNG."""
    sides, suffix = picture.sides, picture.name.rpartition(".")[2]
    if picture.kind == "weights":
        arrays = {title: weights for title, _, weights in picture.maps}
        return arrays_bytes(arrays, sides, f".{suffix}"), None
    fast = suffix == "png"
    if picture.kind == "overview":
        from attnviz.drawing.mosaic import boxed_png, mosaic_figure

        maps = {head: weights for _, head, weights in picture.maps}
        if fast:
            return boxed_png(maps, style, picture.title, picture.caption)
        return mosaic_figure(maps, style, picture.title, picture.caption, suffix), None
    titled = [(title, weights, sides) for title, _, weights in picture.maps]
    style = replace(style, values=bool(style.values))  # in every format none unless asked for
    if fast and not style.values:
        from attnviz.drawing.raster import heatmap_png

        return heatmap_png(titled, style, picture.caption)
    from attnviz.drawing.figure import heatmap_figure

    return heatmap_figure(titled, style, format=suffix, caption=picture.caption), None
