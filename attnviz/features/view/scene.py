"""What tokens stand in, for the page: a picture with its patches, or the waveform of a sound."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np

from attnviz.core.media import Picture, Sound, called
from attnviz.core.prompt import Inputs
from attnviz.core.tokens import Tokens
from attnviz.drawing.labels import visible
from attnviz.drawing.overlay import shrunk
from attnviz.drawing.panels import Timeline, timeline

LONGEST = 512
"""Pixels that a picture has in a page at most, each way."""
_BINS = 3000
"""About so many peaks of a sound."""
_OUTSIDE, _HIDDEN = -1, -2
_BASE64 = 4 / 3


def scene(inputs: Inputs) -> dict[str, Any] | None:
    """The picture as a data URI, or the peaks of the sound frame by frame; None for a text."""
    if inputs.picture is not None:
        return _picture(inputs.picture)
    sequences = (
        tokens for sides in inputs.sides.values() for tokens in (sides.keys, sides.queries)
    )
    line = next(filter(None, map(timeline, sequences)), None)
    return None if inputs.sound is None or line is None else _sound(inputs.sound, line)


def cells(tokens: Tokens, scene_data: dict[str, Any] | None) -> list[int]:
    """Where the tokens of one sequence stand in a scene; empty where none of them does."""
    if scene_data is None or not any(tokens.places):
        return []
    if scene_data["kind"] == "picture":
        wide: int = scene_data["columns"]
        return [
            int(place[0]) * wide + int(place[1]) if len(place) == 2 else _OUTSIDE
            for place in tokens.places
        ]
    frames = iter(range(scene_data["columns"]))
    return [
        _OUTSIDE if not place else _HIDDEN if special else next(frames)
        for place, special in zip(tokens.places, tokens.special, strict=True)
    ]


def most_bytes(inputs: Inputs) -> int:
    """About how many bytes the scene takes in a page, at most."""
    if inputs.picture is not None:
        high, wide = _size(inputs.picture)
        return int(3 * high * wide * _BASE64)
    return 0 if inputs.sound is None else int(4 * _BINS * _BASE64)


def _size(picture: Picture) -> tuple[int, int]:
    high, wide = picture.pixels.shape[:2]
    scale = min(1.0, LONGEST / max(high, wide))
    return max(1, round(high * scale)), max(1, round(wide * scale))


def _picture(picture: Picture) -> dict[str, Any]:
    high, wide = _size(picture)
    pixels = picture.pixels
    if pixels.shape[:2] != (high, wide):
        pixels = np.rint(shrunk(pixels, high, wide)).astype(np.uint8)
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    coded = base64.b64encode(file.getvalue()).decode("ascii")
    crops = picture.crops if len(picture.crops) > 1 else ()
    return {
        "kind": "picture",
        "name": visible(picture.name),
        "rows": picture.rows,
        "columns": picture.columns,
        "crops": [{"row": crop.row, "called": called(crop, picture.crops)} for crop in crops],
        "width": wide,
        "height": high,
        "source": f"data:image/png;base64,{coded}",
    }


def _sound(sound: Sound, line: Timeline) -> dict[str, Any]:
    """Peaks are the least and the largest sample of equal parts of a frame, as bytes around 128."""
    parts = max(1, _BINS // line.frames)
    coded = np.rint(line.peaks(sound, parts) * 127) + 128
    return {
        "kind": "sound",
        "name": visible(sound.name),
        "rows": 1,
        "columns": line.frames,
        "start": round(line.start, 6),
        "step": round(line.step, 6),
        "parts": parts,
        "source": base64.b64encode(coded.astype(np.uint8).tobytes()).decode("ascii"),
    }
