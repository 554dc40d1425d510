"""How much memory there is, asked before trying something large."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from attnviz.files import human_bytes

_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_PARTS = {2: "half", 4: "a quarter"}


def physical_memory() -> int:
    """Bytes that this process may have: the machine's, or its control group's where that is less.

    A machine that does not tell counts for 16 GiB.
    """
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        machine = 16 << 30
    return min([machine, *group_limits()])


def beyond(needed: float, part: int = 2) -> str:
    """``more than half of this machine's 16.8 GB``; empty where something takes less.

    ``needed``: bytes that it takes.
    """
    there = physical_memory()
    if needed <= there // part:
        return ""
    return f"more than {_PARTS[part]} of this machine's {human_bytes(there)}"


def group_limits(groups: Path = _GROUPS, own: Path = _OWN) -> Iterator[int]:
    """The memory limits of the control groups that this process is in; containers set them."""
    try:
        lines = own.read_text("utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, name = groups, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = groups / "memory", "memory.limit_in_bytes"
        else:
            continue
        group = top / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder == top or top in folder.parents:
                yield from _limit(folder / name)


def _limit(file: Path) -> Iterator[int]:
    """The number in a file, if there is one: ``max`` is none."""
    try:
        yield int(file.read_text("ascii"))
    except (OSError, ValueError):
        return
