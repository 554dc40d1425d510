"""Texts in tasks: what a worker does at a time.

The tasks depend on the texts alone: not on how many processes there are, on what is done already,
or on which other files there are, for a task never holds texts of two files. So a corpus that ran
in parts, file by file, formed the same tasks and the same batches, and gives the same bits.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.split import same_text
from attnviz.corpus.texts import WINDOW, InvalidRecord, Text

SEGMENT = 1 << 16  # characters of a text that a task holds; longer ones are cut between words
_NUMBER = re.compile(r":\d+\Z|\Atext \d+\Z")  # of a line in its file; of a text in memory


@dataclass(frozen=True, eq=False, slots=True)
class Piece:
    """A text, or a part of a long one."""

    text: Text  # what to run, with the part's words in its prompt
    key: int  # a hash that tells the text from all others
    part: int = 0  # the number of the part, from 0

    @property
    def cluster(self) -> str:
        """What rows belong to that are not independent: the text's group, or the text itself."""
        return self.text.group or f"{self.key:016x}"

    @property
    def content(self) -> int:
        """Hash a piece's words, whatever case and space, to 64 bits that add up over a text."""
        p = self.text.prompt
        words: list[Any] = [self.part, p.text, p.pair, p.target, *self.text.sensed]
        words += [p.chat] if p.chat is not None else []
        normalized = same_text(json.dumps(words, ensure_ascii=False).replace("\\n", " ")).encode(
            "utf-8", "surrogatepass"
        )
        return int.from_bytes(hashlib.blake2b(normalized, digest_size=8).digest(), "little")


@dataclass(frozen=True, eq=False, slots=True)
class ProfileTask:
    """Some pieces that run together."""

    pieces: tuple[Piece, ...]  # of one file
    bad: tuple[InvalidRecord, ...] = ()  # what could not be read on the way to them

    @property
    def digest(self) -> bytes:
        """What tells this task from others: a hash of its texts and their places."""
        parts = [f"{p.text.place}\0{p.part}\0{p.text.digest}" for p in self.pieces]
        parts += [f"{bad.place}\0{bad.reason}" for bad in self.bad]
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()


def tasks(texts: Iterable[Text | InvalidRecord], segment: int = SEGMENT) -> Iterator[ProfileTask]:
    """Cut texts into tasks, in their order, of pieces of at most ``segment`` characters."""
    pieces: list[Piece] = []
    bad: list[InvalidRecord] = []
    size, file = 0, ""
    for text in texts:
        source = _NUMBER.sub("", text.place)
        if (pieces or bad) and (source != file or len(pieces) >= WINDOW or size >= segment):
            yield ProfileTask(tuple(pieces), tuple(bad))
            pieces, bad, size = [], [], 0
        file = source
        if isinstance(text, InvalidRecord):
            bad.append(text)
            continue
        for piece in _pieces(text, segment):
            if size and size + len(piece.text.text) > segment:
                yield ProfileTask(tuple(pieces), tuple(bad))
                pieces, bad, size = [], [], 0
            pieces.append(piece)
            size += len(piece.text.text)
    if pieces or bad:
        yield ProfileTask(tuple(pieces), tuple(bad))


def _pieces(text: Text, segment: int) -> Iterator[Piece]:
    """Yield a text in parts of at most so many characters."""
    key = key_of(text)
    content = text.text
    if len(content) <= segment or text.prompt.chat is not None:
        yield Piece(text, key)
        return
    start = part = 0
    while start < len(content):
        end = min(start + segment, len(content))
        if end < len(content):
            space = max(content.rfind(mark, start + 1, end) for mark in (" ", "\n"))
            end = space if space > 0 else end
        words = content[start:end]
        if words.strip():
            yield Piece(replace(text, prompt=text.prompt.cut_to(words)), key, part)
            part += 1
        start = end


def key_of(text: Text) -> int:
    """Hash a text, its file's name and its line to 64 bits, wherever the folder stands."""
    name = re.split(r"[/\\]", text.place)[-1]
    identity = f"{name}\0{text.digest}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(identity, digest_size=8).digest(), "little")


def mixed(key: int, rows: NDArray[np.integer[Any]]) -> NDArray[np.uint64]:
    """64 random bits for each row of a text: the finalizer of SplitMix64 (Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        z = np.uint64(key) + (rows.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
