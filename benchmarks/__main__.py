"""``python -m benchmarks [NAME ...]``: print every table; exit 1 if a target is missed.

Figures go to standard error as they are found. Without a name all benchmarks run in 20 minutes:
each in a process of its own, whatever it measures once, the largest models left out. Whatever has
not ended in its part of the time is stopped, and named with its command.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

from benchmarks.table import ROWS, Row, show

TABLES = {  # what takes longest comes last, with the time that others left
    "logits": "Logits split over their parts",
    "sources": "Scores split over their sources",
    "lens": "Every layer read out",
    "thoughts": "Sentences of a long trace",
    "circuits": "Circuits in weights",
    "flow": "What flows from layer to layer",
    "grammar": "Gold annotation",
    "film": "Heads while training",
    "viewer": "The page of all heads",
    "many": "Pages of very many heads",
    "live": "The model in a page",
    "export": "Batches of pictures",
    "arrays": "NumPy and torch",
    "hybrids": "Layers with a state",
    "busy": "A machine that others work on",
    "patching": "Values of one run in another",
    "ablation": "Heads ablated",
    "atlas": "Everything about every head",
    "commands": "Commands that take seconds",
    "startup": "Whole processes",
    "streaming": "Scores on the fly",
    "lengths": "Long texts",
    "profiling": "Profiles of many texts",
    "models": "Models of a billion parameters",
}

MOST_SECONDS = 19 * 60
"""Of all benchmarks together; each has an equal part of what is left when it begins."""
SMALLEST = "SmolLM2-135M"
"""Of the models of a billion parameters, the one that runs with all the others."""


def main(names: list[str]) -> int:
    """Run the named benchmarks, or all of them."""
    unknown = [name for name in names if name not in TABLES]
    if unknown:
        sys.stderr.write(f"no benchmark {unknown[0]!r}; there are {', '.join(TABLES)}\n")
        return 2
    good = [show(TABLES[name], import_module(f"benchmarks.{name}").measure()) for name in names]
    return 0 if all(good if names else every()) else 1


def every() -> list[bool]:
    """Run all in their time; returns whether each met its targets."""
    os.environ.setdefault("ATTNVIZ_SHAPES", SMALLEST)
    start, good, stopped = time.monotonic(), [], []
    for number, (name, title) in enumerate(TABLES.items()):
        left = MOST_SECONDS - (time.monotonic() - start)
        rows, status = within(name, left / (len(TABLES) - number))
        good.append(show(title, rows) and status in (0, None))
        if status != 0:
            stopped.append(name)
    if stopped:
        sys.stderr.write(f"time was up; for the rest: python -m benchmarks {' '.join(stopped)}\n")
    return good


def within(name: str, seconds: float) -> tuple[list[Row], int | None]:
    """Run a benchmark for so long; returns its rows, and its exit status, None if time was up."""
    command = [sys.executable, "-m", "benchmarks.table", name]
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder, "rows.jsonl")
        kept.touch()
        variables = os.environ | {ROWS: str(kept), "TMPDIR": folder}
        with subprocess.Popen(command, env=variables, start_new_session=True) as run:
            status = None
            try:
                status = run.wait(seconds)
            except subprocess.TimeoutExpired:
                pass
            finally:
                if status is None:
                    os.killpg(run.pid, signal.SIGKILL)
        return [Row(**json.loads(line)) for line in kept.read_text("utf-8").splitlines()], status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
