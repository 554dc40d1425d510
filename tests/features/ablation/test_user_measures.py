"""Metrics and fills of users, against attnviz's own of the same formula."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import attnviz as av
from attnviz.errors import UsageError

TEXTS = [
    "The cat sat on the mat and the cat sat",
    "The keys to the cabinet are on the table and the keys",
    "A dog ran in the park and a dog ran",
    "He was the king of the hill and she was the queen",
]


def test_a_metric_of_the_same_formula_gives_the_same_effects() -> None:
    @av.metric("own-kl", unit="nats", distance=True)
    def own_kl(seen: av.Predictions) -> torch.Tensor:
        full, changed = seen.full.log_softmax(-1), seen.logits.log_softmax(-1)
        return (full.exp() * (full - changed)).sum(-1)

    def loss(seen: av.Predictions) -> torch.Tensor:
        return F.cross_entropy(seen.logits, seen.targets, reduction="none")

    for metric, ours, slopes in (("own-kl", "kl", None), (loss, "loss", "plain")):
        mine = av.ablate(TEXTS, metric=metric, select="1.0, 1.4", method="zero", estimate=slopes)
        theirs = av.ablate(TEXTS, metric=ours, select="1.0, 1.4", method="zero", estimate=slopes)
        for one, other in zip(mine.effects, theirs.effects, strict=True):
            assert one.change == pytest.approx(other.change, abs=1e-6)  # theirs is not on torch
            assert one.gradient == pytest.approx(other.gradient, abs=1e-6)
        assert mine.distance == theirs.distance
        assert mine.user_defined[-1].what == "metric"
        assert mine.from_dict(mine.to_dict()) == mine


def test_fills_of_the_same_values_give_the_same_effects() -> None:
    @av.fill("nothing")
    def nothing(seen: av.Outputs) -> float:
        return 0.0

    @av.fill("average")
    def average(seen: av.Outputs) -> torch.Tensor:
        return seen.other

    mine = av.ablate(TEXTS, select="2.0, 2.4", method="nothing, average")
    theirs = av.ablate(TEXTS, select="2.0, 2.4", method="zero, mean")
    for one, other in zip(mine.effects, theirs.effects, strict=True):
        for own, ours in zip(one.by, other.by, strict=True):
            assert own.change == pytest.approx(ours.change, abs=1e-6)

    def again(seen: av.Outputs) -> torch.Tensor:
        """What a head gives, of its weights and values; [T, H, d_v]."""
        return torch.einsum("hts,hsd->thd", seen.weights, seen.values)

    same = av.ablate(TEXTS, select="2.0, 2.4", fill=again, method="zero")
    assert same.methods == ("custom", "zero")
    assert max(abs(one.change) for one in same.effects) < 1e-6
    other = av.patch(task="induction", count=2, select="2.0, 2.4")
    given = av.patch(task="induction", count=2, select="2.0, 2.4", fill="average")
    own = av.patch(task="induction", count=2, select="2.0, 2.4", fill=lambda seen: seen.outputs)
    assert [one.first.share for one in given.effects] == [one.first.share for one in other.effects]
    assert max(abs(one.first.share) for one in own.effects) < 1e-6
    assert [one.name for one in given.user_defined] == ["average"]


def test_a_metric_of_pairs_has_its_name() -> None:
    @av.metric("two-tokens", of="pairs")
    def two_tokens(logits: torch.Tensor, pair: av.Pair) -> torch.Tensor:
        return logits[100] - logits[200]

    pair = av.Pair("The king smiled because", "The queen smiled because", " he")
    found = av.patch(pair, select="2.0", metric="two-tokens", align="word")
    assert found.metric == "two-tokens"
    assert [one.function.rpartition(".")[2] for one in found.user_defined] == ["two_tokens"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda logits, pair: logits[10**9], "IndexError: "),
        (lambda logits, pair: pair.nothing, "AttributeError: "),
        (lambda logits, pair: sys.exit(0), "it calls sys.exit"),
        (lambda logits, pair: 10**400, "OverflowError: "),
        (lambda logits, pair: torch.view_as_complex(torch.ones(2)) * 1j, "RuntimeError: "),
    ],
)
def test_a_metric_of_pairs_that_fails_is_named(wrong: Any, said: str) -> None:
    pair = av.Pair("The king smiled because", "The queen smiled because", " he")
    with pytest.raises(UsageError, match=f"metric 'custom', given pair 1, failed: {said}"):
        av.patch(pair, select="2.0", metric=wrong, align="word")


def test_what_is_wrong_is_named() -> None:
    with pytest.raises(UsageError, match=r"metric 'flat' \(.*\) gives shape \[\] for 5 positions"):
        av.metric("flat")(lambda seen: seen.logits.sum())
    with pytest.raises(UsageError, match=r"fill 'odd' \(.*\) gives \[3\] for outputs"):
        av.fill("odd")(lambda seen: torch.zeros(3))
    with pytest.raises(UsageError, match="that of attnviz's own"):
        av.metric("loss")(lambda seen: seen.targets)
    with pytest.raises(UsageError, match="no metric='nobody'; choose one of loss"):
        av.ablate(TEXTS, metric="nobody")
    with pytest.raises(UsageError, match="no fill is called 'nobody'"):
        av.patch(task="induction", fill="nobody")
    with pytest.raises(UsageError, match="no fill is called"):
        av.patch(task="induction", fill=[])
    with pytest.raises(UsageError, match="failed: KeyError"):
        av.ablate(TEXTS, select="1.0", method="zero", metric=lambda seen: {}["a"])
    with pytest.raises(UsageError, match="has no gradient"):
        av.ablate(
            TEXTS, metric=lambda seen: (seen.logits.argmax(-1) > 3).double(), estimate="plain"
        )
