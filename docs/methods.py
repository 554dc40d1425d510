"""How far methods of ablation agree, and how far each depends on what fills the heads.

Every head of demo-gpt2 by zero, mean (at every position, and over all tokens) and resample, with
several seeds: each draws other halves of the texts, and so other references and donors.

    python docs/methods.py texts.txt
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import attnviz as av
from attnviz.statistics.order import spearman

SEEDS = 2
ASKED = (("zero", "zero"), ("mean", "mean"), ("mean over tokens", "mean:tokens"),
         ("resample", "resample"))  # fmt: skip


def main() -> None:
    """Print a line for each method."""
    texts = Path(sys.argv[1]).read_text("utf-8").splitlines()
    model = av.load("demo-gpt2")
    changes, errors, spread, same = {}, {}, {}, {}
    for name, method in ASKED:
        runs = [
            av.ablate(texts, model=model, select="*.*", method=method, seed=seed)
            for seed in range(1 if method == "zero" else SEEDS)
        ]  # fmt: skip
        found = np.array([[effect.change for effect in run.effects] for run in runs])
        width = [[(effect.high or 0.0) - (effect.low or 0.0) for effect in run.effects]
                 for run in runs]  # fmt: skip
        changes[name], errors[name] = found.mean(0), np.array(width).mean(0) / 4
        if len(runs) > 1:
            spread[name] = found.std(0, ddof=1)
            pairs = [(a, b) for a in range(len(runs)) for b in range(a)]
            same[name] = np.mean([spearman(found[a], found[b]) for a, b in pairs])
    for name, mean in changes.items():
        others = ", ".join(
            f"{spearman(mean, other):.2f} with {which}"
            for which, other in changes.items()
            if which != name
        )
        again = ""
        if name in same:
            ratio = float(np.median(spread[name] / errors[name]))
            again = (
                f"; {same[name]:.2f} with itself by another seed, whose spread is {ratio:.2f} SE"
            )
        print(f"{name}: ranks of heads correlate {others}{again}")


if __name__ == "__main__":
    main()
