"""Whole ablations: figures by text, intervals, the same bits, and what the command line says."""

from __future__ import annotations

import json
import math
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import attnviz as av
from attnviz.ablation import measure
from attnviz.cli import main
from attnviz.corpus.executors import Inline
from attnviz.effects import AblationReport, CurvePoint, affordable_share
from attnviz.errors import AttnvizError, InputError, ModelError, UsageError

SCHEMA = json.loads(
    (Path(__file__).parent.parent.parent / "docs" / "ablate.schema.json").read_text("utf-8")
)
TEXTS = ["one two three one two three", "a b c a b c a", "the cat and the dog and the cat"]


@pytest.fixture(scope="module")
def report() -> AblationReport:
    return av.ablate(TEXTS, gradient=True)


def test_means_and_intervals_by_hand(report) -> None:
    """The ratio estimate over texts, from every text measured by itself."""
    alone = [av.ablate(text, heads="2.4") for text in TEXTS]
    b = np.array([one.positions for one in alone])
    a = np.array([one.effects[0].change for one in alone]) * b
    p, g = a.sum() / b.sum(), len(b)
    v = g / (g - 1) * (a**2 - 2 * p * a * b + p**2 * b**2).sum() / b.sum() ** 2
    (found,) = [effect for effect in report.effects if effect.name == "2.4"]
    assert found.change == pytest.approx(p, abs=1e-5)
    assert found.high - found.low == pytest.approx(2 * 4.302653 * math.sqrt(v), rel=1e-3)
    assert found.worse == np.mean(a > 0)
    assert (report.texts, report.positions) == (3, b.sum())
    assert alone[0].low is alone[0].effects[0].low is None


def test_gradients_are_means_over_texts(report) -> None:
    alone = [av.ablate(text, heads="2.4", gradient=True).effects[0] for text in TEXTS]
    (found,) = [effect for effect in report.effects if effect.name == "2.4"]
    assert found.gradient == pytest.approx(np.mean([e.gradient for e in alone]), rel=1e-3)
    assert found.signed == pytest.approx(np.mean([e.signed for e in alone]), rel=1e-3)


def test_gradients_of_a_layer_have_length_one() -> None:
    found = av.ablate(TEXTS[0], gradient=True, normalize="layer")
    single = [e for e in found.effects if len(e.heads) == 1]
    for layer in range(4):
        own = [e.gradient for e in single if e.heads[0].layer == layer]
        assert np.linalg.norm(own) == pytest.approx(1)


def test_groups_name_what_their_members_add_up_to(report) -> None:
    single = {e.heads[0]: e.change for e in report.effects if len(e.heads) == 1}
    groups = [e for e in report.effects if len(e.heads) > 1]
    assert groups
    assert len(single) == 24
    for group in groups:
        assert group.members == pytest.approx(sum(single[head] for head in group.heads))


def test_several_processes_and_batches_of_other_sizes(report) -> None:
    """Any number of processes gives the same bits; smaller batches the same to rounding."""
    several = av.ablate(TEXTS, gradient=True, jobs=2)
    assert several.to_json() == report.to_json()
    small = av.ablate(TEXTS, gradient=True, batch_tokens=8)
    for a, b in zip(small.effects, report.effects, strict=True):
        assert a.change == pytest.approx(b.change, abs=1e-5)


@pytest.mark.parametrize("method", ["mean", "resample"])
def test_other_methods(method: str) -> None:
    found = av.ablate(TEXTS, method=method, heads="2.4,layer:1", metric="kl", draws=2)
    assert all(effect.change > 0 for effect in found.effects)
    assert found.base == 0
    assert found.method.startswith(
        {"mean": "mean at every position", "resample": "resampled"}[method]
    )


def test_a_reference_is_said() -> None:
    found = av.ablate(TEXTS[0], method="mean", heads="2.4", reference=TEXTS[1:], mean_over="tokens")
    assert found.method == "mean over all tokens of the reference"


def test_a_model_without_a_head_for_words(minilm: str) -> None:
    found = av.ablate(TEXTS, model=minilm, heads="0.2")
    assert found.metric == "hidden"
    assert any("Measured by the last hidden states" in note for note in found.notes)
    with pytest.raises(ModelError, match="has no loss"):
        av.ablate(TEXTS, model=minilm, metric="loss")


def test_the_probe_finds_the_heads_that_repetition_needs() -> None:
    found = av.ablate(probe=True, heads="*.*,3.0+3.1+3.3+3.5")
    single = [e for e in found.ranked() if len(e.heads) == 1]
    assert {e.name for e in single[:4]} == {"0.5", "2.4", "1.4", "2.0"}
    assert single[3].low > 2 * single[4].high
    (group,) = [e for e in found.effects if len(e.heads) > 1]
    assert group.change > 3 * group.members > 0


def test_curves() -> None:
    found = av.ablate(TEXTS[:2], curve=True, random_orders=1, heads=None)
    orders = {point.order for point in found.curve}
    assert orders == {"effect", "random 1"}
    mine = [point for point in found.curve if point.order == "effect"]
    assert [point.removed for point in mine] == list(range(25))
    assert len({point.head for point in mine}) == 25
    costs = {e.name: e.change for e in found.effects if len(e.heads) == 1}
    listed = [costs[point.head] for point in mine[1:]]
    assert listed == sorted(listed)
    last = [p.change for p in found.curve if p.removed == 24]
    assert last[0] == pytest.approx(last[1], abs=1e-5)
    again = av.ablate(TEXTS[:1], curve=True, random_orders=0, remeasure=True)
    assert {point.head for point in again.curve[1:]} == set(costs)


def test_the_share_that_can_go_ends_where_the_cost_begins() -> None:
    costs = [0, 0.01, 0.2, 0.0, 0.5]
    points = [CurvePoint("effect", n, "", cost, None, None) for n, cost in enumerate(costs)]
    assert affordable_share(points, 0.05, 1) == 1 / 4
    assert affordable_share(points, 1.0, 1) == 1
    assert affordable_share([], 1.0, 1) is None


def test_positions_show_who_pays() -> None:
    text = "one two three four one two three four"
    found = av.ablate(text, heads="0.5", positions=True)
    (row,) = found.by_position.values()
    assert len(row) == len(found.tokens)
    known = [value for value in row if value is not None]
    assert np.mean(known) == pytest.approx(found.effects[0].change)
    with pytest.raises(UsageError, match="shows a single text"):
        av.ablate(TEXTS, positions=True)


def test_interrupted_is_part_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Inline.run

    def interrupted(self, tasks):
        for number, found in enumerate(run(self, tasks)):
            if number == 1:
                raise KeyboardInterrupt
            yield found

    monkeypatch.setattr(measure, "LARGEST", 1)
    monkeypatch.setattr(Inline, "run", interrupted)
    found = av.ablate(TEXTS, heads="2.4")
    assert found.partial
    assert found.texts == 1
    assert "Interrupted: only 1 texts were measured." in found.notes


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
    both = av.ablate(TEXTS, model=model, heads="0.5+1.4", metric="loss")
    with model.gated({"0.5": 0}):
        rest = av.ablate(TEXTS, model=model, heads="1.4", metric="loss")
    assert rest.base + rest.effects[0].change == pytest.approx(
        both.base + both.effects[0].change, abs=1e-5
    )


# --- what comes out ------------------------------------------------------------------------------


def test_json_and_csv_and_pictures(report, tmp_path: Path) -> None:
    jsonschema.validate(report.to_json(), SCHEMA)
    for suffix in (".json", ".csv", ".png", ".svg", ".pdf"):
        assert report.save(tmp_path / f"r{suffix}").stat().st_size > 1000
    lines = (tmp_path / "r.csv").read_text().splitlines()
    assert len(lines) == 1 + len(report.effects)


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("\n".join(TEXTS))
    picture = tmp_path / "p.png"
    assert main(["ablate", "--lines", str(path), "--gradient", "--curve", "--random-orders", "1",
                 "--plot", str(picture)]) == 0  # fmt: skip
    out, err = capsys.readouterr()
    assert "95 % interval" in out
    assert "of the heads can go, by effect" in out
    assert "rank correlation" in out
    assert "Intervals from 3 texts cover less than 95 %" in err
    assert picture.stat().st_size > 10_000
    assert main(["ablate", TEXTS[0], "--heads", "2.4", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, SCHEMA)
    assert document["effects"][0]["heads"] == ["2.4"]
    assert main(["ablate", TEXTS[0], "--positions", "--heads", "2.4,1.4", "-q"]) == 0
    assert "change at every token" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["a b", "--heads", "9.9"], 2, "no head 9.9"),
        (["a b", "--heads", "role:nobody"], 2, "no role 'nobody'"),
        (["a b", "--metric", "fame"], 2, "unknown metric 'fame'"),
        (["a b", "--metric", "logit-diff"], 2, "--answer and --against"),
        (["a b", "--answer", "x"], 2, "--answer and --against go together"),
        (["a b", "--method", "resample"], 2, "use --method zero"),
        (["a b", "--gradient", "--metric", "kl"], 2, "use --metric loss"),
        (["a b", "--curve", "--heads", "0.1"], 2, "leave --heads 0.1 out"),
        (["--ids", "5"], 1, "at least two words"),
        (["--recorded", "sample_inputs/recorded.npz"], 2, "needs the model; give a text"),
        (["a b", "--tolerance", "nan"], 2, "tolerance must be a number from 0"),
        (["--probe", "--model", "demo-bert"], 2, "--probe asks for next tokens"),
        (["a b", "--model", "demo-bert", "--answer", "a", "--against", "b"], 1, "0 masks"),
    ],
)
def test_one_line_for_what_makes_no_sense(
    arguments: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ablate", *arguments]) == code
    out, err = capsys.readouterr()
    assert says in err
    assert err.count("\n") == 1
    assert not out


def test_python_errors() -> None:
    with pytest.raises(UsageError, match="unknown option 'speed'"):
        av.ablate("a b", speed=3)
    with pytest.raises(UsageError, match="give texts, or probe=True"):
        av.ablate()
    with pytest.raises(InputError):
        av.ablate([])
    with pytest.raises(AttnvizError):
        av.ablate([5])
