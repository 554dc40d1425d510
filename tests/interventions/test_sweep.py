"""One sweep for all kinds of interventions: each equals its own whole pass, however they join."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

import attnviz as av
from attnviz.captures.trials import Activations, next_tokens
from attnviz.core import arrays, threads
from attnviz.core.heads import Head, Site
from attnviz.core.prompt import Prompt
from attnviz.core.source import Cut, Donor, ForwardRequest, Gate, Output, Start
from attnviz.interventions.judge import judge
from attnviz.interventions.metrics import KL, LOSS
from attnviz.interventions.sweep import (
    Intervention,
    ablations,
    baseline,
    first_layer,
    full_logits,
    grouped,
    sweep,
    sweep_trials,
)
from attnviz.scoring.select import Group, every_head
from attnviz.statistics.order import medians

TEXTS = ("the keys to the cabinet are on the table", "one two three one two three one two three")


@pytest.fixture(scope="module")
def tested(gpt2):
    return [t for n, x in enumerate(TEXTS) for t in next_tokens(n, gpt2.prepare(Prompt(x)))]


def gate(site: Site, head: int, items: int) -> ForwardRequest:
    share = np.ones((items, 6), np.float32)
    share[:, head] = 0
    return ForwardRequest(gates={site: Gate(arrays.array(share))})


def donor(values, site: Site, head: int, items: int) -> ForwardRequest:
    share = np.zeros((items, 6), np.float32)
    share[:, head] = 1
    return ForwardRequest(donors={site: [Donor("z", values, arrays.array(share))]})


def cut(site: Site, heads: tuple[int, ...], length: int, items: int) -> ForwardRequest:
    chosen, rows, keys = (np.zeros((items, n), np.bool_) for n in (6, length, length))
    chosen[:, list(heads)] = rows[:, -3:] = keys[:, 1:3] = True
    return ForwardRequest(cuts={site: Cut(*map(arrays.array, (chosen, rows, keys)))})


def test_each_equals_its_own_whole_pass(gpt2, tested) -> None:
    """Gates, donors and cuts of one layer and of several run together, and none touches another."""
    batch = [trial.inputs for trial in tested]
    longest, items = max(item.length for item in batch), len(batch)
    kept = Activations(["z"], gpt2.layout.sites)
    gpt2.forward(batch[::-1], [kept])
    at = [Site("decoder", layer) for layer in range(4)]
    requests = [
        gate(at[1], 2, items), donor(kept.values["z"][at[1]], at[1], 4, items),
        cut(at[1], (0, 5), longest, items), gate(at[3], 0, items), gate(at[1], 3, items),
        donor(kept.values["z"][at[2]] * 2, at[2], 1, items), cut(at[1], (2,), longest, items),
    ]  # fmt: skip
    each = [
        Intervention(first_layer(gpt2, [*(r.gates or r.donors or r.cuts)]), partial(lambda r: r, r))
        for r in requests
    ]
    assert [one.layer for one in each] == [1, 1, 1, 3, 1, 2, 1]
    for tokens in (1, 10_000):
        values = sweep_trials(gpt2, tested, each, KL, tokens=tokens)
        assert len({round(float(v[0].sum()), 6) for v in values}) == len(requests)
        full = gpt2.forward(batch, request=ForwardRequest(logits=True))
        for request, found in zip(requests, values, strict=True):
            changed = gpt2.forward(batch, request=replace(request, logits=True))
            for expected, values_of in zip(KL.of(full, changed, tested), found, strict=True):
                np.testing.assert_allclose(values_of, expected[0], atol=1e-5, rtol=1e-4)


def test_the_first_layer_is_that_of_all_that_is_touched(gpt2, tested) -> None:
    two = Group("two", (Head(Site("decoder", 3), 1), Head(Site("decoder", 1), 2)))
    (one,) = ablations(gpt2, [two], len(tested))
    assert one.layer == 1
    assert set(one.part().gates) == {Site("decoder", 3), Site("decoder", 1)}
    assert first_layer(gpt2, [Site("encoder", 0)]) is None


def test_passes_go_on_behind_what_was_kept(gpt2) -> None:
    """What touches no token before the n-th gives the logits of a whole pass behind it."""
    inputs = gpt2.prepare(Prompt(TEXTS[0]))
    length = inputs.length
    assert gpt2.continues
    kept = gpt2.forward([inputs], request=ForwardRequest(logits=True, keep=True))
    without = [cut(site, tuple(range(6)), length, 1) for site in gpt2.layout.sites]
    each = [Intervention(None, partial(lambda r: r, r), length - 3) for r in without]
    skipped: list[int] = []

    def last(changed: Output, numbers: list[int], skip: int) -> np.ndarray:
        skipped.append(skip)
        assert len(numbers) == len(changed.logits)
        return arrays.to_numpy(changed.logits)[:, length - 1 - skip]

    for found, request in zip(
        sweep(full_logits(gpt2), [inputs], each, last, kept), without, strict=True
    ):
        whole = gpt2.forward([inputs], request=replace(request, logits=True)).logits
        np.testing.assert_allclose(found, whole[0, -1], atol=1e-4, rtol=1e-4)
    assert set(skipped) == {length - 3}


def test_what_begins_at_one_layer_runs_together() -> None:
    assert list(grouped([2, 0, 2, None, 2], 2)) == [(2, [0, 2]), (2, [4]), (0, [1]), (None, [3])]


def test_a_baseline_is_run_once(gpt2, tested, monkeypatch) -> None:
    whole, runs = baseline(gpt2, tested, LOSS), []
    forward = type(gpt2).forward

    def noted(self, batch, observers=(), request=None):
        runs.append((len(batch), request.start and request.start.layer))
        return forward(self, batch, observers, request)

    monkeypatch.setattr(type(gpt2), "forward", noted)
    groups = [Group(str(n), (Head(Site("decoder", n % 2), n),)) for n in range(4)]
    sweep_trials(gpt2, tested, ablations(gpt2, groups, 2), LOSS, unchanged=whole)
    assert runs == [(4, 0), (4, 1)]


def test_passes_side_by_side_give_the_same_bits(gpt2, monkeypatch) -> None:
    """However many run at once, with the gates that stand here; each sweep ends where one fails."""
    light = gpt2.light
    tested = [t for n, x in enumerate(TEXTS) for t in next_tokens(n, light.prepare(Prompt(x)))]
    groups = [group for group in every_head(light.layout) if group.name != "0.2"]
    without = ablations(light, groups, len(tested))
    runs = []
    for count in (1, 3):
        monkeypatch.setattr(threads, "at_once", lambda count=count: count)
        with threads.one_thread(), light.gated({"0.2": 0}):
            runs.append(sweep_trials(light, tested, without, LOSS, tokens=160))
        done: list[int] = []
        plain = sweep_trials(light, tested, without, LOSS, tokens=160, on_progress=done.append)
        assert sum(done) == len(without)
    for one, other, alone in zip(*runs, plain, strict=True):
        assert all(map(np.array_equal, one, other))
        assert not any(map(np.array_equal, one, alone)), "gates stand in every thread"
    wrong = Intervention(0, partial(gate, Site("decoder", 0), 9, len(tested)))
    with pytest.raises(IndexError), threads.one_thread():
        sweep_trials(light, tested, [*without, wrong, *without], LOSS, tokens=160)


@pytest.mark.parametrize("name", ["demo-gpt2", "demo-bert"])
def test_of_the_last_layer_only_what_is_read_is_made(name: str) -> None:
    """The logits are those of a whole pass, wherever it begins; nothing else is asked for."""
    source = av.load(name)
    batch = [source.prepare(Prompt(text)) for text in TEXTS]
    whole = source.forward(batch, request=ForwardRequest(logits=True, states=True))
    for at in ((2, 5), (3, 4, 5)):
        for start in (None, *(Start(n, x) for n, x in enumerate(whole.states))):
            request = ForwardRequest(hidden=False, logits=True, logits_at=at, start=start)
            logits = source.forward(batch, request=request).logits
            torch.testing.assert_close(logits, whole.logits[:, list(at)], atol=1e-4, rtol=1e-5)
            both = source.forward(batch, request=replace(request, hidden=True))
            torch.testing.assert_close(both.logits, logits, atol=1e-4, rtol=1e-5)
            assert both.hidden.shape == whole.hidden.shape


DRAW = np.random.default_rng(1)


def test_the_typical_text_and_the_mean_of_all_rows() -> None:
    rows = DRAW.integers(1, 9, 40)
    sums = DRAW.normal(1, 2, (40, 3)) * rows[:, None]
    found = judge(sums, rows, [str(n) for n in range(40)])
    own = medians(sums / rows[:, None])
    for n in range(3):
        one = found[n]
        assert one.value == np.median(sums[:, n] / rows)
        assert (one.low, one.high) == (own.low[n], own.high[n])
        assert (one.joint_low, one.joint_high) == (own.joint_low[n], own.joint_high[n])
        assert one.joint_low < one.low < one.value < one.high < one.joint_high
        assert one.mean == pytest.approx(sums[:, n].sum() / rows.sum())
        assert one.mean_low < one.mean < one.mean_high
        assert one.sure is (one.joint_low > 0 or one.joint_high < 0)


def test_copies_count_once() -> None:
    values = DRAW.normal(1, 1, (20, 2))
    twice = np.concatenate([values, values[:5]])
    names = [str(n) for n in [*range(20), *range(5)]]
    once, again = (judge(x, np.ones(len(x), np.int64), names[: len(x)]) for x in (values, twice))
    for n in range(2):
        assert (again[n].value, again[n].joint_low) == (once[n].value, once[n].joint_low)


def test_a_text_without_such_an_effect_is_left_out() -> None:
    values, there = DRAW.normal(1, 1, (30, 2)), np.ones((30, 2), np.int64)
    values[10:, 1], there[10:, 1] = 0.0, 0
    names = [str(n) for n in range(30)]
    found, alone = judge(values, there, names), judge(values[:10], there[:10], names[:10])
    assert found[1].value == alone[1].value
    assert found[1].mean == pytest.approx(values[:10, 1].mean())


def test_shares_of_what_there_is_to_do() -> None:
    """A pair with nothing to do has no share of its own, and its change is in the sums."""
    gaps, changes = DRAW.normal(5, 1, 25), DRAW.normal(2, 1, (25, 1))
    gaps[3] = 1e-9
    found = judge(changes, gaps, [str(n) for n in range(25)])[0]
    known = np.arange(25) != 3
    assert found.value == np.median(changes[known, 0] / gaps[known])
    assert found.mean == pytest.approx(changes.sum() / gaps.sum())


def test_too_few_texts_have_no_interval() -> None:
    one = judge(np.ones((2, 1)), np.ones(2, np.int64), ["a", "b"])[0]
    assert (one.value, one.low, one.joint_low, one.mean_low, one.sure) == (1.0, *[None] * 4)


def test_in_how_many_texts_an_effect_is_of_interest() -> None:
    """0.01 in three of twenty texts, -0.02 in one, a text without such an effect; by hand."""
    changes = np.zeros((20, 2))
    changes[:3, 0], changes[3, 0] = 0.01, -0.02
    there = np.ones((20, 2), np.int64)
    there[19, 0] = 0
    found = judge(changes, there, [str(n) for n in range(20)])
    (up, down), nothing = found.often(np.array([0.01, 0.0]))
    assert nothing is None
    assert (up.texts, down.texts) == (3, 1)
    for one in (up, down):
        exact = binomtest(one.texts, 19).proportion_ci(1 - 2 * 0.05 / 4).low
        assert one.least == pytest.approx(exact, abs=1e-9)
