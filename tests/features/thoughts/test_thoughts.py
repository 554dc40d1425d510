"""Thoughts: scores by an independent loop, a planted anchor, suppression as eager models do it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz import cli
from attnviz.core.heads import Layout, Site
from attnviz.core.prompt import Generation, Prompt
from attnviz.core.source import Cut, Rows
from attnviz.errors import ModelError
from attnviz.features.thoughts import words
from attnviz.features.thoughts.result import Thoughts
from attnviz.features.thoughts.sentences import (
    SentenceObserver,
    judged,
    kurtosis,
    reliability,
    vertical_scores,
)
from attnviz.features.thoughts.suppress import FLOOR, suppressed
from attnviz.models import pretrained
from tests import ROOT
from tests.features.patch import planted as wiring
from tests.models.test_cuts import IDS, by_eager
from tests.models.tiny import hooked_only, inputs_of

TRACE = ROOT / "sample_inputs" / "trace.txt"
TEXT = (
    "The sea was dark. The old man lit the lamp. The wind rose. The boats were far away. "
    "The lamp was bright. The rain fell. The boats came home. The old man slept. It was day."
)


@pytest.fixture(scope="module")
def result(gpt2: Any) -> Thoughts:
    return av.thoughts(TEXT, model=gpt2, draws=2)


def causal_weights(heads: int, length: int, seed: int = 0) -> Any:
    draw = np.random.default_rng(seed)
    raw = np.tril(draw.random((heads, length, length)) ** 4)
    return raw / raw.sum(-1, keepdims=True)


def by_loop(weights: Any, sentences: Any, apart: int) -> tuple[Any, Any, Any]:
    """Matrices, vertical scores and kurtosis of one head, number by number."""
    count = len(sentences)
    matrix = [[0.0] * count for _ in range(count)]
    for a, (first, end) in enumerate(sentences):
        for b, (start, stop) in enumerate(sentences):
            total = 0.0
            for i in range(first, end):
                for j in range(start, stop):
                    total += float(weights[i][j])
            matrix[a][b] = total / ((end - first) * (stop - start))
    scores = []
    for b in range(count):
        later = [matrix[a][b] for a in range(count) if a >= b + apart]
        if later:
            scores.append(sum(later) / len(later))
    mean = sum(scores) / len(scores)
    second = sum((s - mean) ** 2 for s in scores) / len(scores)
    fourth = sum((s - mean) ** 4 for s in scores) / len(scores)
    return matrix, scores, fourth / second**2 - 3


@pytest.mark.parametrize("block", [1, 5, 40])
@pytest.mark.parametrize("apart", [1, 4])
def test_scores_are_those_of_the_formula(block: int, apart: int) -> None:
    length, sentences = 40, [(1, 4), (4, 5), (6, 11), (11, 17), (17, 19), (20, 28), (28, 31),
                             (31, 36), (36, 40)]  # fmt: skip
    weights = causal_weights(3, length)
    observer = SentenceObserver(sentences, length)
    for start in range(0, length, block):
        stop = min(start + block, length)
        observer.observe(
            Rows(Site("decoder", 0), start, 0, weights[None, :, start:stop, :stop], None)
        )
    means = observer.means()
    scores = vertical_scores(means, apart)
    for head in range(3):
        matrix, want, tail = by_loop(weights[head], sentences, apart)
        np.testing.assert_allclose(means[head], matrix, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(scores[head][: len(want)], want, rtol=1e-12)
        assert np.isnan(scores[head][len(want) :]).all()
        assert kurtosis(scores[head]) == pytest.approx(tail, rel=1e-10)


def test_kurtosis_of_known_scores() -> None:
    """One apart from all others has the most there can be; what is too little has none."""
    for count in (4, 13, 56):
        scores = np.zeros(count)
        scores[2] = 1.0
        assert kurtosis(scores) == pytest.approx(count - 5 + 1 / (count - 1))
    assert kurtosis(np.array([1.0, -1.0] * 5)) == pytest.approx(-2)
    assert np.isnan(kurtosis(np.full(9, 0.1)))
    assert np.isnan(kurtosis(np.array([1.0, 2.0, 4.0, np.nan])))


def test_reliability_is_that_of_the_heads() -> None:
    """Heads that keep their kurtosis from trace to trace are told from those that do not."""
    draw = np.random.default_rng(0)
    own, names = draw.normal(size=(1, 40)), [str(n) for n in range(12)]
    steady = reliability(own + 0.1 * draw.normal(size=(12, 40)), names, 0)
    noise = reliability(draw.normal(size=(12, 40)), names, 0)
    assert steady is not None
    assert noise is not None
    assert steady > 0.98
    assert abs(noise) < 0.3
    assert reliability(own, ["a"], 0) is None
    assert reliability(np.concatenate([own, own]), ["a", "a"], 0) is None


WIDTH, ANCHOR = 40, 5
READER = (1, 3)


def anchored() -> Any:
    """A GPT-2 of which one head reads the token of one sentence from everywhere, and says it."""
    model = wiring.wired_as({}, 2, width=WIDTH)
    layer, head = READER
    block = model.transformer.h[layer]
    token, answer = (slice(WIDTH * n, WIDTH * (n + 1)) for n in (wiring.TOKEN, wiring.ANSWER))
    match = torch.zeros(WIDTH, WIDTH)
    match[ANCHOR] = 1.0
    with torch.no_grad():
        wiring._attend(block, head, token, token, match)
        mine = slice(head * WIDTH, (head + 1) * WIDTH)
        block.attn.c_proj.weight[mine] = 0
        wiring._write(block, head, token, answer, 0.3)
    return model


def test_a_planted_anchor_is_found() -> None:
    """Its head has the largest kurtosis, reads that sentence, and all later ones need it."""
    source = av.load(anchored())
    ids = [n % (WIDTH - 6) + 6 for n in range(WIDTH)]
    place = 3  # the sentence with the anchor
    ids[3 * place + 1] = ANCHOR
    spans = {f"s{n}": f"tokens:{3 * n}-{3 * n + 2}" for n in range(13)}
    found = av.thoughts(Prompt(ids=tuple(ids), spans=spans), model=source, draws=0)
    (trace,) = found.traces
    first = found.ranked()[0]
    assert found.layout.name(first.head) == f"{READER[0]}.{READER[1]}"
    scored = len(trace.sentences) - found.apart
    assert first.kurtosis == pytest.approx(scored - 5 + 1 / (scored - 1), abs=0.01)
    reader = next(head for head in trace.heads if head.head == first.head)
    assert int(np.argmax(reader.vertical[:scored])) == place
    importance = trace.importance(found.apart)
    assert max(range(scored), key=lambda n: importance[n] or 0) == place
    for later in range(place + 1, len(trace.sentences)):
        assert trace.feeds(later)[0][0] == place
    for later, row in enumerate(trace.log_kl[place + 1 :], place + 1):
        others = [value for n, value in enumerate(row[:later]) if n != place]
        assert (row[place] or -99) > math.log(0.01)
        assert max(value or 0 for value in others) < math.log(1e-6)


def kl_by_hand(whole: Any, changed: Any) -> Any:
    p, q = (x.double().log_softmax(-1) for x in (whole, changed))
    return (p.exp() * (p - q)).sum(-1)


@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen3", "gemma2", "gpt_neox", "gpt_oss"])
def test_suppression_equals_an_edited_eager_model(family: str, folders: Any) -> None:
    folder = folders(family, 8.0, words=True)
    source = pretrained.load(str(folder), backend="hooked")
    hooked_only(source)
    assert source.continues
    sentences = [(0, 3), (3, 5), *((place, place + 1) for place in range(5, len(IDS)))]
    got = suppressed(source, inputs_of(source, IDS, ()), sentences)
    whole = by_eager(family, folder, {})
    for number, (start, stop) in enumerate(sentences[:-1]):
        rows, keys = (torch.zeros(1, len(IDS), dtype=torch.bool) for _ in range(2))
        rows[0, stop:] = keys[0, start:stop] = True
        cuts = {
            layer: Cut(torch.ones(1, count, dtype=torch.bool), rows, keys)
            for layer, count in enumerate(source.layout.heads["decoder"])
        }
        kl = kl_by_hand(whole, by_eager(family, folder, cuts))
        assert kl[stop:].max() > 1e-4, "it changes nothing, and proves nothing"
        for later in range(number + 1, len(sentences)):
            begin, end = sentences[later]
            want = kl[begin:end].clamp(min=FLOOR).log().mean()
            assert math.exp(got[later, number]) == pytest.approx(float(want.exp()), abs=1e-5)
        assert np.isnan(got[: number + 1, number]).all()


def test_effects_are_relative_to_their_mean(result: Thoughts) -> None:
    (trace,) = result.traces
    for later in range(1, len(trace.sentences)):
        row = [value for value in trace.effects[later] if value is not None]
        raw = [value for value in trace.log_kl[later] if value is not None]
        assert len(row) == later
        assert sum(row) == pytest.approx(0, abs=1e-9)
        np.testing.assert_allclose(np.array(row) + np.mean(raw), raw)
    far = [trace.effects[later][0] for later in range(result.apart, len(trace.sentences))]
    assert trace.importance(result.apart)[0] == pytest.approx(np.mean([x or 0 for x in far]))


def test_matrices_are_those_of_the_maps(gpt2: Any, result: Thoughts) -> None:
    maps = av.capture(TEXT, model=gpt2)
    (trace,) = result.traces
    for receiver in trace.receivers:
        whole = np.asarray(maps[result.layout.name(receiver.head)], np.float64)
        for a, later in enumerate(trace.sentences):
            for b, earlier in enumerate(trace.sentences[:a]):
                want = whole[later.start : later.stop, earlier.start : earlier.stop].mean()
                assert receiver.matrix[a][b] == pytest.approx(want, abs=1e-6)


def test_several_batches_are_one(gpt2: Any) -> None:
    """A text at a time or many: the same effects."""
    inputs = gpt2.prepare(Prompt(TEXT))
    sentences = [(1, 6), (6, 13), (13, 20), (20, 30)]
    alone = suppressed(gpt2, inputs, sentences, tokens=1)
    together = suppressed(gpt2, inputs, sentences)
    np.testing.assert_allclose(alone, together, atol=1e-3)


def test_the_hooked_backend_agrees(result: Thoughts) -> None:
    hooked = av.thoughts(TEXT, model=pretrained.load("demo-gpt2", backend="hooked"), draws=2)
    assert hooked.traces[0].sentences == result.traces[0].sentences
    for one, other in zip(hooked.heads, result.heads, strict=True):
        assert one.kurtosis == pytest.approx(other.kurtosis, abs=1e-3)
        assert one.control == pytest.approx(other.control, abs=1e-3)
    np.testing.assert_allclose(
        np.array(hooked.traces[0].log_kl, float), np.array(result.traces[0].log_kl, float),
        atol=1e-2,
    )  # fmt: skip


def test_several_traces_have_reliability_and_intervals(gpt2: Any) -> None:
    sentences = TEXT.split(". ")
    turned = [[*sentences[n:], *sentences[:n]] for n in range(6)]
    traces = [". ".join(order) for some in turned for order in (some, some[::-1])]
    found = av.thoughts([*traces, traces[0]], model=gpt2, suppress=False, draws=1)
    assert (found.texts, found.clusters) == (13, 12)
    assert found.reliability is not None
    assert -1 <= found.reliability <= 1
    known = [head for head in found.heads if head.joint_low is not None]
    assert known
    for head in known:
        assert head.excess is not None
        assert head.joint_low <= head.excess <= (head.joint_high or 0)
        assert head.sure == (head.joint_low > 0)
    assert "count as 12" in " ".join(found.notes)
    assert "the first of 13 traces" in str(found)
    assert not found.causal


@pytest.mark.parametrize("untrained", [0, None])
def test_nobody_is_a_receiver_head_without_an_interval_above_its_control(
    untrained: int | None,
) -> None:
    """Ten sentences in other orders: a model that learned nothing has none, and is told so."""
    model = av.load("demo-gpt2", untrained=untrained)
    sentences = TEXT.split(". ")
    rng = np.random.default_rng(3)
    traces = [". ".join(sentences[n] for n in rng.permutation(9)) for _ in range(10)]
    found = av.thoughts(traces, model=model, suppress=False, draws=2)
    assert all(head.joint_low > 0 for head in found.receivers)
    told = words.sentence(found)
    if found.receivers:
        name = found.layout.name(found.receivers[0].head)
        assert told.startswith(name)
    else:
        assert told.startswith("No head of 24 is shown to be a receiver head")
    assert untrained is None or not found.receivers


def test_a_head_whose_kurtosis_is_that_of_random_order_is_none() -> None:
    """24 heads on 12 traces: only the one that is above its control in all of them is named."""
    rng = np.random.default_rng(4)
    controls = rng.gamma(2, 1, (12, 24)) - 2
    tails = controls + 0.3 * rng.standard_normal((12, 24))
    tails[:, 7] = controls[:, 7] + rng.uniform(1, 2, 12)
    tails[:, 3] += 5 * (np.arange(12) < 3)  # large, and in three traces alone
    layout = Layout({"decoder": (24,)})
    heads = judged(layout, tails, controls, [str(n) for n in range(12)])
    assert [n for n, head in enumerate(heads) if head.sure] == [7]


def test_one_trace_says_that_it_is_one(result: Thoughts) -> None:
    assert result.reliability is None
    assert result.heads[0].sure is None
    assert "nothing is known about others" in " ".join(result.notes)
    assert not result.receivers
    assert "No head can be called a receiver head: 1 trace cannot tell" in " ".join(result.notes)
    assert "Receiver heads" not in str(result)


def test_a_seed_gives_the_same_orders(gpt2: Any, result: Thoughts) -> None:
    again = av.thoughts(TEXT, model=gpt2, draws=2, suppress=False)
    other = av.thoughts(TEXT, model=gpt2, draws=2, suppress=False, seed=1)
    controls = [[head.control for head in found.heads] for found in (result, again, other)]
    assert controls[0] == controls[1] != controls[2]


def test_a_few_sentences_have_effects_but_no_kurtosis(gpt2: Any) -> None:
    found = av.thoughts("It rains. We stay. It is dark.", model=gpt2)
    assert not found.ranked()
    assert found.traces[0].receivers == ()
    assert found.traces[0].effects[2][0] is not None
    assert "too few" in str(found)
    for form in ("svg", "html", "csv", "dot"):
        assert found.to_bytes(form)


def test_what_the_model_writes_is_the_trace(gpt2: Any) -> None:
    prompt = Prompt("The old man sat by the fire.", generate=Generation(60))
    found = av.thoughts(prompt, model=gpt2, suppress=False, draws=0)
    (trace,) = found.traces
    assert trace.written > 0
    assert trace.sentences[0].start >= trace.tokens - trace.written


def test_of_a_chat_the_last_message_is_the_trace(gpt2: Any) -> None:
    chat = [
        {"role": "user", "content": "What is it? Tell me. Be quick."},
        {"role": "assistant", "content": "It is the sea. It is dark. We must go home."},
    ]
    found = av.thoughts(Prompt(chat=chat), model=gpt2, suppress=False, draws=0)
    said = [sentence.text for sentence in found.traces[0].sentences]
    assert said[:2] == ["It is the sea.", "It is dark."]
    assert "What is it?" not in said


def test_its_rows_and_what_it_says_of_heads(result: Thoughts) -> None:
    rows = result.to_records()
    count = len(result.traces[0].sentences)
    kinds = [row["kind"] for row in rows]
    assert kinds.count("head") == 24
    assert kinds.count("sentence") == count
    assert kinds.count("pair") == count * (count - 1) // 2
    assert result.head("1.4").kurtosis is not None
    with pytest.raises(KeyError):
        result.head("9.9")
    finding = result.finding("t.json")
    assert finding is not None
    assert "kurtosis over sentences" in finding.said["1.4"][0]


def test_files_of_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["thoughts", str(TRACE), "--no-suppress", "--draws", "0", "--json", "-q"]) == 0
    told = json.loads(capsys.readouterr().out)
    parts = [sentence["part"] for sentence in told["traces"][0]["sentences"]]
    assert (parts.count("thought"), parts.count("answer")) == (16, 1)
    many = tmp_path / "t.jsonl"
    chat = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": TEXT}]
    many.write_text(json.dumps({"text": TEXT}) + "\n" + json.dumps({"messages": chat}))
    assert cli.main(["thoughts", str(many), "--no-suppress", "--draws", "0", "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["texts"] == 2
    spans = tmp_path / "s.json"
    spans.write_text(json.dumps({"dark": "The sea was dark.", "lamp": "The old man lit the lamp."}))
    asked = ["thoughts", TEXT, "--span", f"@{spans}", "--no-suppress", "--json", "-q"]
    assert cli.main(asked) == 0
    told = json.loads(capsys.readouterr().out)
    assert [sentence["name"] for sentence in told["traces"][0]["sentences"]] == ["dark", "lamp"]


def test_models_that_cannot_be_cut_are_looked_at_alone(folders: Any) -> None:
    source = pretrained.load(str(folders("gpt_neo", 8.0, words=True)))
    spans = {f"s{n}": f"tokens:{2 * n}-{2 * n + 1}" for n in range(5)}
    prompt = Prompt(ids=IDS, spans=spans)
    with pytest.raises(ModelError, match="cannot be suppressed"):
        av.thoughts(prompt, model=source)
    assert av.thoughts(prompt, model=source, suppress=False, draws=0).heads


def test_nothing_is_said_of_sentences_that_move_less_than_others(gpt2: Any) -> None:
    """Of two that have a number the larger may still be below the mean: no sentence says so."""
    found = av.thoughts("It rains. We stay. It is dark. They came. He sat down.", model=gpt2)
    (trace,) = found.traces
    (value, *rest) = trace.importance(found.apart)
    assert value is not None
    assert set(rest) == {None}
    assert ("move most without" in str(found)) == (value > 0)
