"""Maps as numbers in files: CSV and JSON for reading, ``.npz`` and ``.safetensors`` for arrays."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.heads import Head, Layout
from attnviz.core.provenance import Made
from attnviz.core.tokens import Sides
from attnviz.drawing.tables import as_csv, which_head
from attnviz.errors import UsageError

Map = NDArray[np.floating[Any]]

SUFFIXES = (".csv", ".json", ".npz", ".safetensors")
SCHEMA = "attnviz.maps/1"


@dataclass(frozen=True, eq=False, slots=True)
class NamedMap:
    """One map and what is on its axes."""

    head: Head  # whose; ``name`` as it is called
    name: str
    weights: Map  # [T, S]; masked where a key is not allowed
    sides: Sides  # the tokens or words on both axes
    # of these, from 0, where the map is a part of a larger one; None for all
    positions: tuple[Sequence[int], Sequence[int]] | None = None

    def axes(self) -> tuple[Sequence[int], Sequence[int]]:
        """Return the positions of rows and columns."""
        return self.positions or tuple(map(range, self.weights.shape))  # type: ignore[return-value]


def maps_bytes(
    suffix: str,
    maps: Sequence[NamedMap],
    layout: Layout,
    *,
    quantity: str,
    about: Mapping[str, Any],
    made: Made | None = None,
) -> bytes:
    """Return the bytes of a file of maps."""
    if suffix == ".csv":
        rows = [row for shown in maps for row in _rows(shown, layout, quantity)]
        columns = (*which_head(layout), "query", "key", "query_token", "key_token", quantity)
        return as_csv(rows, columns, made).encode()
    if suffix == ".json":
        document = {
            "schema": SCHEMA,
            "made": None if made is None else made.line(),
            "quantity": quantity,
            **about,
            "maps": [
                {
                    "head": shown.name,
                    "queries": list(shown.sides.queries.texts),
                    "keys": list(shown.sides.keys.texts),
                    "positions": dict(
                        zip(("queries", "keys"), map(list, shown.axes()), strict=True)
                    ),
                    "weights": _listed(shown.weights),
                }
                for shown in maps
            ],
        }
        return (json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n").encode()
    axes = {(shown.sides.queries.texts, shown.sides.keys.texts) for shown in maps}
    if len(axes) > 1:
        raise UsageError("maps of several kinds of attention share no tokens; select those of one "
                         "kind for a {} file", suffix)  # fmt: skip
    return arrays_bytes(
        {shown.name: np.ma.filled(shown.weights, 0) for shown in maps}, maps[0].sides, suffix
    )


def arrays_bytes(maps: Mapping[str, Map], sides: Sides, suffix: str) -> bytes:
    """Weights [T, S] by head, and the tokens as JSON, in the format of a suffix."""
    tokens = {"queries": list(sides.queries.texts), "keys": list(sides.keys.texts)}
    if suffix == ".npz":
        out = io.BytesIO()
        texts: dict[str, Any] = {name: np.array(json.dumps(v)) for name, v in tokens.items()}
        arrays: dict[str, Any] = {**maps, **texts}
        np.savez(out, **arrays)
        return out.getvalue()
    from safetensors.numpy import save

    # one entry, for safetensors writes several in a random order
    metadata = {"tokens": json.dumps(tokens)}
    return save({name: np.ascontiguousarray(array) for name, array in maps.items()}, metadata)


def _rows(shown: NamedMap, layout: Layout, quantity: str) -> list[dict[str, Any]]:
    """Return a row for each weight of a key that is allowed."""
    queries, keys = shown.axes()
    named = which_head(layout, shown.head)
    open_ = ~np.ma.getmaskarray(shown.weights)
    values = np.ma.getdata(shown.weights)
    return [
        {
            **named,
            "query": int(queries[row]),
            "key": int(keys[column]),
            "query_token": shown.sides.queries.texts[row],
            "key_token": shown.sides.keys.texts[column],
            quantity: float(values[row, column]),
        }
        for row, column in np.argwhere(open_)
    ]


def _listed(weights: Map) -> list[list[float | None]]:
    """Rows of weights, None where a key is not allowed."""
    return [
        [None if hidden else float(value) for value, hidden in zip(row, mask, strict=True)]
        for row, mask in zip(np.ma.getdata(weights), np.ma.getmaskarray(weights), strict=True)
    ]
