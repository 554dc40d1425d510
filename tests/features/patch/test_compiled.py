"""Transformers compiled from RASP by tracr: every head of the program is known, and found.

The weights are written by ``python -m training.compiled``; idle heads stand beside compiled ones.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from torch import nn

import attnviz as av
from attnviz.core.source import Source
from attnviz.features.patch.circuit import corrupted
from attnviz.features.patch.function import patch
from attnviz.features.patch.measure import PatchPlan, measure
from attnviz.features.patch.pairs import Pair, PreparedPair, prepare, task_pairs
from attnviz.features.patch.result import Patch
from attnviz.features.patch.runs import PairMetric, metric_of
from attnviz.features.patch.sweep import Patching, key_heads, targets
from attnviz.statistics.ratios import ratios

transformers = pytest.importorskip("transformers")
FOLDER = Path(__file__).parent / "compiled"


def read(name: str) -> tuple[Any, dict[str, int], set[str]]:
    """The model as a GPT-2 with identity norms, its vocabulary, and the heads that write."""
    stored = np.load(FOLDER / f"{name}.npz", allow_pickle=False)
    meta = json.loads(stored["meta"].tobytes())
    tensors = {key: torch.tensor(stored[key]) for key in stored if key != "meta"}
    wide, layers = tensors["wte"].shape[1], sum(key.startswith("qkv.") for key in tensors)
    config = transformers.GPT2Config(
        vocab_size=len(tensors["wte"]), n_positions=len(tensors["wpe"]), n_embd=wide,
        n_layer=layers, n_head=meta["heads"], n_inner=tensors["up.0"].shape[1],
        activation_function="relu", tie_word_embeddings=False, bos_token_id=None,
        eos_token_id=None,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        model.transformer.wte.weight.copy_(tensors["wte"])
        model.transformer.wpe.weight.copy_(tensors["wpe"])
        model.lm_head.weight.copy_(tensors["unembed"])
        for layer, block in enumerate(model.transformer.h):
            block.ln_1 = block.ln_2 = nn.Identity()
            for part, module in (
                ("qkv", block.attn.c_attn), ("out", block.attn.c_proj), ("up", block.mlp.c_fc),
                ("down", block.mlp.c_proj),
            ):  # fmt: skip
                module.weight.copy_(tensors[f"{part}.{layer}"])
                module.bias.copy_(tensors[f"{part}_bias.{layer}"])
    model.transformer.ln_f = nn.Identity()
    return model, meta["words"], set(meta["wrote"])


def sequences(count: int) -> list[tuple[str, ...]]:
    """Words of which none comes twice."""
    every = list(itertools.permutations("abcde", 4))
    return [every[n * 7 % len(every)] for n in range(count)]


def reversing(words: dict[str, int]) -> list[Pair]:
    """At the end of a text its first word; corrupted by another first word."""
    found = []
    for first, *rest in sequences(14):
        other = next(word for word in "abcde" if word not in (first, *rest))
        clean, changed = ([words[w] for w in ("BOS", one, *rest)] for one in (first, other))
        found.append(Pair(tuple(clean), tuple(changed), words[first], words[other]))
    return found


def following(words: dict[str, int]) -> list[Pair]:
    """What followed when the last word came before; corrupted by swapping two words."""
    found = []
    for one, two, three, four in sequences(14):
        clean, changed = (
            [words[w] for w in ("BOS", *some, two)]
            for some in ((one, two, three, four), (two, one, three, four))
        )
        found.append(Pair(tuple(clean), tuple(changed), words[three], words[one]))
    return found


CASES = {
    "reverse": (reversing, {"3.0"}, {"0.0", "3.0"}, ["3.0 -> logits"]),
    "followed": (following, {"0.0", "1.0"}, {"0.0", "1.0"}, ["0.0 -> 1.0.k", "1.0 -> logits"]),
}
"""Pairs, the heads that carry the answer, those that it needs, and the edges that carry it.

Both texts of ``reverse`` are as long, so that the head that counts them carries nothing.
"""


@pytest.fixture(params=CASES, scope="module")
def case(request: pytest.FixtureRequest) -> Any:
    model, words, wrote = read(request.param)
    make, carried, needed, edges = CASES[request.param]
    return av.load(model), make(words), carried, needed, edges, wrote


def test_corruption_finds_the_heads_and_edges_that_carry_the_answer(case: Any) -> None:
    source, pairs, carried, needed, edges, wrote = case
    found = av.patch(pairs, model=source, circuit="auto")
    assert (found.clean.wins, found.corrupted.wins) == (1.0, 0.0), "the program runs"
    assert wrote == needed
    assert found.circuit is not None
    assert {member.head.name for member in found.circuit.members} == carried
    assert sorted(link.edge.name(found.layout) for link in found.circuit.links) == edges
    assert found.circuit.faithful.share == pytest.approx(1, abs=1e-3)
    assert found.circuit.complete.share == pytest.approx(0, abs=1e-3)


def test_zero_finds_the_heads_that_the_answer_needs(case: Any) -> None:
    """Every head alone with its output at zero: one that gives the same in both texts counts."""
    source, pairs, _, needed, _, _ = case
    ready = prepare(source, pairs)
    plan = PatchPlan(
        tuple(ready), metric_of(None, ready), tuple(corrupted([head]) for head in source.layout),
        ("noise",), means=zeros(source, pairs),
    )  # fmt: skip
    measured = [one for batch in measure(source, plan) for one in batch]
    lost = np.mean([one.clean - one.patched[0] for one in measured], 0)
    full = np.mean([one.clean for one in measured])
    large = {head.name for head, change in zip(source.layout, lost, strict=True)
             if abs(change) > 0.05 * full}  # fmt: skip
    assert large == needed


def zeros(source: Source, pairs: list[Pair]) -> Any:
    """Outputs of zero, [T, H, d_v] by layer."""
    width = source.output(source.layout.sites[0]).weight
    assert width is not None
    shape = (len(pairs[0].clean), *width.shape[:2])
    return {site: torch.zeros(shape) for site in source.layout.sites}


DRAWS, SIZE, POPULATION = 200, 60, 1200


@pytest.mark.slow
def test_intervals_of_heads_hold_as_often_as_they_say() -> None:
    """The six heads that carry induction, 60 pairs a draw: 92 to 97 % hold, all 90 % or more."""
    source = av.load("demo-gpt2")
    ready = prepare(source, task_pairs(source, "induction", POPULATION, 3)[0])
    heads = targets(source, "z", "2.0, 2.4, 3.0, 3.1, 3.3, 3.5", key_heads(source, ready[0]))
    plan = PatchPlan(
        tuple(ready), metric_of(None, ready), tuple(map(Patching, heads)), ("denoise",)
    )
    measured = [one for batch in measure(source, plan) for one in batch]
    a = np.stack([one.patched[0] - one.corrupted for one in measured])
    b = np.array([one.clean - one.corrupted for one in measured])
    truth = a.sum(0) / b.sum()
    draw = np.random.default_rng(0)
    names = [str(n) for n in range(SIZE)]
    each, together = [], []
    for _ in range(DRAWS):
        some = draw.integers(0, len(b), SIZE)
        found = ratios(a[some], b[some], names)
        each.append((found.low <= truth) & (truth <= found.high))
        joint = (found.joint_low <= truth) & (truth <= found.joint_high)
        together.append(bool(joint.all()))
    assert 0.92 <= np.mean(each) <= 0.97
    assert np.mean(together) >= 0.90


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
@pytest.mark.parametrize("apart", [1e-4, 1e-2, 1.0])
def test_a_small_distance_is_that_of_float64(gpt2: Any, kind: Any, apart: float) -> None:
    """At 1e-4 the distances are 5e-9 nats, where sums over the vocabulary in float32 have 1e-6."""
    draw = np.random.default_rng(0)
    ready = prepare(gpt2, task_pairs(gpt2, "gender", 3, 0)[0])
    clean = draw.normal(0, 4, (3, 2000)).astype(np.float32)
    logits = (np.tile(clean, (2, 1)) + apart * draw.normal(size=(6, 2000))).astype(np.float32)
    distances = PairMetric("kl", "nats").of(kind(logits), kind(clean), ready)
    before = np.tile(log_softmax(clean.astype(np.float64), -1), (2, 1))
    after = log_softmax(logits.astype(np.float64), -1)
    expected = (np.exp(before) * (before - after)).sum(-1)
    np.testing.assert_allclose(np.asarray(distances), expected, rtol=1e-6)
    assert (np.asarray(distances) > 0).all()


@pytest.mark.parametrize(
    ("task", "count"), [("gender", 24), pytest.param("agreement", 24, marks=pytest.mark.slow)]
)
def test_joint_intervals_do_not_hang_on_rounding(
    gpt2: Any, task: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logits off by some units in float32's last place: the widest interval stays as wide."""
    whole = PairMetric.of

    def results(unit: float) -> Patch:
        draw = np.random.default_rng(1)

        def of(metric: PairMetric, logits: Any, clean: Any, pairs: Sequence[PreparedPair]) -> Any:
            noise = 1 + unit * draw.standard_normal(logits.shape)
            return whole(metric, (logits * noise).astype(logits.dtype), clean, pairs)

        monkeypatch.setattr(PairMetric, "of", of)
        return patch(
            task=task, count=count, model=gpt2, component="pattern", metric="kl", select="0.*, 3.*"
        )

    exact, rounded = results(0.0), results(4 * 2.0**-23)
    for effect, other in zip(exact.effects, rounded.effects, strict=True):
        for share, again in ((effect.denoise, other.denoise), (effect.noise, other.noise)):
            assert share is not None
            assert again is not None
            assert again.share == pytest.approx(share.share, abs=1e-5)
            if share.joint_low is None or again.joint_low is None:
                continue
            width, wide = ((x.joint_high or 0.0) - (x.joint_low or 0.0) for x in (share, again))
            assert wide == pytest.approx(width, rel=0.03)
    known = [share.joint_low for effect in exact.effects for share in (effect.denoise, effect.noise)
             if share is not None]  # fmt: skip
    assert sum(low is not None for low in known) >= 22
