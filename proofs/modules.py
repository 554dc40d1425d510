"""Attention modules that are right, and bugs planted into them: which names ``check`` gives.

``python -m proofs.modules`` prints the whole table of bugs by verdicts, over all sizes.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence

import torch
from torch import nn

import attnviz as av
from attnviz.features.check.result import ModuleCheck
from proofs.hand_written import RIGHT, WRONG, Make
from proofs.row import Proof

COMMAND = "python -m proofs modules"
SIZES = ((24, 4), (16, 2), (40, 5), (48, 3), (60, 6))
"""D and H; d, H and T are three numbers in each, so that none is taken for another."""


def checked(make: Make, sizes: tuple[int, int]) -> ModuleCheck:
    """Return the verdict on a module of these sizes, with weights of seed 0."""
    torch.manual_seed(0)
    module: nn.Module = make(*sizes)
    found = av.check(module)
    assert isinstance(found, ModuleCheck)
    return found


def verdicts(sizes: Sequence[tuple[int, int]]) -> Iterator[tuple[str, str, str]]:
    """Every module as (what it is, the name that it must get, the name that it gets)."""
    for size in sizes:
        for name, make in RIGHT.items():
            found = checked(make, size)
            yield name, "right", ", ".join(bug.name for bug in found.bugs) or found.verdict
        for name, (make, bug) in WRONG.items():
            if "tiled" in name and (size[1] % 2 or size[1] == 2):
                continue  # two key heads do not go into an odd number, and of two are all
            found = checked(make, size)
            yield name, bug, ", ".join(bug.name for bug in found.bugs) or found.verdict


def rows(small: bool, minilm: str) -> Iterator[Proof]:
    """Right modules, and planted bugs; of small ones one size."""
    sizes = SIZES[:1] if small else SIZES
    found = list(verdicts(sizes))
    right = [entry for entry in found if entry[1] == "right"]
    wrong = [entry for entry in found if entry[1] != "right"]
    for what, entries in ((f"{len(RIGHT)} right attention modules", right),
                          (f"{len(WRONG)} modules with a planted bug", wrong)):  # fmt: skip
        agree = sum(must == got for _, must, got in entries)
        yield Proof(
            f"{what}, in {len(sizes)} sizes: the name that check gives",
            f"by construction, {len(entries)} calls",
            f"{agree} of {len(entries)} as they must be",
            "exact",
            agree == len(entries),
            f"{COMMAND}; python -m proofs.modules",
        )


def main() -> int:
    """Print the table; 1 where a name is not what it must be."""
    begun = time.process_time()
    found = list(verdicts(SIZES))
    seconds = (time.process_time() - begun) / len(found)
    names = sorted({got for *_, got in found} | {must for _, must, _ in found})
    print(f"| what must be named | {' | '.join(names)} |\n|{'---|' * (len(names) + 1)}")
    counts = Counter((must, got) for _, must, got in found)
    for must in sorted({must for _, must, _ in found}):
        cells = [str(counts[must, name] or "") for name in names]
        print(f"| {must} | {' | '.join(cells)} |")
    wrong = [entry for entry in found if entry[1] != entry[2]]
    for name, must, got in wrong:
        print(f"{name}: {must}, and is called {got}")
    print(f"{len(found)} modules, {len(wrong)} misnamed, {seconds:.2f} s of processor time each")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
