"""Pictures and sounds as models take them in, to show attention where it lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Space = Literal["text", "patches", "frames"]
"""What a sequence is laid out in: the order of words, a picture's rows and columns, or time."""

Place = tuple[float, ...]
"""Where a token stands: (row, column) of a patch, (seconds,) of a frame, () for any other."""


PATCH = "\N{REPLACEMENT CHARACTER} patch"
"""The text of a token that is a patch of a picture, until the picture says where."""
Box = tuple[float, float, float, float]
"""Pixels of a picture as it was given, upright: left, top, right and bottom edge."""
HALF = 0.5
"""The part of a patch's area that a box has to cover."""
_SLACK = 1e-6


@dataclass(frozen=True, slots=True)
class Crop:
    """A rectangle of a picture that patches of equal size cover."""

    number: int  # of the picture, from 1
    name: str  # of its file
    size: tuple[int, int]  # width and height of the picture as it was given, in pixels
    box: Box  # what of it the patches cover; beyond its edges where it was padded
    rows: int  # of patches, from the top; ``columns`` from the left
    columns: int
    row: int = 0  # the first of these rows among those of the :class:`Picture` that shows it
    whole: bool = False  # whether it shows at a small scale what other crops show piece by piece

    def patch(self, row: int, column: int) -> Box:
        """Return what of the picture a patch covers, by its row and column in this crop."""
        left, top, right, bottom = self.box
        height, width = (bottom - top) / self.rows, (right - left) / self.columns
        x, y = left + column * width, top + row * height
        return x, y, x + width, y + height

    def covered(self, box: Box) -> list[tuple[int, int]]:
        """Rows and columns of the patches of which a box covers at least half of the area."""
        places = [(row, column) for row in range(self.rows) for column in range(self.columns)]
        return [patch for patch in places if _share(self.patch(*patch), box) >= HALF - _SLACK]

    def with_centre(self, box: Box) -> list[tuple[int, int]]:
        """Row and column of the patch that has a box's centre; none where no patch has it."""
        x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        left, top, right, bottom = self.box
        if not (left <= x < right and top <= y < bottom):
            return []
        row = int((y - top) / (bottom - top) * self.rows)
        column = int((x - left) / (right - left) * self.columns)
        return [(min(row, self.rows - 1), min(column, self.columns - 1))]


def _share(patch: Box, box: Box) -> float:
    """Return the part of a patch's area that is in a box."""
    width = min(patch[2], box[2]) - max(patch[0], box[0])
    height = min(patch[3], box[3]) - max(patch[1], box[1])
    area = (patch[2] - patch[0]) * (patch[3] - patch[1])
    return max(width, 0.0) * max(height, 0.0) / area


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A picture as the model saw it: cropped and scaled as its processor does.

    Several pictures, or a picture and its tiles, are a sheet: one below the other at the scale at
    which the model saw them, a row of patches apart.
    """

    pixels: NDArray[np.uint8]  # uint8 [height, width, 3], the part that the patches cover
    rows: int  # of patches, from the top; ``columns`` from the left
    columns: int
    name: str = ""  # of the file
    # which patches show what, from the top; empty where that is not known
    crops: tuple[Crop, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Sound:
    """A sound as the model heard it."""

    samples: NDArray[np.float32]  # float32 [n], from -1 to 1
    rate: int  # samples a second
    name: str = ""  # of the file

    @property
    def seconds(self) -> float:
        """How long it is."""
        return len(self.samples) / self.rate


def space(places: tuple[Place, ...], special: tuple[bool, ...]) -> Space:
    """Give what a sequence is laid out in: where all of its tokens but special ones stand."""
    sizes = {len(position) for position, marked in zip(places, special, strict=True) if not marked}
    if sizes == {2}:
        return "patches"
    return "frames" if sizes == {1} else "text"


def called(crop: Crop, crops: tuple[Crop, ...]) -> str:
    """Give what stands before the row and column of a crop's patches: ``2:`` of the second picture.

    ``whole:`` in the small whole of a picture in tiles; nothing of a single picture.
    """
    several = any(crop.number != another.number for another in crops)
    return f"{crop.number}:" * several + "whole:" * crop.whole


def patch_name(picture: Picture, row: int, column: int) -> str:
    """Return what a patch is called, by its row and column among all of a picture's."""
    above = [crop for crop in picture.crops if crop.row <= row]
    if not above:
        return f"{row},{column}"
    crop = max(above, key=lambda crop: crop.row)
    return f"{called(crop, picture.crops)}{row - crop.row},{column}"


def patch_grid(picture: Picture, places: tuple[Place, ...], weights: Any) -> Any:
    """Weights of tokens, [..., S], laid out as the picture's patches, [..., rows, columns].

    In float64; zero where a patch has no token of its own.
    """
    import numpy as np

    values = np.asarray(weights)
    grid = np.zeros((*values.shape[:-1], picture.rows, picture.columns))
    for token, position in enumerate(places):
        if len(position) == 2:
            grid[..., int(position[0]), int(position[1])] = values[..., token]
    return grid
