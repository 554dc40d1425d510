"""Results as files: never one in place of another, and the oldest removed when there are many."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

from attnviz.features.mcp.folders import Folders
from attnviz.files import HeldFolder

MOST_FILES = 1000
MOST_BYTES = 2 << 30
_JOURNAL = ".written"
"""What servers wrote into the folder, a line each: name, bytes and time."""
_LINE = re.compile(r"(\S+) ([0-9]+) ([0-9]+)")


class ResultStore:
    """The folder of results, which several servers may share."""

    def __init__(
        self, folders: Folders, most_files: int = MOST_FILES, most_bytes: int = MOST_BYTES
    ) -> None:
        self._folders = folders
        self._most_files, self._most_bytes = most_files, most_bytes

    def keep(self, tool: str, suffix: str, data: bytes) -> Path:
        """Write a new file, numbered after the last of its tool; then remove the oldest."""
        with self._folders.held_results(make=True) as folder:
            numbered = re.compile(rf"{tool}-([0-9]{{1,9}})\.")
            names = (*folder.files(), *_written(folder))
            number = max(
                (int(numbers[1]) for name in names if (numbers := numbered.match(name))), default=0
            )
            while True:
                number += 1
                name = f"{tool}-{number}{suffix}"
                try:
                    made = folder.create(name, data)
                    break
                except FileExistsError:  # another server was quicker
                    continue
            try:
                folder.append(_JOURNAL, f"{name} {made.st_size} {made.st_mtime_ns}\n".encode())
            except OSError:
                folder.remove(name)
                raise
            self._remove_oldest(folder)
        return self._folders.results / name

    def names(self) -> list[str]:
        """The names of results, newest first."""
        if not self._folders.results.exists():
            return []
        with self._folders.held_results() as folder:
            there = folder.files()
        names = [name for name in there if fnmatchcase(name, "[!.]*-*.*")]
        return sorted(names, key=lambda name: there[name].st_mtime, reverse=True)

    def _remove_oldest(self, folder: HeldFolder) -> None:
        """Of what servers wrote and nobody wrote again; files of others are never touched."""
        there, written = folder.files(), _written(folder)
        sizes = {
            name: made[0]
            for name, made in written.items()
            if name in there and made == (there[name].st_size, there[name].st_mtime_ns)
        }
        count, total = len(sizes), sum(sizes.values())
        for name in list(sizes)[:-1]:
            if count <= self._most_files and total <= self._most_bytes:
                break
            folder.remove(name)
            count, total = count - 1, total - sizes[name]
        if len(written) > 4 * self._most_files:
            recent = list(written.items())[-2 * self._most_files :]
            folder.remove(_JOURNAL)
            lines = (f"{name} {size} {time}\n" for name, (size, time) in recent)
            folder.append(_JOURNAL, "".join(lines).encode())


def _written(folder: HeldFolder) -> dict[str, tuple[int, int]]:
    """Bytes and time of every file that servers wrote, by name, oldest first."""
    lines = folder.contents(_JOURNAL).decode("utf-8", "replace").splitlines()
    matches = (_LINE.fullmatch(line) for line in lines)
    return {match[1]: (int(match[2]), int(match[3])) for match in matches if match}
