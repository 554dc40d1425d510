"""An export's folder: ours alone while we write, and always one set of settings."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnviz import files
from attnviz.errors import OutputError
from attnviz.features.export import inside
from attnviz.features.export.gallery import INDEX
from attnviz.features.export.inside import Lock
from attnviz.features.export.manifest import MANIFEST, Manifest
from attnviz.features.export.names import FOLDER
from attnviz.features.export.settings import difference

PRIVATE = ".attnviz"
"""Where the lock, the settings and the journal live, inside of the folder."""


class Folder:
    """Opens a folder for writing, and locks it.

    Attributes:
        path: of the folder; ``force`` as given.
    """

    def __init__(self, path: Path, *, force: bool) -> None:
        self.path, self.force = path, force
        self._private = path / PRIVATE
        self._stored = self._private / "settings.json"
        try:
            self._fresh = not path.exists()
            if not self._fresh and not path.is_dir():
                raise OutputError(f"{path} is a file; name a folder")
            inside.folder(self._private)
            used = not self._fresh and any(entry.name != PRIVATE for entry in path.iterdir())
            ours = inside.file(self._stored).exists() or self._has(MANIFEST)
            if used and not force and not ours:
                lose = f"; its {INDEX} would be replaced" if self._has(INDEX) else ""
                raise OutputError(
                    "{} holds files that no export wrote; choose another folder, or {force} to "
                    "write beside them{}",
                    path,
                    lose,
                    force=True,
                )
            self._private.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"cannot write into {path}: {error.strerror or error}") from None
        self._lock = Lock(inside.file(self._private / "lock"), path)
        self.manifest: Manifest | None = None

    def begin(self, settings: Mapping[str, Any]) -> Manifest:
        """Check the settings against those of earlier runs, and prove what is there."""
        before = _json(inside.file(self._stored))
        changed = None if before is None else difference(before, settings)
        if before is None and self._has(MANIFEST):
            changed = f"{PRIVATE}/settings.json is lost"
        if changed and not self.force:
            raise OutputError(
                "{} holds pictures with other settings ({})",
                self.path,
                changed,
                remedy="choose another folder, or {force} to replace all of them",
                force=True,
            )
        journal = self._private / "journal.jsonl"
        if journal.exists():
            self.sweep()
        self.manifest = Manifest(self.path, journal)
        if before is None or changed:
            self.manifest.wipe()
            document = json.dumps(settings, indent=1).encode()
            files.place(self._stored, (document,), sync=True)
            files.sync_folder(self.path)
        else:
            self.manifest.verify()
        return self.manifest

    def begun(self) -> bool:
        """Whether there is a manifest, in a folder that nobody has moved away."""
        return self.manifest is not None and self._stored.exists()

    def _has(self, name: str) -> bool:
        return (self.path / name).exists()

    def close(self) -> None:
        """Let the folder go; one that was made for nothing is removed."""
        if self.manifest is not None:
            self.manifest.close()
        if not self._stored.exists():
            (self._private / "lock").unlink(missing_ok=True)
            files.remove_empty(self._private)
            if self._fresh:
                files.remove_empty(self.path)
        self._lock.release()

    def sweep(self) -> None:
        """Remove unfinished files that a killed process left."""
        for folder in (self.path, self._private, *_numbered(self.path)):
            files.sweep(folder)


def _numbered(path: Path) -> list[Path]:
    with os.scandir(path) as entries:
        return [
            Path(entry.path)
            for entry in entries
            if FOLDER.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
        ]


def _json(path: Path) -> Any:
    """The object in a JSON file, or None where there is no such file or it is broken."""
    try:
        document = json.loads(files.contents(path))
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
