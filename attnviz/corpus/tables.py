"""CSV and TSV as rows of named fields."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import BinaryIO

from attnviz.errors import UsageError

USUAL = ("text", "sentence")
"""The columns that hold the text where none is named."""


def table_rows(
    file: BinaryIO,
    name: str,
    delimiter: str,
    column: str | None,
    group: str | None,
    fields: Mapping[str, str],
) -> Iterator[tuple[int, dict[str, str] | str]]:
    """Line numbers, and the fields of each row or what is wrong with it."""
    text = io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape", newline="")
    first = text.readline()
    if delimiter not in first and ";" in first:
        delimiter = ";"
    rows = csv.reader(chain([first], text), delimiter=delimiter, strict=True)
    header = next(_safely(rows), None)
    if not isinstance(header, list) or not header:
        yield 1, "no header; the first line must name the columns"
        return
    columns = [title.strip() for title in header]
    twice = next((title for title in columns if columns.count(title) > 1), None)
    if twice is not None:
        yield 1, f"two columns {twice!r}; rename one"
        return
    chosen = text_column(columns, name, column, group)
    places = {field: columns.index(title) for field, title in fields.items() if title in columns}
    places["text"] = columns.index(chosen)
    for row in _safely(rows):
        line = rows.line_num
        if isinstance(row, str):
            yield line, row
        elif not row:
            continue
        elif len(row) <= max(places.values()) or any(row[len(columns) :]):
            yield line, f"{len(row)} columns instead of {len(columns)}"
        elif any("\udc80" <= char <= "\udcff" for value in row for char in value):
            yield line, "not UTF-8; save the file as UTF-8"
        else:
            yield line, {field: row[place] for field, place in places.items()}


def text_column(columns: Sequence[str], name: str, column: str | None, group: str | None) -> str:
    """The column that holds the text."""
    chosen = column or next((title for title in USUAL if title in columns), None)
    if chosen is None and len(columns) == 1:
        chosen = columns[0]
    if chosen is None or chosen not in columns:
        wanted = "which column of" if column is None else f"no column {column!r} in"
        shown = ", ".join(columns)[:200]
        raise UsageError("{} {}: choose {column} from {}", wanted, name, shown, column=...)
    if group is not None and group not in columns:
        shown = ", ".join(columns)[:200]
        raise UsageError(
            "no column {!r} in {}: choose {group} from {}", group, name, shown, group=...
        )
    return chosen


def _safely(rows: Iterator[list[str]]) -> Iterator[list[str] | str]:
    """The rows, with the reason in place of one that cannot be read."""
    while True:
        try:
            yield next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield f"not a table row ({error})"
