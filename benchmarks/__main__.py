"""``python -m benchmarks [NAME ...]``: print every table; exit 1 if a target is missed."""

from __future__ import annotations

import sys
from importlib import import_module

from benchmarks.table import show

TABLES = {
    "startup": "Whole processes",
    "models": "Models of a billion parameters",
    "hybrids": "Layers with a state",
    "arrays": "NumPy and torch",
    "streaming": "Scores on the fly",
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


def main(names: list[str]) -> int:
    """Run the named benchmarks, or all of them."""
    unknown = [name for name in names if name not in TABLES]
    if unknown:
        sys.stderr.write(f"no benchmark {unknown[0]!r}; there are {', '.join(TABLES)}\n")
        return 2
    good = [
        show(title, import_module(f"benchmarks.{name}").measure())
        for name, title in TABLES.items()
        if not names or name in names
    ]
    return 0 if all(good) else 1


sys.exit(main(sys.argv[1:]))
