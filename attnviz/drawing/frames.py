"""Rows as the tables of other libraries: pandas, polars, xarray, Parquet; each where installed."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

from attnviz.core.made import Made
from attnviz.errors import UsageError, install


def frame(rows: Any) -> Any:
    """Rows, or columns by name, as a ``pandas.DataFrame``; UsageError without pandas."""
    return _library("pandas", "pandas").DataFrame(rows)


def polars_frame(rows: Any) -> Any:
    """The same as a ``polars.DataFrame``; UsageError without polars."""
    polars = _library("polars", "polars")
    named = columns(rows)
    return polars.DataFrame({name: _listed(values) for name, values in named.items()}, strict=False)


def dataset(rows: Any) -> Any:
    """The same as an ``xarray.Dataset`` with a dimension ``row``; UsageError without xarray.

    Texts and flags are coordinates, whole numbers among the first columns too; numbers that were
    measured are variables. What is not known is NaN.
    """
    xarray = _library("xarray", "xarray")
    named = {name: _listed(values) for name, values in columns(rows).items()}
    measured = {name for name, values in named.items() if _measured(values)}
    return xarray.Dataset(
        {name: ("row", _floats(named[name])) for name in named if name in measured},
        coords={name: ("row", _texts(named[name])) for name in named if name not in measured},
    )


def parquet(rows: Any, names: Iterable[str] = (), made: Made | None = None) -> bytes:
    """The same as a Parquet file; UsageError without pyarrow.

    Args:
        rows: see above.
        names: of columns, where there may be no row.
        made: what made the file, into its metadata under ``attnviz``.
    """
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
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


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


def _floats(values: list[Any]) -> list[float]:
    return [float("nan") if value is None else float(value) for value in values]


def _texts(values: list[Any]) -> list[Any]:
    kinds = {type(value) for value in values}
    return values if kinds in ({int}, {bool}) else ["" if v is None else str(v) for v in values]
