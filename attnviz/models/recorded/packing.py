"""Captures on their way into files: maps, tokens, allowed keys, pictures and sounds, and back.

Beside the maps stands one entry for each set of layers that share a mask: causal or not, a window,
a learned sink, and, where these do not say it all, the allowed keys as packed bits. After them come
the keys that an indexer did not select, where one selects.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from msgspec import convert
from numpy.typing import NDArray

from attnviz.core.capture import Capture, KeyMask
from attnviz.core.heads import SITE_KINDS, Site
from attnviz.core.media import Crop, Picture, Place, Sound
from attnviz.core.prompt import Inputs
from attnviz.core.tokens import Tokens
from attnviz.errors import UsageError
from attnviz.models.recorded.format import BITS, FLAGS, SCHEMA, SUFFIXES, Array


def dump(capture: Capture, suffix: str) -> bytes:
    """The bytes of a file that :func:`load` reads."""
    if suffix not in SUFFIXES:
        raise UsageError(f"cannot write attention as {suffix or 'a file without suffix'!r}; "
                         f"name the file .npz or .safetensors")  # fmt: skip
    arrays: dict[str, Array] = {}
    layout = capture.layout
    kinds = layout.kinds
    gaps: dict[str, list[int]] = {}
    for kind in kinds:
        layers = [layer for layer, heads in enumerate(layout.heads[kind]) if heads]
        maps = [capture.maps.get(Site(kind, layer)) for layer in layers]
        shapes = {None if m is None else m.shape for m in maps}
        if None in shapes or len(shapes) > 1 or capture.kept:
            raise UsageError("a capture file needs every head, as many in one layer as in another")
        name = "attentions" if len(kinds) == 1 else f"{kind}_attentions"
        arrays[name] = np.stack([m for m in maps if m is not None])
        if len(layers) < layout.layers(kind):
            gaps[kind] = layers
    sides = capture.inputs.sides[kinds[-1]]  # cross where there is one: it has both sequences
    lists = _token_lists("", sides.queries)
    if kinds[-1] == "cross":
        lists |= _token_lists("source_", sides.keys)
    meta = {"schema": SCHEMA, **asdict(capture.source), "kinds": list(kinds)}
    meta["reach"], bits = pack_masks(capture)
    if len(bits):
        arrays[BITS] = bits
    meta["written"] = sides.queries.written
    if spans := capture.inputs.sides[
        kinds[0]
    ].keys.spans:  # of the text, not of what a decoder says
        meta["spans"] = [asdict(span) for span in spans]
    if gaps:
        meta["layers"] = gaps
    meta["versions"] = dict(capture.source.versions)
    meta |= {"quantity": capture.quantity, "whole": layout.whole}
    meta |= {"mean": layout.mean} if layout.mean else {}
    named = {"": sides.queries} | ({"source_": sides.keys} if kinds[-1] == "cross" else {})
    beside, said = pack_media(capture.inputs, named)
    arrays |= beside
    meta |= said
    if suffix == ".npz":
        out = io.BytesIO()
        texts = {name: np.array(values) for name, values in lists.items()}
        everything: dict[str, Any] = {**arrays, **texts, "meta": np.array(json.dumps(meta))}
        np.savez_compressed(out, **everything)
        return out.getvalue()
    from safetensors.numpy import save

    metadata = {name: json.dumps(values) for name, values in lists.items()}
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return save(contiguous, metadata={**metadata, "meta": json.dumps(meta)})


def _token_lists(prefix: str, tokens: Tokens) -> dict[str, list[Any]]:
    lists = {f"{prefix}tokens": list(tokens.texts)}
    return lists | {
        prefix + flag: list(getattr(tokens, flag)) for flag in FLAGS if getattr(tokens, flag)
    }


def pack_masks(capture: Capture) -> tuple[list[dict[str, Any]], NDArray[np.uint8]]:
    """A capture's reaches as entries for JSON, and their bits as bytes."""
    entries: dict[int, dict[str, Any]] = {}
    packed = []
    for site, reach in capture.reach.items():
        if site not in capture.maps:
            continue
        if id(reach) not in entries:
            entry: dict[str, Any] = {"sites": [], "causal": reach.causal, "window": reach.window}
            entry |= {"sink": reach.sink, "masks": 0}
            if reach.bits is not None:
                entry["masks"] = len(reach.bits)
                packed.append(np.packbits(reach.bits, axis=None))
            if reach.unselected is not None:
                entry["unselected"] = True
                packed.append(np.packbits(reach.unselected, axis=None))
            entries[id(reach)] = entry
        entries[id(reach)]["sites"].append([site.kind, site.layer])
    return list(entries.values()), np.concatenate(packed) if packed else np.zeros(0, np.uint8)


def unpack_masks(
    entries: Any,
    bits: NDArray[Any] | None,
    maps: Mapping[Site, NDArray[Any]],
    *,
    ranks: bool = False,
) -> dict[Site, KeyMask]:
    """The reaches that a file says its maps have.

    ``maps`` [H, T, S] by site.
    """
    data = np.zeros(0, np.uint8) if bits is None else np.asarray(bits, np.uint8).reshape(-1)
    by_site: dict[Site, KeyMask] = {}
    taken = 0
    for entry in _listed(entries):
        sites = [_site(name) for name in _listed(entry["sites"])]
        shapes = {maps[site].shape for site in sites if site in maps}
        if len(shapes) != 1:
            raise ValueError("layers that share a mask differ in size, or are not there")
        heads, queries, keys = shapes.pop()
        masks, window = int(entry["masks"]), entry["window"]
        allowed = unselected = None
        if masks:
            if masks not in (1, heads):
                raise ValueError(f"{masks} masks for {heads} heads")
            allowed, taken = _taken(data, taken, (masks, queries, keys))
        if entry.get("unselected") is True:
            unselected, taken = _taken(data, taken, (1, queries, keys))
        if window is not None and (type(window) is not int or window < 1):
            raise ValueError(f"a window of {window!r}")
        sink = entry["sink"] is True
        reach = KeyMask(entry["causal"] is True, window, allowed, sink, unselected)
        beyond = ~reach.allowed(queries, keys)
        if unselected is not None and not (beyond | ~unselected).all():
            raise ValueError("keys that are allowed and were not selected")
        beyond = beyond & ~unselected if ranks and unselected is not None else beyond
        if any((maps[site].astype(np.bool_) & beyond).any() for site in sites):
            raise ValueError("weights on keys that were not allowed")
        by_site |= dict.fromkeys(sites, reach)
    if taken != len(data):
        raise ValueError(f"{len(data)} bytes of masks where {taken} belong")
    return by_site


def _taken(
    data: NDArray[np.uint8], first: int, shape: tuple[int, int, int]
) -> tuple[NDArray[np.bool_], int]:
    """Bits of that shape from a place on, and where the next ones begin."""
    count = math.prod(shape)
    last = first + -(-count // 8)
    flat = np.unpackbits(data[first:last], count=count)
    return flat.astype(np.bool_).reshape(shape), last


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{type(value).__name__} in place of a list")
    return value


def _site(name: Any) -> Site:
    kind, layer = name
    if kind not in SITE_KINDS or type(layer) is not int:
        raise ValueError(f"{name!r} is no layer")
    return Site(kind, layer)


def pack_media(
    inputs: Inputs, sides: Mapping[str, Tokens]
) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays to store, and what to say of them."""
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


def places_in(array: Array | None, tokens: int) -> tuple[Place, ...]:
    """The places in an array [T, 1 or 2]; NaN where a token has none."""
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


def picture_in(array: Array | None, meta: Any, listed: tuple[Place, ...]) -> Picture | None:
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


def sound_in(array: Array | None, meta: Any) -> Sound | None:
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
