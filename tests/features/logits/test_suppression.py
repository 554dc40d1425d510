"""Why down: planted copy suppression is named and nothing else is; sums without a writer close."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.captures.loading import light
from attnviz.captures.trials import one_token
from attnviz.core.prompt import Prompt
from attnviz.features.logits.description import finding
from attnviz.features.logits.result import Writers
from attnviz.features.logits.suppression import Case, _runs, explained
from attnviz.models.demo import DEMOS
from attnviz.statistics.order import share_between
from attnviz.statistics.ratios import fieller
from proofs import plain
from tests.features.logits.test_writers import ANSWERS, OTHERS, TEXTS, found, repeats
from tests.features.patch.planted import ANSWER, LOOKS_BACK, TOKEN, WIDTH, Wired, inducing, wired_as

transformers = pytest.importorskip("transformers")
stats = pytest.importorskip("scipy.stats")

WRITES = {(0, 3): LOOKS_BACK, (1, 7): inducing(1.0)}
SUPPRESSES = {**WRITES, (2, 5): Wired(ANSWER, TOKEN, 0, TOKEN, ANSWER, -0.4)}
"""Layer 2 finds the token that 1.7 predicts, and takes a part of it away again."""


def judged(model: Any, answers: list[str] | None = None) -> Writers:
    """The heads of a planted model that push up or down."""
    prompts, asked, _ = repeats(8)
    return av.writers(prompts, answer=answers or asked, model=av.load(model))


@cache
def suppressing() -> Writers:
    return judged(wired_as(SUPPRESSES, 3))


def test_planted_copy_suppression_is_named_by_both_tests() -> None:
    """What goes of its push is that of an eager model whose writer hands on a mean."""
    model = wired_as(SUPPRESSES, 3)
    why = suppressing().heads()["2.5"].why
    assert why is not None
    assert (why.texts, why.fails, why.writers, why.others) == (8, (), ("1.7",), 1)
    assert (why.predicted.value, why.lowered.value, why.predicted_others.value) == (1, 1, 0)
    assert why.predicted.low == pytest.approx(stats.binomtest(8, 8).proportion_ci().low)
    prompts, answers, _ = repeats(8)
    ids = torch.tensor([prompt.ids for prompt in prompts])
    right = torch.tensor([int(answer[1:]) for answer in answers])
    model.config._attn_implementation = "eager"
    mine, given = slice(7 * WIDTH, 8 * WIDTH), []

    def replaced(_: Any, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        z = inputs[0].clone()
        own = z[:, -1, mine].clone()
        given.append(own)
        z[:, -1, mine] = (own.sum(0) - own) / (len(own) - 1)
        return (z,)

    def push() -> np.ndarray:
        with torch.no_grad():
            seen = model(ids, output_attentions=True).attentions[2][:, 5, -1]
        return -4 * (seen * (ids == right[:, None])).sum(1).double().numpy()

    before = push()
    hook = model.transformer.h[1].attn.c_proj.register_forward_pre_hook(replaced)
    after = push()
    hook.remove()
    assert why.gone.value == pytest.approx(1 - after.sum() / before.sum(), abs=1e-5)
    assert why.gone.low == pytest.approx(1 - fieller(after, before)[1], abs=1e-5)
    assert why.gone_others.value == pytest.approx(0, abs=1e-6)


def fixed() -> Any:
    """It lowers token 3 alone, wherever it looks."""
    model = wired_as(SUPPRESSES, 3)
    mine = slice(5 * WIDTH, 6 * WIDTH)
    with torch.no_grad():
        weight = model.transformer.h[2].attn.c_proj.weight
        weight[mine, ANSWER * WIDTH : (ANSWER + 1) * WIDTH] = 0
        weight[mine, ANSWER * WIDTH + 3] = -0.4
    return model


def finding_by_itself() -> Any:
    return wired_as({**WRITES, (2, 5): inducing(-0.4)}, 3)


@pytest.mark.parametrize(
    ("make", "answers", "fails"),
    [(finding_by_itself, None, {"path"}), (fixed, ["#3"] * 8, {"lowering", "path"})],
)
def test_other_planted_cancellers_are_not(
    make: Any, answers: list[str] | None, fails: set[str]
) -> None:
    """Nor are those of :mod:`tests.features.logits.test_writers`."""
    why = judged(make(), answers).heads()["2.5"].why
    assert why is not None
    assert set(why.fails) == fails


@pytest.mark.parametrize("seed", range(2))
def test_random_weights_are_none(seed: int) -> None:
    """Even where every head is taken for a canceller or a writer."""
    torch.manual_seed(seed)
    config = transformers.GPT2Config(vocab_size=200, n_positions=16, n_embd=16, n_layer=2, n_head=4)
    source = av.load(transformers.GPT2LMHeadModel(config).eval())
    draw = random.Random(seed)
    prompts = [Prompt(ids=tuple(draw.sample(range(200), 8))) for _ in range(8)]
    pushes = av.writers(prompts, answer="#7", model=source).pushes
    parts = av.logits(prompts[0], model=source).parts
    verdicts = ["canceller" if p.layer and p.mean.value < 0 else "writer" for p in pushes]
    pairs = zip(pushes, verdicts, strict=True)
    named = [replace(p, verdict=verdict if (p.head or 0) < 2 else "") for p, verdict in pairs]
    cases = [Case(source.prepare(prompt), 7, 7, None) for prompt in prompts]
    why = [push.why for push in explained(source, cases, named, parts) if push.why]
    assert why
    assert all(one.fails for one in why)
    ungated: Any = SimpleNamespace(layout=source.layout, start_kind=None, no_gates="it cannot be")
    assert explained(ungated, cases, named, parts) == tuple(named)


def test_what_changes_without_a_writer_adds_up_as_by_hand(monkeypatch: Any) -> None:
    """Beside NumPy in float64: the head, the other heads, the scale, and all of it."""
    result = found()
    push = next(push for push in result.listed("writer") if push.repair)
    layer, head = push.layer, push.head
    model, norm, streams = plain.Plain(DEMOS["demo-gpt2"], np.float64), plain._norm, []
    monkeypatch.setattr(plain, "_norm", lambda x, *rest: streams.append(x) or norm(x, *rest))
    w, source = model._w, av.load("demo-gpt2")
    ids = [np.array([source.prepare(Prompt(text)).sides["decoder"].queries.ids]) for text in TEXTS]
    asked = [
        [one_token(source, word) for word in pair] for pair in zip(ANSWERS, OTHERS, strict=True)
    ]
    runs = [(*model.run(i), streams[-1]) for i in ids]
    own = np.array([z[layer][0, head, -1] for _, z, _ in runs])
    w_o = [w[f"h.{n}.attn.c_proj.weight"].reshape(model.heads, -1, model.width) for n in range(4)]
    sums = []
    for n, (logits, z, x) in enumerate(runs):
        other = z[layer][0, head].copy()
        other[-1] = (own.sum(0) - own[n]) / (len(own) - 1)
        changed, moved = model.run(ids[n], {(layer, head): other})
        a, b = asked[n]
        u = w["ln_f.weight"] * (w["wte.weight"][a] - w["wte.weight"][b])
        u -= u.mean()
        sigma, later = (np.sqrt(s[0, -1].var() + 1e-5) for s in (x, streams[-1]))
        parts = np.einsum("lhd,lhde,e->lh", moved[:, 0, :, -1] - z[:, 0, :, -1], w_o, u / sigma)
        lead = [some[0, -1, a] - some[0, -1, b] for some in (logits, changed)]
        scales = streams[-1][0, -1] @ u * (1 / later - 1 / sigma)
        sums.append(
            [lead[1] - lead[0], parts[layer, head], parts.sum() - parts[layer, head], scales]
        )
    names = ("total", "direct", "heads", "scales")
    means = [getattr(push.repair, name).value for name in names]
    assert means == pytest.approx(np.mean(sums, 0).tolist(), abs=1e-5)
    assert abs(push.repair.rest) < 1e-5
    total = sum(getattr(push.repair, name).value for name in (*names[1:], "mlps"))
    assert total == pytest.approx(push.repair.total.value, abs=1e-5)
    whole = push.repair.heads.value + push.repair.mlps.value
    assert sum(mean.value for mean in push.repair.by_part.values()) == pytest.approx(
        whole, abs=1e-5
    )
    assert "without it the logit changes in all" in str(finding(result, "x").said)


def test_runs_that_go_on_from_a_layer_are_whole_runs() -> None:
    """Begun at the first layer that they change, and ended where they are read, on any backend."""
    for source in (av.load(wired_as(SUPPRESSES, 3)), light(av.load("demo-gpt2"))):
        prompt = repeats(1)[0][0]
        case = Case(source.prepare(Prompt(ids=prompt.ids)), len(prompt.ids) - 1, 3, None)
        heads, draw = list(source.layout), np.random.default_rng(0)
        (one,) = _runs(source, case, [{}])
        width = len(one.watch.output(heads[0]))
        below, above = heads[1], heads[-2]
        sets = [{}, {above: draw.normal(size=width)},
                {h: draw.normal(size=width) for h in (below, heads[-8])}]  # fmt: skip
        late = _runs(source, case, sets, one, [None, None, above.layer + 1])
        whole = _runs(source, case, sets, ends=[None] * 3)
        for begun, run in zip(late[:2], whole, strict=False):
            np.testing.assert_allclose(begun.values(source), run.values(source), atol=1e-4)
            assert begun.logit == pytest.approx(run.logit, abs=1e-4)
        assert late[2].of(source, above, one) == pytest.approx(
            whole[2].of(source, above, one), abs=1e-4
        )


def test_it_is_said_in_every_form(tmp_path: Any) -> None:
    result = suppressing()
    assert av.read(result.save(tmp_path / "w.json")) == result
    row = next(row for row in result.to_records() if row["head"] == "2.5")
    assert (row["suppression"], row["lowered"]) == ("copy suppression", 1)
    assert "copy suppression. The token that it reads" in str(finding(result, "x").said["2.5"])
    assert b"2.5, copy suppression" in result.to_bytes("svg")
    assert share_between(3, 9) == pytest.approx((1 / 3, 0.07485, 0.70070), abs=1e-4)
