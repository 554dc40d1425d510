"""How much memory this machine has, asked before trying something large."""

from __future__ import annotations

import os


def physical_memory() -> int:
    """Bytes of physical memory, or 16 GiB where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 16 << 30


def human_bytes(count: float) -> str:
    """A size for people: ``2.1 GB`` (powers of 1000)."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} PB"
