"""Taking heads away, against the loop that people write and against transformers' own model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from threadpoolctl import threadpool_info, threadpool_limits

import attnviz as av
from attnviz.captures import trials
from attnviz.core import threads
from attnviz.core.heads import Head, Site
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.source import PLAIN, ForwardRequest, Gate
from attnviz.errors import InputError, UsageError
from attnviz.features.ablation import fills, measure
from attnviz.interventions import metrics
from attnviz.interventions.sweep import baseline
from attnviz.models.controls import FreshConfig
from attnviz.models.demo import DEMOS
from attnviz.scoring import scores as score_functions
from attnviz.scoring.observe import score_texts
from attnviz.scoring.select import Group, every_head
from tests.features.ablation.test_backends import swept

TEXTS = ("the keys to the cabinet are on the table", "one two three one two", "a b c a b c a")


@pytest.fixture(scope="module")
def bert():
    return av.load("demo-bert")


def prepared(source, texts=TEXTS) -> list[Inputs]:
    return [source.prepare(Prompt(text)) for text in texts]


def causal(source, texts=TEXTS) -> list[trials.Trial]:
    return [t for n, x in enumerate(prepared(source, texts)) for t in trials.next_tokens(n, x)]


def total(values: list[torch.Tensor]) -> float:
    return float(sum(one.sum() for one in values))


@pytest.mark.parametrize("tokens", [1, 100_000])
def test_zero_ablation_is_cutting_rows_out_of_transformers_own_model(gpt2, tokens: int) -> None:
    """Of single heads and of two together, however few tokens run at once."""
    import transformers

    folder = DEMOS["demo-gpt2"]
    model = transformers.GPT2LMHeadModel.from_pretrained(folder, dtype=torch.float32).eval()
    tested = causal(gpt2)
    two = Group("two", (Head(Site("decoder", 1), 0), Head(Site("decoder", 3), 1)))
    groups = (*every_head(gpt2.layout)[::5], two)
    values = swept(gpt2, tested, groups, metrics.LOSS, tokens=tokens)
    width = model.config.n_embd // model.config.n_head
    for number, group in enumerate(groups):
        cut = [
            model.transformer.h[head.layer].attn.c_proj.weight[  # [H * d, D]
                head.index * width : (head.index + 1) * width
            ]
            for head in group.heads
        ]
        with torch.no_grad():
            kept = [rows.clone() for rows in cut]
            for rows in cut:
                rows.zero_()
            for trial, found in zip(tested, values[number], strict=True):
                ids = torch.tensor([trial.tokens.ids])
                logits = model(ids).logits[0, :-1]
                expected = F.cross_entropy(logits, ids[0, 1:], reduction="none").double()
                torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
            for rows, before in zip(cut, kept, strict=True):
                rows.copy_(before)


def test_metrics_by_hand(gpt2) -> None:
    tested = causal(gpt2)[:1]
    group = every_head(gpt2.layout)[10:11]
    share = torch.ones(6)
    share[group[0].heads[0].index] = 0
    batch = [tested[0].inputs]
    full = gpt2.forward(batch, request=ForwardRequest(logits=True))
    other = gpt2.forward(
        batch, request=ForwardRequest(gates={group[0].heads[0].site: Gate(share)}, logits=True)
    )
    n = len(tested[0].positions)
    p = full.logits[0, :n].double().softmax(-1).numpy()
    q = other.logits[0, :n].double().softmax(-1).numpy()
    found = swept(gpt2, tested, group, metrics.KL)
    assert np.allclose(found[0][0], (p * np.log(p / q)).sum(-1), atol=1e-5)
    assert np.allclose(baseline(gpt2, tested, metrics.KL).base[0], 0, atol=1e-6)
    found = swept(gpt2, tested, group, metrics.logit_difference(5, 9))
    logits = other.logits[0, :n]
    assert np.allclose(found[0][0], logits[:, 5] - logits[:, 9], atol=1e-5)
    a, b = full.hidden[0, :n].double().numpy(), other.hidden[0, :n].double().numpy()
    cosine = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
    found = swept(gpt2, tested, group, metrics.HIDDEN)
    assert np.allclose(found[0][0], 1 - cosine, atol=1e-6)


def test_trials_look_at_their_own_positions(gpt2, monkeypatch) -> None:
    """The LM head runs where some trial of the batch looks, and nowhere else."""
    places = ((2, 4), (0, 4), (1,))
    tested = [replace(trial, positions=some, targets=tuple(trial.targets[n] for n in some))
              for trial, some in zip(causal(gpt2), places, strict=True)]  # fmt: skip
    group = every_head(gpt2.layout)[10:11]
    (head,) = group[0].heads
    gates = {head.site: Gate(1 - torch.eye(6)[head.index])}
    other = gpt2.forward(
        [trial.inputs for trial in tested], request=ForwardRequest(gates=gates, logits=True)
    )
    asked = []
    forward = type(gpt2).forward

    def noted(self, batch, observers=(), request=PLAIN):
        asked.append(request.logits_at)
        return forward(self, batch, observers, request)

    monkeypatch.setattr(type(gpt2), "forward", noted)
    values = swept(gpt2, tested, group, metrics.LOSS)
    assert asked == [(0, 1, 2, 4)] * 2
    for trial, logits, losses in zip(tested, other.logits, values[0], strict=True):
        expected = F.cross_entropy(
            logits[list(trial.positions)], torch.tensor(trial.targets), reduction="none"
        )
        torch.testing.assert_close(losses, expected.double(), atol=1e-4, rtol=1e-4)


# --- identities ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["demo-gpt2", "demo-bert", "mha", "gqa"])
def test_resampling_from_the_text_itself_changes_nothing(name: str) -> None:
    configs = {"mha": FreshConfig(64, 4, layers=2), "gqa": FreshConfig(64, 4, kind="gqa")}
    source = av.load(configs.get(name, name))
    batch = prepared(source)
    means = fills.Means(least=1)
    means.add(source, [batch[:1]])
    own = fills.resampled(source, batch, means.fills(fills.lengths_of(batch)))
    tested = [t for n, inputs in enumerate(batch) for t in trials.everywhere(n, inputs)]
    values = swept(source, tested, every_head(source.layout), metrics.HIDDEN, fills=own)
    for found in values:
        assert total(found) == pytest.approx(0, abs=1e-6)


def test_a_mean_over_one_text_at_every_position_changes_nothing_in_it(gpt2) -> None:
    tested = causal(gpt2, TEXTS[:1])
    means = fills.Means("positions", least=1)
    means.add(gpt2, [[tested[0].inputs]])
    own = means.fills({"decoder": len(tested[0].tokens)})
    values = swept(gpt2, tested, every_head(gpt2.layout), metrics.LOSS, fills=own)
    for found in values:
        torch.testing.assert_close(
            found[0], baseline(gpt2, tested, metrics.LOSS).base[0], atol=1e-5, rtol=1e-5
        )


def test_means_by_hand(gpt2) -> None:
    batch = prepared(gpt2, TEXTS[:2])
    kept = fills.HeadOutputs(gpt2.layout.sites)
    gpt2.forward(batch, [kept])
    lengths = [len(trials.predicted(item)) for item in batch]
    site = gpt2.layout.sites[2]
    z = kept.values()[site].double()
    rows = [z[n, :length] for n, length in enumerate(lengths)]
    tokens, positions = fills.Means("tokens"), fills.Means("positions", least=1)
    both_needed = fills.Means("positions", least=2)
    for item in batch:
        for means in (tokens, positions, both_needed):
            means.add(gpt2, [[item]])
    overall = torch.cat(rows).mean(0)
    everywhere = tokens.fills({"decoder": 9})[site]
    assert everywhere.shape[:2] == (1, 9)
    torch.testing.assert_close(everywhere[0, 4], overall, atol=1e-6, rtol=1e-5)
    longest, shortest = max(lengths), min(lengths)
    found = positions.fills({"decoder": longest + 2})[site][0]
    both = torch.stack([row[:shortest] for row in rows]).mean(0)
    torch.testing.assert_close(found[:shortest], both, atol=1e-6, rtol=1e-5)
    alone = max(rows, key=len)[shortest:]
    torch.testing.assert_close(found[shortest:longest], alone, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(found[-1], overall, atol=1e-6, rtol=1e-5)
    few = both_needed.fills({"decoder": longest})[site][0]
    torch.testing.assert_close(few[:shortest], both, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(few[shortest], overall, atol=1e-6, rtol=1e-5)
    assert both_needed.reach("decoder") == shortest
    sizes = torch.cat(rows).norm(dim=-1).mean(0)
    shares = tokens.shares(gpt2.layout)
    for index in range(6):
        expected = float(overall[index].norm() / sizes[index])
        assert shares[Head(site, index)] == pytest.approx(expected, abs=1e-6)


def test_an_effect_per_size_of_the_step_is_the_gradient(gpt2) -> None:
    """ΔL(ξ = 1 - ε)/ε → -∂L/∂ξ, and gradients of a text do not depend on its batch."""
    tested = causal(gpt2)
    found = measure.gradients(gpt2, tested, metrics.LOSS)
    alone = torch.cat([measure.gradients(gpt2, [trial], metrics.LOSS) for trial in tested])
    torch.testing.assert_close(found, alone, atol=1e-4, rtol=1e-3)
    step = 1e-2
    batch = [trial.inputs for trial in tested]
    for number, head in enumerate(gpt2.layout):
        if number % 5:
            continue
        sides = []
        for sign in (1, -1):
            gates = {head.site: Gate(1 + sign * step * torch.eye(6)[head.index])}
            output = gpt2.forward(batch, request=ForwardRequest(gates=gates, logits=True))
            sides.append([float(v.sum()) for v in metrics.LOSS.of(output, output, tested)])
        for text in range(len(tested)):
            slope = (sides[0][text] - sides[1][text]) / (2 * step)
            assert slope == pytest.approx(float(found[text, number]), abs=2e-2, rel=2e-2)


# --- what is tried -------------------------------------------------------------------------------


def test_masked_trials(bert) -> None:
    inputs = prepared(bert)[0]
    mask = trials.mask_id(bert)
    (some,) = trials.masked(3, inputs, mask, seed=0)
    plain = [i for i, s in enumerate(trials.predicted(inputs).special) if not s]
    assert len(some.positions) == max(1, round(0.15 * len(plain)))
    assert set(some.positions) <= set(plain)
    ids = trials.predicted(inputs).ids
    for i, token in enumerate(some.tokens.ids):
        assert token == (mask if i in some.positions else ids[i])
    assert some.targets == tuple(ids[i] for i in some.positions)
    assert trials.masked(3, inputs, mask, seed=0) == [some]
    each = trials.each_masked(3, inputs, mask)
    assert [trial.positions for trial in each] == [(i,) for i in plain]


def test_the_answer_stands_at_the_mask(bert) -> None:
    mask = trials.mask_id(bert)
    inputs = bert.prepare(Prompt("the [MASK] is on the table"))
    (trial,) = trials.at_mask(0, inputs, mask)
    assert trial.tokens.texts[trial.positions[0]] == "[MASK]"
    with pytest.raises(InputError, match="the text has 0 masks"):
        trials.at_mask(0, prepared(bert)[0], mask)


def test_an_answer_is_one_token(gpt2) -> None:
    token = trials.one_token(gpt2, "table")
    assert gpt2.prepare(Prompt(ids=(token,))).sides["decoder"].queries.texts == (" table",)
    with pytest.raises(InputError, match=r"'antidisestablishmentarianism' is \d+ tokens"):
        trials.one_token(gpt2, "antidisestablishmentarianism")


def test_the_probe_asks_for_what_the_repetition_tells(gpt2) -> None:
    for trial in trials.probe(gpt2):
        ids = trial.tokens.ids
        half = len(trial.targets) + 1
        assert ids[-half:] == ids[-2 * half : -half]
        assert trial.targets == ids[-half + 1 :]
        assert [ids[i + 1] for i in trial.positions] == list(trial.targets)


def test_donors_do_not_depend_on_the_batch() -> None:
    lengths, pool = [5, 9, 12, 3, 7], [4, 9, 9, 6]
    whole = fills.donors(range(5), lengths, [pool] * 5, seed=1, draw=0)
    for n in range(5):
        assert fills.donors([n], [lengths[n]], [pool], seed=1, draw=0) == [whole[n]]
    assert all(pool[d] >= min(lengths[t], 9) for t, d in enumerate(whole))
    equal = [5] * 40
    pools = [equal] * 40
    first = fills.donors(range(40), equal, pools, seed=1, draw=0)
    assert first != fills.donors(range(40), equal, pools, seed=2, draw=0)
    assert first != fills.donors(range(40), equal, pools, seed=1, draw=1)


def test_batches_side_by_side_give_the_same_bits(gpt2, monkeypatch) -> None:
    """Of means and of scores, in their order and with no more tokens at once than asked for."""
    light, runs, counts = gpt2.light, [], []
    monkeypatch.setattr(type(light), "concurrent", 3)
    batches = [[inputs] for inputs in prepared(light)]
    side_by_side = threads.side_by_side

    def counted(do, items, count):
        counts.append(count)
        return side_by_side(do, items, count)

    monkeypatch.setattr(threads, "side_by_side", counted)
    for count in (1, 3):
        monkeypatch.setattr(threads, "at_once", lambda count=count: count)
        means = fills.Means()
        means.add(light, batches)
        runs.append((means.to_arrays(), score_texts(light, batches)))
    assert counts == [1, 1, 3, 3]
    (one, scores), (other, again) = runs
    assert scores == again
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[name], other[name]) for name in one)
    assert score_texts(light, batches, 2 * max(x.length for (x,) in batches)) == scores
    assert counts[-1] == 2
    own = replace(score_functions.SCORES["top"], user="a function")
    monkeypatch.setitem(score_functions._REGISTERED, "top", own)
    score_texts(light, batches)
    assert counts[-1] == 0, "functions of users are called by one thread"


def test_how_near_fills_are_is_measured_with_one_thread(gpt2, monkeypatch) -> None:
    """Threads wait for each other in products of a few rows, and may decide their last bits."""
    counts, nearest = set(), measure._to_nearest

    def noted(*rows):
        pools = threadpool_info()
        counts.update(pool["num_threads"] for pool in pools if pool["user_api"] == "blas")
        return nearest(*rows)

    monkeypatch.setattr(measure, "_to_nearest", noted)
    with threadpool_limits(2, "blas"):
        av.ablate(TEXTS, model=gpt2, select="0.0", method="zero")
    assert counts == {1}


def test_a_donor_that_is_too_short_leaves_the_mean(gpt2) -> None:
    long, short = prepared(gpt2, (TEXTS[0], "one two"))
    means = fills.Means("tokens")
    means.add(gpt2, [[short]])
    mean = means.fills(fills.lengths_of([long]))
    (site, *_) = gpt2.layout.sites
    kept = fills.HeadOutputs([site])
    gpt2.forward([short], [kept])
    found = fills.resampled(gpt2, [short], mean)[site][0]
    size = len(trials.predicted(short))
    torch.testing.assert_close(found[:size], kept.values()[site][0, :size])
    torch.testing.assert_close(found[size:].double(), mean[site][0, size:], atol=1e-6, rtol=1e-5)


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", [metrics.KL, metrics.HIDDEN])
def test_flat_metrics_have_no_gradient(metric) -> None:
    with pytest.raises(UsageError, match="flat there, so it has no gradient"):
        measure.check_gradient(metric)


# --- memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", [metrics.LOSS, metrics.KL, metrics.logit_difference(5, 9)])
def test_a_few_rows_at_a_time_are_all_of_them(gpt2, monkeypatch, metric) -> None:
    tested = causal(gpt2)
    seen = []
    values_of = metrics.values_of

    def watched(name, logits, *others, **options):
        seen.append(logits.shape[0])
        return values_of(name, logits, *others, **options)

    monkeypatch.setattr(metrics, "values_of", watched)
    groups = every_head(gpt2.layout)[:2]
    whole = swept(gpt2, tested, groups, metric)
    assert set(seen) == {len(trial.positions) for trial in tested}
    seen.clear()
    monkeypatch.setattr(metrics, "AT_ONCE", 3 * gpt2.vocab_size)
    parts = swept(gpt2, tested, groups, metric)
    assert max(seen) == 3
    for number in range(len(groups)):
        for a, b in zip(whole[number], parts[number], strict=True):
            torch.testing.assert_close(a, b, atol=0, rtol=0)


def test_logits_of_the_full_model_are_kept_only_where_they_are_compared_with(gpt2) -> None:
    tested = causal(gpt2)
    assert baseline(gpt2, tested, metrics.LOSS).output.logits is None
    assert baseline(gpt2, tested, metrics.KL).output.logits is not None
    assert baseline(gpt2, tested, metrics.HIDDEN).output.hidden is not None


def test_only_layers_whose_heads_are_ablated_are_filled(gpt2) -> None:
    (trial, *_), others = causal(gpt2), prepared(gpt2, TEXTS[1:])
    pool = fills.given(gpt2, others, 1, "positions", "other texts")
    wanted = {Site("decoder", 2)}
    every, some = pool.means([trial]), pool.means([trial], wanted)
    assert set(some) == wanted < set(every)
    drawn = pool.resampled(gpt2, [trial], 0, 0), pool.resampled(gpt2, [trial], 0, 0, wanted)
    assert set(drawn[1]) == wanted < set(drawn[0])
    for whole, part in ((every, some), drawn):
        torch.testing.assert_close(part[Site("decoder", 2)], whole[Site("decoder", 2)])
