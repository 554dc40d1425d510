"""The only place that writes files: whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from attnviz.errors import OutputError, system_errors

_UNFINISHED = re.compile(r"\..{1,40}\.[0-9a-f]{12}\.part")
"""Names of files that are not whole yet."""


def check_writable(path: Path) -> None:
    """Find out that a file cannot be written before any work is done for it.

    Raises:
        OutputError: its folder is missing or not writable, or the path is a folder.
    """
    folder = path.parent
    with system_errors(OutputError, f"cannot write {path}"):
        if path.is_dir():
            raise OutputError(f"{path} is a folder; name a file in it")
        if not folder.is_dir():
            raise OutputError(f"the folder {folder} does not exist; create it first")
        if not os.access(folder, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
            raise OutputError(f"cannot write {path}: permission denied; choose another place")


def write(path: Path, data: bytes) -> None:
    """Write a file so that it appears whole: a temporary file beside it, then a rename.

    Raises:
        OutputError: with the system's reason; nothing is left behind.
    """
    check_writable(path)
    place(path, (data,))


def place(path: Path, chunks: Iterable[bytes], *, sync: bool = False) -> None:
    """Write a file whole, as :func:`write` does, without looking first.

    Args:
        path: where it goes.
        chunks: its contents.
        sync: wait until the disk has the file and its name, so that both outlast a power cut.

    Raises:
        OutputError: with the system's reason; nothing is left behind.
    """
    # with a short name, for a long one may leave no room for the ending
    temporary = path.with_name(f".{path.name[:40]}.{os.urandom(6).hex()}.part")
    try:
        with open(temporary, "xb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(temporary, path)
        if sync:
            sync_folder(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            what = f"cannot write {path}: {error.strerror or error}"
            raise OutputError(f"{what}; choose another place") from None
        raise


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
