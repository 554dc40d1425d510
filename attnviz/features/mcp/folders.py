"""Which files a caller may name: those in folders that were named when the server started."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from attnviz import files
from attnviz.errors import InputError, ModelError, OutputError, UsageError, system_errors
from attnviz.models.demo import DEMOS
from attnviz.scoring.select import with_files

_PATTERN = "*?["
_NAMES = (*DEMOS, "fresh")
_ENTRIES = 10_000  # files of a model's folder that are looked at; one that has more is no model's


class Folders:
    """Where files may be read, and the one folder that results are written to."""

    def __init__(self, allowed: Sequence[Path], results: Path | None = None) -> None:
        for folder in allowed:
            with system_errors(UsageError, f"cannot read {folder}"):
                if not folder.is_dir():
                    raise UsageError(
                        "{allow} takes folders, and {} is none; check the path", folder, allow=...
                    )
        self.allowed = tuple(folder.resolve() for folder in allowed)
        self.results = self._inside(str(results or self.allowed[0] / "attnviz-results"))

    def file(self, name: str) -> Path:
        """Return a file to read, by its path or by its name among the results.

        Links are followed here, once; whoever can put another one there before the file is opened
        can write in these folders already.
        """
        if any(sign in name for sign in _PATTERN):
            raise UsageError("{!r} is a pattern; name one file", name[:80])
        path = self._inside(name)
        among_results = self._inside(str(self.results / name)) if Path(name).name == name else path
        with system_errors(InputError, f"cannot read {name[:80]!r}"):
            for candidate in (path, among_results):
                if candidate.is_file():
                    return candidate
        raise InputError(
            f"no file {name[:80]!r} in {self.said}; call read without a file to see what is kept"
        )

    def model(self, name: str) -> str:
        """Name a model as :func:`attnviz.load` takes it: bundled, a folder, in the hub's cache."""
        if name in _NAMES:
            return name
        with system_errors(ModelError, f"cannot read {name[:80]!r}"):
            typed = Path(name).expanduser()
            local = typed.is_absolute() or typed.exists() or (self.allowed[0] / typed).exists()
        if not local and not name.startswith("."):
            return name  # of the hub, of which only the cache is asked
        folder = self._inside(name)
        for count, path in enumerate(_within(folder)):
            if count > _ENTRIES:
                raise UsageError("{!r} holds too many files; name a model's own folder", name[:80])
            self._inside(str(path))
        return str(folder)

    def selection(self, heads: str | None) -> str | None:
        """Give a selection of heads, in which ``@FILE`` (a circuit) is a file that may be read."""
        if heads is None:
            return None
        return with_files(heads, lambda name: str(self.file(name)))

    @contextmanager
    def held_results(self, *, make: bool = False) -> Iterator[files.HeldFolder]:
        """Hold the folder of results open; no link on the way to it is followed."""
        root = next(folder for folder in self.allowed if self.results.is_relative_to(folder))
        with system_errors(OutputError, f"cannot use {self.results}"):
            try:
                with files.held(root, self.results.relative_to(root).parts, make=make) as folder:
                    yield folder
            except NotADirectoryError:
                raise OutputError(
                    f"a link or a file stands in place of the folder {self.results}; remove it"
                ) from None

    def shown(self, path: Path) -> str:
        """Return a path as a caller may name it."""
        for folder in self.allowed:
            if path.is_relative_to(folder):
                return str(path.relative_to(folder)) if folder == self.allowed[0] else str(path)
        return str(path)

    @property
    def said(self) -> str:
        """The folders, for messages."""
        return ", ".join(str(folder) for folder in self.allowed)

    def _inside(self, name: str) -> Path:
        """Give a path with every link followed; UsageError where it ends outside of all folders."""
        with system_errors(InputError, f"cannot read {name[:80]!r}"):
            path = (self.allowed[0] / Path(name).expanduser()).resolve()
        if any(path.is_relative_to(folder) for folder in self.allowed):
            return path
        raise UsageError(
            "{!r} leads out of the folders that this server may read ({}); name a file inside, or "
            "have the server started with {allow} for that folder",
            name[:80], self.said, allow=...,
        )  # fmt: skip


def _within(folder: Path) -> list[Path]:
    """All that lies in a folder, links not followed."""
    files: list[Path] = []
    for root, folders, names in os.walk(folder):
        files += (Path(root) / name for name in (*folders, *names))
        if len(files) > _ENTRIES:
            break
    return files
