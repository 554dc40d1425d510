"""``python -m benchmarks [NAME...]``: measure, print tables, fail when a target is missed."""

from __future__ import annotations

import sys
from importlib import import_module

from benchmarks.table import show

NAMES = ("startup", "export")

if __name__ == "__main__":
    wanted = sys.argv[1:] or NAMES
    good = [show(name, import_module(f"benchmarks.{name}").measure()) for name in wanted]
    sys.exit(not all(good))
