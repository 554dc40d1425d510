"""Heads that attend as the rule of their name says: beside NumPy by hand, and planted heads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.cli import main
from attnviz.core.heads import Site
from attnviz.core.tokens import Tokens
from attnviz.corpus.relations import check_tree
from attnviz.errors import UsageError
from attnviz.features.ablation.result import Ablation
from attnviz.features.ablation.ruled import HeadRules
from attnviz.models.demo import DEMOS
from attnviz.models.native.source import Native
from attnviz.scoring.rules import RULES, RuleText, permuted
from attnviz.statistics.ratios import fieller
from proofs.plain import Plain
from tests import ROOT
from tests.features.patch.planted import PREVIOUS, planted
from tests.models.tiny import build
from tests.repeated import REPEATED

TEXTS = list(REPEATED[:6])
SITE = Site("decoder", 0)


def rows_of(name: str, words: str, *, causal: bool = True, special: tuple[int, ...] = ()) -> Any:
    """What a rule gives a text of words, [T, T], and which keys it may have."""
    texts = tuple(words.split())
    marks = tuple(n in special for n in range(len(texts)))
    tokens = Tokens(texts, special=marks, separators=marks)
    allowed = np.tri(len(texts), dtype=bool) if causal else np.ones((len(texts),) * 2, bool)
    return RULES[name].rows(RuleText(tokens, tokens, allowed, SITE)), allowed


@pytest.mark.parametrize("name", [name for name in RULES if not RULES[name].user])
@pytest.mark.parametrize("causal", [True, False])
def test_rules_by_hand(name: str, causal: bool) -> None:
    """Key by key, as the table of the docs has it; rows without a key rest on the sink."""
    words = "a b , a b a a [SEP] b"
    rows, allowed = rows_of(name, words, causal=causal, special=(7,))
    tokens = words.split()
    size = len(tokens)

    def marks(i: int) -> list[int]:
        copies = [j for j in range(i) if tokens[j] == tokens[i] and j != 7]
        after = [j + 1 for j in copies if j + 1 != 7]
        return {
            "previous": [i - 1], "next": [i + 1], "self": [i], "first": [0], "separator": [7],
            "punctuation": [2], "local": [*range(i - 2, i + 3)], "duplicate": copies[-1:],
            "duplicate-all": copies, "induction": after[-1:], "induction-all": after,
            "diffuse": [*range(size)],
        }[name]  # fmt: skip

    for i in range(size):
        keys = [j for j in marks(i) if 0 <= j < size and allowed[i, j]]
        keys = keys or [j for j in (0, 7) if allowed[i, j]]
        expected = np.zeros(size)
        expected[keys] = 1 / len(keys)
        np.testing.assert_allclose(rows[i], expected, err_msg=f"row {i}")


def test_nulls_have_the_same_weights_at_other_keys() -> None:
    rows, allowed = rows_of("local", "a b c d e f g h")
    anew = permuted(rows, allowed, (0, 1, 2, 3))
    assert (anew[~allowed] == 0).all()
    np.testing.assert_array_equal(np.sort(anew, -1), np.sort(rows, -1))
    assert (anew != rows).any()
    np.testing.assert_array_equal(anew, permuted(rows, allowed, (0, 1, 2, 3)))
    assert (anew != permuted(rows, allowed, (1, 1, 2, 3))).any()


def test_fieller_is_where_a_difference_stops_being_sure() -> None:
    """By a walk over ratios: t of Σ(a - r b) within its quantile; none where b may be 0."""
    draw = np.random.default_rng(5)
    b = draw.normal(2, 1, 12)
    a = 0.8 * b + draw.normal(0, 0.4, 12)
    low, high = fieller(a, b)
    walk = np.linspace(-1, 3, 40_001)
    rest = a[:, None] - walk * b[:, None]
    t = abs(rest.mean(0)) / (rest.std(0, ddof=1) / np.sqrt(12))
    inside = walk[t < 2.200985]  # Student's t, 11 degrees of freedom
    assert (low, high) == pytest.approx((inside.min(), inside.max()), abs=2e-4)
    assert np.isnan(fieller(a, b - 2)).all()
    assert np.isnan(fieller(a[:4], b[:4])).all()


def ids_of(cap: av.Capture) -> tuple[int, ...]:
    """The ids of a text."""
    (sides,) = cap.inputs.sides.values()
    return sides.queries.ids


def induced(ids: np.ndarray) -> np.ndarray:
    """Row i on what followed the last earlier copy of its token, else on the first, [B, T, T]."""
    weights = np.zeros((*ids.shape, ids.shape[1]))
    for b, row in enumerate(ids.tolist()):
        for i, token in enumerate(row):
            before = [j for j in range(i) if row[j] == token]
            weights[b, i, before[-1] + 1 if before else 0] = 1
    return weights


@pytest.fixture(scope="module")
def found() -> Ablation:
    return av.ablate(
        TEXTS, select="1.4, 3.0, 1.4+3.0", method="rule:previous, rule:induction, zero",
        average="mean",
    )  # fmt: skip


def test_changes_are_those_of_numpy_by_hand(found: Ablation) -> None:
    """Text by text, with the same weights put in place by other code, in float64."""
    plain = Plain(DEMOS["demo-gpt2"], np.float64)
    caps = [av.capture(text) for text in TEXTS]
    totals = dict.fromkeys([(e.name, kept.method) for e in found.effects for kept in e.kept], 0.0)
    lost, rows = dict.fromkeys([e.name for e in found.effects], 0.0), 0
    for cap in caps:
        ids = np.array([ids_of(cap)])
        base = plain.losses(ids)
        rows += base.size
        rules = {"rule:previous": np.eye(ids.shape[1], k=-1)[None], "rule:induction": induced(ids)}
        rules["rule:previous"][:, 0, 0] = 1
        heads = {"1.4": [(1, 4)], "3.0": [(3, 0)], "1.4+3.0": [(1, 4), (3, 0)]}
        for name, places in heads.items():
            zero = dict.fromkeys(places, np.zeros(1))
            lost[name] += (plain.losses(ids, zero) - base).sum()
            for method, weights in rules.items():
                looks = dict.fromkeys(places, weights)
                totals[name, method] += (plain.losses(ids, looks=looks) - base).sum()
    for effect in found.effects:
        assert effect.first.mean == pytest.approx(lost[effect.name] / rows, abs=2e-6)
        for kept in effect.kept:
            total = totals[effect.name, kept.method]
            assert kept.change == pytest.approx(total / rows, abs=2e-6)
            if kept.share is not None:
                assert kept.share == pytest.approx(1 - total / lost[effect.name], abs=1e-5)


def test_a_head_s_own_weights_change_nothing() -> None:
    maps = {ids_of(cap): cap for cap in map(av.capture, TEXTS)}

    @av.rule("own-weights")
    def own(text: av.RuleText) -> Any:
        cap = maps.get(text.queries.ids)
        return text.allowed if cap is None else cap[f"{text.site.layer}.4"]

    found = av.ablate(TEXTS, select="0.4, 1.4, 2.4", method="rule:own-weights, zero")
    for effect in found.effects:
        (kept,) = effect.kept
        assert abs(kept.change) < 1e-6 < abs(effect.change)
    assert [mark.what for mark in found.user_defined] == ["rule"]


def test_planted_heads_are_what_they_are_called() -> None:
    """The head that looks back keeps all of it; an idle one has no share, whatever its rule."""
    draw = np.random.default_rng(0)
    halves = [draw.permutation(16)[:7].tolist() for _ in range(12)]
    back = ".".join(map(str, PREVIOUS))
    found = av.ablate(
        [av.Prompt(ids=(*half, *half)) for half in halves], model=planted(),
        method="mean, rule, rule:diffuse", select=f"{back}, 0.0", reference="unmatched",
    )  # fmt: skip
    looks_back, idle = found.effects
    named, diffuse = looks_back.kept
    assert (named.rule, named.explains, diffuse.explains) == ("previous", True, False)
    assert named.share == pytest.approx(1, abs=1e-4)
    assert named.null < 0.5
    assert all(kept.share is None for kept in idle.kept)


def test_roles_are_named_on_other_texts_and_random_weights_have_none() -> None:
    """With the sizes of trained weights and no training no rule explains a head."""
    model = av.load("demo-gpt2", untrained=0, scale="trained")
    found = av.ablate(TEXTS, model=model, method="rule", select="0.*, 2.*")
    assert not any(kept.explains for effect in found.effects for kept in effect.kept)


def test_soft_rules_keep_the_weight_that_a_head_has_there() -> None:
    """The rest is the mean: of a head all of whose weight obeys, soft and hard are the same."""
    hard, soft = (
        av.ablate(TEXTS, select="1.4, 3.0", method=f"{kind}, mean").effects
        for kind in ("rule:previous", "soft-rule:previous")
    )
    assert soft[0].kept[0].change == pytest.approx(hard[0].kept[0].change, abs=0.05)
    # 3.0 looks back at hardly anything, so that its soft rule is its mean
    assert abs(soft[1].kept[0].change - soft[1].first.mean) < 0.02
    assert soft[1].kept[0].method == "soft-rule:previous"


@pytest.mark.parametrize("family", ["llama", "t5"])
def test_hooked_models_attend_by_rules(family: str, tmp_path: Path) -> None:
    """Grouped keys, encoder, decoder and cross-attention: a head's own weights change nothing."""
    build(family, tmp_path, 3.0, words=True)
    prompt, other = (av.Prompt(ids=ids) for ids in ((5, 9, 3, 7, 9, 3, 11), (4, 8, 4, 6, 2, 9, 5)))
    model = av.load(str(tmp_path))
    cap = av.capture(prompt, model=model)

    @av.rule(f"own-{family}")
    def own(text: av.RuleText) -> Any:
        if text.queries.ids == tuple(range(5)):  # of the text that a rule is tried on
            return text.allowed
        weights = cap[cap.layout.name(av.Head(text.site, 1))]
        return weights if weights.shape == text.allowed.shape else text.allowed

    heads = ", ".join(cap.layout.name(head) for head in cap.layout if head.index == 1)
    found = av.ablate(
        prompt, model=model, select=heads, metric="hidden", reference=[other],
        method=f"zero, rule:own-{family}",
    )  # fmt: skip
    assert max(abs(effect.kept[0].change) for effect in found.effects) < 1e-6
    assert min(effect.change for effect in found.effects) > 1e-6


@pytest.fixture(scope="module")
def profiled() -> Any:
    return av.profile(ROOT / "sample_inputs/repeats.jsonl", select="1.4, 3.0", limit=20)


def test_trees_of_a_profile_are_rules(profiled: Any, tmp_path: Path) -> None:
    """A planted tree's weights by hand; a head's own tree keeps much of a head that looks back."""
    tokens = Tokens(tuple("abcaab,a"))
    tree = (
        ((("repeated", True),), ("induction", "previous")),
        ((("repeated", False),), ("first",)),
    )
    rules = HeadRules({av.Head(SITE, 0): "x.json"}, {}, {av.Head(SITE, 0): tree})
    allowed = np.tri(8, dtype=bool)
    rows = rules.rule(av.Head(SITE, 0)).rows(RuleText(tokens, tokens, allowed, SITE))
    keys = [[0], [0], [0], [1], [1], [2], [0], [1, 4, 5]]
    np.testing.assert_allclose(rows, [[(j in some) / len(some) for j in range(8)] for some in keys])
    path = str(tmp_path / "x.json")
    profiled.save(path)
    found = av.ablate(TEXTS, select="1.4, 2.4", method=f"rule:{path}, rule:previous, mean", jobs=2)
    kept, previous = found.effects[0].kept
    assert (kept.rule, kept.explains) == ("x.json", True)
    assert kept.share == pytest.approx(previous.share, abs=0.1)
    assert [one.rule for one in found.effects[1].kept] == ["previous"]
    found.save(tmp_path / "other.json")
    with pytest.raises(UsageError, match=r"other\.json has no rules of heads"):
        av.ablate(TEXTS, method=f"rule:{tmp_path / 'other.json'}")
    with pytest.raises(UsageError, match=r"the rules of 1\.4 ask for what tokens do not tell"):
        check_tree([((("argument", True),), ("governor",))], "1.4")


def test_rules_cost_no_more_than_twice_what_the_mean_costs(monkeypatch: Any) -> None:
    """In tokens that run: each named head once by its rule, and once by that rule at random."""
    counts = {}
    forward = Native.forward

    def counted(self: Any, batch: Any, *rest: Any, **more: Any) -> Any:
        counts[method] = counts.get(method, 0) + sum(inputs.length for inputs in batch)
        return forward(self, batch, *rest, **more)

    monkeypatch.setattr(Native, "forward", counted)
    for method in ("mean", "rule"):
        av.ablate(TEXTS[:4], method=method, select="1.4, 2.0, 3.0", average="mean")
    assert counts["rule"] - counts["mean"] <= 2 * counts["mean"]


def test_what_is_written_is_read_and_other_processes_agree(tmp_path: Path) -> None:
    found = av.ablate(TEXTS, select="1.4, 3.0", method="mean, rule")
    found.save(tmp_path / "kept.json")
    assert av.read(tmp_path / "kept.json") == found
    again = av.ablate(TEXTS, select="1.4, 3.0", method="mean, rule", jobs=2)
    assert again.effects == found.effects
    (row, _) = found.to_records()
    kept = found.effects[0].kept[0]
    assert (row["rule_share"], row["rule_null"]) == (kept.share, kept.null)
    assert "attending by the rule previous keeps" in str(found.finding("x").said)


def test_unknown_rules_are_refused(capsys: Any) -> None:
    assert main(["ablate", "a b a b", "--method", "rule:sideways"]) == 2
    assert "no rule 'sideways'; choose one of previous" in capsys.readouterr().err


def test_rules_of_users_are_checked() -> None:
    with pytest.raises(UsageError, match="already, attnviz's own"):
        av.rule("previous")(lambda text: text.offset == 1)
    with pytest.raises(UsageError, match=r"gives shape \[3\] for 5 queries"):
        av.rule("three")(lambda text: torch.ones(3))
    with pytest.raises(UsageError, match="below 0"):
        av.rule("negative")(lambda text: -text.offset)
