"""The manifest: one JSON line a file, which proves what is in a folder.

While an export runs, lines go to a journal, each in one write, so that a killed process leaves at
most one torn line, at the end, which is dropped. At the end the lines are put in order into
``manifest.jsonl``, which therefore is always whole. A line holds the file's SHA-256; a file counts
as done only while it still has it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from attnviz import files
from attnviz.core.heads import SITE_KINDS
from attnviz.errors import OutputError
from attnviz.features.export import paths
from attnviz.features.export.paths import LAYOUTS, SAFE

SCHEMA = "attnviz.export/1"
MANIFEST = "manifest.jsonl"
_LONGEST_LINE = 64 << 20  # bytes; the longest text, with its tokens and all escaped, takes less
_LONGEST_NAME = 200
_DAMAGE = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
_ORDER = {layout: place for place, layout in enumerate((*LAYOUTS, "weights"))}
_SITES: dict[str | None, int] = {kind: place for place, kind in enumerate(SITE_KINDS)}


@dataclass(frozen=True, slots=True)
class Entry:
    """What must be known of a line without keeping it: where it is and what it proves."""

    order: tuple[int, int, int, int, int]
    file: str
    digest: str
    sha256: bytes
    together: int
    place: tuple[int, int, int]


class Manifest:
    """The lines of a folder."""

    def __init__(self, folder: Path, journal: Path) -> None:
        self._folder, self._journal = folder, journal
        self._entries: dict[str, Entry] = {}
        self._digests: dict[int, str] = {}
        self._numbers: dict[int, list[Entry]] | None = None
        self._readers: list[BinaryIO] = []
        try:
            if paths.file(folder / MANIFEST).exists():
                self._load(folder / MANIFEST)
            paths.file(journal, single=True).touch()
            self._writer = open(journal, "r+b", buffering=0)  # noqa: SIM115 - closed in close()
            self._end = self._load(journal)
            self._writer.truncate(self._end)
        except OSError as error:
            raise OutputError(f"cannot use {folder}: {error.strerror or error}") from None
        self._source = len(self._readers) - 1

    def __len__(self) -> int:
        return len(self._entries)

    def digest(self, number: int) -> str | None:
        """Return what the input of this number was, if it is known."""
        return self._digests.get(number)

    def text(self, number: int) -> str:
        """Return the text of an input that is known."""
        source, start, size = self._by_number()[number][0].place
        self._readers[source].seek(start)
        return str(json.loads(self._readers[source].read(size))["text"])

    def done(self, file: str, digest: str) -> bool:
        """Whether a file was made from an input."""
        entry = self._entries.get(file)
        return entry is not None and entry.digest == digest

    def complete(self, digest: str, number: int) -> bool:
        """Whether all files of an input are done."""
        mine = self._by_number().get(number, [])
        return (
            bool(mine) and all(e.digest == digest for e in mine) and len(mine) == mine[0].together
        )

    def files_of(self, number: int) -> int:
        """How many files of an input were there at the start."""
        return len(self._by_number().get(number, []))

    def verify(self) -> int:
        """Forget the lines whose file is not there or has changed; returns how many."""
        lost = [
            file
            for file, entry in self._entries.items()
            if _sha256(self._path(file)) != entry.sha256
        ]
        for file in lost:
            del self._entries[file]
        self._digests = {entry.order[0]: entry.digest for entry in self._entries.values()}
        self._numbers = None
        return len(lost)

    def add(self, line: dict[str, Any]) -> None:
        """Take in a line; the file it is about must be there."""
        data = _encoded(line)
        try:
            self._writer.seek(self._end)
            remaining = memoryview(data)
            while remaining:  # a full disk takes a part, and says why only when it is asked again
                remaining = remaining[self._writer.write(remaining) :]
        except OSError as error:
            raise OutputError(
                f"cannot write the journal in {self._folder}: {error.strerror or error}"
            ) from None
        self._keep(line, (self._source, self._end, len(data)))
        self._end += len(data)

    def lines(self) -> Iterator[bytes]:
        """Every line, in order."""
        for entry in sorted(self._entries.values(), key=lambda entry: entry.order):
            source, start, size = entry.place
            self._readers[source].seek(start)
            yield self._readers[source].read(size)

    def finish(self) -> None:
        """Write the manifest in order; OutputError if it cannot be written."""
        files.place(self._folder / MANIFEST, self.lines(), sync=True)

    def forget_journal(self) -> None:
        """Remove the journal, whose lines the manifest has; the last step of an export."""
        self._journal.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the files."""
        for reader in self._readers:
            reader.close()
        self._writer.close()

    def drop(self, number: int) -> None:
        """Remove the files of one input, and forget them."""
        for entry in self._by_number().pop(number, []):
            self._path(entry.file).unlink(missing_ok=True)
            files.remove_empty(self._path(entry.file).parent)
            self._entries.pop(entry.file, None)
        self._digests.pop(number, None)

    def forget(self, number: int, names: Container[str]) -> None:
        """Remove the files of one input that are not among these names, and forget them."""
        for entry in self._by_number().get(number, []):
            if entry.file not in names and self._entries.pop(entry.file, None) is not None:
                self._path(entry.file).unlink(missing_ok=True)

    def keep(self, numbers: Container[int]) -> None:
        """Drop all inputs but these."""
        for number in [number for number in self._digests if number not in numbers]:
            self.drop(number)

    def wipe(self) -> None:
        """Remove every file the lines name, and forget them."""
        for file in self._entries:
            self._path(file).unlink(missing_ok=True)
        for name in {file.split("/")[0] for file in self._entries}:
            files.remove_empty(self._folder / name)
        self._entries, self._digests, self._numbers = {}, {}, None
        (self._folder / MANIFEST).unlink(missing_ok=True)
        self._writer.truncate(0)
        self._end = 0

    def _path(self, file: str) -> Path:
        """Where a file is; OutputError if its folder leads elsewhere."""
        path = self._folder / file
        paths.folder(path.parent)
        return path

    def _by_number(self) -> dict[int, list[Entry]]:
        """Return the entries by input; made once, for what was there at the start."""
        if self._numbers is None:
            self._numbers = {}
            for entry in self._entries.values():
                self._numbers.setdefault(entry.order[0], []).append(entry)
        return self._numbers

    def _load(self, path: Path) -> int:
        """Read the lines of a file; returns where its whole lines end."""
        reader = open(path, "rb")  # noqa: SIM115 - kept for reading lines again
        self._readers.append(reader)
        source, start = len(self._readers) - 1, 0
        while data := reader.readline(_LONGEST_LINE):
            if len(data) == _LONGEST_LINE:
                raise OutputError(
                    f"{path} has a line of {_LONGEST_LINE >> 20} MiB, which no export writes",
                    remedy="remove the file, or choose another folder",
                )
            if not data.endswith(b"\n"):
                break
            # what is not a line of ours proves nothing, and its file is made again
            with contextlib.suppress(*_DAMAGE):
                self._keep(json.loads(data), (source, start, len(data)))
            start += len(data)
        return start

    def _keep(self, line: dict[str, Any], span: tuple[int, int, int]) -> None:
        file, number, digest, together = (
            line[key] for key in ("file", "number", "digest", "together")
        )
        if not SAFE.fullmatch(file) or len(file) > _LONGEST_NAME:
            raise ValueError(f"unsafe name {file!r}")
        roles = [*line.get("roles", ()), *(r for rs in line.get("heads", {}).values() for r in rs)]
        texts = (line["text"], line["model"], digest, line["id"] or "", *roles)
        layer, head = (-1 if line[key] is None else line[key] for key in ("layer", "index"))
        if not all(isinstance(text, str) for text in texts) or not all(
            type(count) is int for count in (number, together, layer, head)
        ):
            raise ValueError("no line of ours")
        order = (number, _ORDER[line["layout"]], _SITES[line["site"]], layer, head)
        if self._digests.get(number) == digest:
            digest = self._digests[number]  # one string for all files of an input
        sha256 = bytes.fromhex(line["sha256"])
        self._entries[file] = Entry(order, file, digest, sha256, together, span)
        self._digests[number] = digest


def _sha256(path: Path) -> bytes:
    """Return the hash of a regular file; empty where there is none that can be read."""
    with contextlib.suppress(OSError):
        if paths.is_file(path):
            with open(path, "rb") as stream:
                return hashlib.file_digest(stream, "sha256").digest()
    return b""


def _encoded(line: dict[str, Any]) -> bytes:
    return json.dumps(line, allow_nan=False, separators=(",", ":")).encode() + b"\n"
