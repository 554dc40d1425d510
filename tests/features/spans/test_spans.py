"""Shares of weight on named parts, against loops over whole maps."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import t
from typer.testing import CliRunner

import attnviz as av
from attnviz.cli import app, main
from attnviz.core.capture import KeyMask
from attnviz.core.heads import Head, Site
from attnviz.core.prompt import Inputs
from attnviz.core.source import Rows
from attnviz.core.spans import ELSEWHERE, Span
from attnviz.core.tokens import Sides
from attnviz.errors import InputError, UsageError
from attnviz.features.spans import description as words
from attnviz.features.spans.measure import SpanObserver
from attnviz.features.spans.result import LEAST_LIFT, Spans, SpanShare
from tests.viewing import encoder_decoder, made

TEXT = "The kettle sang and the candle burned while the kettle sang and the candle burned."
SPANS = {"first": "The kettle sang", "second": "#2:kettle sang", "all of it": "chars:0-80"}
_THINGS = ("kettle", "candle", "lamp", "clock", "rope", "map")
_PLACES = ("hall", "mill", "barn", "attic", "shop", "hall")
LINES = [f"The {a} is in the {b} now." for a, b in zip(_THINGS, _PLACES, strict=True)]


def share_of(found: Spans, head: str, name: str) -> SpanShare:
    (one,) = [each for each in found.heads if found.layout.name(each.head) == head]
    return one.shares[found.names.index(name)]


def by_hand(
    maps: Sequence[tuple[np.ndarray, list[int], list[int]]], window: int | None = None
) -> tuple[float, float, float, int]:
    """Share, chance, weight of a token and rows of a causal head, over (map, rows, keys)."""
    shares, chances, tokens = [], [], []
    for weights, rows, keys in maps:
        for row in rows:
            allowed = [k for k in range(row + 1) if window is None or row - k < window]
            seen = [key for key in keys if key in allowed]
            if seen:
                shares.append(math.fsum(float(weights[row, key]) for key in seen))
                chances.append(len(seen) / len(allowed))
                tokens.append(shares[-1] / len(seen))
    return float(np.mean(shares)), float(np.mean(chances)), float(np.mean(tokens)), len(shares)


@pytest.fixture(scope="module")
def capture() -> av.Capture:
    return av.capture(av.Prompt(TEXT, spans=SPANS))


@pytest.mark.parametrize("rows", ["last", "all", "second"])
def test_shares_are_those_of_the_maps(capture: av.Capture, rows: str) -> None:
    found = av.spans(av.Prompt(TEXT, spans=SPANS), rows=rows)
    tokens = capture.inputs.sides["decoder"].keys
    spans = {span.name: list(span.positions) for span in tokens.spans}
    inside = {place for places in spans.values() for place in places}
    spans[ELSEWHERE] = [n for n in range(len(tokens)) if n not in inside]
    where = {"last": [len(tokens) - 1], "all": list(range(len(tokens)))}.get(rows)
    where = spans["second"] if where is None else where
    assert found.names == (*SPANS, ELSEWHERE)
    for head in capture.layout:
        for name in found.names:
            share = share_of(found, head.name, name)
            mean, chance, token, count = by_hand([(capture[head], where, spans[name])])
            assert share.rows == count
            assert share.mean == pytest.approx(mean, abs=1e-7)
            assert share.chance == pytest.approx(chance, abs=1e-12)
            assert share.lift == pytest.approx(mean / chance, rel=1e-5)
            assert share.per_token == pytest.approx(token, abs=1e-7)
            assert share.low is None


def test_matrices_are_means_from_span_to_span(capture: av.Capture) -> None:
    found = av.spans(capture)
    spans = {s.name: list(s.positions) for s in capture.inputs.sides["decoder"].keys.spans}
    (one,) = [each for each in found.heads if each.head.name == "2.4"]
    mean, *_ = by_hand([(capture[one.head], spans["second"], spans["first"])])
    assert one.matrix[1][0] == pytest.approx(mean, abs=1e-7)
    assert one.matrix[0][1] is None, "no row of the first may attend to the second"


def test_a_capture_gives_what_its_model_gave(capture: av.Capture) -> None:
    one, other = av.spans(capture), av.spans(av.Prompt(TEXT, spans=SPANS))
    for mine, theirs in zip(one.heads, other.heads, strict=True):
        for a, b in zip(mine.shares, theirs.shares, strict=True):
            assert a.mean == pytest.approx(b.mean, abs=1e-6)
            assert a.chance == b.chance


def test_norms_are_shares_of_their_rows() -> None:
    norms = av.capture(av.Prompt(TEXT, spans=SPANS), quantity="norm")
    found = av.spans(av.Prompt(TEXT, spans=SPANS), rows="all", quantity="norm")
    tokens = norms.inputs.sides["decoder"].keys
    keys = list(tokens.spans[0].positions)
    for head in norms.layout:
        rows = norms[head] / norms[head].sum(1, keepdims=True)
        mean, *_ = by_hand([(rows, list(range(len(tokens))), keys)])
        assert share_of(found, head.name, "first").mean == pytest.approx(mean, abs=1e-6)


def test_several_texts_have_the_interval_of_a_ratio() -> None:
    """By the formula of Cochran 1977, chapter 6, written out again."""
    prompts = [av.Prompt(line, spans={"place": r"regex:the \w+"}) for line in LINES]
    found = av.spans(prompts, rows="all")
    captures = [av.capture(prompt) for prompt in prompts]
    share = share_of(found, "1.4", "place")
    a, b = [], []
    for held in captures:
        tokens = held.inputs.sides["decoder"].keys
        keys = list(tokens.spans[0].positions)
        weights = held[Head(Site("decoder", 1), 4)]
        mean, _, _, count = by_hand([(weights, list(range(len(tokens))), keys)])
        a.append(mean * count)
        b.append(count)
    p, n = sum(a) / sum(b), len(a)
    v = n / (n - 1) * sum((x - p * y) ** 2 for x, y in zip(a, b, strict=True)) / sum(b) ** 2
    half = t.ppf(0.975, n - 1) * math.sqrt(v)
    assert share.mean == pytest.approx(p, abs=1e-7)
    assert share.low == pytest.approx(max(p - half, 0), abs=1e-5)
    assert share.high == pytest.approx(min(p + half, 1), abs=1e-5)
    assert found.spans[0].texts == n == found.texts


def test_blocks_and_windows_change_nothing() -> None:
    rng = np.random.default_rng(3)
    weights = rng.random((2, 9, 9)) * np.tri(9) * (1 - np.tri(9, k=-4))
    weights /= weights.sum(-1, keepdims=True)
    allowed = torch.from_numpy((np.tri(9) * (1 - np.tri(9, k=-4))) > 0)
    rows, keys = [[8], list(range(9))], [[1, 2, 3], [6]]
    results = []
    for cuts in ([0, 9], [0, 4, 6, 9]):
        observer = SpanObserver(rows, keys, 9)
        for start, end in pairwise(cuts):
            first = max(0, start - 3)
            block = torch.from_numpy(weights[None, :, start:end, first:end])
            observer.observe(
                Rows(
                    Site("decoder", 0),
                    start,
                    first,
                    block,
                    allowed[None, None, start:end, first:end],
                )
            )
        results.append(observer.result())
    for one, other in zip(
        *[(r.values, r.chances, r.per_token, r.rows) for r in results], strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-12)
    mean, chance, token, count = by_hand([(weights[1], list(range(9)), [1, 2, 3])], window=4)
    assert results[0].rows[1, 1, 0] == count
    assert results[0].values[1, 1, 0] / count == pytest.approx(mean)
    assert results[0].chances[1, 1, 0] / count == pytest.approx(chance)
    assert results[0].per_token[1, 1, 0] / count == pytest.approx(token)


def test_uniform_attention_has_a_lift_of_one() -> None:
    held = made(causal=True)
    tokens = held.inputs.sides["decoder"].keys
    tokens = replace(tokens, spans=(Span("a", ((1, 3),)), Span("b", ((4, 5),))))
    length = len(tokens)
    uniform = (np.tri(length) / np.tri(length).sum(1, keepdims=True)).astype(np.float32)
    for maps in held.maps.values():
        maps[:] = uniform
    held = av.Capture(
        held.source, held.layout, Inputs({"decoder": Sides(tokens, tokens)}), held.maps,
        reach={site: KeyMask(causal=True) for site in held.maps},
    )  # fmt: skip
    for one in av.spans(held, rows="all").heads:
        assert [share.lift for share in one.shares] == pytest.approx([1.0] * 3)


def test_what_makes_no_sense_is_refused(capture: av.Capture) -> None:
    for what, options, said in (
        ("The keys", {}, "the text has no spans"),
        (capture, {"rows": "third"}, "no rows 'third'; choose last, all, first, second"),
        (capture, {"quantity": "norm"}, "run the model itself"),
        (encoder_decoder(), {}, "attends between two texts"),
        ([capture, "The keys"], {}, "captures are measured with others of the same model"),
        (capture, {"distractors": 2}, "distractors is for a file of questions"),
    ):
        with pytest.raises(UsageError, match=said):
            av.spans(what, **options)


def test_rows_and_what_it_says_of_heads(capture: av.Capture) -> None:
    found = av.spans(capture)
    assert len(found.to_records()) == len(found.layout) * len(SPANS)
    lifts = [row["lift"] for row in found.to_records()]
    assert lifts == sorted(lifts, reverse=True)
    said = found.finding("f.json")
    assert len(said.measures) == len(SPANS)
    assert "times" in said.how
    assert found.compared().values["2.4"].keys() == {*SPANS}


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["spans", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_prints_what_the_function_finds(tmp_path: Path) -> None:
    options = [f"--span={name}={how}" for name, how in SPANS.items()]
    found = json.loads(run(TEXT, *options, "--json", "-q"))
    own = av.spans(av.Prompt(TEXT, spans=SPANS))
    assert found["heads"] == json.loads(own.to_json())["heads"]
    (tmp_path / "spans.json").write_text(json.dumps(SPANS))
    assert run(TEXT, "--span", f"@{tmp_path / 'spans.json'}", "--csv", "-q") == own.to_csv()
    shown = run(TEXT, *options, "-q", "--keys", "second", "--select", "1.4,2.4", "--top", "3")
    assert "1.4: rows, keys" in shown
    assert "2.4: rows, keys" in shown


def test_lines_are_texts(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("\n".join(LINES))
    rows = ("--json", "-q", r"--span=place=regex:the \w+", "--rows", "all")
    plain = json.loads(run("--texts", str(tmp_path / "lines.txt"), *rows))
    own = av.spans([av.Prompt(x, spans={"place": r"regex:the \w+"}) for x in LINES], rows="all")
    assert plain["heads"] == json.loads(own.to_json())["heads"]
    (tmp_path / "l.jsonl").write_text("\n".join(json.dumps({"text": x}) for x in LINES))
    assert json.loads(run("--texts", str(tmp_path / "l.jsonl"), *rows))["heads"] == plain["heads"]
    table = ["spans", "--texts", str(tmp_path / "l.jsonl"), *rows]
    assert main([*table, "--max-tokens", "2"]) == 1
    for extra in ("--target", "--image", "--audio", "--pair"):  # the fields of the file's own
        assert main([*table, extra, "The"]) == 2


def test_intervals_hold_for_all_heads_and_spans_at_once() -> None:
    """Few texts: Student's t at 1 - 0.05 / family, by hand; and a head that surely beats chance."""
    prompts = [av.Prompt(text, spans={"it": "tokens:3", "rest": "tokens:5-6"}) for text in LINES]
    found = av.spans(prompts, rows="all")
    count = len(found.heads) * 2
    assert found.family == count == 48
    sums = [av.spans(one, rows="all") for one in prompts]
    for name in ("it", "rest"):
        one = share_of(found, "0.0", name)
        values = [share_of(each, "0.0", name) for each in sums]
        a = np.array([(each.mean or 0.0) * each.rows for each in values])
        b = np.array([each.rows for each in values])
        p, groups = a.sum() / b.sum(), len(a)
        error = math.sqrt(groups / (groups - 1) * ((a - p * b) ** 2).sum()) / b.sum()
        half = t.ppf(1 - 0.05 / count / 2, groups - 1) * error
        assert one.joint_low == pytest.approx(max(0.0, p - half), abs=1e-6)
        assert one.joint_high == pytest.approx(min(1.0, p + half), abs=1e-6)
        assert one.low is not None
        assert one.joint_low is not None
        assert one.joint_low < one.low
    sure = {share.sure for one in found.heads for share in one.shares[:2]}
    assert sure == {True, False}
    assert {one.shares[-1].joint_low for one in found.heads} == {None}


def test_two_are_compared_by_the_spans_of_one_name() -> None:
    one = av.spans(av.Prompt(TEXT, spans={"a": "kettle", "b": "#2:sang"}))
    other = av.spans(av.Prompt(TEXT, spans={"a": "candle", "c": "#2:sang"}))
    found = av.diff(one, other)
    for head in found.heads:
        (change,) = head.changes
        assert change.name == "a"
        before, after = (share_of(each, head.name, "a").mean for each in (one, other))
        assert change.change == pytest.approx((after or 0.0) - (before or 0.0))
    assert "Only one of the two reports has b, c." in found.notes
    with pytest.raises(InputError, match=r"no figure in common \(x and a, b\)"):
        av.diff(av.spans(av.Prompt(TEXT, spans={"x": "kettle"})), one)


def test_the_question_is_answered_first() -> None:
    named = av.Prompt("The keys to the cabinet are on the table", spans={"place": "the table"})
    found = av.spans(named)
    first = str(found).splitlines()[0]
    strong = [w for w, _, share in found.ranked() if (share.lift or 0) >= LEAST_LIFT]
    assert 0 < len(strong) < len(found.heads)
    for weights in strong[:3]:
        assert found.layout.name(weights.head) in first
    assert "attend to “place”" in first


def test_what_chance_does_is_not_shown() -> None:
    """Uniform attention has a lift of one everywhere, and an untrained layer is near it."""
    named = av.Prompt(
        "The keys to the cabinet are on the table", spans={"thing": "keys to the cabinet"}
    )
    shown = str(av.spans(named, model="fresh"))
    assert shown.startswith("No head attends to “thing” as much as ×2 of chance\n")
    assert "lift" not in shown
    most = av.Prompt(
        "The keys to the cabinet are on the table",
        spans={"user": "The keys to the cabinet are on the"},
    )
    impossible = words.answer(av.spans(most, model="fresh"))
    assert impossible.startswith("No head can attend to “user” as much as ×2 of chance: ")
    assert impossible.endswith(" % of the keys are there")
    sure, below = SpanShare(0.5, 0.1, 5.0, 0.1, 9, sure=True), SpanShare(0.1, 0.5, 0.2, 0.1, 9)
    assert sure.stands_out
    assert not below.stands_out
    assert not replace(sure, sure=False).stands_out
