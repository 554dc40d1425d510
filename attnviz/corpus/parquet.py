"""Parquet as rows of named fields, through pyarrow where it is installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from attnviz.corpus.lines import LONGEST_LINE, Problem
from attnviz.corpus.tables import text_column
from attnviz.errors import InputError, missing
from attnviz.files import human_bytes

_ROWS = 1024
"""Rows that are read at a time."""
_BYTES = 1 << 30
"""What they take at most, unless a single one takes more."""
_PACKED = 100
"""How many times smaller a column that takes more than these may be packed."""


def parquet_rows(
    name: str, column: str | None, group: str | None, fields: Mapping[str, str]
) -> Iterator[tuple[int, dict[str, object] | Problem]]:
    """Row numbers from 1, and the fields of each row or what is wrong with it.

    A cell has as many bytes as a line at most, and longer ones are never made a string.
    """
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        raise missing("pyarrow", name) from None
    try:
        with parquet.ParquetFile(name) as file:
            columns = file.schema_arrow.names
            chosen = text_column(columns, name, column, group)
            places = {field: title for field, title in fields.items() if title in columns}
            places["text"] = chosen
            wanted = sorted(set(places.values()))
            number = 0
            for batch in file.iter_batches(_at_once(name, file, wanted), columns=wanted):
                cells = {title: _cells(batch[title]) for title in wanted}
                for row in range(len(batch)):
                    number += 1
                    values = {field: cells[title][row] for field, title in places.items()}
                    wrong = (value for value in values.values() if isinstance(value, Problem))
                    yield number, next(wrong, values)
    except (OSError, arrow.ArrowException) as error:
        raise InputError(f"cannot read {name}: {' '.join(str(error).split())[:200]}") from None


def rows(name: str) -> int | None:
    """How many rows a file has, by what it says itself; None where it cannot be read."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        return None
    try:
        return int(parquet.read_metadata(name).num_rows)
    except (OSError, ArrowException):
        return None


def _at_once(name: str, file: Any, columns: Sequence[str]) -> int:
    """Rows to read at a time.

    A string that stands in many rows may be stored once: so many rows are read that even the
    largest column would fit as often, by what the file says of its size.
    """
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    chunks = [group.column(n) for group in groups for n in range(group.num_columns)]
    read = [chunk for chunk in chunks if chunk.path_in_schema.partition(".")[0] in columns]
    for chunk in read:
        size = chunk.total_uncompressed_size
        if size > max(_BYTES, _PACKED * chunk.total_compressed_size):
            packed = human_bytes(chunk.total_compressed_size)
            raise InputError(
                f"cannot read {name}: its column {chunk.path_in_schema[:40]!r} unpacks {packed} to "
                f"{human_bytes(size)}, which no text is"
            )
    sizes: list[int] = [chunk.total_uncompressed_size for chunk in read]
    return max(1, min(_ROWS, _BYTES // max([1, *sizes])))


def _cells(column: Any) -> list[object]:
    """The values of a column, and what is wrong with those that are no text or far too long."""
    from pyarrow import compute, types

    if types.is_dictionary(column.type):
        used = column.indices.unique().drop_null()
        values = dict(zip(used.to_pylist(), _cells(column.dictionary.take(used)), strict=True))
        return [None if place is None else values[place] for place in column.indices.to_pylist()]
    if types.is_nested(column.type):
        problem = Problem(f"a cell is no text ({str(column.type)[:40]})")
        return [problem if valid else None for valid in column.is_valid().to_pylist()]
    longest = compute.max(compute.binary_length(column)).as_py() if _is_text(column.type) else 0
    if (longest or 0) <= LONGEST_LINE:
        with suppress(ValueError, OverflowError):  # one of them cannot be read
            return column.to_pylist()  # type: ignore[no-any-return]
    return [_cell(scalar) for scalar in column]


def _is_text(kind: Any) -> bool:
    """Whether a column holds strings or bytes."""
    from pyarrow import types

    large = types.is_large_string(kind) or types.is_large_binary(kind)
    return bool(large or types.is_string(kind) or types.is_binary(kind))


def _cell(scalar: Any) -> object:
    """One of these."""
    if scalar.is_valid and _is_text(scalar.type) and scalar.as_buffer().size > LONGEST_LINE:
        return Problem(f"longer than {LONGEST_LINE >> 20} MiB")
    try:
        value: object = scalar.as_py()
    except (ValueError, OverflowError) as error:  # no UTF-8, or a day beyond all calendars
        return Problem(f"a cell cannot be read ({' '.join(str(error).split())[:80]})")
    return value
