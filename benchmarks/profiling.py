"""Profiles of many texts: what several processes gain, on Ray too, and that memory stays.

Rates are texts a second of wall time from the first answer to the last, so that starting processes
and loading models are left out. Two processes need two free cores: on a busy machine these figures
mean nothing. Memory is the peak of a fresh process (VmHWM).
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.streaming import _status
from benchmarks.table import Row

MODEL = "demo-gpt2"
TEXTS, LONG = 16_000, 20_000
"""The first take one process about two minutes."""
MEAN = 23


def measure() -> list[Row]:
    """All rows; takes several minutes."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = str(write(Path(folder) / "corpus.txt", TEXTS))
        one = _child("rate", corpus, "1", "")["rate"]
        two = _child("rate", corpus, "2", "")["rate"]
        rows = [
            Row("two processes", "one process", one / two, 1 / 1.7, f"{two:.0f}/s, {one:.0f}/s")
        ]
        if find_spec("ray") is not None:
            ray = _child("rate", corpus, "2", "local")["rate"]
            detail = f"{ray:.0f}/s, {one:.0f}/s"
            rows.append(Row("two actors on Ray", "one process", one / ray, 1 / 1.6, detail))
        few = _child("memory", str(write(Path(folder) / "few.txt", 1_000)), "1", "")["peak"]
        many = _child("memory", str(write(Path(folder) / "many.txt", LONG)), "1", "")["peak"]
        detail = f"{many / 2**20:.0f} MiB, {few / 2**20:.0f} MiB"
        rows.append(Row(f"peak memory, {LONG:,} texts", "1,000 texts", many / few, 1.1, detail))
    return rows


def write(path: Path, count: int) -> Path:
    """Random words that occur as often as those of a text, in lines as long as sentences are."""
    draw = random.Random(0)
    words = ["".join(draw.choices("etaoinshrdlu", k=2 + n % 7)) for n in range(5000)]
    weights = [1 / (rank + 2.7) for rank in range(len(words))]
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(count):
            size = max(2, min(80, round(draw.gammavariate(2, MEAN / 3))))
            file.write(" ".join(draw.choices(words, weights, k=size)) + "\n")
    return path


def _child(*arguments: str) -> dict[str, Any]:
    """Run one measurement in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.profiling", *arguments]
    out = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    found: dict[str, Any] = json.loads(out)
    return found


def _main(what: str, corpus: str, jobs: str, ray: str) -> None:
    import attnviz as av

    seen: list[tuple[int, float]] = []
    av.profile(
        corpus,
        model=MODEL,
        jobs=int(jobs),
        ray=ray or None,
        progress=lambda done: seen.append((done.texts, done.seconds)),
    )
    (first, start), (last, end) = seen[0], seen[-1]
    found = {"rate": (last - first) / (end - start)} if what == "rate" else {}
    print(json.dumps({**found, "peak": _status("VmHWM")}))


if __name__ == "__main__":
    _main(*sys.argv[1:])
