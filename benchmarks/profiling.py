"""Profiles of many texts: several processes, Ray, memory, and what every head's page costs.

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
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.streaming import _status
from benchmarks.table import Row, rounds

MODEL = "demo-gpt2"
TEXTS, LONG = 16_000, 20_000
"""The first take one process about two minutes; an eighth of them where all benchmarks run."""
MEAN = 23


def measure() -> list[Row]:
    """All rows; takes several minutes."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = str(write(Path(folder) / "corpus.txt", TEXTS * rounds(8) // 8))
        one = _child("rate", corpus, "1", "")["rate"]
        two = _child("rate", corpus, "2", "")["rate"]
        rows = [
            Row("two processes", "one process", one / two, 1 / 1.7, f"{two:.0f}/s, {one:.0f}/s")
        ]
        if find_spec("ray") is not None:
            ray = _child("rate", corpus, "2", "local")["rate"]
            detail = f"{ray:.0f}/s, {one:.0f}/s"
            rows.append(Row("two actors on Ray", "one process", one / ray, 1 / 1.6, detail))
        short = str(write(Path(folder) / "few.txt", 1_000))
        few = _child("memory", short, "1", "")["peak"]
        many = _child("memory", str(write(Path(folder) / "many.txt", LONG)), "1", "")["peak"]
        detail = f"{many / 2**20:.0f} MiB, {few / 2**20:.0f} MiB"
        rows.append(Row(f"peak memory, {LONG:,} texts", "1,000 texts", many / few, 1.1, detail))
        rows.append(_pages(short))
    return rows


def _pages(corpus: str) -> Row:
    """Give rows of every head, sampled and described, against a profile; the least of two each."""
    times: dict[str, list[float]] = {"": [], "all": []}
    for _ in range(rounds(2)):
        for select, seconds in times.items():
            seconds.append(_child("memory", corpus, "1", "", select)["seconds"])
    plain, whole = min(times[""]), min(times["all"])
    detail = f"{whole:.1f} s, {plain:.1f} s"
    return Row("rows of every head, 1,000 texts", "a profile", whole / plain, 1.5, detail)


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


def _main(what: str, corpus: str, jobs: str, ray: str, select: str = "") -> None:
    start = time.perf_counter()
    import attnviz as av

    seen: list[tuple[int, float]] = []
    av.profile(
        corpus,
        model=MODEL,
        jobs=int(jobs),
        ray=ray or None,
        select=select or None,
        progress=lambda done: seen.append((done.texts, done.seconds)),
    )
    seconds = time.perf_counter() - start
    (first, began), (last, ended) = seen[0], seen[-1]
    rate = {"rate": (last - first) / (ended - began)} if what == "rate" else {}
    print(json.dumps({**rate, "seconds": seconds, "peak": _status("VmHWM")}))


if __name__ == "__main__":
    _main(*sys.argv[1:])
