"""One export a folder: a lock that the system lets go when its process ends, however it ends."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

from attnviz.errors import OutputError

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
