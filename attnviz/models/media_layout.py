"""Pictures and sounds in files of recorded attention, and where the tokens stand in them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from msgspec import convert
from numpy.typing import NDArray

from attnviz.core.media import Crop, Picture, Place, Sound
from attnviz.core.prompt import Inputs
from attnviz.core.tokens import Tokens

FIELDS = ("places", "source_places", "picture", "sound")
"""The arrays that a file may have beside its maps."""

Array = NDArray[Any]


def pack(inputs: Inputs, sides: Mapping[str, Tokens]) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays to store, and what to say of them.

    Args:
        inputs: what was looked at.
        sides: the token sequences that are stored, by the prefix of their names.
    """
    arrays: dict[str, Array] = {}
    meta: dict[str, Any] = {}
    for prefix, tokens in sides.items():
        if tokens.places:
            arrays[f"{prefix}places"] = _rows(tokens.places)
    picture, sound = inputs.picture, inputs.sound
    if picture is not None:
        arrays["picture"] = picture.pixels
        meta["picture"] = {"rows": picture.rows, "columns": picture.columns, "name": picture.name}
        if picture.crops:
            meta["picture"]["crops"] = [asdict(crop) for crop in picture.crops]
    if sound is not None:
        arrays["sound"] = sound.samples
        meta["sound"] = {"rate": sound.rate, "name": sound.name}
    return arrays, meta


def places(array: Array | None, tokens: int) -> tuple[Place, ...]:
    """The places in an array [T, 1 or 2]; NaN where a token has none.

    Raises:
        ValueError: another shape, or places that are none.
    """
    if array is None:
        return ()
    rows = np.asarray(array, np.float64)
    if rows.ndim != 2 or len(rows) != tokens or rows.shape[1] not in (1, 2):
        raise ValueError(f"places of shape {array.shape} for {tokens} tokens")
    if not (np.isnan(rows) | ((rows >= 0) & (rows < np.inf))).all():
        raise ValueError("places that are negative or infinite")
    kind = int if rows.shape[1] == 2 else float
    return tuple(
        () if any(map(math.isnan, row)) else tuple(map(kind, row)) for row in rows.tolist()
    )


def picture(array: Array | None, meta: Any, listed: tuple[Place, ...]) -> Picture | None:
    """The picture that is stored; ValueError where it does not fit the places of its patches."""
    if array is None or not isinstance(meta, dict):
        return None
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3 or 0 in array.shape:
        raise ValueError(f"a picture of {array.dtype} {array.shape}")
    rows, columns = int(meta["rows"]), int(meta["columns"])
    patches = [place for place in listed if len(place) == 2]
    if any(not (place[0] < rows and place[1] < columns) for place in patches):
        raise ValueError(f"patches outside of {rows} × {columns}")
    crops = convert(meta.get("crops", []), tuple[Crop, ...])
    if not all(_inside(crop, rows, columns) for crop in crops):
        raise ValueError(f"a part of the picture outside of {rows} × {columns}")
    return Picture(array, rows, columns, str(meta.get("name", "")), crops)


def _inside(crop: Crop, rows: int, columns: int) -> bool:
    """Whether the patches of a crop are among those of its picture."""
    left, top, right, bottom = crop.box
    return (
        min(crop.row, crop.number - 1) >= 0 < min(crop.rows, crop.columns, *crop.size)
        and crop.row + crop.rows <= rows
        and crop.columns <= columns
        and left < right
        and top < bottom
    )


def sound(array: Array | None, meta: Any) -> Sound | None:
    """The sound that is stored; ValueError where it is none."""
    if array is None or not isinstance(meta, dict):
        return None
    samples, rate = np.asarray(array, np.float32), int(meta["rate"])
    if samples.ndim != 1 or not len(samples) or rate < 1 or not np.isfinite(samples).all():
        raise ValueError(f"a sound of shape {samples.shape} at {rate} Hz")
    return Sound(samples, rate, str(meta.get("name", "")))


def _rows(listed: tuple[Place, ...]) -> NDArray[np.float64]:
    width = max(map(len, listed))
    return np.array([place or (np.nan,) * width for place in listed], np.float64)
