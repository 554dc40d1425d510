"""Names of folders and files, safe on every file system, and what may be opened by them.

What an export opens, replaces or removes lies in its folder: no link inside of it is followed.
A folder may have been prepared by somebody else. Writing a file whole never follows a link in its
place (a rename replaces the link itself), nor does removing one; so a picture's folder, and a file
that is opened, is all that has to be looked at first.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from attnviz.core.heads import SITE_PREFIX, Head, Layout, SiteKind
from attnviz.errors import OutputError, system_errors

LAYOUTS = ("heads", "layers", "grid", "overview")
"""What a picture can hold: a head, a layer's heads, the chosen heads, all as a mosaic."""

FOLDER = re.compile(r"[0-9]{4,}(-[a-z0-9-]+)?")  # what an input's folder is called

SAFE = re.compile(FOLDER.pattern + r"/[A-Za-z0-9-]+\.[a-z]+")
"""What every name that is written matches; anything else is never read, written or removed."""

_WORDS, _LONGEST = 4, 32


def slug(text: str) -> str:
    """Return the first words of a text in lower-case ASCII letters and digits; may be empty."""
    plain = unicodedata.normalize("NFKD", text[:400]).encode("ascii", "ignore").decode().lower()
    return "-".join(re.findall(r"[a-z0-9]+", plain)[:_WORDS])[:_LONGEST].strip("-")


def folder_name(number: int, name: str) -> str:
    """Name an input's folder: its number, which alone makes it unique, and words to know it by."""
    words = slug(name)
    return f"{number:04d}-{words}" if words else f"{number:04d}"


def prefix(kind: SiteKind, layout: Layout) -> str:
    """Return what tells kinds of sites apart in file names, where a model has several."""
    return f"{SITE_PREFIX[kind]}-" if len(layout.kinds) > 1 else ""


def stem(kind: str, heads: Sequence[Head], layout: Layout) -> str:
    """Name a picture without its suffix: ``L04H11``, ``L04``, ``cross-grid``, ``overview``."""
    first = heads[0]
    start = prefix(first.site.kind, layout)
    if kind in ("heads", "layers") and layout.mean:
        part = {"heads": f"L{first.layer:02d}-", "layers": f"H{first.index:02d}-"}
        return f"{start}{part.get(layout.mean, '') if kind == 'heads' else ''}mean"
    if kind == "heads":
        return f"{start}L{first.layer:02d}H{first.index:02d}"
    if kind == "layers":
        return f"{start}L{first.layer:02d}"
    return f"{start}{kind}"


_REMEDY = "remove it, or choose another folder"


def folder(path: Path) -> Path:
    """Return a folder inside of an export's, itself, or a place where one may be made."""
    status = _status(path)
    if status is not None and not stat.S_ISDIR(status.st_mode):
        raise _refusal(path, status, "no folder")
    return path


def file(path: Path, *, single: bool = False) -> Path:
    """Return a regular file in such a folder, itself, or a place where one may be made."""
    status = _status(path)
    if status is not None and not stat.S_ISREG(status.st_mode):
        raise _refusal(path, status, "not a regular file")
    if single and status is not None and status.st_nlink > 1:
        raise OutputError(f"{path} has another name elsewhere", remedy=_REMEDY)
    return path


def is_file(path: Path) -> bool:
    """Whether a regular file is there, which can be read without waiting and has an end."""
    status = _status(path)
    return status is not None and stat.S_ISREG(status.st_mode)


def _refusal(path: Path, status: os.stat_result, kind: str) -> OutputError:
    """Return the error for what stands in the place of a folder or a file."""
    kind = "a link" if stat.S_ISLNK(status.st_mode) else kind
    return OutputError(f"{path} is {kind}, which no export creates there", remedy=_REMEDY)


def _status(path: Path) -> os.stat_result | None:
    """Return what is there, a link as such; None where nothing is."""
    with system_errors(OutputError, f"cannot use {path}"):
        try:
            return os.lstat(path)
        except FileNotFoundError:
            return None


_TAKEN = {errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK}


class Lock:
    """Holds a lock file open and locked."""

    def __init__(self, path: Path, folder: Path) -> None:
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
        except OSError as error:
            raise OutputError(f"cannot write into {folder}: {error.strerror or error}") from None
        try:
            _lock(self._file)
            # an export that made the folder for nothing removes it, with the lock that we opened
            held = path.exists() and os.path.samestat(path.stat(), os.fstat(self._file))
        except OSError as error:
            held = False
            if error.errno not in _TAKEN:
                os.close(self._file)
                raise OutputError(f"cannot lock {path}: {error.strerror or error}") from None
        if not held:
            os.close(self._file)
            raise OutputError(
                f"another export is writing into {folder}; wait for it or choose another folder"
            )

    def release(self) -> None:
        """Let go; the file stays."""
        os.close(self._file)


def _lock(file: int) -> None:
    """Lock without waiting; OSError where another process has it."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
