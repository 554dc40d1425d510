"""Files as numbered lines, and as rows of named fields: text, CSV, TSV and Parquet."""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import resources
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from attnviz.errors import InputError, UsageError, missing, system_errors
from attnviz.files import human_bytes

LONGEST_LINE = 1 << 20
"""Bytes of a line; more is no sentence."""
LONGEST_FILE = 64 << 20
"""Bytes of a file that is one text."""


class Problem(str):
    """What is wrong, in place of a text."""


@contextmanager
def open_bytes(name: str) -> Iterator[BufferedReader]:
    """Open a file or pipe for reading bytes; ``-`` is standard input, which stays open."""
    with system_errors(InputError, f"cannot read {name}"):
        if name != "-":
            mode = os.stat(name).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISDIR(mode)):
                raise InputError(f"{name} is neither a file nor a pipe; name one of these")
            with open(name, "rb") as file:
                yield file
        elif sys.stdin is None:
            raise InputError("standard input is closed; name a file")
        else:
            yield cast("BufferedReader", sys.stdin.buffer)


def no_text(file: BufferedReader) -> Problem | None:
    """Why a file is no UTF-8, as far as its beginning tells."""
    start = file.peek(1024)[:1024]
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return Problem("UTF-16; save the file as UTF-8")
    if start.startswith(b"\x1f\x8b"):
        return Problem("compressed by gzip; unpack it")
    return Problem("no text: it holds zero bytes") if b"\0" in start else None


def lines(name: str) -> Iterator[tuple[int, str]]:
    """Yield a file's lines that are not blank, from 1, without ends; or a :class:`Problem`."""
    with open_bytes(name) as file:
        if problem := no_text(file):
            yield 1, problem
            return
        number = 0
        while line := file.readline(LONGEST_LINE + 1):
            number += 1
            fits = len(line) <= LONGEST_LINE
            while len(line) > LONGEST_LINE and not line.endswith(b"\n"):
                line = file.readline(LONGEST_LINE + 1)
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            text = decoded(line.rstrip(b"\r\n"))
            if not fits:
                yield number, Problem(f"longer than {LONGEST_LINE >> 20} MiB")
            elif text.strip():
                yield number, text


def objects(name: str, fault: str) -> Iterator[tuple[str, Any]]:
    """Yield the place and the JSON value of each line of a file.

    InputError where one is none, which says that it is ``fault``: ``no JSON; write ...``.
    """
    for number, line in lines(name):
        origin = f"{shown(name)}:{number}"
        try:
            value = json.loads(sound(line, origin))
        except (ValueError, RecursionError):
            raise InputError(f"{origin} is {fault}") from None
        yield origin, value


def whole(name: str) -> str:
    """All of a file as one text, or a :class:`Problem`."""
    with open_bytes(name) as file:
        if problem := no_text(file):
            return problem
        data = file.read(LONGEST_FILE + 1)
    if len(data) > LONGEST_FILE:
        return Problem(f"longer than {LONGEST_FILE >> 20} MiB")
    return decoded(data.removeprefix(codecs.BOM_UTF8))


def text(name: str) -> str:
    """All of a file as one text."""
    return sound(whole(name), shown(name))


def sound(line: str, origin: str) -> str:
    """Return what was read; InputError where it is a :class:`Problem`."""
    if isinstance(line, Problem):
        raise InputError(f"{origin} is {line}")
    return line


def shown(name: str) -> str:
    """Return a file for people."""
    return "standard input" if name == "-" else name


def whole_number(text: str) -> int | None:
    """Read a whole number from 0 in decimal digits; None for others and for more than 18 digits."""
    return int(text) if text.isdecimal() and len(text) <= 18 else None


def decoded(data: bytes) -> str:
    """UTF-8 as text, or a :class:`Problem` that names the first byte that is none."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        byte = data[error.start]
        return Problem(f"not UTF-8 (byte {error.start} is 0x{byte:02x}); save the file as UTF-8")


def line_count(name: str) -> int | None:
    """About how many lines a file has, 1 at least; None where nobody knows."""
    if not Path(name).is_file():  # standard input or a pipe, which can be read only once
        return None
    with open_bytes(name) as file:
        return max(sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b"")), 1)


@cache
def sentences() -> tuple[str, ...]:
    """Plain English, none of it in other files of attnviz."""
    text = resources.files(__package__).joinpath("sentences.txt").read_text("utf-8")
    return tuple(text.splitlines())


USUAL = ("text", "sentence")
"""The columns that hold the text where none is named."""
FIELDS = ("text", "id", "pair", "target")
"""What a JSONL object or a table's columns can hold; all but the first may be missing."""


class Columns(NamedTuple):
    """What columns of a table, or fields of an object, are called where a caller says it."""

    text: str | None = None
    group: str | None = None

    def fields(self) -> dict[str, str]:
        """Return the fields of a text, and what each is called."""
        named = {field: field for field in FIELDS}
        named |= {field: name for field, name in self._asdict().items() if name is not None}
        return named

    def among(self, titles: Sequence[str], name: str) -> dict[str, str]:
        """Return the fields that a file has columns for, and their titles; one holds the text."""
        chosen = self.text or next((title for title in USUAL if title in titles), None)
        if chosen is None and len(titles) == 1:
            chosen = titles[0]
        choices = ", ".join(titles)[:200]
        if chosen is None or chosen not in titles:
            fault = "which column of" if self.text is None else f"no column {self.text!r} in"
            raise UsageError("{} {}: choose {column} from {}", fault, name, choices, column=...)
        if self.group is not None and self.group not in titles:
            raise UsageError(
                "no column {!r} in {}: choose {group} from {}", self.group, name, choices, group=...
            )
        return {f: title for f, title in self.fields().items() if title in titles} | {
            "text": chosen
        }


def table_rows(
    file: BinaryIO, name: str, delimiter: str, columns: Columns
) -> Iterator[tuple[int, dict[str, object] | Problem]]:
    """Line numbers, and the fields of each row or what is wrong with it."""
    text = io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape", newline="")
    first = text.readline()
    if delimiter not in first and ";" in first:
        delimiter = ";"
    rows = csv.reader(chain([first], text), delimiter=delimiter, strict=True)
    header = next(_safely(rows), None)
    if not isinstance(header, list) or not header:
        yield 1, Problem("no header; the first line must name the columns")
        return
    titles = [title.strip() for title in header]
    twice = next((title for title in titles if titles.count(title) > 1), None)
    if twice is not None:
        yield 1, Problem(f"two columns {twice!r}; rename one")
        return
    places = {f: titles.index(title) for f, title in columns.among(titles, name).items()}
    for row in _safely(rows):
        line = rows.line_num
        if isinstance(row, Problem):
            yield line, row
        elif not row:
            continue
        elif len(row) <= max(places.values()) or any(row[len(titles) :]):
            yield line, Problem(f"{len(row)} columns instead of {len(titles)}")
        elif any("\udc80" <= char <= "\udcff" for value in row for char in value):
            yield line, Problem("not UTF-8; save the file as UTF-8")
        else:
            yield line, {field: row[index] for field, index in places.items()}


def _safely(rows: Iterator[list[str]]) -> Iterator[list[str] | Problem]:
    """Yield the rows, with the reason in place of one that cannot be read."""
    while True:
        try:
            yield next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield Problem(f"not a table row ({error})")


_ROWS = 1024  # rows that are read at a time
_BYTES = 1 << 30  # what they take at most, unless a single one takes more
_PACKED = 100  # how many times smaller a column that takes more than these may be packed


def parquet_rows(name: str, columns: Columns) -> Iterator[tuple[int, dict[str, object] | Problem]]:
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
            places = columns.among(file.schema_arrow.names, name)
            titles = sorted(set(places.values()))
            number = 0
            for batch in file.iter_batches(_at_once(name, file, titles), columns=titles):
                cells = {title: _cells(batch[title]) for title in titles}
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
    """Get the values of a column, and what is wrong with those that are no text or far too long."""
    from pyarrow import compute, types

    if types.is_dictionary(column.type):
        codes = column.indices.unique().drop_null()
        values = dict(zip(codes.to_pylist(), _cells(column.dictionary.take(codes)), strict=True))
        return [None if index is None else values[index] for index in column.indices.to_pylist()]
    if types.is_nested(column.type):
        problem = Problem(f"a cell is no text ({str(column.type)[:40]})")
        return [problem if valid else None for valid in column.is_valid().to_pylist()]
    longest = compute.max(compute.binary_length(column)).as_py() if _is_text(column.type) else 0
    if (longest or 0) <= LONGEST_LINE:
        with suppress(ValueError, OverflowError):  # one of them cannot be read
            return column.to_pylist()
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
