"""Results of commands beside heads: what each says, whose it is, and where that shows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.errors import InputError, UsageError
from attnviz.findings import Finding, Measure
from attnviz.given import read_given
from attnviz.records import Layout
from attnviz.render.labels import visible
from attnviz.render.viewer.beside import beside
from tests.profiling.corpus import lines
from tests.profiling.corpus import sentences as texts

ROOT = Path(__file__).parents[1]
TEXT = "The kettle sang and the candle burned while the kettle sang and the candle burned."


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(lines(tmp_path_factory.mktemp("found") / "t.txt", texts(6)))


@pytest.fixture(scope="module")
def reports(corpus: str) -> dict[str, Any]:
    return {
        "ablate": av.ablate(texts(6), gradient=True),
        "one": av.ablate(TEXT),
        "profile": av.profile(corpus),
        "logits": av.logits(TEXT),
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, reports: dict[str, Any]) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("files")
    found = {}
    for name, report in reports.items():
        found[name] = folder / f"{name}.json"
        found[name].write_text(
            report.json() if name == "profile" else json.dumps(report.to_json()), encoding="utf-8"
        )
        schema = "ablate" if name == "one" else name
        schema = json.loads((ROOT / "docs" / f"{schema}.schema.json").read_text())
        jsonschema.validate(json.loads(found[name].read_text()), schema)
    return found


def read(what: Any) -> Finding:
    (given,) = read_given(what)
    return given.finding


def measure(finding: Finding, name: str) -> Measure:
    (found,) = (one for one in finding.measures if one.name == name)
    return found


def test_an_ablation_gives_effects_with_intervals_and_gradients(files, reports) -> None:
    found, report = read(files["ablate"]), reports["ablate"]
    effects = {one.name: one for one in report.effects if len(one.heads) == 1}
    assert measure(found, "effect").values == {
        name: (one.change, one.low, one.high) for name, one in effects.items()
    }
    assert measure(found, "effect").orange == 1
    assert measure(found, "gradient").values == {
        name: (one.gradient, None, None) for name, one in effects.items()
    }
    assert f"at {report.positions:,} positions of 6 texts" in found.how
    assert "zero ablation" in found.how
    assert "95 % intervals over texts" in found.how
    costliest = max(effects.values(), key=lambda one: one.change)
    (first, slope, *groups) = found.said[costliest.name]
    assert re.match(r"\+[\d.]+ \[[+-][\d.]+, [+-][\d.]+\] nats, number 1 of 24, worse on ", first)
    assert slope.startswith(f"mean |∂/∂gate| {costliest.gradient:.2g}")
    assert all(line.startswith("with others (role:") for line in groups)


def test_a_single_text_has_no_interval(files) -> None:
    found = read(files["one"])
    assert "a single text has no interval" in found.how
    assert [one.name for one in found.measures] == ["effect"]
    assert all(low is None and high is None for _, low, high in found.measures[0].values.values())
    assert "[" not in found.said["0.5"][0]


def test_a_profile_says_what_heads_do_with_rows_texts_and_interval(files, reports) -> None:
    found = read(files["profile"])
    for head in reports["profile"].heads:
        (line, *_) = found.said[head.head.name]
        role = head.scores.does or head.scores.rests
        if role is None:
            assert line == "no role"
            continue
        estimate = head.estimates[role.score]
        interval = f"{estimate.mean:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"
        assert role.name in line
        assert interval in line
        assert f"{estimate.rows:,} rows of {estimate.texts} texts" in line
        value = measure(found, role.score).values[head.head.name]
        assert value == (estimate.mean, estimate.low, estimate.high)
    assert "6 texts" in found.how


def test_logits_say_what_each_head_adds_and_which_words_it_raises(files, reports) -> None:
    found, report = read(files["logits"]), reports["logits"]
    votes = measure(found, "vote")
    want = {head.name: value for head, value in report.heads().items()}
    assert {name: one[0] for name, one in votes.values.items()} == pytest.approx(want, abs=1e-5)
    assert votes.orange == -1  # as the figure of votes: what raises the logit is blue
    first = report.votes[0]
    vote, through, words = found.said[first.head.name]
    assert "number 1 of 24 by size" in vote
    assert f"(weight {first.seen[0].weight:.2f})" in through
    token = f"“{visible(report.token)}”"
    assert f" logits for {token}, number 1" in vote
    assert votes.title == f"what it adds to the logit of {token}"
    assert words.startswith(f"raises “{visible(first.raises[0])}” ")
    assert f"through “{visible(first.seen[0].token)}” " in through
    assert "burned" in found.how


def test_relations_and_coreference_have_numbers_too() -> None:
    best = {"head": "1.2", "direction": "to_head", "accuracy": 0.8, "low": 0.7, "high": 0.9,
            "count": 40, "offset": 1, "offset_accuracy": 0.5, "margin": 0.3, "margin_low": 0.2,
            "margin_high": 0.4}  # fmt: skip
    common = {"model": "m", "identity": {}, "layout": {"encoder": [3, 3]}, "roles": [],
              "measured_on": "odd documents"}  # fmt: skip
    from attnviz.found import finding

    syntax = finding("s.json", {"schema": "attnviz.syntax/1", **common,
                                "relations": {"obj": {"best": best}}})  # fmt: skip
    assert syntax.said["1.2"] == ("obj 0.80 [0.70, 0.90] of 40, best offset 0.50 (no role)",)
    assert syntax.measures[0].values == {"1.2": (0.3, 0.2, 0.4)}
    ranked = {**best, "baseline": "nearest", "baseline_accuracy": 0.6}
    coref = finding("c.json", {"schema": "attnviz.coref/1", **common, "ranked": [ranked]})
    assert coref.said["1.2"] == ("0.80 [0.70, 0.90] of 40, nearest 0.60",)
    assert coref.measures[0].values == {"1.2": (0.8, 0.7, 0.9)}


def test_the_report_itself_says_the_same_as_its_file(files, reports) -> None:
    for name, report in reports.items():
        given, file = read(report), read(files[name])
        assert (given.said, given.measures, given.how) == (file.said, file.measures, file.how)


def test_heads_print_and_write_them(files, capsys) -> None:
    given = [part for name in ("ablate", "logits", "profile") for part in ("--with", files[name])]
    assert main(["heads", TEXT, *map(str, given)]) == 0
    out = capsys.readouterr().out
    for title in ("What it is worth (ablate.json)", "What it writes (logits.json)",
                  "Over many texts (profile.json)"):  # fmt: skip
        assert title in out
    assert main(["heads", TEXT, "--json", *map(str, given)]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, json.loads((ROOT / "docs" / "heads.schema.json").read_text()))
    assert [one["part"] for one in document["findings"]] == ["ablate", "logits", "profile"]
    assert main(["heads", TEXT, "--json"]) == 0
    assert "findings" not in json.loads(capsys.readouterr().out)


def test_profiles_take_them_too(files, corpus: str, capsys) -> None:
    assert main(["profile", corpus, "--with", str(files["ablate"]), "--json", "-q"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, json.loads((ROOT / "docs" / "profile.schema.json").read_text()))
    assert document["findings"][0]["title"] == "What it is worth"
    assert main(["profile", corpus, "--with", str(files["ablate"])]) == 0
    assert "What it is worth (ablate.json)" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["ablate", "profile", "logits"])
def test_results_of_another_model_or_other_weights_are_refused_by_name(
    files, tmp_path: Path, name: str
) -> None:
    with pytest.raises(UsageError, match=rf"{name}\.json is of demo-gpt2, and this is demo-bert"):
        av.view(TEXT, model="demo-bert", evidence=files[name])
    other = tmp_path / "other.json"
    other.write_text(json.dumps(json.loads(files[name].read_text()) | {"identity": {"is": "0"}}))
    with pytest.raises(UsageError, match=r"other\.json is of other weights under the name"):
        av.heads(TEXT, evidence=other)
    old = json.loads(files[name].read_text())
    del old["identity"]
    if name == "profile":
        del old["layout"]
    other.write_text(json.dumps(old))
    notes = av.heads(TEXT, evidence=other).notes
    assert "That other.json is of this model was checked by its heads alone." in notes
    assert not any("gives no head a role" in note for note in notes)


def test_a_damaged_result_is_refused(files, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps(json.loads(files["ablate"].read_text()) | {"effects": [{}]}))
    with pytest.raises(InputError, match=r"bad\.json is damaged"):
        av.view(TEXT, evidence=bad)


def test_a_page_measures_itself(capsys, tmp_path: Path) -> None:
    page = av.view([TEXT, "A cat sat on a mat."], ablate=True)
    data = json.loads(re.search(r'id="data">(.*?)</script>', page.page.decode())[1])
    (worth,) = data["findings"]
    assert worth["name"] == "these texts"
    assert "of 2 texts" in worth["how"]
    want = av.ablate([TEXT, "A cat sat on a mat."], gradient=True)
    effects = {one.name: one.change for one in want.effects if len(one.heads) == 1}
    keys = {one["key"]: one["values"]["decoder"] for one in data["measures"]}
    assert list(keys) == ["ablate-effect", "ablate-gradient"]
    got = {name: value[0] for name, value in keys["ablate-effect"].items()}
    assert got == pytest.approx(effects, rel=1e-3, abs=1e-6)
    assert all(value[1] is not None for value in keys["ablate-effect"].values())
    assert any("Other heads take over" in note for note in data["items"][0]["notes"])
    out = tmp_path / "p.html"
    assert main(["view", "A cat sat.", "--ablate", "-o", str(out), "-q"]) == 0
    assert "ablate-effect" in out.read_text()


def test_a_model_without_words_to_predict_is_measured_by_its_states(minilm: str) -> None:
    page = av.view("A cat sat on a mat.", model=minilm, ablate=True, select="0.*").page.decode()
    data = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])
    assert "Change of the last hidden states without it (1 - cosine)" in data["findings"][0]["how"]
    assert "with all heads" not in data["findings"][0]["how"]  # it is 0 there by definition
    assert [(one["key"], one["orange"]) for one in data["measures"]] == [("ablate-effect", 0)]
    assert {name.partition(".")[0] for name in data["measures"][0]["values"]["encoder"]} == {"0"}


def test_a_kept_profile_is_read_as_it_is(files, corpus: str, tmp_path: Path) -> None:
    av.profile(corpus, out=tmp_path / "t.profile")
    kept, file = read(tmp_path / "t.profile"), read(files["profile"])
    assert (kept.said, kept.measures) == (file.said, file.measures)
    assert kept.name == "t.profile"


def test_reports_print_what_lies_beside_them(files) -> None:
    assert "What it is worth (ablate.json)" in str(av.heads(TEXT, evidence=files["ablate"]))


def test_kinds_of_attention_keep_their_own_numbers() -> None:
    layout = Layout({"encoder": (2,), "cross": (2,)})
    values = {"enc:0.1": (1.0, None, None), "cross:0.1": (2.0, 1.5, 2.5)}
    found = Finding("ablate", "f", "t", "h", {"cross:0.0": ("a",)}, (
        Measure("effect", "e", "nats", 1, values),))  # fmt: skip
    page = beside([found, found], layout, [head for head in layout if head.index])
    assert [one["key"] for one in page["measures"]] == ["ablate-effect", "ablate2-effect"]
    kinds = {"encoder": {"0.1": [1.0, None, None]}, "cross": {"0.1": [2.0, 1.5, 2.5]}}
    assert page["measures"][0]["values"] == kinds
    assert page["findings"][0]["said"] == {}  # of a head that the page does not have


def test_what_cannot_be_taken_away_is_refused() -> None:
    with pytest.raises(UsageError, match="leave out without"):
        av.view(TEXT, ablate=True, without="0.0")
    with pytest.raises(UsageError, match="not recorded attention"):
        av.view(av.capture(TEXT), ablate=True)
