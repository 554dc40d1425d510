"""A long text on a machine that others work on, too: whole processes, threads that sleep or spin.

OpenMP's threads wait for each other at the end of every product. Where they spin, as they do by
default, two of them on processors that are taken keep each other from working; attnviz has them
sleep (``OMP_WAIT_POLICY``). Either is timed in turn, on the machine as it is and beside a process
for each processor that does nothing but count.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.drawn import Shape, write
from benchmarks.table import Row, rounds

LAYERS, HEADS, WIDTH, TOKENS, RUNS = 12, 12, 768, 512, 3
SPIN = {"GOMP_SPINCOUNT": "300000", "KMP_BLOCKTIME": "200"}
"""What OpenMP does where nobody says anything: GNU's, and LLVM's in milliseconds."""


def measure() -> list[Row]:
    """Return a row for the machine as it is, and one for it with every processor taken."""
    sizes = {"n_layer": LAYERS, "n_head": HEADS, "n_embd": WIDTH, "n_positions": TOKENS}
    with tempfile.TemporaryDirectory() as folder:
        write(Shape("long", "GPT2LMHeadModel", sizes, "float32"), Path(folder))
        rows = [_row(folder, "as the machine is", 1.15)]
        with _taken():
            return [*rows, _row(folder, "with every processor taken", 0.8)]


def _row(folder: str, what: str, target: float) -> Row:
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(rounds(RUNS)):
        for spins in (False, True):
            seconds[spins].append(_heads(folder, SPIN if spins else {}))
    asleep, spinning = (min(seconds[spins]) for spins in (False, True))
    name = f"heads, T={TOKENS}, {what}"
    detail = f"{asleep:.1f} s against {spinning:.1f} s"
    return Row(name, "threads that spin", asleep / spinning, target, detail)


def _heads(folder: str, environment: dict[str, str]) -> float:
    """Time a process in seconds."""
    ids = " ".join(str(n % 1000) for n in range(TOKENS))
    command = [sys.executable, "-m", "attnviz", "heads", "--ids", ids, "--model", folder, "-q"]
    kept = {"ATTNVIZ_CACHE": "off", "HF_HUB_OFFLINE": "1"}
    begin = time.perf_counter()
    subprocess.run(command, env=os.environ | kept | environment, check=True, capture_output=True)
    return time.perf_counter() - begin


@contextmanager
def _taken() -> Iterator[None]:
    """Start a process for each processor that counts, inside the ``with`` block."""
    command = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(command) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()
