"""Files as numbered lines of text, each decoded or with what is wrong with it.

Files are read line by line, so their size does not matter.
"""

from __future__ import annotations

import codecs
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import resources
from io import BufferedReader
from pathlib import Path
from typing import cast

from attnviz.errors import InputError, system_errors

LONGEST_LINE = 1 << 20
"""Bytes of a line; more is no sentence."""
LONGEST_FILE = 64 << 20
"""Bytes of a file that is one text."""


class Problem(str):
    """What is wrong, in place of a text."""


@contextmanager
def open_bytes(name: str) -> Iterator[BufferedReader]:
    """A file or pipe for reading bytes; ``-`` is standard input, which stays open."""
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
    return Problem("no text: it holds zero bytes") if b"\0" in start else None


def lines(name: str) -> Iterator[tuple[int, str]]:
    """The lines of a file that are not blank, from 1, without their ends; or a :class:`Problem`."""
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


def sound(line: str, place: str) -> str:
    """What was read; InputError where it is a :class:`Problem`."""
    if isinstance(line, Problem):
        raise InputError(f"{place} is {line}")
    return line


def shown(name: str) -> str:
    """A file for people."""
    return "standard input" if name == "-" else name


def whole_number(text: str) -> int | None:
    """A whole number from 0 in decimal digits; None for other text and for more than 18 digits."""
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
