"""What a page holds of a text beside words: pictures, sounds and attention maps, in few bytes.

Maps are quantized weights, triangles where a mask is causal, deflated. A weight w of a head whose
largest weight is m becomes the whole number q = round(n sqrt(w / m)), with n = 255 or 65535, and is
read back as m (q / n)^2. The square root spends the steps where most weights are: with 8 bits a
weight of 1 is off by at most 0.004, one of 0.005 by at most 0.0003, and zero stays zero.
"""

from __future__ import annotations

import base64
import io
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.capture import KeyMask
from attnviz.core.heads import Layout
from attnviz.core.media import Picture, Sound, called
from attnviz.core.prompt import Inputs
from attnviz.core.reasons import HeadTerms, Origin
from attnviz.core.tokens import Tokens
from attnviz.drawing.labels import visible
from attnviz.drawing.overlay import shrunk
from attnviz.drawing.panels import Timeline, timeline
from attnviz.errors import InputError, UsageError

LONGEST = 512
"""Pixels that a picture has in a page at most, each way."""
_BINS = 3000  # about so many peaks of a sound
_OUTSIDE, _HIDDEN = -1, -2
_BASE64 = 4 / 3


def scene(inputs: Inputs) -> dict[str, Any] | None:
    """Give the picture as a data URI, or the peaks of the sound frame by frame; None for a text."""
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
        columns: int = scene_data["columns"]
        return [
            int(position[0]) * columns + int(position[1]) if len(position) == 2 else _OUTSIDE
            for position in tokens.places
        ]
    frames = iter(range(scene_data["columns"]))
    return [
        _OUTSIDE if not position else _HIDDEN if special else next(frames)
        for position, special in zip(tokens.places, tokens.special, strict=True)
    ]


def most_bytes(inputs: Inputs) -> int:
    """About how many bytes the scene takes in a page, at most."""
    if inputs.picture is not None:
        height, width = _size(inputs.picture)
        return int(3 * height * width * _BASE64)
    return 0 if inputs.sound is None else int(4 * _BINS * _BASE64)


def _size(picture: Picture) -> tuple[int, int]:
    height, width = picture.pixels.shape[:2]
    scale = min(1.0, LONGEST / max(height, width))
    return max(1, round(height * scale)), max(1, round(width * scale))


def _picture(picture: Picture) -> dict[str, Any]:
    height, width = _size(picture)
    pixels = picture.pixels
    if pixels.shape[:2] != (height, width):
        pixels = np.rint(shrunk(pixels, height, width)).astype(np.uint8)
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
        "width": width,
        "height": height,
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


_STEPS = 32767
_SAME = 1e-6  # a bias that depends on keys or distances alone may differ by so much, of its largest


def pack_terms(
    terms: HeadTerms,
    reach: KeyMask,
    weights: NDArray[np.floating[Any]],
    layout: Layout | None = None,
) -> tuple[str, dict[str, Any]]:
    """Pack what a head's ``weights`` [T, S] are made of; and what a page reads beside that.

    The numbers: in 32 bits the largest query and key of every dimension, the norms, the bias and
    the largest number of every source, in 16 bits the codes of queries and keys and of what their
    sources add, then the allowed keys as bits. ``error`` is the largest difference between a weight
    and what is computed from the codes.
    """
    allowed = reach.allowed(*weights.shape)[0]
    query, query_tops = _codes(terms.query)
    key, key_tops = _codes(terms.key)
    kind, bias = _short(terms.bias, allowed)
    coarse = replace(
        terms, query=_read(query, query_tops), key=_read(key, key_tops),
        bias=None if terms.bias is None else terms.bias.astype(np.float32),
    )  # fmt: skip
    error = float(np.abs(coarse.weights(allowed) - weights).max())
    floats = [query_tops, key_tops, terms.norms, bias]
    codes = [query, key]
    origins = None if layout is None else terms.origins
    named: dict[str, Any] | None = None
    if origins is not None and layout is not None:
        of_query, of_key = _by_source(origins.queries), _by_source(origins.keys)
        floats += [of_query[1], of_key[1]]
        codes += [of_query[0], of_key[0]]
        named = {"query": _named(origins.query, layout), "key": _named(origins.key, layout)}
    raw = b"".join(np.ascontiguousarray(part, "<f4").tobytes() for part in floats)
    raw += b"".join(part.astype("<i2").tobytes() for part in codes)
    if reach.bits is not None:
        raw += np.packbits(allowed, axis=None).tobytes()
    facts = {
        "width": terms.query.shape[1],
        "scale": terms.scale,
        "softcap": terms.softcap,
        "sink": terms.sink,
        "bias": kind,
        "written": terms.written,
        "turned": terms.turned,
        "causal": reach.causal,
        "window": reach.window,
        "bits": reach.bits is not None,
        "error": error,
        "origins": named,
    }
    return deflated(raw), facts


def terms_bytes(terms: HeadTerms) -> int:
    """About how many bytes a head's queries and keys take in a page, at most."""
    (queries, width), keys = terms.query.shape, len(terms.key)
    floats = 2 * width + keys + (0 if terms.bias is None else terms.bias.size)
    numbers = width * (queries + keys)
    if terms.origins is not None:
        numbers += terms.origins.queries.size + terms.origins.keys.size
        floats += len(terms.origins.query) + len(terms.origins.key)
    return int((4 * floats + 2 * numbers + queries * keys // 8) * _BASE64)


def _by_source(parts: NDArray[np.floating[Any]]) -> tuple[NDArray[np.int16], NDArray[np.float32]]:
    """Codes [N, T, d] and the largest number of every source, [N]."""
    tops = np.abs(parts).max((1, 2)).astype(np.float32)
    shares = parts / np.where(tops > 0, tops, 1)[:, None, None]
    return np.rint(shares.clip(-1, 1) * _STEPS).astype(np.int16), tops


def _named(origins: Sequence[Origin], layout: Layout) -> list[list[str]]:
    """Return the kind and the name of every source."""
    return [[origin.kind, origin.name(layout)] for origin in origins]


def _codes(x: NDArray[np.floating[Any]]) -> tuple[NDArray[np.int16], NDArray[np.float32]]:
    """Codes [T, d] and the largest number of every dimension, [d]."""
    tops = np.abs(x).max(0).astype(np.float32)
    shares = x.astype(np.float64) / np.where(tops > 0, tops, 1)
    return np.rint(shares.clip(-1, 1) * _STEPS).astype(np.int16), tops


def _read(codes: NDArray[np.int16], tops: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return what the page reads."""
    return codes * (tops.astype(np.float64) / _STEPS)


def _short(
    bias: NDArray[np.floating[Any]] | None, allowed: NDArray[np.bool_]
) -> tuple[str, NDArray[np.floating[Any]]]:
    """Return a bias [T, S] by key [S] or by distance [T + S - 1] where it depends on that alone."""
    if bias is None:
        return "", np.zeros(0)
    rows, columns = np.nonzero(allowed)
    distance = columns - rows + len(bias) - 1
    for kind, places, size in (
        ("key", columns, bias.shape[1]),
        ("distance", distance, sum(bias.shape) - 1),
    ):
        lowest, highest = np.full(size, np.inf), np.full(size, -np.inf)
        np.minimum.at(lowest, places, bias[rows, columns])
        np.maximum.at(highest, places, bias[rows, columns])
        filled = highest >= lowest
        if (highest[filled] - lowest[filled] <= _SAME * np.abs(bias).max()).all():
            return kind, np.where(filled, lowest, 0.0)
    return "whole", bias.ravel()


BITS = (8, 16)
"""How many bits a weight can take."""

_SUM_ERROR = 2e-3


@dataclass(frozen=True, slots=True)
class Packed:
    """The maps of one layer."""

    text: str  # base64 of the deflated codes; 16-bit codes as all high bytes, then all low bytes
    tops: tuple[float, ...]  # the largest weight of each head
    # for each head, whether every row sums to 1 (or has no weight at all), so that a page can say
    # so, whatever the rounding of single weights
    whole: tuple[bool, ...]
    causal: bool  # whether only keys up to the query's own position are there, row by row
    error: float  # the largest difference between a weight and what is read back


def pack(weights: NDArray[np.floating[Any]], bits: int = 8) -> Packed:
    """Pack the maps [H, T, S] of one layer."""
    if bits not in BITS:
        raise UsageError(f"weights can have 8 or 16 bits, not {bits}")
    if not np.isfinite(weights).all() or weights.min() < 0:
        raise InputError(
            "an attention map holds NaN, infinite or negative weights and cannot be shown: "
            "compute it in float32"
        )
    causal = is_causal(weights)
    exact = weights.astype(np.float64)
    tops = exact.max(axis=(1, 2))
    sums = exact.sum(axis=2)
    full = ((np.abs(sums - 1) < _SUM_ERROR) | (sums == 0)).all(axis=1)
    steps = (1 << bits) - 1
    shares = exact / np.where(tops > 0, tops, 1.0)[:, None, None]
    codes = np.rint(np.sqrt(shares) * steps).astype(np.uint16)
    error = float(np.abs(tops[:, None, None] * (codes / steps) ** 2 - exact).max())
    if causal:
        rows, columns = np.tril_indices(weights.shape[1])
        codes = codes[:, rows, columns]
    if bits == 8:
        raw = codes.astype(np.uint8).tobytes()
    else:
        raw = (codes >> 8).astype(np.uint8).tobytes() + (codes & 255).astype(np.uint8).tobytes()
    return Packed(deflated(raw), tuple(map(float, tops)), tuple(map(bool, full)), causal, error)


def deflated(raw: bytes) -> str:
    """Bytes as a page holds them: deflated, in base64."""
    return base64.b64encode(zlib.compress(raw, 6)).decode("ascii")


def is_causal(weights: NDArray[np.floating[Any]]) -> bool:
    """Whether no head [H, T, T] gives any weight to a later key."""
    _, rows, columns = weights.shape
    return rows == columns > 1 and not np.triu(weights.max(axis=0), 1).any()


def map_bytes(rows: int, columns: int, bits: int, *, causal: bool) -> int:
    """About how many bytes a head's map takes in a page, at most."""
    cells = rows * (rows + 1) // 2 if causal else rows * columns
    return int(cells * (bits // 8) * _BASE64)
