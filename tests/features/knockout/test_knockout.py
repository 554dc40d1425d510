"""Knockout: planted edges, identities with ablation, controls, intervals, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz import cli
from attnviz.captures.trials import Trial
from attnviz.core.prompt import Generation, Inputs, Prompt
from attnviz.core.source import Cut
from attnviz.core.spans import Span
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import InputError, UsageError
from attnviz.features.knockout import words
from attnviz.features.knockout.function import Knock, judged
from attnviz.features.knockout.measure import CutRun, edges_of, measure, whole
from attnviz.features.knockout.result import CutChange, Knockout
from attnviz.features.knockout.settings import KnockoutSettings
from attnviz.interventions.metrics import Metric
from attnviz.models import pretrained
from tests.features.patch.planted import INDUCTION, PREVIOUS, planted

TEXT = "the cat river moon stone bread the cat river moon stone"
SPANS = {"match": "stone", "follower": "bread", "rest": "cat river"}
ASKED: dict[str, Any] = {"answer": "bread", "against": "moon"}


@pytest.fixture(scope="module")
def model() -> Any:
    return av.load("demo-gpt2")


@pytest.fixture(scope="module")
def result(model: Any) -> Knockout:
    return av.knockout(
        Prompt(TEXT, spans=SPANS), model=model, select="1.4, 2.0+3.0", window=1, draws=2, **ASKED
    )


def test_a_planted_circuit_dies_when_its_edge_is_cut_and_only_then() -> None:
    """Of all edges between two tokens only the two that induction is made of matter."""
    source = av.load(planted())
    ids = (1, 2, 3, 4, 5, 1, 2, 3)
    spans = {f"t{n}": f"tokens:{n}" for n in range(len(ids))}
    previous, induction = (f"{layer}.{head}" for layer, head in (PREVIOUS, INDUCTION))
    found = av.knockout(
        Prompt(ids=ids, spans=spans), model=source, select=f"{previous}, {induction}",
        rows=",".join(spans), keys=",".join(spans), answer="#4", against="#5", draws=0,
    )  # fmt: skip
    edges = {("t7", "t3"): induction, ("t3", "t2"): previous}
    base = found.effects[0].base
    assert base > 5
    for effect in found.effects:
        mine = edges.get((effect.rows, effect.keys), "")
        dies = mine != "" and effect.name in ("all heads", mine)
        if dies:
            assert effect.change.value < -0.8 * base, effect
        else:
            assert abs(effect.change.value) < 0.05 * base, effect
    assert len(found.of("t7", "t3")) == len(found.of("t3", "t2")) == 3


@pytest.mark.parametrize("head", ["2.4", "3.0+3.1"])
def test_a_head_without_any_edge_is_one_ablated_by_zero(model: Any, head: str) -> None:
    cut = av.knockout(
        TEXT, model=model, rows="all", keys="all", cut="zero", metric="loss", select=head, draws=0,
    )  # fmt: skip
    ablated = av.ablate(TEXT, model=model, select=head, method="zero", metric="loss")
    assert cut.effect("all", "all", head).change.value == pytest.approx(
        ablated.effects[0].change, abs=1e-4
    )
    assert cut.effects[0].base == pytest.approx(ablated.base, abs=1e-4)


def test_layer_windows(model: Any, result: Knockout) -> None:
    """Windows lie around each layer; one as wide as the model is all heads."""
    assert [e.name for e in result.of("last", "follower", "window")] == [
        f"layer {n}" for n in range(4)
    ]
    wide = av.knockout(
        Prompt(TEXT, spans=SPANS), model=model, rows="last", keys="follower", window=8, draws=0,
        **ASKED,
    )  # fmt: skip
    for effect in wide.of("last", "follower", "window"):
        assert effect.change.value == pytest.approx(wide.effects[0].change.value, abs=1e-4)
    three = av.knockout(TEXT, model=model, keys="before", window=3, draws=0)
    names = [e.name for e in three.of("last", "before", "window")]
    assert names == ["layers 0-1", "layers 0-2", "layers 1-3", "layers 2-3"]


def test_induction_needs_its_two_edges(result: Knockout) -> None:
    """The last word its follower in layers 2 and 3; that one the word before it in 0 and 1."""
    late = {e.layer: e.change.value for e in result.of("last", "follower", "window")}
    early = {e.layer: e.change.value for e in result.of("follower", "match", "window")}
    assert min(late[2], late[3]) < 3 * min(late[0], late[1])
    assert min(early[0], early[1]) < 3 * min(early[2], early[3])
    assert result.effect("last", "follower").change.value < -5


def test_the_hooked_backend_agrees(result: Knockout) -> None:
    hooked = av.knockout(
        Prompt(TEXT, spans=SPANS), model=pretrained.load("demo-gpt2", backend="hooked"),
        select="1.4, 2.0+3.0", window=1, draws=2, **ASKED,
    )  # fmt: skip
    assert [e.name for e in hooked.effects] == [e.name for e in result.effects]
    for one, other in zip(hooked.effects, result.effects, strict=True):
        assert one.change.value == pytest.approx(other.change.value, abs=2e-3)
        assert one.matched == pytest.approx(other.matched, abs=2e-3)
        if other.control is not None:
            assert one.control == pytest.approx(other.control, abs=2e-3)
        assert one.lost == pytest.approx(other.lost, abs=1e-4)


def test_the_weight_that_is_cut_is_that_of_the_map(model: Any, result: Knockout) -> None:
    maps = av.capture(TEXT, model=model)
    assert result.effect("follower", "match", "1.4").lost == pytest.approx(
        float(maps["1.4"][6, 5]), abs=1e-5
    )


def test_redirected_weight_is_not_lost(model: Any) -> None:
    """Moving the weight from the follower to another word makes the model say what comes there."""
    moved = av.knockout(
        Prompt(TEXT, spans={**SPANS, "other": "moon"}), model=model, rows="last", keys="follower",
        cut="redirect:other", draws=2, **ASKED,
    )  # fmt: skip
    plain = av.knockout(
        Prompt(TEXT, spans=SPANS), model=model, rows="last", keys="follower", draws=0, **ASKED
    )
    assert moved.effects[0].change.value < plain.effects[0].change.value
    assert moved.cut == "redirect:other"


def test_edges_of_an_encoder_decoder_model_cross(folders: Any) -> None:
    """A span of the source, lost by the last token of the decoder: cross-attention is cut."""
    from tests.models.test_cuts import by_eager
    from tests.models.tiny import inputs_of

    folder = folders("bart", 8.0, words=True)
    source = pretrained.load(str(folder), backend="hooked")
    ids, target = (7, 21, 30, 4, 18, 11, 5, 27, 33, 14), (2, 14, 8, 39, 26, 5, 7)
    bare = inputs_of(source, ids, target)
    keys = Tokens(tuple(map(str, ids)), ids, spans=(Span("part", ((2, 5),)),))
    inputs = Inputs({**bare.sides, "cross": Sides(bare.sides["cross"].queries, keys)})
    edges = edges_of(inputs, "last", "part")
    assert edges is not None
    assert (edges.kind, edges.rows, edges.keys) == ("cross", (6,), (2, 3, 4))
    heads = tuple(h for h in source.layout if h.site.kind == "cross")
    one = CutRun(edges, heads, Trial(0, inputs, (6,)), Metric("log-prob", 9, exact=True))
    (made,) = measure(
        source, inputs, [one], whole(source, inputs, [edges], "mask"), method="mask", draws=1,
        seed=(0,),
    )  # fmt: skip
    rows, lost = torch.zeros(1, 7, dtype=torch.bool), torch.zeros(1, 10, dtype=torch.bool)
    rows[0, 6], lost[0, 2:5] = True, True
    cut = Cut(torch.ones(1, 2, dtype=torch.bool), rows, lost)
    want = [
        by_eager("bart", folder, cuts)[6].log_softmax(-1)[9]
        for cuts in ({}, dict.fromkeys(range(3), cut))
    ]
    assert made.change == pytest.approx(float(want[1] - want[0]), abs=1e-5)
    assert abs(made.change) > 1e-4


def test_intervals_hold_over_texts(model: Any) -> None:
    words = ["bread", "stone", "moon", "river", "cat", "horse", "king", "garden"]
    texts = [
        {
            "text": f"the {a} {b} {c} the {a} {b}", "spans": {"follower": c, "first": a},
            "answer": c, "against": a,
        }
        for a, b, c in zip(words, words[1:] + words[:1], words[2:] + words[:2], strict=True)
    ]  # fmt: skip
    many = av.knockout([*texts, texts[0]], model=model, rows="last", draws=1)
    assert (many.texts, many.clusters) == (9, 8)
    effect = many.effect("last", "follower")
    low, high = effect.change.joint_low, effect.change.joint_high
    assert low is not None
    assert high is not None
    assert low < effect.change.value < high < 0
    assert effect.change.sure
    assert effect.judged.sure
    first = many.effect("last", "first")
    assert first.excess is not None
    assert first.judged == first.excess
    assert many.family == len(many.effects) + sum(e.control is not None for e in many.effects)
    assert "count as 8" in " ".join(many.notes)


def test_a_text_has_no_interval_and_says_so(result: Knockout) -> None:
    assert result.effects[0].change.low is None
    assert result.effects[0].change.sure is None
    assert "One text has no interval" in " ".join(result.notes)


def test_its_rows_and_what_it_says_of_heads(result: Knockout) -> None:
    rows = result.to_records()
    assert len(rows) == len(result.effects)
    assert {row["head"] for row in rows} == {None, "1.4"}
    assert b"av.knockout(" in result.page()
    assert "the lead of “bread” over “moon” falls by" in str(result)
    finding = result.finding("k.json")
    assert finding is not None
    assert "without attending from the last token to “follower”" in " ".join(finding.said["2.0"])
    assert set(finding.said) == {"1.4", "2.0", "3.0"}


def test_what_it_writes_with_edges_cut(model: Any) -> None:
    prompt = Prompt(TEXT, spans=SPANS, generate=Generation(3))
    wrote = av.knockout(prompt, model=model, rows="last", keys="follower", draws=1, **ASKED).written
    assert [text.name for text in wrote] == ["", "all heads"]
    assert wrote[0].text.strip().startswith("bread")
    assert not wrote[1].text.strip().startswith("bread")


def test_a_file_of_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.jsonl"
    lines = [
        {"text": "a b c a b", "spans": {"x": "c"}, "answer": "c", "against": "a"},
        {"text": "d e f d e", "spans": {"x": "f"}, "answer": "f", "against": "d"},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    assert cli.main(["knockout", str(path), "--json", "--draws", "0", "-q"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["texts"] == 2
    assert told["metric"] == "logit-diff"
    path.write_text(json.dumps(lines[0]) + "\n" + json.dumps({"text": "a b", "answer": 3}))
    assert cli.main(["knockout", str(path), "-q"]) == 1
    assert "its answer is no text" in capsys.readouterr().err
    assert cli.main(["knockout", str(path), "--pair", "a", "-q"]) == 2
    assert "leave out" in capsys.readouterr().err


def test_settings_that_do_not_go_together(model: Any) -> None:
    with pytest.raises(UsageError, match="not for"):
        av.knockout(TEXT, model=model, keys="before", metric="kl", **ASKED)
    with pytest.raises(UsageError, match="has no answer"):
        av.knockout([{"text": "a b", "answer": "c"}, "a b"], model=model, keys="before")
    with pytest.raises(InputError, match="one token"):
        av.knockout(TEXT, model=model, keys="before", answer="bread", against="bread")


def test_punctuation_and_sinks(model: Any) -> None:
    inputs = model.prepare(Prompt("One, two. Three"))
    texts = inputs.sides["decoder"].queries.texts
    for name, said in (("punctuation", {",", "."}), ("sink", {"<|endoftext|>"})):
        edges = edges_of(inputs, "last", name)
        assert edges is not None
        assert {texts[n] for n in edges.keys} == said
    assert edges_of(inputs, "nosuch", "sink") is None


def _matched(weights: Any, keys: set[int], row: int) -> tuple[float, float]:
    """Of a row of maps [H, T, S] the weight on some keys, and of that what a control takes."""
    lost = taken = 0.0
    for head in range(len(weights)):
        mass = others = 0.0
        for key in range(row + 1):
            if key in keys:
                mass += float(weights[head, row, key])
            else:
                others += float(weights[head, row, key])
        lost += mass
        taken += mass if others > mass and row + 1 - len(keys) > 1 else 0.0
    return lost, taken


def test_matched_is_what_maps_say(model: Any, result: Knockout) -> None:
    """In float64, key by key, of all heads and of one; and there is no control below half."""
    tokens = av.logits(TEXT, model=model).tokens
    capture = av.capture(TEXT, model=model)
    row = len(tokens) - 1
    for effect in result.effects:
        if effect.rows != "last" or effect.kind == "window":
            continue
        keys = {tokens.index(f" {word}") for word in SPANS[effect.keys].split()}
        sums = np.zeros(2)
        for head in effect.heads:
            sums += _matched(np.asarray(capture[head], np.float64)[None], keys, row)
        assert effect.matched == pytest.approx(sums[1] / sums[0], abs=1e-4), effect
        assert (effect.control is None) == (sums[1] < 0.5 * sums[0])
        assert (effect.excess is None) == (effect.control is None)
    assert {e.control is None for e in result.effects} == {True, False}


def test_a_cut_that_leaves_a_token_alone_says_so(model: Any) -> None:
    found = av.knockout(TEXT, model=model, keys="before", select="*.*", window=1)
    whole = found.effect("last", "before")
    assert whole.isolates
    assert (whole.matched, whole.control) == (0, None)
    said = words.sentence(found)
    assert "cannot attend to all before it, and so to nothing but itself" in said
    assert "no control: there is no other key to take from" in said
    assert all(e.control is None for e in found.effects)
    assert "at random" not in found.to_bytes("svg").decode()
    assert f"All {len(found.effects)} cuts have no controls" in " ".join(found.notes)


def test_every_form_says_how_much_a_control_matches(model: Any, result: Knockout, tmp_path) -> None:
    """In the table, CSV, figure and page; an edge with more than all others has none."""
    alone = av.knockout(
        Prompt(TEXT, spans=SPANS), model=model, rows="follower", keys="match", select="1.4", **ASKED
    )
    effect = alone.effect("follower", "match", "1.4")
    assert (effect.matched, effect.control, effect.excess) == (0, None, None)
    why = "this edge has more of its row than all others together: no control takes as much"
    assert why in words.does(alone, effect)
    assert why in alone.save(tmp_path / "a.html").read_text("utf-8")
    assert "(no control)" in alone.to_bytes("svg").decode()
    row = next(row for row in alone.to_records() if row["heads"] == "1.4")
    assert (row["control"], row["matched"]) == (None, 0)
    assert "matched" in str(result)
    partly = next(e for e in result.effects if e.control is not None and e.matched < 0.99)
    assert f"where {words.taken(partly)} as much of other keys" in words.does(result, partly)


@pytest.mark.parametrize(
    ("base", "change", "said"),
    [
        (2.0, -0.5, "the lead of “a” over “b” falls by 0.5 logits"),
        (2.0, 0.0, "the lead of “a” over “b” does not change"),
        (-1.77, -0.0208, "“a”, 1.77 logits behind “b”, falls back by 0.0208 logits"),
        (-1.77, 0.3, "“a”, 1.77 logits behind “b”, gains by 0.3 logits"),
        (-1.77, 0.0, "“a”, 1.77 logits behind “b”, stays there"),
    ],
)
def test_sentences_of_a_lead(result: Knockout, base: float, change: float, said: str) -> None:
    effect = replace(result.effects[0], base=base, change=CutChange(change))
    assert said in words.does(replace(result, answer=" a", against=" b"), effect)


def test_sentences_of_a_probability_and_of_all_tokens(result: Knockout) -> None:
    prob = replace(result, metric="prob", unit="", answer=" a", against="")
    none = replace(result.effects[0], change=CutChange(1e-7), rows="all", keys="sink")
    assert "the probability of “a” does not change" in words.does(prob, none)
    assert words.does(prob, none).startswith("Where no token can attend to the sink")
    assert "rises by 20 points" in words.does(prob, replace(none, change=CutChange(0.2)))


def test_what_matters_in_some_texts_only_is_counted() -> None:
    """A lead of 2 that falls by half in five of twenty texts; a distance has no such count."""
    values = np.zeros((20, 1, 6))
    values[:, :, 2], values[:5, :, 3] = 2.0, -1.0
    knock = Knock("last", "sink", "all", "all heads", ())
    names = [str(n) for n in range(20)]
    for metric in ("logit-diff", "kl"):
        ((effect,), _) = judged([knock], values, names, metric, KnockoutSettings(draws=0))
        found = effect.change.often_worse
        assert effect.change.value == 0
        assert (found is None) == (metric == "kl")
        if found is not None:
            assert found.texts == 5
            result = SimpleNamespace(texts=20)
            assert words.often(result, effect) == f"worse in {round(100 * found.least)} % or more"  # type: ignore[arg-type]
