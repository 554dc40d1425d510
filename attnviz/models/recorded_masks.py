"""Which keys were allowed, in files of recorded attention: small, and checked when read.

Beside the maps stands one entry for each set of layers that share a mask: causal or not, a window,
a learned sink, and, where these do not say it all, the allowed keys as packed bits. After them come
the keys that an indexer did not select, where one selects.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.capture import Capture
from attnviz.core.heads import SITE_KINDS, Site
from attnviz.core.key_mask import KeyMask

BITS = "reach_bits"
"""The array that holds the packed bits of all entries, one after the other."""


def pack(capture: Capture) -> tuple[list[dict[str, Any]], NDArray[np.uint8]]:
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


def unpack(
    entries: Any,
    bits: NDArray[Any] | None,
    maps: Mapping[Site, NDArray[Any]],
    *,
    ranks: bool = False,
) -> dict[Site, KeyMask]:
    """The reaches that a file says its maps have.

    Args:
        entries: what :func:`pack` wrote, or whatever stands in its place.
        bits: the array of that name, if there is one.
        maps: [H, T, S] by site.
        ranks: whether maps rank keys, those too that were not selected.

    Raises:
        ValueError: not what :func:`pack` writes, or a weight where no key was allowed.
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
