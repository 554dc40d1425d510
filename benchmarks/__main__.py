"""``python -m benchmarks [NAME ...]``: print every table; exit 1 if a target is missed.

Figures go to standard error as they are found. Without a name all benchmarks run, the largest
models left out, and none begins after 16 minutes: what is left then is named, with its command.
"""

from __future__ import annotations

import os
import sys
import time
from importlib import import_module

from benchmarks.table import show

TABLES = {
    "startup": "Whole processes",
    "commands": "Commands that take seconds",
    "models": "Models of a billion parameters",
    "hybrids": "Layers with a state",
    "arrays": "NumPy and torch",
    "streaming": "Scores on the fly",
    "busy": "A machine that others work on",
    "ablation": "Heads ablated",
    "patching": "Values of one run in another",
    "lengths": "Long texts",
    "profiling": "Profiles of many texts",
    "logits": "Logits split over their parts",
    "sources": "Scores split over their sources",
    "lens": "Every layer read out",
    "thoughts": "Sentences of a long trace",
    "circuits": "Circuits in weights",
    "atlas": "Everything about every head",
    "flow": "What flows from layer to layer",
    "export": "Batches of pictures",
    "grammar": "Gold annotation",
    "film": "Heads while training",
    "viewer": "The page of all heads",
    "many": "Pages of very many heads",
    "live": "The model in a page",
}

MOST_SECONDS = 16 * 60
"""After which no benchmark begins, where all of them were asked for."""
SMALLEST = "SmolLM2-135M"
"""Of the models of a billion parameters, the one that runs with all the others."""


def main(names: list[str]) -> int:
    """Run the named benchmarks, or all of them."""
    unknown = [name for name in names if name not in TABLES]
    if unknown:
        sys.stderr.write(f"no benchmark {unknown[0]!r}; there are {', '.join(TABLES)}\n")
        return 2
    if not names:
        os.environ.setdefault("ATTNVIZ_SHAPES", SMALLEST)
    start, good, left = time.monotonic(), [], []
    for name, title in TABLES.items():
        if names and name not in names:
            continue
        if not names and time.monotonic() - start > MOST_SECONDS:
            left.append(name)
            continue
        good.append(show(title, import_module(f"benchmarks.{name}").measure()))
    if left:
        sys.stderr.write(f"no time was left; run python -m benchmarks {' '.join(left)}\n")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
