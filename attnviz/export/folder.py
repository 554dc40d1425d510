"""An export's folder: ours alone while we write, and always one set of settings."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnviz import files
from attnviz.errors import OutputError
from attnviz.export.lock import Lock
from attnviz.export.manifest import MANIFEST, Manifest
from attnviz.export.settings import difference

PRIVATE = ".attnviz"
"""Where the lock, the settings and the journal live, inside of the folder."""


class Folder:
    """Opens a folder for writing, and locks it.

    Args:
        path: created if it is not there.
        force: take over a folder with other settings (its pictures are removed) or with files that
            are not ours (which are left alone).

    Raises:
        OutputError: it cannot be written, is in use, or holds something else.
    """

    def __init__(self, path: Path, *, force: bool) -> None:
        self.path, self._force = path, force
        self._private = path / PRIVATE
        self._fresh = not path.exists()
        if path.exists() and not path.is_dir():
            raise OutputError(f"{path} is a file; name a folder")
        try:
            used = not self._fresh and any(path.iterdir())
            if used and not self._private.is_dir() and not force:
                raise OutputError(
                    f"{path} holds files that no export wrote; choose another folder, or --force"
                )
            self._private.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"cannot write into {path}: {error.strerror or error}") from None
        self._lock = Lock(self._private / "lock", path)
        self.manifest: Manifest | None = None

    def begin(self, settings: Mapping[str, Any]) -> Manifest:
        """Check the settings against those of earlier runs, and prove what is there.

        Raises:
            OutputError: other settings, without force; the message says what differs.
        """
        stored = self._private / "settings.json"
        before = _json(stored)
        lost = before is None and (self.path / MANIFEST).exists()
        changed = "they are lost" if lost else None
        if before is not None:
            changed = difference(before, settings)
        if changed and not self._force:
            raise OutputError(
                f"{self.path} holds pictures with other settings ({changed}); choose another "
                "folder, or --force to replace them"
            )
        self._sweep()
        self.manifest = Manifest(self.path, self._private / "journal.jsonl")
        if before is None or changed:
            self.manifest.wipe()
            files.place(stored, (json.dumps(settings, indent=1).encode(),))
        else:
            self.manifest.verify()
        return self.manifest

    @property
    def force(self) -> bool:
        """Whether what is there may be replaced."""
        return self._force

    def close(self) -> None:
        """Let the folder go; one that was made for nothing is removed."""
        if self.manifest is not None:
            self.manifest.close()
        if self._fresh and not (self._private / "settings.json").exists():
            (self._private / "lock").unlink(missing_ok=True)
            files.remove_empty(self._private)
            files.remove_empty(self.path)
        self._lock.release()

    def _sweep(self) -> None:
        """Remove unfinished files that a killed run left."""
        if not (self._private / "journal.jsonl").exists():
            return
        for found in (self.path, self._private, *_numbered(self.path)):
            files.sweep(found)


def _numbered(path: Path) -> list[Path]:
    with os.scandir(path) as entries:
        return [Path(e.path) for e in entries if e.name[:4].isdigit() and e.is_dir()]


def _json(path: Path) -> Any:
    """What a JSON file holds, or None where there is no such file or it is broken."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
