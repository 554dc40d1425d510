"""Roles from annotation beside those of a text: whose they are, where they show, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.errors import InputError, UsageError
from attnviz.given import read_given
from attnviz.records import HeadsReport
from attnviz.render.grid import grids
from tests.grammar.sentences import treebank
from tests.profiling.corpus import lines
from tests.profiling.corpus import sentences as texts

ROOT = Path(__file__).parents[1]
TEXT = "The keys to the cabinet are on the table"
SYNTAX = {
    "schema": "attnviz.syntax/1",
    "model": "demo-bert",
    "layout": {"encoder": [6, 6, 6, 6]},
    "measured_on": "odd documents",
    "roles": [
        {"head": "1.2", "role": "syntactic: obj", "direction": "to_head", "accuracy": 0.75,
         "accuracy_low": 0.7, "accuracy_high": 0.8, "margin": 0.4, "margin_low": 0.3,
         "margin_high": 0.5, "count": 200},
        {"head": "1.2", "role": "syntactic: nmod:poss", "direction": "to_head", "accuracy": 0.9,
         "accuracy_low": 0.8, "accuracy_high": 1.0, "margin": 0.5, "margin_low": 0.4,
         "margin_high": 0.6, "count": 40},
    ],
}  # fmt: skip
COREF = {
    "schema": "attnviz.coref/1",
    "model": "demo-bert",
    "layout": {"encoder": [6, 6, 6, 6]},
    "measured_on": "odd documents",
    "roles": [
        {"head": "1.2", "role": "coreference", "accuracy": 0.7, "low": 0.6, "high": 0.8,
         "margin": 0.2, "margin_low": 0.1, "margin_high": 0.3, "count": 90},
        {"head": "3.0", "role": "coreference", "accuracy": 0.65, "low": 0.6, "high": 0.7,
         "margin": 0.15, "margin_low": 0.1, "margin_high": 0.2, "count": 90},
    ],
}  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Results of demo-bert, with the identity that a real one has."""
    real = av.coref(ROOT / "sample_inputs" / "pronouns.tsv", model="demo-bert").to_json()
    assert real["roles"] == []
    paths = []
    for name, made in (("syntax.json", SYNTAX), ("coref.json", COREF)):
        paths.append(tmp_path / name)
        paths[-1].write_text(json.dumps({**made, "identity": real["identity"]}))
    return paths


def roles(report: HeadsReport, name: str) -> list[tuple[str, float | None]]:
    found = next(one for one in report.heads if report.layout.name(one.head) == name)
    return [(role.title, role.evidence.mean) for role in found.roles]


def test_roles_stand_before_those_of_the_text_the_largest_margin_first(files: list[Path]) -> None:
    alone = av.heads(TEXT, model="demo-bert")
    both = av.heads(TEXT, model="demo-bert", evidence=files)
    given = [("syntactic: nmod:poss", 0.9), ("syntactic: obj", 0.75), ("coreference", 0.7)]
    assert roles(both, "1.2") == given + roles(alone, "1.2")
    assert roles(both, "3.0") == [("coreference", 0.65), *roles(alone, "3.0")]
    assert roles(both, "0.0") == roles(alone, "0.0")
    obj = next(one for one in both.heads if one.head.name == "1.2").roles[1]
    assert obj.evidence.chance == pytest.approx(0.35)
    assert obj.evidence.rows == 200
    cell = grids(both)[0].cells[1][2]
    assert cell is not None
    assert (cell.role, cell.code(5), cell.code(4), cell.code(2)) == (
        "syntactic", "nmod:", "nmod", "sy"
    )  # fmt: skip
    assert both.notes[-1].startswith("Roles from syntax.json and coref.json are from annotated")


def test_table_json_and_filter(files: list[Path], capsys: Any) -> None:
    given = [part for path in files for part in ("--with", str(path))]
    run = ["heads", TEXT, "-m", "demo-bert", *given]
    assert main([*run, "--role", "syntactic: obj"]) == 0
    out, err = capsys.readouterr()
    assert "syntactic: nmod:poss" in out
    assert "3.0" not in out.split("head   role")[1]
    assert "not from this" in err
    assert main([*run, "--json", "-q"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, json.loads((ROOT / "docs" / "heads.schema.json").read_text()))
    named = {one["name"]: one["does"] and one["does"]["name"] for one in found["heads"]}
    assert (named["1.2"], named["3.0"]) == ("syntactic: nmod:poss", "coreference")
    assert main([*run, "--csv", "-q"]) == 0
    assert "syntactic:nmod:poss syntactic:obj coreference" in capsys.readouterr().out


def test_a_profile_shows_them_with_their_intervals(files, tmp_path, capsys) -> None:
    corpus = lines(tmp_path / "t.txt", texts(12))
    kept = tmp_path / "b.profile"
    av.profile(corpus, model="demo-bert", out=kept)
    found = av.read_profile(kept, evidence=files)
    (head,) = (one for one in found.heads if one.head.name == "1.2")
    estimate = head.evidence(head.scores.roles[1])
    assert (estimate.mean, estimate.low, estimate.high, estimate.rows) == (0.75, 0.7, 0.8, 200)
    given = [part for path in files for part in ("--with", str(path))]
    assert main(["heads", "--profile", str(kept), *given]) == 0
    out, _ = capsys.readouterr()
    (line,) = (line for line in out.splitlines() if line.startswith("1.2"))
    assert "syntactic: nmod:poss" in line
    assert "0.80–1.00" in line
    jsonschema.validate(
        json.loads(found.json()), json.loads((ROOT / "docs" / "profile.schema.json").read_text())
    )
    assert len(found.figure()) > 10_000


def test_the_page_holds_them(files: list[Path]) -> None:
    page = av.view(TEXT, model="demo-bert", evidence=files).page.decode()
    assert '"title":"syntactic: nmod:poss","code":"nmod:","given":true' in page
    assert "are from annotated text (odd documents), not from this one" in page


def test_a_report_itself_is_evidence(minilm: str, tmp_path: Path) -> None:
    """The rule on a treebank that is large enough, and the same from the file."""
    path = tmp_path / "t.conllu"
    path.write_text(treebank(120))
    report = av.syntax(path, model=minilm)
    (given,) = read_given(report)
    report.save(tmp_path / "s.json")
    (read,) = read_given(tmp_path / "s.json")
    assert read.called(given.name) == given.called(given.name)
    titles = {role.title for roles in given.roles.values() for role in roles}
    assert titles == {role.name for role in report.roles}
    assert "syntactic: obj" in titles
    few = av.coref(ROOT / "sample_inputs" / "pronouns.tsv", model=minilm)
    notes = av.heads(TEXT, model=minilm, evidence=[report, few]).notes
    assert notes[-1] == "the report gives no head a role."


def test_another_model_is_refused_by_name(files: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"syntax\.json is of demo-bert, and this is demo-gpt2"):
        av.heads(TEXT, evidence=files)
    corpus = lines(tmp_path / "t.txt", texts(12))
    with pytest.raises(UsageError, match=r"coref\.json is of demo-bert"):
        av.profile(corpus, evidence=files[1])
    other = json.loads(files[0].read_text()) | {"identity": {"checkpoint": "0"}}
    files[0].write_text(json.dumps(other))
    with pytest.raises(UsageError, match="is of other weights under the name demo-bert"):
        av.view(TEXT, model="demo-bert", evidence=files[0])
    loaded = av.load("demo-bert")  # nobody knows the files of a model that is loaded
    notes = av.heads(TEXT, model=loaded, evidence=files[0]).notes
    assert "That syntax.json is of this model was checked by its heads alone." in notes


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x", "f.json is no JSON; give the JSON of attnviz ablate, coref"),
        ("[]", "f.json is no result of attnviz; give the JSON of attnviz ablate, coref"),
        ('{"schema": "attnviz.heads/1"}', "is a result of attnviz.heads/1; give the JSON of"),
        ('{"schema": "attnviz.syntax/1"}', "is damaged"),
        (json.dumps({**SYNTAX, "identity": {}, "roles": [{"role": "<b>"}]}), "is damaged"),
    ],
)
def test_what_is_no_result_is_one_line(tmp_path, capsys, text: str, says: str) -> None:
    path = tmp_path / "f.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"f\.json"):
        read_given(path)
    assert main(["heads", TEXT, "--with", str(path)]) == 1
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
