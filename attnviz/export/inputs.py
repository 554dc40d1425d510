"""What an export reads: lines of text, JSONL, CSV, standard input, recorded attention.

A bad line becomes a :class:`Bad` with its place, never an exception: what to do about it is the
caller's business. Files are read line by line, so their size does not matter.
"""

from __future__ import annotations

import codecs
import glob
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from io import BufferedReader
from pathlib import Path
from typing import cast

from attnviz.errors import InputError, UsageError
from attnviz.export.tables import table_rows
from attnviz.models import recorded
from attnviz.models.recorded import SUFFIXES
from attnviz.records import Capture, Prompt

LONGEST_LINE = 1 << 20
"""Bytes of a line; more is no sentence."""
_TABLES = {".csv": ",", ".tsv": "\t"}
_JSON = (".jsonl", ".ndjson")
FIELDS = ("text", "id", "pair", "context", "target")
"""What a JSONL object or a table's columns can hold; all but the first may be missing."""


@dataclass(frozen=True, eq=False)
class Item:
    """One input.

    Attributes:
        number: from 1, over all inputs, good or bad.
        place: file and line, for people.
        name: its ``id``, if it has one.
        prompt: what to run; None for recorded attention.
        capture: recorded attention.
    """

    number: int
    place: str
    name: str | None = None
    prompt: Prompt | None = None
    capture: Capture | None = None

    @property
    def text(self) -> str:
        """The text, or the tokens of recorded attention in a row."""
        if self.prompt is not None:
            return self.prompt.text or ""
        assert self.capture is not None
        sides = next(iter(self.capture.inputs.sides.values()))
        return " ".join(sides.queries.texts)

    @cached_property
    def digest(self) -> str:
        """What tells this input from another: a hash of everything in it."""
        found = hashlib.sha256()
        if self.prompt is not None:
            p = self.prompt
            found.update(json.dumps([self.name, p.text, p.pair, p.context, p.target]).encode())
        else:
            assert self.capture is not None
            found.update(json.dumps([self.name, self.text]).encode())
            for weights in self.capture.maps.values():
                found.update(weights.tobytes())
        return found.hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Bad:
    """An input that cannot be used, and why."""

    number: int
    place: str
    reason: str


def resolve(names: Sequence[str]) -> list[str]:
    """The files meant by paths and patterns; ``-`` is standard input.

    Raises:
        InputError: no such file, a folder, or a pattern that fits nothing.
        UsageError: nothing was named, or standard input twice.
    """
    if not names:
        raise UsageError("nothing to export; name a text file, JSONL, CSV or - for standard input")
    if list(names).count("-") > 1:
        raise UsageError("- (standard input) can be given only once")
    found = []
    for name in names:
        if not name:
            raise UsageError("an empty file name; name a text file, JSONL, CSV or - for stdin")
        if Path(name).is_dir():
            raise InputError(f"{name} is a folder; name the files in it, such as '{name}/*.txt'")
        if name == "-" or Path(name).exists():
            found.append(name)
            continue
        matches = sorted(m for m in glob.glob(name, recursive=True) if Path(m).is_file())
        if not matches:
            missing = "no file matches" if glob.has_magic(name) else "there is no file"
            raise InputError(f"{missing} {name}; check the path")
        found += matches
    return found


def check(names: Sequence[str], *, column: str | None, recorded: bool) -> None:
    """Raise UsageError where options and files do not go together.

    Args:
        names: from :func:`resolve`.
        column: the column with the text, for tables.
        recorded: whether the files are to be recorded attention.
    """
    suffixes = {Path(name).suffix.lower(): name for name in names}
    if column is not None and not suffixes.keys() & _TABLES.keys():
        raise UsageError(f"--column {column} needs a .csv or .tsv file; leave it out")
    found = next((suffixes[suffix] for suffix in SUFFIXES if suffix in suffixes), None)
    if found is not None and not recorded:
        raise UsageError(f"{found} looks like recorded attention; add --recorded")


def read(names: Sequence[str], column: str | None = None) -> Iterator[Item | Bad]:
    """Every input in some files, in order.

    Args:
        names: from :func:`resolve`.
        column: the column with the text, for tables.

    Raises:
        InputError: a file cannot be opened; UsageError: a table has no such column.
    """
    number = 0
    for name in names:
        shown = "standard input" if name == "-" else name
        suffix = Path(name).suffix.lower()
        if suffix in _TABLES:
            found = _table(name, _TABLES[suffix], column)
        elif suffix in _JSON:
            found = _json_lines(name)
        else:
            found = _lines(name)
        for line, values in found:
            number += 1
            yield _item(number, f"{shown}:{line}", values)


def read_recorded(names: Sequence[str]) -> Iterator[Item | Bad]:
    """Every item of recorded attention in some files.

    Raises:
        InputError: nothing here; what is wrong with a file becomes a :class:`Bad`.
    """
    number = 0
    for name in names:
        for index, found in enumerate(recorded.load_all(Path(name))):
            number += 1
            if isinstance(found, InputError):
                yield Bad(number, name, str(found).removeprefix(f"cannot read {name}: "))
            else:
                yield Item(number, f"{name}:{index}", capture=found)


def count(names: Sequence[str]) -> int | None:
    """About how many inputs there are, for showing progress; None where nobody knows."""
    total = 0
    for name in names:
        if not Path(name).is_file():  # standard input or a pipe, which can be read only once
            return None
        with _open(name) as file:
            while block := file.read(1 << 20):
                total += block.count(b"\n")
    return max(total, len(names))


def _open(name: str) -> AbstractContextManager[BufferedReader]:
    if name == "-":
        if sys.stdin is None:
            raise InputError("standard input is closed; name a file")
        return nullcontext(cast("BufferedReader", sys.stdin.buffer))
    try:
        return open(name, "rb")
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror or error}") from None


def _no_text(file: BufferedReader) -> str | None:
    """Why a file is none of lines of UTF-8, as far as its beginning tells."""
    start = file.peek(1024)[:1024]
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16; save the file as UTF-8"
    return "no text: it holds zero bytes" if b"\0" in start else None


class _Problem(str):
    """What is wrong with a line, in place of its text."""


def _decoded(name: str) -> Iterator[tuple[int, str]]:
    """Numbered lines without their ends as text, or as a :class:`_Problem`."""
    with _open(name) as file:
        if problem := _no_text(file):
            yield 1, _Problem(problem)
            return
        number = 0
        while line := file.readline(LONGEST_LINE + 1):
            number += 1
            whole = len(line) <= LONGEST_LINE
            while len(line) > LONGEST_LINE and not line.endswith(b"\n"):
                line = file.readline(LONGEST_LINE + 1)
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            text = _text(line.rstrip(b"\r\n"))
            yield number, text if whole else _Problem(f"longer than {LONGEST_LINE >> 20} MiB")


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        byte = line[error.start]
        return _Problem(f"not UTF-8 (byte {error.start} is 0x{byte:02x}); save the file as UTF-8")


def _lines(name: str) -> Iterator[tuple[int, dict[str, object] | str]]:
    for number, line in _decoded(name):
        if isinstance(line, _Problem):
            yield number, line
        elif line.strip():
            yield number, {"text": line}


def _json_lines(name: str) -> Iterator[tuple[int, dict[str, object] | str]]:
    for number, line in _decoded(name):
        if isinstance(line, _Problem):
            yield number, line
        elif line.strip():
            try:
                value = json.loads(line)
            except json.JSONDecodeError as error:
                yield number, f"not JSON ({error.msg} at character {error.pos + 1})"
                continue
            except (ValueError, RecursionError) as error:  # a number or a nesting beyond limits
                yield number, f"not JSON ({str(error)[:80]})"
                continue
            if not isinstance(value, dict):
                yield number, 'not an object such as {"text": "..."}'
            else:
                yield number, {field: value.get(field) for field in FIELDS}


def _table(
    name: str, delimiter: str, column: str | None
) -> Iterator[tuple[int, dict[str, object] | str]]:
    with _open(name) as file:
        if problem := _no_text(file):
            yield 1, problem
        else:
            yield from table_rows(file, name, delimiter, column, FIELDS)


def _item(number: int, place: str, values: dict[str, object] | str) -> Item | Bad:
    """An input from its fields, or what is wrong with them."""
    if isinstance(values, str):
        return Bad(number, place, values)
    name = values.get("id")
    if isinstance(name, int) and not isinstance(name, bool):
        name = str(name)
    texts: dict[str, str | None] = {}
    for field in FIELDS:
        value = name if field == "id" else values.get(field)
        shown = "the text" if field == "text" else repr(field)
        if value is None and field != "text":
            texts[field] = None
        elif not isinstance(value, str):
            kind = "missing" if value is None else f"no text ({json.dumps(value)[:40]})"
            return Bad(number, place, f"{shown} is {kind}")
        else:
            texts[field] = value
            try:
                value.encode()
            except UnicodeEncodeError:
                return Bad(number, place, f"{shown} is not valid Unicode")
            if not value.strip() and field != "id":
                return Bad(number, place, f"{shown} is empty")
    prompt = Prompt(
        texts["text"], pair=texts["pair"], context=texts["context"], target=texts["target"]
    )
    return Item(number, place, texts["id"], prompt)
