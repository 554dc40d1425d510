"""How often intervals hold, measured: what to say beside them at some number of texts.

The figures are those of ``python -m proofs.coverage`` (docs/profile.md and docs/claims.md name the
commands), which takes the sentences of a treebank for the whole population: 2,001 of UD English EWT
(dev), with the scores of the 24 heads of demo-gpt2, the effects of ablating them, the changes of
their scores where a tenth of noise is added to all weights, and the sources of the keys of 2.0.
Other texts and models have other tails, so the figures say about how far to trust an interval, not
exactly. A test measures again on populations made up with tails like these.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from attnviz.statistics.clusters import FEW, LEVEL

Kind = Literal["each", "simultaneous"]

POPULATION = "sentences of a treebank"

CLOSE = 0.03
"""An interval that holds so much less often than it says deserves a word."""


class Coverage(NamedTuple):
    """How often intervals held: all of them together, and of single means the median and worst."""

    joint: float
    middle: float
    worst: float


_SHARES = """
                                            5         10          20         50       200      1000
pooled, each: common scores           0/88/45    0/88/46     4/89/56    5/93/63   8/95/71  17/94/78
pooled, each: rare scores                   -     6/26/7     4/25/12    5/27/20  33/64/59  54/88/86
pooled, Bonferroni: common scores   33/100/68  29/100/69   41/100/73  51/100/82 72/100/92 90/100/95
pooled, simultaneous: common scores         -          -   88/100/94  91/100/96 92/100/96 95/100/97
pooled, simultaneous: rare scores           -          -           -  83/100/88  76/88/79  97/98/97
macro, each: common scores            1/92/43    1/94/53     2/93/59    4/95/68   7/94/85  13/95/91
macro, each: rare scores                    -   11/79/21     8/82/37    8/84/47  22/90/76  28/94/90
macro, Bonferroni: common scores    45/100/76  37/100/76   47/100/80  62/100/84 82/100/96 96/100/99
macro, simultaneous: common scores          -          -   90/100/94  97/100/98 98/100/99 97/100/99
macro, simultaneous: rare scores            -          -           -  91/100/94 95/100/95 99/100/99
ablate, trimmed: all at once        96/100/99  94/100/98 100/100/100  99/100/99 94/100/99         -
ablate, trimmed: each                20/97/93   12/95/86    20/96/88   14/95/89  14/96/90         -
ablate, mean: all at once           34/100/47   28/99/42   62/100/62  75/100/75 66/100/66         -
ablate, mean: each                    2/89/28    2/90/29     8/92/37    4/90/17   5/87/35         -
diff: all at once                   73/100/92  61/100/90   99/100/99  98/100/99 96/100/98         -
diff, sink: all at once             65/100/79  65/100/83   98/100/99  82/100/84 93/100/93         -
sources: each                        54/96/92   51/96/92    51/96/94   48/96/92  49/95/92         -
sources: all at once                        -          -  99/100/100  96/100/99 95/100/99         -
trimmed mean                          5/93/79    2/94/60     2/93/68    1/95/69   3/94/81   3/95/90
median                                      -   24/98/94     3/96/92    5/97/94   2/96/92   1/96/92
"""
"""By kind of interval and number of texts, in %: all together, the median one, the worst one."""


def _read(table: str) -> Mapping[str, Mapping[int, Coverage]]:
    """The rows of a table under a line of numbers of texts; a dash where nothing was measured."""
    heading, *rows = table.strip("\n").splitlines()
    sizes = list(map(int, heading.split()))
    read = {}
    for row in rows:
        name, *cells = row.rsplit(maxsplit=len(sizes))
        shares = {n: cell.split("/") for n, cell in zip(sizes, cells, strict=True) if cell != "-"}
        read[name.strip()] = MappingProxyType(
            {n: Coverage(*(int(share) / 100 for share in some)) for n, some in shares.items()}
        )
    return MappingProxyType(read)


MEASURED = _read(_SHARES)
"""By kind of interval and number of texts."""


def measured(name: str, groups: float) -> tuple[int, Coverage] | None:
    """The figures at the largest measured number of texts that is not above ``groups``."""
    table = MEASURED.get(name, {})
    below = [size for size in table if size <= groups]
    return (max(below), table[max(below)]) if below else None


def word(kind: Kind, groups: float, unit: str = "texts") -> str | None:
    """What must be said beside 95 % intervals from so many texts; None where they hold.

    Args:
        kind: ``each`` for intervals by themselves, ``simultaneous`` for all at once.
        groups: how many independent texts.
        unit: what they are called.
    """
    rare = measured(f"pooled, {kind}: rare scores", groups)
    common = measured(f"pooled, {kind}: common scores", groups)
    said = []
    if kind == "each":
        if common is not None and groups < FEW:
            size, held = common
            said.append(
                f"from {size:,} {POPULATION} they held in {_percent(held.middle)} of samples "
                f"(median score) and {_percent(held.worst)} (worst score)"
            )
        if rare is not None and rare[1].middle < LEVEL - CLOSE:
            said.append(
                f"of scores that few texts have, such as induction, in {_percent(rare[1].middle)} "
                f"of samples of {rare[0]:,}"
            )
    else:
        for what, study in (("common scores", common), ("scores that few texts have", rare)):
            if study is not None and study[1].joint < LEVEL - CLOSE:
                said.append(
                    f"those of {what} held together in {_percent(study[1].joint)} of samples of "
                    f"{study[0]:,} {POPULATION}"
                )
    if not said:
        return None
    return f"95 % intervals from {groups:,.0f} {unit} cover less: {'; '.join(said)}."


def word_of(name: str, groups: float, unit: str = "texts") -> str | None:
    """What must be said beside the intervals of a code path; None where they hold.

    Args:
        name: of the table, such as ``sources: each``; of those that hold ``all at once`` the share
            of samples in which all did, else that of the worst.
        groups: how many independent texts.
        unit: what they are called.
    """
    study = measured(name, groups)
    if study is None:
        return None
    size, held = study
    joint = name.endswith("all at once")
    share = held.joint if joint else held.middle
    if share >= LEVEL - CLOSE:
        return None
    return (
        f"95 % intervals from {groups:,.0f} {unit} cover less: from {size:,} {POPULATION} they "
        f"held {'together ' if joint else ''}in {_percent(share)} of samples."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
