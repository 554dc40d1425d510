"""What an export opens, replaces or removes lies in its folder: no link inside of it is followed.

A folder may have been prepared by somebody else. Writing a file whole never follows a link in its
place (a rename replaces the link itself), nor does removing one; so a picture's folder, and a file
that is opened, is all that has to be looked at first.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path

from attnviz.errors import OutputError, system_errors

_REMEDY = "remove it, or choose another folder"


def folder(path: Path) -> Path:
    """Return a folder inside of an export's, itself, or a place where one may be made."""
    status = _status(path)
    if status is not None and not stat.S_ISDIR(status.st_mode):
        what = "a link" if stat.S_ISLNK(status.st_mode) else "no folder"
        raise OutputError(f"{path} is {what}, which no export creates there", remedy=_REMEDY)
    return path


def file(path: Path, *, alone: bool = False) -> Path:
    """Return a regular file in such a folder, itself, or a place where one may be made."""
    status = _status(path)
    if status is not None and not stat.S_ISREG(status.st_mode):
        what = "a link" if stat.S_ISLNK(status.st_mode) else "not a regular file"
        raise OutputError(f"{path} is {what}, which no export creates there", remedy=_REMEDY)
    if alone and status is not None and status.st_nlink > 1:
        raise OutputError(f"{path} has another name elsewhere", remedy=_REMEDY)
    return path


def is_file(path: Path) -> bool:
    """Whether a regular file is there, which can be read without waiting and has an end."""
    status = _status(path)
    return status is not None and stat.S_ISREG(status.st_mode)


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
