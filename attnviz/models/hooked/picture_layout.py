"""Where in its picture every token of a picture lies, by what the processor makes of it.

Processors scale a picture, cut the middle out of it, cut it into tiles beside a small whole, or pad
it. What each tile shows of it is measured: the same processor gets a picture of the
same size whose red and green are the column and the row of a pixel, and what comes back says where
it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnviz.core.media import Box, Crop, Picture, Place, called
from attnviz.core.tokens import Tokens

_LARGEST = 64  # pixels of a patch, each way, on a sheet of several pictures


@dataclass(frozen=True, slots=True)
class GivenPicture:
    """A picture as it was given: uint8 [height, width, 3], and the name of its file."""

    pixels: Pixels
    name: str

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.pixels.shape[1], self.pixels.shape[0]


@dataclass(frozen=True, slots=True, eq=False)
class SeenCrop:
    """A crop, its pixels as the model saw them, and the numbers of its patches' tokens.

    ``order`` [rows, columns] counts among the tokens of all pictures.
    """

    crop: Crop
    pixels: Pixels
    order: NDArray[np.int64]


def seen_crops(
    pictures: Sequence[GivenPicture],
    features: Mapping[str, Tensor],
    pieces: Sequence[int],
    processor: Any,
    body: Any,
    process: Callable[[list[Pixels]], Mapping[str, Any]],
) -> list[SeenCrop] | None:
    """Return what every token of some pictures shows; None where that is not known."""
    images = getattr(processor, "image_processor", processor)
    values = features.get("pixel_values")
    grids = features.get("image_grid_thw")
    sizes = features.get("image_sizes")
    if grids is not None:
        merge = int(getattr(images, "merge_size", 1))
        return _of_grids(pictures, grids // torch.tensor([1, merge, merge]), len(pieces))
    if values is None or values.ndim not in (4, 5):
        return None
    patch = getattr(processor, "patch_size", None)
    if sizes is not None and isinstance(patch, int) and not hasattr(body, "image_newline"):
        step = patch * int(getattr(processor, "spatial_merge_size", 1))
        grids = torch.cat([torch.ones(len(sizes), 1), sizes // step], 1).long()
        return _of_grids(pictures, grids, len(pieces))
    ramps = [ramp(picture.size, number) for number, picture in enumerate(pictures, 1)]
    probe = process(ramps).get("pixel_values")
    if not isinstance(probe, Tensor) or probe.shape != values.shape or len(pictures) > MOST:
        return None
    tiles = tiles_of(probe, [picture.size for picture in pictures], images)
    if tiles is None:
        return None
    boxes: list[list[Box]] = [[] for _ in pictures]
    tile_pixels: list[list[Pixels]] = [[] for _ in pictures]
    for tile, value in zip(tiles, values.flatten(0, -4), strict=True):
        if tile is not None:
            boxes[tile[0] - 1].append(tile[1])
            tile_pixels[tile[0] - 1].append(unscaled(value, images))
    if not all(boxes):
        return None
    if hasattr(body, "image_newline"):
        return _packed(pictures, boxes, tile_pixels, pieces, body.config)
    return _tiled(pictures, boxes, tile_pixels, len(pieces))


def _of_grids(
    pictures: Sequence[GivenPicture], grids: Tensor, pieces: int
) -> list[SeenCrop] | None:
    """Pictures of any size, scaled to whole patches: frames, rows and columns [N, 3] of each."""
    listed = [tuple(map(int, grid)) for grid in grids]
    if len(listed) != len(pictures) or sum(map(math.prod, listed)) != pieces:
        return None
    if any(frames != 1 for frames, _, _ in listed):
        return None
    crops, start = [], 0
    for number, (picture, (_, rows, columns)) in enumerate(zip(pictures, listed, strict=True), 1):
        box = (0.0, 0.0, float(picture.size[0]), float(picture.size[1]))
        crop = Crop(number, picture.name, picture.size, box, rows, columns)
        order = np.arange(start, start + rows * columns).reshape(rows, columns)
        crops.append(SeenCrop(crop, picture.pixels, order))
        start += rows * columns
    return crops


def _tiled(
    pictures: Sequence[GivenPicture],
    boxes: Sequence[Sequence[Box]],
    images: Sequence[Sequence[Pixels]],
    pieces: int,
) -> list[SeenCrop] | None:
    """Tiles of equally many tokens each, one after the other."""
    count = pieces // sum(map(len, boxes))
    side = math.isqrt(count)
    if side * side * sum(map(len, boxes)) != pieces or not side:
        return None
    crops, start = list[SeenCrop](), 0
    for number, (picture, mine, tiles) in enumerate(zip(pictures, boxes, images, strict=True), 1):
        orders = [
            np.arange(start + n * count, start + (n + 1) * count).reshape(side, side)
            for n in range(len(mine))
        ]
        start += count * len(mine)
        groups = _joined(picture, mine)
        if groups is None:
            return None
        for box, grid in groups:
            order, pixels = (
                np.concatenate([np.concatenate([part[n] for n in row], 1) for row in grid], 0)
                for part in (orders, tiles)
            )
            crop = Crop(number, picture.name, picture.size, box, *order.shape)
            crops.append(SeenCrop(crop, pixels, order))
    return _marked(crops)


def _joined(
    picture: GivenPicture, boxes: Sequence[Box]
) -> list[tuple[Box, list[list[int]]]] | None:
    """Tiles of the same scale that lie side by side: the box of each such group, and its rows.

    None where tiles of one scale form no rectangle.
    """
    slack = [NEAR * length for length in picture.size]
    groups: list[list[int]] = []
    for number, box in enumerate(boxes):
        for group in groups:
            first = boxes[group[0]]
            if all(
                abs(box[a + 2] - box[a] - first[a + 2] + first[a]) < 2 * slack[a] for a in (0, 1)
            ):
                group.append(number)
                break
        else:
            groups.append([number])
    rectangles = []
    for group in groups:
        rows: list[list[int]] = []
        for number in sorted(group, key=lambda n: boxes[n][1]):
            if rows and abs(boxes[rows[-1][0]][1] - boxes[number][1]) < 2 * slack[1]:
                rows[-1].append(number)
            else:
                rows.append([number])
        rows = [sorted(row, key=lambda n: boxes[n][0]) for row in rows]
        if len({len(row) for row in rows}) > 1:
            return None
        members = [boxes[number] for number in group]
        box = (min(b[0] for b in members), min(b[1] for b in members),
               max(b[2] for b in members), max(b[3] for b in members))  # fmt: skip
        width, height = members[0][2] - members[0][0], members[0][3] - members[0][1]
        if abs(box[2] - box[0] - len(rows[0]) * width) > 2 * len(rows[0]) * slack[0]:
            return None
        if abs(box[3] - box[1] - len(rows) * height) > 2 * len(rows) * slack[1]:
            return None
        rectangles.append((box, rows))
    return rectangles


def _packed(
    pictures: Sequence[GivenPicture],
    boxes: Sequence[Sequence[Box]],
    images: Sequence[Sequence[Pixels]],
    pieces: Sequence[int],
    config: Any,
) -> list[SeenCrop] | None:
    """Lay out a small whole, then the tiles as one, without padding, a line mark a row (LLaVA).

    Too many rows and columns are scaled down to fewer by the model itself.
    """
    side = int(config.vision_config.image_size) // int(config.vision_config.patch_size)
    parts = list[_Padded]()
    for picture, mine in zip(pictures, boxes, strict=True):
        groups = _joined(picture, mine[1:])
        if groups is None or len(groups) != 1:
            return None
        parts.append(_Padded.of(picture, *groups[0], side))
    runs = _runs(pieces)
    if len(runs) != len(pictures):  # pictures without anything between them
        runs = [side * side + part.rows * (part.columns + 1) for part in parts]
        if sum(runs) != len(pieces):
            return None
    crops, start = list[SeenCrop](), 0
    for number, (picture, part, mine, tiles, run) in enumerate(
        zip(pictures, parts, boxes, images, runs, strict=True), 1
    ):
        shape = _shape(run - side * side, part.rows, part.columns)
        if shape is None:
            return None
        mosaic = np.concatenate(
            [np.concatenate([tiles[1:][n] for n in row], 1) for row in part.tiles], 0
        )
        step = tiles[0].shape[0] // side
        top, left = part.top * step, part.left * step
        pixels = mosaic[top : top + part.rows * step, left : left + part.columns * step]
        base = np.arange(start, start + side * side).reshape(side, side)
        fine = np.arange(start + side * side, start + run).reshape(shape[0], shape[1] + 1)[:, :-1]
        crop = Crop(number, picture.name, picture.size, part.box, *shape)
        overview = Crop(number, picture.name, picture.size, mine[0], side, side)
        crops += [SeenCrop(crop, pixels, fine), SeenCrop(overview, tiles[0], base)]
        start += run
    return _marked(crops)


@dataclass(frozen=True, slots=True)
class _Padded:
    """Tiles that lie side by side, and what of them is of the picture and no padding.

    ``tiles`` are their numbers, ``top`` and ``left`` the patches that are padding there, ``rows``
    and ``columns`` the others, which show ``box``.
    """

    tiles: list[list[int]]
    top: int
    left: int
    rows: int
    columns: int
    box: Box

    @classmethod
    def of(cls, picture: GivenPicture, box: Box, tiles: list[list[int]], side: int) -> _Padded:
        """Of tiles with so many patches a side, which show a box."""
        height, width = side * len(tiles), side * len(tiles[0])
        top, left = _padding(picture.size, (width, height))
        x, y = (box[2] - box[0]) / width, (box[3] - box[1]) / height
        inner = (box[0] + left * x, box[1] + top * y, box[2] - left * x, box[3] - top * y)
        return cls(tiles, top, left, height - 2 * top, width - 2 * left, inner)


def _runs(pieces: Sequence[int]) -> list[int]:
    """How many positions there are in every run of neighbours."""
    breaks = np.nonzero(np.diff(pieces) > 1)[0] + 1
    return list(map(int, np.diff([0, *breaks.tolist(), len(pieces)])))


def _padding(size: tuple[int, int], grid: tuple[int, int]) -> tuple[int, int]:
    """Rows above and columns left of a picture that keeps its form in a grid [width, height]."""
    width, height = size
    if width / height > grid[0] / grid[1]:
        return (grid[1] - int(round(height * grid[0] / width, 7))) // 2, 0
    return 0, (grid[0] - int(round(width * grid[1] / height, 7))) // 2


def _shape(count: int, rows: int, columns: int) -> tuple[int, int] | None:
    """Rows and columns that are so many tokens, a mark behind each row: both over one ratio."""
    shapes = []
    for fewer in range(1, rows + 1):
        if count % fewer:
            continue
        narrow = count // fewer - 1
        if not 1 <= narrow <= columns:
            continue
        least = max(rows / (fewer + 1), columns / (narrow + 1))
        if (fewer, narrow) == (rows, columns) or least < min(rows / fewer, columns / narrow):
            shapes.append((fewer, narrow))
    if (rows, columns) in shapes:
        return rows, columns
    return shapes[0] if len(shapes) == 1 else None


def _marked(crops: Sequence[SeenCrop]) -> list[SeenCrop]:
    """Return the same, the small whole of each picture known as such, and behind the rest of it."""
    marked = []
    for number in dict.fromkeys(view.crop.number for view in crops):
        group = [view for view in crops if view.crop.number == number]
        group.sort(key=lambda view: -view.order.size)
        last = len(group) > 1
        marked += group[: len(group) - last]
        if last:
            marked.append(replace(group[-1], crop=replace(group[-1].crop, whole=True)))
    return marked


def sheet(crops: Sequence[SeenCrop]) -> tuple[Picture, list[SeenCrop]]:
    """One picture of several: one below the other at the scale of the patches, a row apart."""
    if len(crops) == 1:
        (view,) = crops
        crop = view.crop
        return Picture(view.pixels, crop.rows, crop.columns, crop.name, (crop,)), [view]
    laid_out, row = list[SeenCrop](), 0
    for view in crops:
        laid_out.append(replace(view, crop=replace(view.crop, row=row)))
        row += view.crop.rows + 1
    rows, columns = row - 1, max(view.crop.columns for view in crops)
    scales = [max(view.pixels.shape[0] / view.crop.rows, view.pixels.shape[1] / view.crop.columns)
           for view in crops]  # fmt: skip
    step = min(max(1, round(max(scales))), _LARGEST)
    pixels = np.full((rows * step, columns * step, 3), 255, np.uint8)
    for view in laid_out:
        height, width = view.crop.rows * step, view.crop.columns * step
        top = view.crop.row * step
        pixels[top : top + height, :width] = _scaled(view.pixels, width, height)
    names = ", ".join(dict.fromkeys(view.crop.name for view in crops))
    picture = Picture(pixels, rows, columns, names, tuple(view.crop for view in laid_out))
    return picture, laid_out


def _scaled(pixels: Pixels, width: int, height: int) -> Pixels:
    """Return the same at another size."""
    if pixels.shape[:2] == (height, width):
        return pixels
    from PIL import Image

    return np.asarray(Image.fromarray(pixels).resize((width, height)), np.uint8)


def with_places(tokens: Tokens, pieces: Sequence[int], crops: Sequence[SeenCrop]) -> Tokens:
    """Tokens of a text with the places of those of pictures in it.

    A patch is called by its row and column in its crop; ``2:3,4`` in the second of several
    pictures, ``whole:3,4`` in the small whole of one that is cut into tiles.
    """
    places: list[Place] = list(tokens.places) or [()] * len(tokens)
    texts, special, words = list(tokens.texts), list(tokens.special), list(tokens.words)
    all_crops = tuple(view.crop for view in crops)
    for view in crops:
        crop, prefix = view.crop, called(view.crop, all_crops)
        for (row, column), number in np.ndenumerate(view.order):
            index = pieces[int(number)]
            places[index], texts[index] = (crop.row + row, column), f"{prefix}{row},{column}"
            special[index] = False
            words[index] = -1
    return replace(
        tokens, texts=tuple(texts), special=tuple(special), words=tuple(words), places=tuple(places)
    )


Pixels = NDArray[np.uint8]
_FIRST, _STEP, MOST = 255, 4, 24
"""Blue of no picture, how much less it is of each, and how many there may be; padding is darker."""
NEAR = 0.03
"""A part of a picture's width or height: edges that are nearer to each other are the same."""


def unscaled(values: Tensor, processor: Any) -> Pixels:
    """Pixels [3, height, width] as a processor scaled them, back as uint8 [height, width, 3]."""
    pixels = values.float()
    if getattr(processor, "do_normalize", False):
        mean, std = (
            torch.tensor(getattr(processor, name)).float().view(-1, 1, 1)
            for name in ("image_mean", "image_std")
        )
        pixels = pixels * std + mean
    factor = getattr(processor, "rescale_factor", None)
    if getattr(processor, "do_rescale", False) and factor:
        pixels = pixels / factor
    image = pixels.round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0)
    return np.ascontiguousarray(image.numpy())


def ramp(size: tuple[int, int], number: int) -> Pixels:
    """Return a picture of some width and height whose colours say where a pixel is.

    Red is the column, green the row, blue the ``number`` of the picture, from 1.
    """
    width, height = size
    pixels = np.empty((height, width, 3), np.uint8)
    pixels[..., 0] = np.rint((np.arange(width) + 0.5) / width * 255)
    pixels[..., 1] = np.rint((np.arange(height) + 0.5) / height * 255)[:, None]
    pixels[..., 2] = _FIRST - _STEP * number
    return pixels


def tiles_of(
    values: Tensor, sizes: Sequence[tuple[int, int]], processor: Any
) -> list[tuple[int, Box] | None] | None:
    """Of which picture tiles are, and what of it they show.

    Returns: of every tile the picture's number, and a box in its pixels; None for a tile that shows
    none. None in place of all where it cannot be told.
    """
    tiles = list[tuple[int, Box] | None]()
    for tile in values.flatten(0, -4):
        pixels = unscaled(tile, processor)
        number = (_FIRST + _STEP // 2 - int(pixels[..., 2].max())) // _STEP
        if number > MOST:
            tiles.append(None)
            continue
        if not 1 <= number <= len(sizes):
            return None
        box = _box(pixels, number, sizes[number - 1])
        if box is None:
            return None
        tiles.append((number, box))
    return tiles


def _box(tile: Pixels, number: int, size: tuple[int, int]) -> Box | None:
    """Return what a tile shows of the picture whose colours are places."""
    real = abs(tile[..., 2].astype(int) - (_FIRST - _STEP * number)) <= 1
    edges = []
    for axis, length in enumerate(size):  # red and width, green and height
        inside = real.any(axis)
        counts = np.maximum(real.sum(axis), 1)
        means = np.where(real, tile[..., axis], 0).sum(axis) / counts / 255 * length
        places = np.nonzero(inside)[0]
        places = places[1:-1] if len(places) > 4 else places  # edges are what resampling makes up
        if len(places) < 2:
            return None
        slope, start = np.polyfit(places + 0.5, means[places], 1)
        if slope <= 0:
            return None
        ends = (start, start + slope * tile.shape[1 - axis])
        edges.append([_snapped(end, length) for end in ends])
    (left, right), (top, bottom) = edges
    return left, top, right, bottom


def _snapped(edge: float, length: int) -> float:
    """Get the picture's own edge where an edge is as good as that, else to a quarter of a pixel."""
    for end in (0.0, float(length)):
        if abs(edge - end) < NEAR * length:
            return end
    return round(float(edge) * 4) / 4
