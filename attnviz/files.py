"""Files: written whole or not at all, here alone; and read only as far as they are files.

What the user names with ``--out`` is written through symbolic links, keeps its mode, and must be a
regular file with a single name: pipes, devices and hard links are refused. Files that attnviz
names itself replace whatever stands there, never what a link points to.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from attnviz.errors import OutputError, system_errors

_UNFINISHED = re.compile(r"\..{1,40}\.[0-9a-f]{12}\.part")
"""Names of files that are not whole yet."""


LARGEST = 256 << 20
"""Bytes of a file that is read whole, unless its reader says otherwise."""


def opened(path: str | Path) -> BinaryIO:
    """A regular file for reading bytes, also through links.

    Raises:
        OSError: with the reason; a pipe or a device is one, and is not waited for.
    """
    number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        mode = os.fstat(number).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return os.fdopen(number, "rb")
    except BaseException:
        os.close(number)
        raise


def handed(path: object) -> bool:
    """Whether a path is what the shell makes of ``<(command)``: a pipe that somebody writes to."""
    return str(path).startswith(("/dev/fd/", "/proc/self/fd/"))


def listed(paths: str | Path | Iterable[str | Path] | None) -> list[str]:
    """One path, several or none, as a list of names."""
    if paths is None:
        return []
    return [str(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]


def name_of(path: str | Path) -> str:
    """What to call a file for people: its name without its folder."""
    return "the pipe" if handed(path) else Path(path).name


def contents(path: str | Path, most: int = LARGEST) -> bytes:
    """All bytes of a regular file.

    Raises:
        OSError: as :func:`opened`, or there are more than ``most``.
    """
    with opened(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most >> 20} MiB", str(path))
    return data


def check_writable(path: Path) -> None:
    """Find out that a file cannot be written before any work is done for it.

    Raises:
        OutputError: its folder is missing or not writable, or the path is a folder, a pipe, a
            device or one of several names of a file.
    """
    target = _target(path)
    folder = target.parent
    with system_errors(OutputError, f"cannot write {path}"):
        if target.is_dir():
            raise OutputError(f"{path} is a folder; name a file in it")
        if not folder.is_dir():
            raise OutputError(f"the folder {folder} does not exist; create it first")
        there = target.stat() if target.exists() else None
        if not os.access(folder, os.W_OK) or (there and not os.access(target, os.W_OK)):
            raise OutputError(f"cannot write {path}: permission denied; choose another place")
        if there and not stat.S_ISREG(there.st_mode):
            raise OutputError(f"{path} is not a regular file; name another one")
        if there and there.st_nlink > 1:
            raise OutputError(
                f"{path} is one of {there.st_nlink} hard links to one file, which "
                "writing would separate; remove it first or name another one"
            )


def write(path: Path, data: bytes) -> None:
    """Write a file so that it appears whole: a temporary file beside it, then a rename.

    A file that is there keeps its mode, and a symbolic link leads to the new one.

    Raises:
        OutputError: with the system's reason; nothing is left behind.
    """
    check_writable(path)
    target = _target(path)
    with system_errors(OutputError, f"cannot write {path}"):
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    place(target, (data,), mode=mode)


def _target(path: Path) -> Path:
    """Where a symbolic link leads; any other path as it stands."""
    with system_errors(OutputError, f"cannot write {path}"):
        target = Path(os.path.realpath(path)) if path.is_symlink() else path
        if target.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return target


def place(
    path: Path, chunks: Iterable[bytes], *, sync: bool = False, mode: int | None = None
) -> None:
    """Write a file whole, as :func:`write` does, without looking first.

    Args:
        path: where it goes; what stands there is replaced, a link too.
        chunks: its contents.
        sync: wait until the disk has the file and its name, so that both outlast a power cut.
        mode: of the file; what the system gives new ones by default.

    Raises:
        OutputError: with the system's reason; nothing is left behind.
    """
    # with a short name, for a long one may leave no room for the ending
    temporary = path.with_name(f".{path.name[:40]}.{os.urandom(6).hex()}.part")
    with system_errors(OutputError, f"cannot write {path}"):
        try:
            with open(temporary, "xb", opener=_private if mode is not None else None) as file:
                if mode is not None:
                    os.chmod(temporary, mode)
                for chunk in chunks:
                    file.write(chunk)
                file.flush()
                if sync:
                    os.fsync(file.fileno())
            os.replace(temporary, path)
            if sync:
                sync_folder(path.parent)
        except BaseException:
            with contextlib.suppress(OSError, ValueError):
                temporary.unlink()
            raise


def _private(path: str, flags: int) -> int:
    """Open a new file that nobody else may read until its mode is known."""
    return os.open(path, flags, 0o600)


def sweep(folder: Path) -> None:
    """Remove what a killed process left of unfinished files in a folder."""
    with contextlib.suppress(OSError):
        for found in list(os.scandir(folder)):
            if _UNFINISHED.fullmatch(found.name):
                with contextlib.suppress(OSError):
                    os.unlink(found.path)


def remove_empty(folder: Path) -> None:
    """Remove a folder if nothing is in it."""
    with contextlib.suppress(OSError):
        folder.rmdir()


def sync_folder(folder: Path) -> None:
    """Wait until the disk has a folder's names; only POSIX systems can open one for that."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
