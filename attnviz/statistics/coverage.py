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
from types import MappingProxyType
from typing import Literal, NamedTuple

from attnviz.statistics.clusters import FEW
from attnviz.statistics.families import LEVEL

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
sources: each                        54/96/92   51/96/92    51/96/94   48/96/92  49/95/92         -
sources: all at once                        -          -  99/100/100  96/100/99 95/100/99         -
trimmed mean                          5/93/79    2/94/60     2/93/68    1/95/69   3/94/81   3/95/90
median                                      -   24/98/94     3/96/92    5/97/94   2/96/92   1/96/92
"""
"""By kind of interval and number of texts, in %: all together, the median one, the worst one."""

_OF_EFFECTS = (
    """
                                  10             15             19             20
ablate: all at once    96/100/100/21  96/100/100/35   94/100/99/44   96/100/99/45
ablate: each             30/95/92/57    34/95/94/68    29/95/92/74    33/95/93/78
ablate, mean: each        3/91/24/49     9/90/35/54     6/91/35/58     7/91/36/61
knockout: all at once              -  95/100/100/33   96/100/99/41   93/100/99/44
patch: all at once      94/100/99/30   95/100/99/59   93/100/99/70   95/100/99/74
patch, mean: each        26/94/91/76    30/94/92/86    28/93/92/88    32/94/93/92
thoughts: all at once   94/100/99/82  97/100/100/87   95/100/99/89   96/100/99/89
diff, mean: each          6/93/83/13     5/93/81/16     2/93/76/19     2/93/78/19
diff: all at once                  -   96/100/100/1   96/100/100/3   96/100/100/3
""",
    """
                                  21             30             50            200
ablate: all at once     96/100/99/47   96/100/99/61   96/100/99/80 96/100/100/100
ablate: each             32/95/93/78    31/96/93/88    30/95/93/96   33/95/93/100
ablate, mean: each       10/91/40/60     8/91/48/67     7/90/55/76     1/87/38/90
knockout: all at once  96/100/100/46  96/100/100/58   96/100/99/79 95/100/100/100
patch: all at once     95/100/100/76   94/100/99/91  94/100/100/99  95/100/99/100
patch, mean: each        29/94/92/92    30/94/92/95    38/95/92/99   34/95/93/100
thoughts: all at once   95/100/99/90   95/100/99/94   96/100/99/99  95/100/99/100
diff, mean: each          3/94/81/20     2/94/82/25     2/94/80/33     6/95/87/60
diff: all at once        96/100/99/3   97/100/100/7  96/100/100/17  94/100/100/63
""",
)
"""The same of effects; the last number is how many of those that there are were found."""


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


_FEW, _MANY = map(_read, _OF_EFFECTS)
MEASURED = MappingProxyType({
    **_read(_SHARES), **{kind: {**_FEW[kind], **_MANY[kind]} for kind in _FEW},
})  # fmt: skip
"""By kind of interval and number of texts."""


def measured(name: str, groups: float) -> tuple[int, Coverage] | None:
    """The figures at the largest measured number of texts that is not above ``groups``."""
    table = MEASURED.get(name, {})
    below = [size for size in table if size <= groups]
    return (max(below), table[max(below)]) if below else None


def word(kind: Kind, groups: float, unit: str = "texts") -> str | None:
    """What must be said beside 95 % intervals from so many texts; None where they hold."""
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
    """What must be said beside the intervals of a code path; None where they hold."""
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


def holds(name: str, groups: float) -> bool:
    """Whether intervals of a kind were measured to hold all at once from so many texts."""
    study = measured(name, groups)
    return study is not None and study[1].joint >= LEVEL - CLOSE


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
