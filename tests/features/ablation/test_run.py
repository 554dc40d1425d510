"""Whole ablations: figures by text, intervals, the same bits, and what the command line says."""

from __future__ import annotations

import inspect
import json
import math
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Any

import jsonschema_rs
import numpy as np
import pytest
from scipy.stats import binomtest

import attnviz as av
from attnviz.captures import trials
from attnviz.cli import main
from attnviz.core.prompt import Prompt
from attnviz.core.source import Source
from attnviz.corpus.executors import Inline
from attnviz.errors import AttnvizError, InputError, ModelError, UsageError
from attnviz.features.ablation import fills, words
from attnviz.features.ablation.judge import Summed, verdict
from attnviz.features.ablation.result import Ablation, Change, CurvePoint, Effect, affordable_share
from attnviz.features.ablation.run import Study, run
from attnviz.features.ablation.settings import AblationSettings
from attnviz.models.controls import FreshConfig
from attnviz.models.demo import DEMOS
from tests import ROOT
from tests.checkpoints import write
from tests.repeated import REPEATED

pytestmark = pytest.mark.usefixtures("remembering")
SCHEMA = Ablation.json_schema()
TEXTS = [
    "one two three one two three", "a b c a b c a", "the cat and the dog and the cat",
    "the keys to the cabinet are on the table", "she read a book and then another book",
    "rain fell all day on the small town",
]  # fmt: skip

MANY = [*TEXTS, *REPEATED[:8]]
SHORT = [f"the {word} and the {word}" for word in dict.fromkeys(" ".join(TEXTS[3:]).split())]


@pytest.fixture(scope="module")
def stored(folder: Path) -> str:
    """The folder of a GPT-2 of six heads."""
    return str(write(folder, "gpt2", "GPT2LMHeadModel"))


@pytest.fixture(scope="module")
def tiny(stored: str) -> Source:
    """The same, for what does not ask for trained weights."""
    return av.load(stored)


@cache
def zeroed(*texts: str, average: str = "median") -> Ablation:
    """Two heads by zero."""
    return av.ablate(list(texts), select="2.4, 0.5", method="zero", average=average)


def comes_back(found: Ablation) -> None:
    """It follows its schema, and gives the same value again."""
    jsonschema_rs.validate(SCHEMA, found.to_dict())
    assert Ablation.from_dict(found.to_dict()) == Ablation.from_json(found.to_json()) == found


def effect_of(report: Ablation, name: str) -> Effect:
    (found,) = [effect for effect in report.effects if effect.name == name]
    return found


def test_too_few_texts_say_so_and_keep_single_intervals(tiny: Source) -> None:
    """Of 6 heads by two methods 9 are needed, and 8 say nothing of all at once."""
    for count in (8, 9):
        found = av.ablate(SHORT[:count], model=tiny, select="*.*", method="zero, mean:tokens")
        joint = [effect.first.joint_low is not None for effect in found.effects]
        assert all(effect.low is not None for effect in found.effects)
        assert all(joint) if count == 9 else not any(joint)
        told = f"{count} texts cannot say anything of {found.family} effects at once; 9 can."
        assert (told in found.notes) == (count < 9)


def test_shares_say_what_a_median_does_not() -> None:
    """Of each text alone: how many are worse or better by the smallest effect of interest."""
    found = zeroed(*MANY[:9])
    for effect in found.effects:
        alone = [effect_of(zeroed(text), effect.name).change for text in MANY[:9]]
        change = effect.first
        assert change.often_worse.texts == sum(x >= found.smallest for x in alone)
        assert change.often_better.texts == sum(x <= -found.smallest for x in alone)
        exact = binomtest(change.often_worse.texts, 9).proportion_ci(1 - 2 * 0.05 / 4).low
        assert change.often_worse.least == pytest.approx(exact, abs=1e-6)
    told = str(found)
    assert f"by {words.signed(found.smallest).lstrip('+')} or more" in told
    assert "worse in" in told


def test_one_odd_head_takes_no_other_hostage(monkeypatch: pytest.MonkeyPatch) -> None:
    """3 in 15 % of the texts and noise elsewhere, in place of a head: no other verdict moves."""
    asked = {"select": "0.0, 0.5, 2.0, 2.4", "method": "zero, mean:tokens"}
    plain = av.ablate(SHORT[:12], **asked)
    whole = Summed.of

    def with_odd(measured: Any, clusters: Any) -> Summed:
        summed = whole(measured, clusters)
        noise = 1e-3 * np.random.default_rng(1).standard_normal(len(summed.texts))
        noise[::7] = 3.0
        summed.changes[:, :, 0] = (noise * summed.rows)[:, None]
        return summed

    monkeypatch.setattr(Summed, "of", with_odd)
    odd = av.ablate(SHORT[:12], **asked)
    assert odd.effects[0] != plain.effects[0]
    for one, other in zip(odd.effects[1:], plain.effects[1:], strict=True):
        assert (one.verdict, one.by) == (other.verdict, other.by)


@pytest.fixture(scope="module")
def report(stored: str) -> Ablation:
    return av.ablate(TEXTS, model=stored, estimate="plain")


def test_means_and_intervals_by_hand() -> None:
    """The ratio estimate over texts, from every text measured by itself."""
    whole = zeroed(*TEXTS, average="mean")
    alone = [zeroed(text) for text in TEXTS]
    b = np.array([one.positions for one in alone])
    a = np.array([effect_of(one, "2.4").change for one in alone]) * b
    p, g = a.sum() / b.sum(), len(b)
    v = g / (g - 1) * (a**2 - 2 * p * a * b + p**2 * b**2).sum() / b.sum() ** 2
    found = effect_of(whole, "2.4")
    assert found.change == pytest.approx(p, abs=1e-5)
    assert found.high - found.low == pytest.approx(2 * 2.570582 * math.sqrt(v), rel=1e-3)
    assert found.first.joint_low is None  # no interval of means holds for many at once
    assert (found.first.mean, found.first.mean_low) == (found.change, found.low)
    median = effect_of(zeroed(*TEXTS), "2.4").first
    assert (median.mean, median.mean_low) == pytest.approx((p, found.low), abs=1e-5)
    assert found.first.worse == np.mean(a > 0)
    assert found.first.largest == pytest.approx(np.abs(a).max() / abs(a.sum()), rel=1e-4)
    assert (whole.texts, whole.positions, whole.family) == (6, b.sum(), 2)
    assert alone[0].low is alone[0].effects[0].low is None
    assert alone[0].effects[0].verdict is None


def test_gradients_are_means_over_texts(report, tiny: Source) -> None:
    asked = {"select": "1.2", "estimate": "plain", "method": "zero"}
    alone = [av.ablate(text, model=tiny, **asked).effects[0] for text in TEXTS]
    found = effect_of(report, "1.2")
    comes_back(report)
    assert found.gradient == pytest.approx(np.mean([e.gradient for e in alone]), rel=1e-3)
    assert found.signed == pytest.approx(np.mean([e.signed for e in alone]), rel=1e-3)


def test_gradients_of_a_layer_have_length_one() -> None:
    found = av.ablate(TEXTS[0], estimate="layer", method="zero")
    single = [e for e in found.effects if len(e.heads) == 1]
    for layer in range(4):
        own = [e.gradient for e in single if e.heads[0].layer == layer]
        assert np.linalg.norm(own) == pytest.approx(1)


def test_groups_name_what_their_members_add_up_to() -> None:
    report = av.ablate(TEXTS, method="zero")
    single = {e.heads[0]: e.change for e in report.effects if len(e.heads) == 1}
    groups = [e for e in report.effects if len(e.heads) > 1]
    assert groups
    assert len(single) == 24
    for group in groups:
        assert group.members == pytest.approx(sum(single[head] for head in group.heads))


def test_long_texts_have_the_same_bits_in_any_process() -> None:
    """Whether passes may run side by side there or not."""
    texts = [" ".join([*TEXTS[n:], *TEXTS[:n]] * 2) for n in range(3)]
    one, two = (av.ablate(texts, select="0.0, 0.1", draws=1, jobs=jobs) for jobs in (1, 2))
    assert one.to_json() == two.to_json()


@pytest.mark.slow
def test_several_processes_and_batches_of_other_sizes(report, stored: str) -> None:
    """Any number of processes gives the same bits; smaller batches the same to rounding."""
    several = av.ablate(TEXTS, model=stored, estimate="plain", jobs=2)
    assert several.to_json() == report.to_json()
    small = av.ablate(TEXTS, model=stored, estimate="plain", batch_tokens=8)
    for a, b in zip(small.effects, report.effects, strict=True):
        assert a.change == pytest.approx(b.change, abs=1e-5)


def test_each_half_is_filled_from_the_other() -> None:
    """Cross-fitting is two runs, each half measured with the other as its reference."""
    whole = av.ablate(TEXTS, select="0.5, 2.4", method="mean, resample", draws=1, average="mean")
    halves = split(av.load("demo-gpt2"))
    runs = [
        av.ablate(halves[one], select="0.5, 2.4", method="mean", reference=halves[1 - one],
                  average="mean")
        for one in (0, 1)
    ]  # fmt: skip
    rows = np.array([run.positions for run in runs])
    for number, effect in enumerate(whole.effects):
        parts = np.array([run.effects[number].change for run in runs])
        assert effect.change == pytest.approx((parts * rows).sum() / rows.sum(), abs=1e-5)
    assert whole.reference == "the other half of the texts"
    assert runs[0].reference == "3 reference texts"


def split(model: Source) -> list[list[str]]:
    """The halves that fill each other."""
    inputs = {n: model.prepare(Prompt(text)) for n, text in enumerate(TEXTS)}
    fold = fills.halves(inputs, range(len(TEXTS)), 0)
    assert sorted(fold) == [0, 0, 0, 1, 1, 1]
    return [[text for text, side in zip(TEXTS, fold, strict=True) if side == s] for s in (0, 1)]


def test_a_mean_over_a_reference_equals_transformers_own_hooks() -> None:
    """Head 1.4's part of what goes into c_proj, replaced by its mean over other texts."""
    import torch
    import transformers

    model = transformers.GPT2LMHeadModel.from_pretrained(
        DEMOS["demo-gpt2"], dtype=torch.float32
    ).eval()
    source = av.load("demo-gpt2")
    ids = [source.prepare(Prompt(text)).sides["decoder"].queries.ids for text in TEXTS]
    width = model.config.n_embd // model.config.n_head
    part, projection = slice(4 * width, 5 * width), model.transformer.h[1].attn.c_proj
    kept: list[torch.Tensor] = []
    with torch.no_grad():
        hook = projection.register_forward_pre_hook(lambda _, x: kept.append(x[0][0, :, part]))
        for one in ids[1:]:
            model(torch.tensor([one]))
        hook.remove()
        mean = torch.cat(kept).mean(0)
        share = float(mean.norm() / torch.cat(kept).norm(dim=-1).mean())

        def loss() -> float:
            logits = model(torch.tensor([ids[0]])).logits[0, :-1].double()
            return float(torch.nn.functional.cross_entropy(logits, torch.tensor(ids[0][1:])))

        before = loss()

        def put(_: object, x: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
            changed = x[0].clone()
            changed[..., part] = mean
            return (changed,)

        hook = projection.register_forward_pre_hook(put)
        after = loss()
        hook.remove()
    found = av.ablate(TEXTS[0], select="1.4", method="mean:tokens", reference=TEXTS[1:])
    assert found.base == pytest.approx(before, abs=1e-5)
    assert found.effects[0].change == pytest.approx(after - before, abs=1e-5)
    assert found.effects[0].mean_share == pytest.approx(share, abs=1e-5)
    assert "mean over all tokens" in found.method


def test_a_single_text_is_filled_from_sentences_of_attnviz() -> None:
    """Not from itself, which would give 0 for every head."""
    found = av.ablate(TEXTS[0], select="*.*")
    assert found.reference == "48 English sentences of attnviz"
    assert found.reference in found.method
    assert "mean at every position" in found.method
    for number in (0, 1):
        assert all(abs(effect.by[number].change) > 1e-4 for effect in found.effects)
    assert [effect.rank for effect in found.ranked()] == list(range(1, 25))
    assert not set(fills.sentences()) & set(
        (ROOT / "sample_inputs" / "sentences.txt").read_text("utf-8").splitlines()
    )


@pytest.mark.parametrize("method", ["mean", "resample", "zero, mean"])
def test_a_single_input_that_no_sentence_can_fill_is_refused(method: str) -> None:
    fresh = av.load(FreshConfig(64, 4))
    inputs = replace(fresh.prepare(Prompt("a b c")), features={"pixels": 0})
    settings = AblationSettings(method=method, metric="hidden")
    with pytest.raises(
        UsageError, match=r"a single input has no other text to take .* method='zero'"
    ):
        run(Study(fresh, [inputs], settings))
    settings = AblationSettings(method="zero", metric="hidden")
    assert run(Study(fresh, [inputs], settings)).texts == 1


def test_a_reference_of_the_same_texts_is_none() -> None:
    with pytest.raises(UsageError, match="only texts that are measured"):
        av.ablate(TEXTS[:2], reference=TEXTS[1::-1])
    found = av.ablate(TEXTS[:2], select="0.5", reference=TEXTS[1:4])
    assert found.reference == "2 reference texts"
    assert "1 reference text left out, being measured too." in found.notes


def test_texts_of_a_group_and_equal_texts_count_once() -> None:
    twice = zeroed(*TEXTS, *TEXTS)
    assert (twice.texts, twice.clusters) == (12, 6)
    for one, other in zip(twice.effects, zeroed(*TEXTS).effects, strict=True):
        assert one.change == pytest.approx(other.change, abs=1e-6)
        assert one.high == pytest.approx(other.high, abs=1e-5)
    assert any(note.startswith("12 texts count as 6") for note in twice.notes)
    grouped = av.ablate(TEXTS, select="0.5", method="zero", groups=[*"aabbc", None])
    assert grouped.clusters == 4
    assert grouped.effects[0].low is None
    assert any(note.startswith("From 4 independent texts there is no") for note in grouped.notes)
    with pytest.raises(UsageError, match="2 groups for 6 texts"):
        av.ablate(TEXTS, groups=["a", "b"])


def change(method: str, value: float, low: float, high: float) -> Change:
    return Change(method, value, low, high, low, high, 0.5, not low <= 0 <= high, 0.1)


@pytest.mark.parametrize(
    ("by", "worse", "said"),
    [
        ([(2, 1, 3), (1, 0.5, 1.5)], 1, "needed"), ([(2, 1, 3), (0.1, -1, 1)], 1, "depends"),
        ([(2, 1, 3), (0.1, -1, 1), (3, 2, 4)], 1, "needed"),
        ([(2, 1, 3), (-2, -3, -1), (3, 2, 4)], 1, "depends"),
        ([(-2, -3, -1), (-1, -1.5, -0.5)], 1, "better without"),
        ([(-2, -3, -1), (-1, -1.5, -0.5)], -1, "needed"),
        ([(0.01, 0.005, 0.02), (0.01, 0.005, 0.02)], 1, "small"),
        ([(0.01, -0.04, 0.04), (0.01, -0.02, 0.02)], 1, "small"),
        ([(0.01, -0.04, 0.06), (0.01, -0.02, 0.02)], 1, ""),
        ([(0.01, -1, 1), (0.01, -1, 1)], 1, ""), ([(2, 0.05, 3), (1, 0.05, 1.5)], 1, "needed"),
        ([(2, 0.04, 3), (1, 0.5, 1.5)], 1, "worse"), ([(2, 0.04, 3), (1, -0.5, 1.5)], 1, "worse"),
        ([(-2, -3, -0.04), (-1, -1.5, -0.5)], 1, "better"),
        ([(2, 0.04, 3), (-1, -1.5, -0.01)], 1, "depends"), ([(2, 1, 3)], 1, None),
    ],
)  # fmt: skip
def test_verdicts(by: list[tuple[float, float, float]], worse: int, said: str | None) -> None:
    changes = [change(f"m{n}", *one) for n, one in enumerate(by)]
    assert verdict(changes, worse, smallest=0.05) == said


@pytest.mark.parametrize(
    ("by", "worse", "said"),
    [
        ([(2, 1, 3), (0.1, -1, 1)], 1, "worse by m0 only"),
        ([(2, 1, 3), (0.1, -1, 1)], -1, "better by m0 only"),
        ([(2, 1, 3), (-2, -3, -1), (3, 2, 4)], 1, "worse by m0 and m2, better by m1"),
    ],
)
def test_a_verdict_that_depends_says_which_way(
    by: list[tuple[float, float, float]], worse: int, said: str
) -> None:
    report = replace(zeroed(*TEXTS[:2]), worse=worse)
    changes = tuple(change(f"m{n}", *one) for n, one in enumerate(by))
    assert words.verdict(report, replace(report.effects[0], by=changes, verdict="depends")) == said


def test_nothing_says_what_would_have_been_seen() -> None:
    """The larger side of the joint interval, z errors, and 0.84 that 80 % of samples are above."""
    report = av.ablate(MANY, select="1.*", method="mean, resample")
    one = next(effect for effect in report.effects if effect.verdict == "")
    z = NormalDist().inv_cdf(1 - 0.05 / report.family / 2)
    for by in one.by:
        side = max(by.change - by.joint_low, by.joint_high - by.change)
        assert by.detectable == pytest.approx(side * (1 + 0.8416 / z), rel=1e-4)
    most = max(by.detectable for by in one.by)
    assert words.verdict(report, one) == f"nothing ({words.signed(most).lstrip('+')} would show)"


def test_the_probe_is_filled_from_others_of_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (trials, fills):
        monkeypatch.setattr(module, "PROBE_SEEDS", 2)
    source = av.load("demo-gpt2")
    tested = list(trials.probe(source))
    found = fills.probed(source, tested, "positions")
    assert found.matched
    assert found.disjoint
    measured = {trial.inputs.sides["decoder"].queries.ids for trial in tested}
    for trial in tested:
        pool = found.pools[found.of[trial.text]]
        assert {inputs.length for inputs in pool.texts} == {trial.inputs.length}
        assert not measured & {inputs.sides["decoder"].queries.ids for inputs in pool.texts}
    means = found.means(tested[:3])  # of three lengths: every row has a mean of its own
    assert len(next(iter(means.values()))) == 3
    assert found.beyond(tested) == 0


def test_repetition_is_worth_what_the_same_rows_lose_without_it() -> None:
    source = av.load("demo-gpt2")
    tested = list(trials.probe(source))
    for trial, other in zip(tested, trials.unrepeated(source, tested), strict=True):
        ids, changed = (one.inputs.sides["decoder"].queries.ids for one in (trial, other))
        again = trial.positions[0]
        assert changed[again:] == ids[again:]
        assert not set(changed[1:again]) & set(ids[1:again]) or changed[1:again] != ids[1:again]
        assert (other.positions, other.targets) == (trial.positions, trial.targets)


def test_texts_of_a_group_are_filled_from_it() -> None:
    source = av.load("demo-gpt2")
    words = ["one two three", "the cat sat", "a b c", "rain fell all day"]
    texts = [f"{word} {n}" for n in range(8) for word in words[:2]] + words[2:]
    groups = ["x", "y"] * 8 + ["z", None]
    inputs = {n: source.prepare(Prompt(text)) for n, text in enumerate(texts)}
    copies = list(range(len(texts)))
    fold = fills.halves(inputs, copies, 0)
    found = fills.same_group(source, inputs, groups, copies, fold, "positions", 0)
    assert found is not None
    assert found.alone == 2
    own = {inputs[n].sides["decoder"].queries.ids: groups[n] for n in inputs}
    for n in range(16):
        pool = found.pools[found.of[n]].texts
        assert {own[one.sides["decoder"].queries.ids] for one in pool} == {groups[n]}
        assert inputs[n] not in pool
    assert fills.same_group(source, inputs, [None] * 18, copies, fold, "positions", 0) is None


def test_no_other_reference_stands_for_repeated_tokens() -> None:
    for wrong in ("unmatched", ["a text", "another one"]):
        with pytest.raises(UsageError, match="no other text is in their state"):
            av.ablate(probe=True, select="2.0", reference=wrong)
    with pytest.raises(UsageError, match="nothing is known of what these texts have in common"):
        av.ablate(TEXTS, select="2.0", reference="matched")


def test_what_takes_a_place_is_known_by_its_distance() -> None:
    """Zero is as far as the output is large; a mean of small norm is no output of the head."""
    found = av.ablate(TEXTS, select="2.4", method="zero, mean")
    zero, mean = found.effects[0].by
    assert zero.apart == pytest.approx(1.0)
    assert zero.off == 1.0
    assert 0 < mean.apart < 1


def test_nothing_is_said_of_distances_but_their_size(tiny: Source) -> None:
    found = av.ablate(TEXTS, model=tiny, metric="kl", select="*.*")
    assert found.base == 0
    assert found.smallest is None
    for effect in found.effects:
        assert effect.verdict is None
        ends = [(one.low, one.mean_low, one.joint_low) for one in effect.by]
        assert all(end is None or end >= 0 for some in ends for end in some)
        assert all(one.worse is None and one.sure is None for one in effect.by)
    assert any("is a distance, which is never negative" in note for note in found.notes)
    assert "texts worse" not in str(found)
    comes_back(found)


def test_rounding_is_not_ranked() -> None:
    model = av.load("demo-gpt2")
    with model.gated({"2.4": 0}):
        found = av.ablate(TEXTS, model=model, select="0.5, 2.4", method="zero")
    ranks = {effect.name: effect.rank for effect in found.effects}
    assert ranks == {"0.5": 1, "2.4": None}
    assert found.ranked()[-1].name == "2.4"
    assert any("1 of 2 effects are within rounding error" in note for note in found.notes)


def test_trimmed_means_and_medians_are_those_of_the_texts() -> None:
    alone = [effect_of(zeroed(text), "0.5").change for text in TEXTS]
    found = effect_of(zeroed(*TEXTS), "0.5")
    assert found.change == pytest.approx(np.median(alone), abs=1e-5)
    # of six 3.1 % miss from the first to the last, 21.9 % from the second: 0.1 of the way, 0.357
    first, second, *_, fifth, last = sorted(alone)
    step = 5 * 0.1 / (1 + 4 * 0.1)
    ends = [
        end + (step * (inner - end) if abs(inner - end) <= (last - first) / 2 else 0)
        for end, inner in ((first, second), (last, fifth))
    ]
    assert (found.low, found.high) == pytest.approx(ends, abs=1e-4)
    found = effect_of(zeroed(*TEXTS, average="trimmed"), "0.5")
    assert found.change == pytest.approx(np.mean(alone), abs=1e-5)  # 10 % of 6: none


def test_every_setting_is_a_parameter() -> None:
    given = inspect.signature(av.ablate).parameters
    for field in fields(AblationSettings):
        assert given[field.name].default == field.default, field.name


def test_a_model_without_an_lm_head(minilm: str) -> None:
    found = av.ablate(TEXTS[:3], model=minilm, select="0.2")
    assert found.metric == "hidden"
    assert any("Measured by the last hidden states" in note for note in found.notes)
    with pytest.raises(ModelError, match="has no loss"):
        av.ablate(TEXTS, model=minilm, metric="loss")


@pytest.mark.slow
def test_the_probe_finds_the_heads_that_repetition_needs() -> None:
    """0.5 and 1.4 by every method; what zero takes from 2.4 is a constant; layer 3 together."""
    found = av.ablate(
        probe=True,
        select="0.5, 1.4, 2.4, 3.0, 3.1, 3.3, 3.5, 3.0+3.1+3.3+3.5",
        method="mean, resample, zero",
    )
    by = {effect.name: effect for effect in found.effects}
    for name in ("0.5", "1.4"):
        assert by[name].verdict == "needed"
        assert all(one.sure and one.change > 2 for one in by[name].by)
    mean, _, zero = by["2.4"].by
    assert zero.change > 50 * mean.change
    assert by["2.4"].mean_share > 0.75
    assert any(note.startswith("Methods disagree on 2.4") for note in found.notes)
    group = by["3.0+3.1+3.3+3.5"]
    assert group.verdict == "needed"
    assert group.change > 3 * group.members > 0


def test_curves_are_ordered_on_one_half_and_measured_on_the_other(tiny: Source) -> None:
    found = av.ablate(TEXTS, model=tiny, curve="effect:1", method="mean")
    orders = {point.order for point in found.curve}
    assert orders == {"effect", "random 1"}
    mine = [point for point in found.curve if point.order == "effect"]
    assert [point.removed for point in mine] == list(range(7))
    first, second = split(tiny)
    chosen = av.ablate(first, model=tiny, reference=second, method="mean", select="*.*")
    costs = {effect.name: effect.change for effect in chosen.effects}
    listed = [costs[point.head] for point in mine[1:]]
    assert listed == pytest.approx(sorted(listed), abs=1e-5)
    three = "+".join(point.head for point in mine[1:4])
    measured = av.ablate(second, model=tiny, reference=first, method="mean", select=three)
    assert mine[3].change == pytest.approx(measured.effects[0].change, abs=1e-5)
    last = [p.change for p in found.curve if p.removed == 6]
    assert last[0] == pytest.approx(last[1], abs=1e-5)
    comes_back(found)


def test_a_curve_of_one_text_says_so(tiny: Source) -> None:
    again = av.ablate(TEXTS[:1], model=tiny, curve="remeasured:0", method="mean")
    assert len({point.head for point in again.curve[1:]}) == 6
    assert any("on the same text" in note for note in again.notes)


def test_the_share_that_can_go_ends_where_the_cost_begins() -> None:
    costs = [0, 0.01, 0.2, 0.0, 0.5]
    points = [CurvePoint("effect", n, "", cost, None, None) for n, cost in enumerate(costs)]
    assert affordable_share(points, 0.05, 1) == 1 / 4
    assert affordable_share(points, 1.0, 1) == 1
    assert affordable_share([], 1.0, 1) is None


def test_positions_show_who_pays() -> None:
    text = "one two three four one two three four"
    found = av.ablate(text, select="0.5", method="zero", by="position")
    (row,) = found.by_position.values()
    assert len(row) == len(found.tokens)
    known = [value for value in row if value is not None]
    assert np.mean(known) == pytest.approx(found.effects[0].change)
    assert len(known) < len(row)
    comes_back(found)
    with pytest.raises(UsageError, match="shows a single text"):
        av.ablate(TEXTS, by="position")


def test_interrupted_is_part_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Inline.run

    def interrupted(self, tasks):
        for number, found in enumerate(run(self, tasks)):
            if number == 1:
                raise KeyboardInterrupt
            yield found

    monkeypatch.setattr(fills, "LARGEST", 1)
    monkeypatch.setattr(Inline, "run", interrupted)
    found = av.ablate(TEXTS, select="2.4")
    assert found.partial
    assert found.texts == 1
    assert "Interrupted: only 1 text measured." in found.notes


# --- a model that is changed for a while -------------------------------------------------------


def test_a_gated_model_is_the_ablated_one() -> None:
    model = av.load("demo-gpt2")
    text = "one two three four one two three four"
    before = av.capture(text, model=model)
    with model.gated({"0.5": 0, "1.*": 0.5}) as changed:
        during = av.capture(text, model=changed)
        with model.gated({"1.*": 2}):
            only = av.capture(text, model=model)
    after = av.capture(text, model=model)
    site = before.layout.sites[2]
    assert np.array_equal(before.maps[site], after.maps[site])
    assert not np.allclose(before.maps[site], during.maps[site], atol=1e-3)
    without = av.capture(text, model=model, without="0.5")
    assert np.allclose(only.maps[site], without.maps[site], atol=1e-6)
    assert without.inputs.notes[-1].startswith("Without 0.5:")
    with pytest.raises(UsageError, match="a share is a number"), model.gated({"0.5": "no"}):
        pass


def test_ablating_a_gated_model_measures_what_is_left() -> None:
    model = av.load("demo-gpt2")
    both = av.ablate(TEXTS, model=model, select="0.5+1.4", method="zero", average="mean")
    with model.gated({"0.5": 0}):
        rest = av.ablate(TEXTS, model=model, select="1.4", method="zero", average="mean")
    assert rest.base + rest.effects[0].change == pytest.approx(
        both.base + both.effects[0].change, abs=1e-5
    )


# --- what comes out ------------------------------------------------------------------------------


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path, stored: str) -> None:
    path, picture = tmp_path / "t.txt", tmp_path / "p.svg"
    path.write_text("\n".join(SHORT[:11]))
    assert main(["ablate", "--texts", str(path), "--estimate", "--model", stored,
                 "--curve", "effect:1", "--out", str(picture)]) == 0  # fmt: skip
    out, _ = capsys.readouterr()
    assert "joint 95 %" in out
    assert "resample" in out
    assert "of the heads can go, by effect" in out
    assert "rank correlation" in out
    assert picture.stat().st_size > 10_000
    assert main(["ablate", TEXTS[0], "--select", "2.4", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema_rs.validate(SCHEMA, document)
    assert document["effects"][0]["name"] == "2.4"
    assert document["methods"] == ["mean", "resample"]
    shown = ["--by", "position", "--select", "2.4,1.4", "--method", "zero", "-q"]
    assert main(["ablate", TEXTS[0], *shown]) == 0
    assert "change at every token" in capsys.readouterr().out


def test_texts_and_references_with_fields(capsys, tmp_path: Path) -> None:
    texts, other = tmp_path / "t.jsonl", tmp_path / "r.csv"
    texts.write_text("\n".join(json.dumps({"text": t, "doc": n // 2}) for n, t in enumerate(TEXTS)))
    other.write_text("words\nthe dog saw the cat\na b a b a b\n")
    call = ["ablate", "--texts", str(texts), "--select", "0.5", "--json"]
    assert main([*call, "--group", "doc"]) == 0
    assert json.loads(capsys.readouterr().out)["clusters"] == 3
    assert main([*call, "--reference", str(other)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["clusters"], found["reference"]) == (6, "2 reference texts")
    same = av.ablate(TEXTS, select="0.5", reference=["the dog saw the cat", "a b a b a b"])
    assert found["effects"][0]["by"][0]["change"] == same.effects[0].change


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["a b", "--select", "9.9"], 2, "no head 9.9"),
        (["a b", "--select", "role:nobody"], 2, "unknown role 'nobody'"),
        (["a b", "--metric", "fame"], 2,
         "no --metric fame; choose one of loss, kl, logit-diff, hidden"),
        (["a b", "--metric", "logit-diff"], 2, "--answer and --against"),
        (["a b", "--answer", "x"], 2, "--answer and --against go together"),
        (["a b", "--method", "guess"], 2, "unknown method 'guess'"),
        (["a b", "--method", ""], 2, "unknown method ''"),
        (["a b", "--average", "mode"], 2, "average"),
        (["a b", "--smallest", "-1"], 2, "--smallest must be at least 0, not -1"),
        (["a b", "--draws", "1000000000"], 2, "--draws must be from 1 to 10,000, not 1,000"),
        (["a b", "--draws", "2", "--method", "mean:tokens"], 2, "of resample; add it to --method"),
        (["a b", "--metric", "kl", "--smallest", "0.1"], 2, "leave out --smallest 0.1"),
        (["a b", "--curve", "effect:1000000000"], 2, "not 'effect:1000000000'"),
        (["a b", "--reference", "report.json"], 2, "is JSON, not lines of text"),
        (["a b", "--group", "doc"], 2, "--group doc is a field of texts"),
        (["a b", "--estimate", "--metric", "kl"], 2, "use --metric loss"),
        (["a b", "--curve", "--select", "0.1"], 2, "leave out --select 0.1"),
        (["--ids", "5"], 1, "at least two words"),
        (["--recorded", "sample_inputs/recorded.npz"], 2, "needs the model; give a text"),
        (["a b", "--tolerance", "nan"], 2, "--tolerance takes a number, not nan"),
        (["--probe", "--model", "demo-bert"], 2, "--probe asks for next tokens"),
        (["a b", "--model", "demo-bert", "--answer", "a", "--against", "b"], 1, "0 masks"),
    ],
)  # fmt: skip
def test_one_line_for_what_makes_no_sense(
    arguments: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ablate", *arguments]) == code
    out, err = capsys.readouterr()
    assert says in err
    assert err.count("\n") == 1
    assert not out


def test_python_errors() -> None:
    with pytest.raises(TypeError, match="speed"):
        av.ablate("a b", speed=3)
    with pytest.raises(UsageError, match="give texts, or probe=True"):
        av.ablate()
    with pytest.raises(InputError):
        av.ablate([])
    with pytest.raises(AttnvizError):
        av.ablate([5])


def test_a_span_is_measured_alone() -> None:
    """The change at its tokens is the mean of what every token of the text shows."""
    prompt = Prompt(TEXTS[0], spans={"again": "#2:one two three"})
    options = {"select": "1.4, 2.0+3.0", "method": "zero"}
    found = av.ablate(prompt, position="span:again", **options)  # type: ignore[arg-type]
    each = av.ablate(prompt, by="position", **options)  # type: ignore[arg-type]
    assert each.by_position is not None
    tokens = av.capture(prompt).inputs.sides["decoder"].keys
    (span,) = tokens.spans
    assert (found.positions, found.position) == (len(span), "span:again")
    for one in found.effects:
        # what is shown at a token is how well it was predicted, one position before it
        shown = [each.by_position[one.name][place - 1] for place in span.positions]
        assert one.change == pytest.approx(np.mean(shown), rel=1e-5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no text has a span 'x'; choose from again"):
        av.ablate(prompt, position="span:x", **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no token 'again'; there are "):
        av.ablate(prompt, position="again", **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no token 'x'"):
        av.ablate([prompt, TEXTS[3]], position="-1,x", **options)  # type: ignore[arg-type]
    places = ",".join(map(str, span.positions))
    numbers = av.ablate(prompt, position=places, **options)  # type: ignore[arg-type]
    assert numbers.effects == found.effects


def test_of_a_masked_model_a_span_is_where_it_is_masked() -> None:
    prompt = Prompt(TEXTS[3], spans={"what": "keys to the cabinet"})
    asked = {"position": "span:what", "mask": "each", "select": "0.0", "method": "zero"}
    found = av.ablate(prompt, model="demo-bert", **asked)  # type: ignore[arg-type]
    (span,) = av.capture(prompt, model="demo-bert").inputs.sides["encoder"].keys.spans
    assert found.positions == len(span)
