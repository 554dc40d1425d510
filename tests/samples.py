"""What several files of tests look at, made once a run by whichever process asks first."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

WORKER = "PYTEST_XDIST_WORKER"
"""The environment's variable that names a process where a run has several."""


class Samples:
    """Files in a folder that every process of a run shares; they are read and never written to."""

    def __init__(self, own: Path) -> None:
        """Take the temporary folder of this process: the run's is above it where there are more."""
        several = WORKER in os.environ
        self._folder = (own.parent if several else own) / "samples"
        self._folder.mkdir(exist_ok=True)

    def __call__(self, name: str, make: Callable[[Path], Path]) -> Path:
        """Return the file that ``make`` writes in a folder, made unless some process has."""
        folder, done = self._folder / name, self._folder / f"{name}.done"
        with FileLock(self._folder / f"{name}.lock"):
            if not done.exists():
                folder.mkdir(exist_ok=True)
                done.write_text(str(make(folder).relative_to(folder)), encoding="utf-8")
        return folder / done.read_text("utf-8")
