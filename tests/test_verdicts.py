"""Every verdict word of docs/claims.md is said where its condition holds, and nowhere else."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binomtest

from attnviz.core.heads import Head, Layout, Site
from attnviz.core.reasons import Origin
from attnviz.core.result import Interval
from attnviz.core.scores import Estimate, HeadScores, Role, Score
from attnviz.corpus.gold import tally
from attnviz.features.ablation import judge
from attnviz.features.ablation.result import Change, Effect
from attnviz.features.ablation.words import often
from attnviz.features.diff.description import strongest
from attnviz.features.diff.result import FigureChange, HeadChange
from attnviz.features.film.description import ordered
from attnviz.features.film.result import Order
from attnviz.features.knockout.result import CutChange, CutEffect
from attnviz.features.patch.circuit import smallest
from attnviz.features.patch.result import PatchShare, TaskScore
from attnviz.features.patch.words import not_done
from attnviz.features.profile.description import _perhaps as hint
from attnviz.features.profile.result import HeadProfile
from attnviz.features.sources.description import nothing
from attnviz.features.sources.result import SourceShare
from attnviz.features.thoughts.sentences import judged as judged_tails
from attnviz.interventions.judge import Estimated, Often
from attnviz.scoring.roles import FEW_ROWS, assign
from attnviz.statistics.order import shares
from tests import ROOT

DRAWS = 400
S = 0.1
Draw = random.Random
Drawn = tuple[bool, bool]
"""Whether the condition of the page holds for a drawn case, and whether the word is said of it."""


def change(draw: Draw) -> Change:
    """A change with a joint interval whose ends are anywhere about 0 and the smallest effect."""
    low = draw.choice([-2.5, -1.5, -0.5, 0.5, 1.5]) * S + draw.uniform(-S, S) / 2
    high = low + draw.choice([0.2, 1.0, 4.0]) * S
    sure = low > 0 or high < 0
    return Change("mean", (low + high) / 2, low, high, low, high, 0.5, sure, 0.1)


def ends(of: Change) -> tuple[float, float]:
    assert of.joint_low is not None
    assert of.joint_high is not None
    return of.joint_low, of.joint_high


def ablation(word: str) -> Callable[[Draw], Drawn]:
    """By the page's own condition, written anew, against the verdict of two methods."""

    def drawn(draw: Draw) -> Drawn:
        worse = draw.choice([-1, 1])
        by = [change(draw), change(draw)]
        spans = [sorted(worse * end for end in ends(one)) for one in by]
        costs = [low >= S for low, _ in spans]
        gains = [high <= -S for _, high in spans]
        up, down = [low > 0 for low, _ in spans], [high < 0 for _, high in spans]
        below = all(low > -S and high < S for low, high in spans)
        holds = {
            "needed": all(costs),
            "better without": all(gains),
            "depends": not below
            and ((any(up) and any(down)) or (sum(costs) + sum(gains) == 1 == sum(up) + sum(down))),
            "small": below,
            "": not below and not any(up) and not any(down),
        }
        holds["worse"] = not any(holds.values()) and any(up)
        return holds[word], judge.verdict(by, worse, S) == word

    return drawn


def share_of_nothing(draw: Draw) -> Drawn:
    """By the interval of its side all at once where there is one, by its own elsewhere."""
    own, joint = (tuple(sorted(draw.uniform(-1, 1) for _ in range(2))) for _ in range(2))
    several = draw.random() < 0.5
    share = SourceShare(
        Origin("token"), 0.0, 0.0, *own, *(joint if several else (None, None)), detectable=0.07
    )
    low, high = joint if several else own
    return low <= 0 <= high, nothing(share) == "nothing (7 % would show)"


def undecided(draw: Draw) -> Drawn:
    """A role that is not sure, of a score of which the texts say what would have been."""
    role = Role("previous", "previous", Score(0.7, 0.1, 7.0, 30), few_rows=False)
    shows = draw.choice([None, 0.62])
    estimate = Estimate(0.7, 0.1, 7.0, 30, 6, detectable=shows)
    scores = HeadScores(Head(Site("decoder", 0), 0), {}, ())
    perhaps = draw.choice([(), (role,)])
    head = HeadProfile(scores, {role.score: estimate}, (), {}, (), (), {}, (), None, perhaps)
    return bool(perhaps) and shows is not None, "(0.62 would show)" in hint(head)


def differs(draw: Draw) -> Drawn:
    low, high = sorted(draw.uniform(-1, 1) for _ in range(2))
    known = draw.random() < 0.8
    ends = (low, high) if known else (None, None)
    share = PatchShare(0.0, 0.0, -1.0, 1.0, 0.0, *ends)
    return known and not low <= 0 <= high, share.sure


def star(draw: Draw) -> Drawn:
    """Of a cut with a control and of one without, of a lead and of a distance."""
    spans = [sorted(draw.uniform(-1, 1) for _ in range(2)) for _ in range(2)]
    lead, held = draw.random() < 0.7, draw.random() < 0.5
    found = [Estimated(0.0, 0.0, 0.0, *span, 0.0, 0.0, 0.0, None) for span in spans]
    plain, excess = (
        CutChange(0.0, 0.0, 0.0, *span, one.sure if tells else None)
        for span, one, tells in zip(spans, found, (lead, True), strict=True)
    )
    control = (0.0, 0.7, excess) if held else (None, 0.3, None)
    cut = CutEffect("last", "subject", "all", "all heads", (), None, 0.5, 1.0, plain, *control, 20)
    low, high = spans[int(held)]
    return (held or lead) and not low <= 0 <= high, bool(cut.judged.sure)


def in_a_share(draw: Draw) -> Drawn:
    return of_so_many(draw.choice([0, 2, 12, 30, 60]))


@cache
def of_so_many(texts: int) -> Drawn:
    """One-sided, at 0.05 over both directions of 24 heads: a hundred texts, some of them worse."""
    values = np.zeros((100, 24))
    values[:texts, 0] = S
    least = float(shares(values, S).least_above[0])
    one = Change("mean", 0.0, None, None, None, None, 0.0, None, None)
    effect = Effect("0.0", (), (replace(one, often_worse=Often(texts, least)),))
    exact = binomtest(texts, 100).proportion_ci(1 - 2 * 0.05 / 48).low if texts else 0.0
    said = often(SimpleNamespace(texts=100), effect)
    return exact >= 0.005, said == f"worse in {100 * exact:.0f} % or more"


def receives(draw: Draw) -> Drawn:
    """Nine traces or ten of a head of 24 that is above its control in all, or in most."""
    traces = draw.choice([9, 10, 12])
    above = draw.choice([traces, traces - 1, traces // 2])
    excess = np.full((traces, 24), -0.1)
    excess[:above, 0] = 1.0
    layout = Layout({"decoder": (24,)})
    first = judged_tails(layout, excess, np.zeros_like(excess), [str(n) for n in range(traces)])[0]
    misses = 2 * sum(math.comb(traces, k) for k in range(traces - above + 1)) / 2**traces
    return misses <= 0.05 / 24, bool(first.sure)


def undone(draw: Draw) -> Drawn:
    wins = draw.choice([None, draw.random()])
    low, top = draw.uniform(-1, 1), draw.choice([0.0, draw.random()])
    score = TaskScore(low + 1, low, low + 2, wins, top)
    holds = top == 0 if wins is None else wins <= 0.5
    return holds or low <= 0, bool(not_done(score, "logit-diff"))


def near(draw: Draw) -> Drawn:
    share, least = draw.uniform(0.5, 1.5), draw.choice([0.85, 0.9])
    return least <= share <= 2 - least, smallest([0.0, share], least) == 1


def changed(draw: Draw) -> Drawn:
    low, high = sorted(draw.uniform(-1, 1) for _ in range(2))
    small = FigureChange("previous", 0.5, 0.6, 0.1, 0.0, 1.0, 0.1, low, high)
    large = FigureChange("induction", 0.1, 0.9, 0.8, 0.7, 0.9, 0.1, -1.0, 1.0)
    head = HeadChange("1.4", None, (large, small), (), ())
    return low * high > 0, strongest(head) is small


def before(draw: Draw) -> Drawn:
    low = draw.randrange(-50, 50)
    said = ordered(Order("previous", "induction", 60, low, low + 100, 0.9))
    return low > 0, " steps before " in said


def role(draw: Draw) -> Drawn:
    """Previous-token heads: 0.5 of the weight, twice chance, on three rows."""
    mean, chance, rows = draw.uniform(0.3, 0.7), draw.uniform(0.1, 0.4), draw.randrange(1, 6)
    score, rival = Score(mean, chance, mean / chance, rows), draw.uniform(0, 1 - mean)
    found = assign({"previous": score}, {"previous": {"first": rival}})
    holds = mean >= 0.5 and mean / chance >= 2 and rows >= 3 and rival < mean
    return holds, [one.name for one in found] == ["previous"]


def few(draw: Draw) -> Drawn:
    rows = draw.randrange(3, 2 * FEW_ROWS)
    (found,) = assign({"previous": Score(0.9, 0.1, 9.0, rows)})
    return rows < 8, found.few_rows


def annotated(draw: Draw) -> Drawn:
    accuracy, margin = draw.uniform(0.1, 0.6), draw.uniform(0.0, 0.3)
    cases, documents = draw.randrange(20, 60), draw.randrange(5, 20)
    p, asked = draw.choice([0.0001, 0.02, 0.2]), draw.choice([1, 10, 100])
    share = Interval(accuracy, 0.0, 1.0)
    said = (
        tally.enough(cases, documents)
        and tally.large(share, replace(share, value=margin))
        and tally.sure([p], asked)[0]
    )
    holds = accuracy >= 0.25 and margin >= 0.1 and cases >= 30 and documents >= 10
    return holds and p * asked <= 0.05, said


WORDS: dict[str, Callable[[Draw], Drawn]] = {
    "needed": ablation("needed"), "better without": ablation("better without"),
    "worse by mean only": ablation("depends"), "worse, not surely by s": ablation("worse"),
    "below s": ablation("small"), "nothing (d would show)": ablation(""),
    "nothing (7 % would show)": share_of_nothing, "undecided (0.62 would show)": undecided,
    "worse in 34 % or more": in_a_share, "differs from 0": differs, "a star": star,
    "does not do this task": undone, "a circuit": near, "largest change": changed,
    "a receiver head": receives, "before": before, "a role": role, "few rows": few,
    "syntactic, coreference": annotated,
}  # fmt: skip


def on_the_page() -> list[str]:
    """The words of the table, without their signs."""
    text = (ROOT / "docs" / "claims.md").read_text("utf-8")
    table = text.partition("## Verdict words")[2].partition("\n## ")[0]
    cells = [line.split(" | ")[0].strip("| ") for line in table.splitlines() if line[:1] == "|"]
    return [re.sub(r"\*", "", cell) for cell in cells[2:]]


def test_the_page_has_every_word_that_is_drawn() -> None:
    assert on_the_page() == list(WORDS)


@pytest.mark.parametrize("word", WORDS)
def test_a_word_is_said_where_its_condition_holds_and_nowhere_else(word: str) -> None:
    draw = random.Random(word)
    drawn = [WORDS[word](draw) for _ in range(DRAWS)]
    assert [said for _, said in drawn] == [holds for holds, _ in drawn]
    assert {said for _, said in drawn} == {True, False}
