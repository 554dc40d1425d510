"""Parquet as rows of named fields, through pyarrow where it is installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attnviz.corpus.tables import text_column
from attnviz.errors import InputError, UsageError

_ROWS = 1024
"""Rows that are read at a time."""


def parquet_rows(
    name: str, column: str | None, group: str | None, fields: Mapping[str, str]
) -> Iterator[tuple[int, dict[str, object]]]:
    """Row numbers from 1, and the fields of each row.

    Args:
        name: of the file.
        column: which column holds the text; see :func:`~attnviz.corpus.tables.text_column`.
        group: which column must be there beside it.
        fields: what to pick out, and from which columns; those that are not there are left out.

    Raises:
        UsageError: pyarrow is not installed; no such column, or none that could hold the text.
        InputError: the file cannot be read.
    """
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        raise UsageError(f"{name} needs pyarrow; install attnviz[parquet]") from None
    try:
        with parquet.ParquetFile(name) as file:
            columns = file.schema_arrow.names
            chosen = text_column(columns, name, column, group)
            places = {field: title for field, title in fields.items() if title in columns}
            places["text"] = chosen
            number = 0
            for batch in file.iter_batches(_ROWS, columns=sorted(set(places.values()))):
                for row in batch.to_pylist():
                    number += 1
                    yield number, {field: row[title] for field, title in places.items()}
    except (OSError, arrow.ArrowException) as error:
        raise InputError(f"cannot read {name}: {' '.join(str(error).split())[:200]}") from None
