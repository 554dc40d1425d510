"""Paths against a plain loop on transformers' own GPT-2; their estimates against autograd."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

import attnviz as av
from attnviz.cli import main
from attnviz.core import arrays
from attnviz.core.heads import Head, Site
from attnviz.core.source import Donor, ForwardRequest
from attnviz.errors import ModelError, SelectionError, UsageError
from attnviz.features.patch import estimate, measure, paths
from attnviz.features.patch.circuit import corrupted
from attnviz.features.patch.pairs import Pair, prepare, task_pairs
from attnviz.features.patch.paths import Path, every_path, read_paths
from attnviz.features.patch.runs import PatchBench, RunPair, both, metric_of
from attnviz.features.patch.sweep import key_heads, sweep
from attnviz.models import pretrained
from attnviz.models.demo import DEMOS
from tests.features.patch.loop import PlainLoop
from tests.models.tiny import GAIN

transformers = pytest.importorskip("transformers")
HEADS = 6


def head(name: str) -> Head:
    layer, _, index = name.partition(".")
    return Head(Site("decoder", int(layer)), int(index))


@pytest.fixture(scope="module")
def runs(gpt2: Any) -> tuple[PatchBench, RunPair]:
    ready = prepare(gpt2, task_pairs(gpt2, "induction-swap", 3, 0)[0])
    bench = PatchBench(gpt2, metric_of(None, ready))
    return bench, both(bench, ready, paths.KEPT)


class Plain:
    """transformers' GPT-2 in float64: everything between is written out by hand."""

    def __init__(self) -> None:
        self.model = transformers.GPT2LMHeadModel.from_pretrained(DEMOS["demo-gpt2"])
        self.model = self.model.double().eval()
        self.blocks = self.model.transformer.h
        self.width = self.model.config.n_embd
        self.narrow = self.width // HEADS

    def kept(self, ids: Any) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """What enters each block and leaves the last, what goes into each W_O, and logits."""
        states, inside, hooks = list[Tensor](), list[Tensor](), []
        for block in self.blocks:
            hooks.append(
                block.register_forward_pre_hook(lambda _, args: states.append(args[0].clone()))
            )
            hooks.append(
                block.attn.c_proj.register_forward_pre_hook(
                    lambda _, args: inside.append(args[0].clone())
                )
            )
        hooks.append(self.blocks[-1].register_forward_hook(
            lambda _, args, out: states.append((out[0] if isinstance(out, tuple) else out).clone())
        ))  # fmt: skip
        with torch.no_grad():
            logits = self.model(torch.tensor([ids])).logits
        for hook in hooks:
            hook.remove()
        return states, inside, logits[0, -1]

    def path(self, pair: Pair, sender: Head, receiver: Head | None, side: str) -> Tensor:
        """Logits of the corrupted run with the clean difference of a sender in one input."""
        _, clean, _ = self.kept(pair.clean)
        states, corrupted, _ = self.kept(pair.corrupted)
        columns = slice(sender.index * self.narrow, (sender.index + 1) * self.narrow)
        apart = (clean[sender.layer] - corrupted[sender.layer])[..., columns]
        delta = apart @ self.blocks[sender.layer].attn.c_proj.weight[columns]
        if receiver is None:
            last = self.model.transformer.ln_f(states[-1] + delta)
            return self.model.lm_head(last)[0, -1].detach()
        block = self.blocks[receiver.layer]
        changed = block.attn.c_attn(block.ln_1(states[receiver.layer] + delta))
        start = "qkv".index(side) * self.width + receiver.index * self.narrow
        mine = slice(start, start + self.narrow)

        def swap(_: Any, args: Any, out: Tensor) -> Tensor:
            new = out.clone()
            new[..., mine] = changed[..., mine]
            return new

        hook = block.attn.c_attn.register_forward_hook(swap)
        _, _, logits = self.kept(pair.corrupted)
        hook.remove()
        return logits


PATHS = [
    Path(head("1.4"), (head("2.0"),), "k", 0), Path(head("0.5"), (head("3.3"),), "q", 3),
    Path(head("2.4"), (head("3.0"),), "v", 0), Path(head("2.0"), (), "logits"),
]  # fmt: skip


def test_sets_of_heads_are_those_of_whole_passes(
    runs: tuple[PatchBench, RunPair], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run layer by layer, what sets have in common once; a set that comes twice has one value."""
    bench, batch = runs
    heads, draw = list(bench.source.layout), random.Random(0)
    sets = [corrupted(draw.sample(heads, size)) for size in (2, 8, 8, 16, 23)]
    grown = [corrupted(heads[:size]) for size in range(20, 24)]  # alike in all but the last layer
    base, clean, ran = batch.clean, batch.clean.logits, []
    forward = type(bench.source).forward

    def counted(source: Any, items: Any, *rest: Any, **more: Any) -> Any:
        ran.append(len(items) // len(batch.pairs))
        return forward(source, items, *rest, **more)

    monkeypatch.setattr(type(bench.source), "forward", counted)
    alone = corrupted(heads[7:9])
    found = sweep(bench, batch, [*sets, *grown, sets[1], alone], "noise")
    assert np.array_equal(found[1], found[-2])
    assert sum(ran) <= 4 * len(sets) + 3 + len(grown) + 1
    for trial, values in zip([*sets, *grown], found, strict=False):
        donors = {}
        for site, rows in trial.target.rows.items():
            theirs = batch.corrupted.values["z"][site]
            share = torch.zeros(len(theirs), HEADS)
            share[:, list(rows)] = 1
            donors[site] = [Donor("z", theirs, share)]
        _, ends = bench.forward(base.batch, base.at, ForwardRequest(donors=donors))
        expected = arrays.to_numpy(bench.metric.of(bench.logits(ends), clean, batch.pairs))
        np.testing.assert_allclose(values, expected, atol=1e-4)
        np.testing.assert_allclose(arrays.to_numpy(bench.values(ends, batch)), expected, atol=1e-5)
    ran.clear()
    assert np.array_equal(sweep(bench, batch, sets[1:], "noise"), found[1 : len(sets)])
    assert not ran  # what a search has run once it asks for again
    sweep(bench, batch, sets[1:], "noise", selection="0-2")
    assert ran  # but not where other positions are patched


def test_pairs_run_once_for_plans_that_share_them(
    runs: tuple[PatchBench, RunPair], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, batch = runs
    ran: list[int] = []
    monkeypatch.setattr(measure, "both", lambda *rest, **more: ran.append(1) or both(*rest, **more))
    kept: measure.KeptRuns = {}
    trials = (corrupted(list(bench.source.layout)[:9]),)
    plan = measure.PatchPlan(batch.pairs, bench.metric, trials, ("noise",))
    each = [list(measure.measure(bench.source, plan, cache=kept)) for _ in range(2)]
    assert ran == [1]
    for first, second in zip(*(one[0] for one in each), strict=True):
        np.testing.assert_array_equal(first.patched, second.patched)


@torch.no_grad()
def test_paths_are_those_of_the_plain_loop(runs: tuple[PatchBench, RunPair]) -> None:
    bench, batch = runs
    found = paths.sweep(bench, batch, PATHS, "denoise")
    plain = Plain()
    for number, path in enumerate(PATHS):
        receiver = path.receivers[0] if path.receivers else None
        for place, ready in enumerate(batch.pairs):
            logits = plain.path(ready.pair, path.sender, receiver, path.side)
            expected = float(logits[ready.answer] - logits[ready.against or 0])
            assert float(found[number, place]) == pytest.approx(expected, abs=1e-4)


def test_with_free_mlps_nothing_but_the_head_differs(runs: tuple[PatchBench, RunPair]) -> None:
    """Straight to the logits with free MLPs: the run with every head held but one."""
    bench, batch = runs
    (found,) = paths.sweep(bench, batch, [Path(head("2.0"), (), "logits")], "denoise", mlps="free")
    model = transformers.GPT2LMHeadModel.from_pretrained(DEMOS["demo-gpt2"])
    loop = PlainLoop(model, [block.attn.c_proj for block in model.transformer.h], HEADS)
    narrow = model.config.n_embd // HEADS
    for place, ready in enumerate(batch.pairs):
        clean, held = (
            loop.kept(ready.pair, getattr(ready.pair, n)) for n in ("clean", "corrupted")
        )
        held[2][..., :narrow] = clean[2][..., :narrow]
        expected = loop.difference(
            ready.pair, ready.pair.corrupted, lambda layer, _, held=held: (held[layer],)
        )
        assert float(found[place]) == pytest.approx(expected, abs=1e-4)


def slopes(
    source: Any, given: list[Pair], several: Sequence[Path] | None = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """By how much a hundredth of the difference moves the metric along paths; and EAP's scores."""
    ready = prepare(source, given)
    bench = PatchBench(source, metric_of(None, ready))
    batch = both(bench, ready, paths.KEPT)
    tried = several or every_path(source.layout, key_heads(source, ready[0]))
    near = {
        site: own + 0.01 * (batch.clean.values["z"][site] - own)
        for site, own in batch.corrupted.values["z"].items()
    }
    small = replace(batch, clean=replace(batch.clean, values={"z": near}))
    moved = paths.sweep(bench, small, tried, "denoise")
    start = bench.metric.of(batch.corrupted.logits, batch.clean.logits, ready).numpy()
    return (moved - start) / 0.01, estimate.scores(bench, batch, tried, 0)


def test_estimates_are_slopes_of_the_exact_paths(gpt2: Any) -> None:
    found, scores = slopes(gpt2, task_pairs(gpt2, "induction-swap", 2, 0)[0], PATHS)
    np.testing.assert_allclose(found, scores, atol=0.12, rtol=0.06)


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2"])
def test_estimates_of_other_models(family: str, folders: Any) -> None:
    """Rotary positions, shared keys and norms of queries: through the model's own code."""
    source = pretrained.load(str(folders(family, GAIN.get(family, 3.0), words=True)),
                             backend="hooked")  # fmt: skip
    found, scores = slopes(source, [Pair((7, 21, 30, 4, 18, 11), (7, 21, 9, 4, 18, 11), 5, 12)])
    size = np.abs(scores).max()
    np.testing.assert_allclose(found, scores, atol=0.05 * size)
    assert size > 0


def test_paths_are_read(gpt2: Any) -> None:
    shared = dict.fromkeys(gpt2.layout.sites, 6)
    found = read_paths(["1.4 -> *.k", "3.0→logits"], gpt2.layout, shared)
    assert len(found) == 12 + 1
    assert {path.side for path in found} == {"k", "logits"}
    assert len(read_paths(["1.* -> 2.0"], gpt2.layout, shared)) == 18
    assert len(every_path(gpt2.layout, shared)) == 6 * 6 * 3 * math.comb(4, 2) + 24
    pairs_of_two = read_paths(["0.0 -> 1.5.v"], gpt2.layout, dict.fromkeys(gpt2.layout.sites, 3))
    assert [one.name for one in pairs_of_two[0].receivers] == ["1.4", "1.5"]
    for wrong, said in (
        ("2.0", "cannot read '2.0' as a path"),
        ("2.0 -> 1.*", "no receiver is in a layer after"),
        ("2.0 -> 9.9", "no head 9.9"),
    ):
        with pytest.raises(SelectionError, match=said):
            read_paths([wrong], gpt2.layout, shared)


def test_previous_tokens_reach_induction_heads_through_their_keys() -> None:
    """What `attnviz circuits` reads off the weights of demo-gpt2, by intervention."""
    found = av.patch(task="induction-swap", count=12, paths="1.4 -> *")
    name = found.strongest()[0].name(found.layout)
    assert name == "1.4 -> 2.0.k"
    assert {edge.side for edge in found.strongest()[:4]} == {"k"}
    assert "the keys of 2.0 alone, restores" in str(found).replace("\n", " ")
    said = found.finding("p.json")
    assert said is not None
    assert said.said["2.0"][0].startswith("1.4 -> 2.0.k restores")


def test_the_strongest_estimates_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    found = av.patch(task="induction-swap", count=6, edges=10)
    assert len(found.edges) == 10
    assert found.estimated == 672
    assert found.correlation is not None
    assert found.correlation > 0.3
    assert av.patch(task="induction-swap", count=2, edges=10, steps=0).steps == 0
    assert type(found).from_json(found.to_json()) == found
    assert main(["patch", "--task", "induction", "--count", "2", "--edges", "3", "--csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_models_that_normalize_the_sum_need_free_mlps() -> None:
    with pytest.raises(ModelError, match=r"does not reach later layers as it is .* mlps='free'"):
        av.patch(task="gender", model="demo-bert", count=8, paths="0.0 -> 1.*")
    found = av.patch(task="gender", model="demo-bert", count=8, paths="0.0 -> 1.0", mlps="free")
    assert len(found.edges) == 3
    with pytest.raises(UsageError, match="are of heads' whole outputs; leave out by"):
        av.patch(task="gender", paths="0.0 -> 1.0", by="position")
