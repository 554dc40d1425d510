"""Commands that take seconds, whole, against importing torch on the same machine.

The targets are the seconds that were meant where that import takes 1.06 s.
"""

from __future__ import annotations

import sys

from benchmarks.startup import SENTENCES, row
from benchmarks.table import Row

RUNS = 2


def measure() -> list[Row]:
    """Each of them, one process, nothing taken from the cache."""
    commands = {
        "ablate --probe --method zero,mean,resample": 9.4,
        f"ablate --texts {SENTENCES} --estimate plain": 2.8,
        f"atlas --texts {SENTENCES} --out-dir $(mktemp -d)/book": 7.5,
        "patch --task induction-swap --circuit": 5.7,
    }
    rows = []
    for command, target in commands.items():
        shell = ["sh", "-c", f"{sys.executable} -m attnviz {command}"]  # a new folder every time
        name = f"attnviz {command.replace(f'{SENTENCES}', 'sentences.txt')}"
        rows.append(row(name, shell, "import torch", target, runs=RUNS))
    return rows
