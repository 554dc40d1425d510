"""Numbers for other programs: rows of heads and maps, as CSV, JSON, arrays and tables of others."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.heads import Head, Layout
from attnviz.core.provenance import Made
from attnviz.core.result import Interval
from attnviz.core.scores import HeadScores
from attnviz.core.tokens import Sides
from attnviz.errors import UsageError, encodable, install

Row = dict[str, Any]  # a line of a table: values by the names of their columns
Map = NDArray[np.floating[Any]]


HEAD = ("layer", "index", "head")
"""The columns that say which head a row is of, in every table that has heads."""


def which_head(layout: Layout, *heads: Head) -> Row:
    """Return the columns of :data:`HEAD`, and ``stack`` before them where the model has several."""
    (head,) = heads if len(heads) == 1 else (None,)
    row: Row = {} if len(layout.kinds) == 1 else {"stack": head and head.site.kind}
    layer, index = (None, None) if head is None else (head.layer, head.index)
    if layout.mean:  # which has no layer, or no number in it, of its own
        layer = layer if layout.mean == "heads" else None
        index = index if layout.mean == "layers" else None
    row |= {"layer": layer, "index": index}
    return row | {"head": head and layout.name(head)}


def spread(name: str, estimate: Interval | None) -> Row:
    """Return an estimate in three columns: its value, and the ends of its interval."""
    return {
        name: estimate and estimate.value,
        f"{name}_low": estimate and estimate.low,
        f"{name}_high": estimate and estimate.high,
    }


def head_rows(heads: Sequence[HeadScores], layout: Layout) -> list[Row]:
    """Return a row a head: four columns for each score, None where undefined."""
    return [
        {
            **head_cells(scores, layout),
            "roles": " ".join(role.title.replace(" ", "") for role in scores.roles),
            **{
                f"{name}.{part}": getattr(score, part)
                for name, score in scores.scores.items()
                for part in ("mean", "chance", "lift", "rows")
            },
        }
        for scores in heads
    ]


def head_cells(scores: HeadScores, layout: Layout) -> Row:
    """Which head it is, what it does and where it rests."""
    return {
        **which_head(layout, scores.head),
        "does": scores.does.title if scores.does else None,
        "rests": scores.rests.name if scores.rests else None,
    }


def as_csv(rows: Sequence[Row], columns: Sequence[str] = (), made: Made | None = None) -> str:
    """Write rows as CSV under their names; an apostrophe is before what a sheet would run."""
    if made is not None:
        columns = [*columns, "made"]
        rows = [{**row, "made": "" if n else made.line()} for n, row in enumerate(rows)]
    out = io.StringIO()
    names = dict.fromkeys(name for row in rows for name in row) or columns
    writer = csv.DictWriter(out, list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _inert(value) for name, value in row.items()} for row in rows)
    return out.getvalue()


def lines(rows: Sequence[Row]) -> list[list[str]]:
    """Write rows as texts under their names, for a page to save; nothing of no row."""
    texts = [["" if value is None else str(value) for value in row.values()] for row in rows]
    return [[*rows[0]], *texts] if rows else []


def _inert(value: Any) -> Any:
    """Return a cell that no spreadsheet takes for a formula."""
    formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if formula else value


def frame(rows: Any) -> Any:
    """Rows, or columns by name, as a ``pandas.DataFrame``; UsageError without pandas."""
    return _library("pandas", "pandas").DataFrame(_encodable(rows))


def polars_frame(rows: Any) -> Any:
    """Return the same as a ``polars.DataFrame``; UsageError without polars."""
    polars = _library("polars", "polars")
    named = columns(rows)
    return polars.DataFrame({name: _listed(values) for name, values in named.items()}, strict=False)


def dataset(rows: Any) -> Any:
    """Put rows into an ``xarray.Dataset``: measured numbers are variables, others coordinates."""
    xarray = _library("xarray", "xarray")
    named = {name: _listed(values) for name, values in columns(rows).items()}
    measured = [name for name, values in named.items() if _measured(values)]
    numbers = {
        name: ("row", [math.nan if value is None else float(value) for value in named[name]])
        for name in measured
    }
    texts = {name: ("row", _texts(named[name])) for name in named if name not in measured}
    return xarray.Dataset(numbers, coords=texts)


def parquet(rows: Any, names: Iterable[str] = (), made: Made | None = None) -> bytes:
    """Return the same as a Parquet file; UsageError without pyarrow."""
    arrow = _library("pyarrow", "attnviz[parquet]")
    write_table = import_module("pyarrow.parquet").write_table
    named = columns(rows) or {name: [] for name in names}
    out = io.BytesIO()
    table = arrow.table({name: _same(_listed(values)) for name, values in named.items()})
    if made is not None:
        table = table.replace_schema_metadata({"attnviz": json.dumps(made.to_dict())})
    write_table(table, out)
    return out.getvalue()


def columns(rows: Any) -> dict[str, Sequence[Any]]:
    """Rows as columns by name; columns as they are."""
    if isinstance(rows, Mapping):
        return dict(rows)
    rows = _encodable(rows)
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _encodable(rows: Any) -> Any:
    """Spell half characters in rows, which no table of a library can hold; columns as they are."""
    if isinstance(rows, Mapping):
        return rows
    return [
        {name: encodable(value) if isinstance(value, str) else value for name, value in row.items()}
        for row in rows
    ]


def _library(name: str, package: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise UsageError(
            f"{name} is not installed; {install(package)}, or use to_records()"
        ) from None


def _listed(values: Any) -> list[Any]:
    """Plain Python values: NumPy's as theirs."""
    return values.tolist() if hasattr(values, "tolist") else [_plain(value) for value in values]


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _same(values: list[Any]) -> list[Any]:
    """Values of one type: whole numbers among others become floats, anything else text."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) <= 1 and not kinds & {tuple, list, dict}:
        return values
    if kinds <= {int, float}:
        return [None if value is None else float(value) for value in values]
    return [None if value is None else str(value) for value in values]


def _measured(values: list[Any]) -> bool:
    kinds = {type(value) for value in values if value is not None}
    return float in kinds and kinds <= {int, float}


def _texts(values: list[Any]) -> list[Any]:
    kinds = {type(value) for value in values}
    return values if kinds in ({int}, {bool}) else ["" if v is None else str(v) for v in values]


MAP_SUFFIXES = (".csv", ".json", ".npz", ".safetensors")
MAPS_SCHEMA = "attnviz.maps/1"


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
        rows = [row for map_ in maps for row in _map_rows(map_, layout, quantity)]
        columns = (*which_head(layout), "query", "key", "query_token", "key_token", quantity)
        return encodable(as_csv(rows, columns, made)).encode()
    if suffix == ".json":
        document = {
            "schema": MAPS_SCHEMA,
            "made": None if made is None else made.line(),
            "quantity": quantity,
            **about,
            "maps": [
                {
                    "head": map_.name,
                    "queries": list(map_.sides.queries.texts),
                    "keys": list(map_.sides.keys.texts),
                    "positions": dict(
                        zip(("queries", "keys"), map(list, map_.axes()), strict=True)
                    ),
                    "weights": np.ma.asarray(map_.weights).tolist(),
                }
                for map_ in maps
            ],
        }
        text = json.dumps(document, ensure_ascii=False, allow_nan=False)
        return encodable(f"{text}\n").encode()
    axes = {(map_.sides.queries.texts, map_.sides.keys.texts) for map_ in maps}
    if len(axes) > 1:
        raise UsageError("maps of several kinds of attention share no tokens; select those of one "
                         "kind for a {} file", suffix)  # fmt: skip
    return arrays_bytes(
        {map_.name: np.ma.filled(map_.weights, 0) for map_ in maps}, maps[0].sides, suffix
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


def _map_rows(map_: NamedMap, layout: Layout, quantity: str) -> list[Row]:
    """Return a row for each weight of a key that is allowed."""
    queries, keys = map_.axes()
    head, values = which_head(layout, map_.head), np.ma.getdata(map_.weights)
    return [
        {
            **head,
            "query": int(queries[row]),
            "key": int(keys[column]),
            "query_token": map_.sides.queries.texts[row],
            "key_token": map_.sides.keys.texts[column],
            quantity: float(values[row, column]),
        }
        for row, column in np.argwhere(~np.ma.getmaskarray(map_.weights))
    ]
