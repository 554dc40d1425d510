"""The only place that writes files: whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from attnviz.errors import OutputError


def check_writable(path: Path) -> None:
    """Find out that a file cannot be written before any work is done for it.

    Raises:
        OutputError: its folder is missing or not writable, or the path is a folder.
    """
    folder = path.parent
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
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name[:40]}.", delete=False
        ) as file:
            temporary = file.name
            file.write(data)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
