"""How often intervals hold, measured: what to say beside them at some number of texts.

The figures are those of ``python -m proofs.coverage`` (docs/profile.md and docs/claims.md name the
commands), which takes the sentences of a treebank for the whole population: 2,001 of UD English EWT
(dev), with the scores of the 24 heads of demo-gpt2 and the sources of the keys of 2.0. Other texts
and models have other tails, so the figures say about how far to trust an interval, not exactly. A
test measures again on populations made up with tails like these. What is judged by medians is
measured on such populations alone (``--path all``): on either side of 20 texts, and with the share
of the effects that there are which the intervals find.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

from attnviz.statistics.clusters import FEW, LEVEL

Kind = Literal["each", "simultaneous"]

POPULATION = "sentences of a treebank"

CLOSE = 0.03
"""An interval that holds so much less often than it says deserves a word."""


class Coverage(NamedTuple):
    """How often intervals held: all of them together, and of single means the median and worst.

    Beside it the share of the true effects that they found, where that was measured.
    """

    joint: float
    middle: float
    worst: float
    found: float | None = None


def _read(tables: str) -> Mapping[str, Mapping[int, Coverage]]:
    """Read tables, each under a line of numbers of texts; a dash where nothing was measured.

    Cells are shares in %: all together, the median one, the worst one, and of effects how many of
    those that there are were found.
    """
    read: dict[str, dict[int, Coverage]] = {}
    for table in tables.split("\n\n"):
        heading, *rows = table.strip("\n").splitlines()
        sizes = list(map(int, heading.split()))
        for row in rows:
            name, *cells = row.rsplit(maxsplit=len(sizes))
            figures = read.setdefault(name.strip(), {})
            for size, cell in zip(sizes, cells, strict=True):
                if cell != "-":
                    figures[size] = Coverage(*(int(share) / 100 for share in cell.split("/")))
    return MappingProxyType({name: MappingProxyType(cells) for name, cells in read.items()})


MEASURED = _read(Path(__file__).with_suffix(".txt").read_text("utf-8"))
"""By kind of interval and number of texts."""


def measured(name: str, groups: float) -> tuple[int, Coverage] | None:
    """Return the figures at the largest measured number of texts that is not above ``groups``."""
    table = MEASURED.get(name, {})
    below = [size for size in table if size <= groups]
    return (max(below), table[max(below)]) if below else None


def word(kind: Kind, groups: float, unit: str = "texts") -> str | None:
    """Return what must be said beside 95 % intervals from so many texts; None where they hold."""
    rare = measured(f"pooled, {kind}: rare scores", groups)
    common = measured(f"pooled, {kind}: common scores", groups)
    parts = []
    if kind == "each":
        if common is not None and groups < FEW:
            size, held = common
            parts.append(
                f"from {size:,} {POPULATION} they held in {_percent(held.middle)} of samples "
                f"(median score) and {_percent(held.worst)} (worst score)"
            )
        if rare is not None and rare[1].middle < LEVEL - CLOSE:
            parts.append(
                f"of scores that few texts have, such as induction, in {_percent(rare[1].middle)} "
                f"of samples of {rare[0]:,}"
            )
    else:
        for scores, study in (("common scores", common), ("scores that few texts have", rare)):
            if study is not None and study[1].joint < LEVEL - CLOSE:
                parts.append(
                    f"those of {scores} held together in {_percent(study[1].joint)} of samples of "
                    f"{study[0]:,} {POPULATION}"
                )
    if not parts:
        return None
    return f"95 % intervals from {groups:,.0f} {unit} cover less: {'; '.join(parts)}."


def word_of(name: str, groups: float) -> str | None:
    """Return what must be said beside the intervals of a code path; None where they hold."""
    study = measured(name, groups)
    if study is None or study[1].middle >= LEVEL - CLOSE:
        return None
    return (
        f"95 % intervals from {groups:,.0f} texts cover less: from {study[0]:,} {POPULATION} they "
        f"held in {_percent(study[1].middle)} of samples."
    )


def holds(name: str, groups: float) -> bool:
    """Whether intervals of a kind were measured to hold all at once from so many texts."""
    study = measured(name, groups)
    return study is not None and study[1].joint >= LEVEL - CLOSE


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
