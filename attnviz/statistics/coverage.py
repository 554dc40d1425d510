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


def _table(*rows: tuple[int, float, float, float]) -> Mapping[int, Coverage]:
    return MappingProxyType(
        {size: Coverage(*(share / 100 for share in shares)) for size, *shares in rows}
    )


MEASURED: Mapping[str, Mapping[int, Coverage]] = MappingProxyType(
    {
        "pooled, each: common scores": _table(
            (5, 0, 87, 44),
            (10, 0, 88, 44),
            (20, 1, 88, 50),
            (50, 5, 93, 56),
            (200, 14, 95, 72),
            (1000, 22, 95, 83),
        ),
        "pooled, each: rare scores": _table(
            (10, 6, 24, 7),
            (20, 2, 24, 13),
            (50, 6, 26, 21),
            (200, 32, 63, 60),
            (1000, 54, 88, 86),
        ),
        "pooled, Bonferroni: common scores": _table(
            (5, 29, 100, 76),
            (10, 22, 100, 70),
            (20, 30, 100, 72),
            (50, 46, 100, 76),
            (200, 70, 100, 85),
            (1000, 90, 100, 96),
        ),
        "pooled, simultaneous: common scores": _table(
            (20, 91, 100, 97),
            (50, 94, 100, 98),
            (200, 91, 100, 95),
            (1000, 96, 100, 98),
        ),
        "pooled, simultaneous: rare scores": _table(
            (50, 85, 100, 89),
            (200, 77, 87, 78),
            (1000, 97, 99, 98),
        ),
        "macro, each: common scores": _table(
            (5, 1, 92, 46),
            (10, 0, 94, 49),
            (20, 2, 93, 51),
            (50, 2, 94, 62),
            (200, 5, 94, 61),
            (1000, 14, 95, 81),
        ),
        "macro, each: rare scores": _table(
            (10, 12, 80, 20),
            (20, 7, 82, 29),
            (50, 8, 83, 42),
            (200, 23, 90, 77),
            (1000, 30, 93, 90),
        ),
        "macro, Bonferroni: common scores": _table(
            (5, 35, 100, 77),
            (10, 28, 100, 70),
            (20, 30, 100, 69),
            (50, 51, 100, 81),
            (200, 63, 100, 84),
            (1000, 87, 100, 93),
        ),
        "ablate, trimmed: all at once": _table(
            (5, 96, 100, 99),
            (10, 94, 100, 98),
            (20, 100, 100, 100),
            (50, 99, 100, 99),
            (200, 94, 100, 99),
        ),
        "ablate, trimmed: each": _table(
            (5, 20, 97, 93),
            (10, 12, 95, 86),
            (20, 20, 96, 88),
            (50, 14, 95, 89),
            (200, 14, 96, 90),
        ),
        "ablate, mean: all at once": _table(
            (5, 34, 100, 47),
            (10, 28, 99, 42),
            (20, 62, 100, 62),
            (50, 75, 100, 75),
            (200, 66, 100, 66),
        ),
        "ablate, mean: each": _table(
            (5, 2, 89, 28),
            (10, 2, 90, 29),
            (20, 8, 92, 37),
            (50, 4, 90, 17),
            (200, 5, 87, 35),
        ),
        "diff: all at once": _table(
            (5, 73, 100, 92),
            (10, 61, 100, 90),
            (20, 99, 100, 99),
            (50, 98, 100, 99),
            (200, 96, 100, 98),
        ),
        "diff, sink: all at once": _table(
            (5, 65, 100, 79),
            (10, 65, 100, 83),
            (20, 98, 100, 99),
            (50, 82, 100, 84),
            (200, 93, 100, 93),
        ),
        "sources: each": _table(
            (5, 54, 96, 92),
            (10, 51, 96, 92),
            (20, 51, 96, 94),
            (50, 48, 96, 92),
            (200, 49, 95, 92),
        ),
        "sources: all at once": _table(
            (20, 99, 100, 100),
            (50, 96, 100, 99),
            (200, 95, 100, 99),
        ),
        "trimmed mean": _table(
            (5, 9, 94, 84),
            (10, 1, 93, 63),
            (20, 1, 93, 66),
            (50, 2, 94, 69),
            (200, 2, 94, 80),
            (1000, 3, 96, 90),
        ),
        "median": _table(
            (10, 23, 98, 94),
            (20, 4, 96, 93),
            (50, 4, 97, 94),
            (200, 2, 96, 93),
            (1000, 1, 96, 92),
        ),
    }
)
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
