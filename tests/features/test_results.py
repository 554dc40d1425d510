"""Results of commands beside heads: what each says, whose it is, and where that shows."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.core.heads import Layout
from attnviz.core.result import Finding, Measure
from attnviz.drawing.grid import grids
from attnviz.drawing.labels import visible
from attnviz.errors import InputError, UsageError
from attnviz.features.heads.result import Heads
from attnviz.features.results import read_evidence
from attnviz.features.view.document import beside
from tests.checkpoints import write
from tests.cli.calling import ok, refused
from tests.corpus.gold import results as gold
from tests.features.profile.corpus import lines
from tests.features.profile.corpus import sentences as texts
from tests.viewing import data_of

pytestmark = pytest.mark.usefixtures("few_sentences")

TEXT = "The candle burned while the kettle sang and the candle burned."

SHORT = sorted((text for text in texts(60) if len(text.split()) > 3), key=len)[:12]
ROLES_TEXT = "The keys to the cabinet are on the table"
SYNTAX = gold.syntax(
    roles=[
        gold.relation_head("1.2", "obj", (0.75, 0.7, 0.8), (0.4, 0.3, 0.5), 200),
        gold.relation_head("1.2", "nmod:poss", (0.9, 0.8, 1.0), (0.5, 0.4, 0.6), 40),
    ]
)
COREF = gold.coref(
    roles=[
        gold.antecedent_head("1.2", (0.7, 0.6, 0.8), (0.2, 0.1, 0.3)),
        gold.antecedent_head("3.0", (0.65, 0.6, 0.7), (0.15, 0.1, 0.2)),
    ]
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(lines(tmp_path_factory.mktemp("found") / "t.txt", texts(6)))


@pytest.fixture(scope="module")
def reports(corpus: str) -> dict[str, Any]:
    return {
        "ablate": av.ablate(SHORT, estimate="plain"), "one": av.ablate(TEXT, select="0.5"),
        "profile": av.profile(corpus), "logits": av.logits(TEXT),
    }  # fmt: skip


@pytest.fixture(scope="module")
def files(folder: Path, reports: dict[str, Any]) -> dict[str, Path]:
    found = {}
    for name, report in reports.items():
        found[name] = report.save(folder / f"{name}.json")
    return found


def read(what: Any) -> Finding:
    (attached,) = read_evidence(what)
    found = attached.finding()
    assert found is not None
    return found


def measure(finding: Finding, name: str) -> Measure:
    (found,) = (one for one in finding.measures if one.name == name)
    return found


def test_an_ablation_gives_effects_with_intervals_and_gradients(files, reports) -> None:
    found, report = read(files["ablate"]), reports["ablate"]
    effects = {one.name: one for one in report.effects if len(one.heads) == 1}
    assert measure(found, "effect").values == {
        name: (one.change, one.first.joint_low, one.first.joint_high)
        for name, one in effects.items()
    }
    assert measure(found, "effect").adverse == -1  # what helps is blue, as in logits
    assert measure(found, "gradient").values == {
        name: (one.gradient, None, None) for name, one in effects.items()
    }
    assert f"at {report.positions:,} positions of 12 texts" in found.how
    assert "ablation (mean at every position, output on another text" in found.how
    assert "95 % intervals of the typical text, for all heads and methods at once" in found.how
    costliest = max(effects.values(), key=lambda one: one.change)
    (first, often, others, slope, *groups) = found.said[costliest.name]
    assert often.endswith(" of the texts")
    assert others.endswith(" by resample")
    assert re.match(r"\+[\d.]+ \[[+-][\d.]+, [+-][\d.]+\] nats, rank 1 of 24, worse on ", first)
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
    assert votes.adverse == -1  # as the figure of votes: what raises the logit is blue
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
    best = gold.relation_head("1.2", "obj", (0.8, 0.7, 0.9), (0.3, 0.2, 0.4), 40)
    syntax = gold.syntax(best=[replace(best, relation="all"), best]).finding("s.json")
    assert syntax is not None
    assert syntax.said["1.2"] == ("obj 0.80 [0.70, 0.90] of 40, best offset 0.50 (no role)",)
    assert syntax.measures[0].values == {"1.2": (0.3, 0.2, 0.4)}
    ranked = gold.antecedent_head("1.2", (0.8, 0.7, 0.9), (0.2, 0.1, 0.3), 40)
    coref = gold.coref(ranked=[ranked]).finding("c.json")
    assert coref is not None
    assert coref.said["1.2"] == ("0.80 [0.70, 0.90] of 40, nearest 0.60",)
    assert coref.measures[0].values == {"1.2": (0.8, 0.7, 0.9)}


def test_heads_print_them(files, capsys) -> None:
    given = [
        part for name in ("ablate", "logits", "profile") for part in ("--evidence", files[name])
    ]
    out = ok(capsys, "heads", TEXT, *map(str, given))
    for title in ("Effect of ablating it (ablate.json)", "What it writes (logits.json)",
                  "Over many texts (profile.json)"):  # fmt: skip
        assert title in out
    document = json.loads(ok(capsys, "heads", TEXT, "--json", *map(str, given)))
    jsonschema_rs.validate(av.Heads.json_schema(), document)
    assert "findings" not in document  # they are files of their own


def test_profiles_take_them_too(files, corpus: str, capsys) -> None:
    assert main(["profile", corpus, "--evidence", str(files["ablate"])]) == 0
    assert "Effect of ablating it (ablate.json)" in capsys.readouterr().out


def test_a_page_measures_itself(capsys, tmp_path: Path) -> None:
    several: Any = [TEXT, "A cat sat on a mat."]
    page = av.view(several, ablate=True, select="1.*")
    data = data_of(page.page)
    (worth,) = data["findings"]
    assert worth["name"] == "these texts"
    assert "of 2 texts" in worth["how"]
    want = av.ablate(several, estimate="plain", select="1.*")
    effects = {one.name: one.change for one in want.effects if len(one.heads) == 1}
    keys = {one["key"]: one["values"]["decoder"] for one in data["measures"]}
    assert list(keys) == ["ablate-effect", "ablate-gradient"]
    got = {name: value[0] for name, value in keys["ablate-effect"].items()}
    assert got == pytest.approx(effects, rel=1e-3, abs=1e-6)
    assert all(value[1] is None for value in keys["ablate-effect"].values())  # of two texts
    assert any("Other heads can make up" in note for note in data["items"][0]["notes"])
    out = tmp_path / "p.html"
    assert main(["view", "A cat sat.", "--ablate", "-s", "0.0", "-o", str(out), "-q"]) == 0
    assert "ablate-effect" in out.read_text()


def test_a_model_without_words_to_predict_is_measured_by_its_states(tmp_path: Path) -> None:
    model = write(tmp_path, "bert", "BertModel")
    data = data_of(av.view("the keys are", model=model, ablate=True, select="0.0").page)
    assert "Change of the last hidden states without it (1 - cosine)" in data["findings"][0]["how"]
    assert "with all heads" not in data["findings"][0]["how"]  # it is 0 there by definition
    assert [(one["key"], one["orange"]) for one in data["measures"]] == [("ablate-effect", 0)]
    assert {name.partition(".")[0] for name in data["measures"][0]["values"]["encoder"]} == {"0"}


def test_a_kept_profile_is_read_as_it_is(files, corpus: str, tmp_path: Path) -> None:
    av.profile(corpus, state=tmp_path / "t.profile")
    kept, file = read(tmp_path / "t.profile"), read(files["profile"])
    assert (kept.said, kept.measures) == (file.said, file.measures)
    assert kept.name == "t.profile"


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


@pytest.fixture
def annotated(tmp_path: Path) -> list[Path]:
    """Results of demo-bert that give roles."""
    return [SYNTAX.save(tmp_path / "syntax.json"), COREF.save(tmp_path / "coref.json")]


def roles(report: Heads, name: str) -> list[tuple[str, float | None]]:
    found = next(one for one in report.heads if report.layout.name(one.head) == name)
    return [(role.title, role.evidence.mean) for role in found.roles]


def test_roles_stand_before_the_others_the_largest_margin_first(annotated: list[Path]) -> None:
    alone = av.heads(ROLES_TEXT, model="demo-bert")
    both = av.heads(ROLES_TEXT, model="demo-bert", evidence=annotated)
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
    assert any(
        note.startswith("Roles from syntax.json and coref.json are from annotated")
        for note in both.notes
    )


def test_table_json_and_filter(annotated: list[Path], capsys: Any) -> None:
    given = [part for path in annotated for part in ("--evidence", str(path))]
    run = ["heads", ROLES_TEXT, "-m", "demo-bert", *given]
    assert main([*run, "--role", "syntactic: obj"]) == 0
    out, err = capsys.readouterr()
    assert "syntactic: nmod:poss" in out
    assert "3.0" not in out.split("head   role")[1]
    assert "not from this" in err
    found = Heads.from_json(ok(capsys, *run, "--json", "-q"))
    named = {found.layout.name(one.head): one.does and one.does.title for one in found.heads}
    assert (named["1.2"], named["3.0"]) == ("syntactic: nmod:poss", "coreference")
    assert "syntactic:nmod:poss syntactic:obj coreference" in ok(capsys, *run, "--csv", "-q")


def test_the_page_holds_them(annotated: list[Path]) -> None:
    page = av.view(ROLES_TEXT, model="demo-bert", evidence=annotated).page.decode()
    assert '"title":"syntactic: nmod:poss","code":"nmod:","given":true' in page
    assert "are from annotated text (odd documents), not from this one" in page


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x", "f.json is not readable JSON"),
        ("[]", "f.json is not an attnviz result; give a JSON file"),
        ('{"schema": "attnviz.heads/2"}', "make it again with attnviz heads"),
        ('{"schema": "attnviz.syntax/2"}', "make it again with attnviz syntax"),
        (json.dumps({**SYNTAX.to_dict(), "roles": [{"head": "<b>"}]}), "is damaged"),
    ],
)
def test_what_is_no_result_is_one_line(tmp_path, capsys, text: str, says: str) -> None:
    path = tmp_path / "f.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"f\.json"):
        read_evidence(path)
    assert says in refused(capsys, "heads", ROLES_TEXT, "--evidence", str(path))


@pytest.mark.parametrize(
    ("asked", "heads"),
    [
        ("role:obj", ["1.2"]), ("role:syntactic: obj", ["1.2"]), ("role:nmod:poss", ["1.2"]),
        ("role:coref", ["1.2", "3.0"]),
    ],
)  # fmt: skip
def test_annotated_roles_choose_heads_to_ablate(
    annotated: list[Path], asked: str, heads: list[str]
) -> None:
    options = {"model": "demo-bert", "method": "zero", "metric": "hidden", "evidence": annotated}
    found = av.ablate(ROLES_TEXT, select=asked, **options)
    assert [[head.name for head in effect.heads] for effect in found.effects] == [heads]


def test_a_role_that_nothing_gives_is_refused_with_those_that_there_are(
    annotated: list[Path], capsys: Any
) -> None:
    line = ["ablate", ROLES_TEXT, "-m", "demo-bert", "--select", "role:nsubj", "-q"]
    assert main([*line, "--evidence", str(annotated[0])]) == 2
    assert "unknown role 'nsubj'; choose one of previous" in (error := capsys.readouterr().err)
    assert "nmod:poss, obj" in error
    with pytest.raises(UsageError, match="what was measured holds for that model alone"):
        av.ablate(ROLES_TEXT, select="role:obj", evidence=annotated)


def test_annotated_roles_choose_heads_to_leave_out(annotated: list[Path]) -> None:
    options = {"model": "demo-bert", "evidence": annotated}
    found = av.heads(ROLES_TEXT, without="role:obj", **options)
    named = av.heads(ROLES_TEXT, without="1.2", **options)
    assert [head.scores for head in found.heads] == [head.scores for head in named.heads]
    assert any(note.startswith("Without 1.2: the output of these heads") for note in found.notes)


def test_relations_choose_and_order_heads_wherever_roles_do(
    annotated: list[Path], tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "s.txt").write_text(ROLES_TEXT)
    given = ["-m", "demo-bert", "--evidence", str(annotated[0])]
    drawn = ["export", str(tmp_path / "s.txt"), "-o", str(tmp_path / "maps"), *given]
    assert main([*drawn, "--role", "nsubj"]) == 2
    assert "unknown role 'nsubj': choose one of previous" in (error := capsys.readouterr().err)
    assert "syntactic: nmod:poss, syntactic: obj" in error
    assert main([*drawn, "--role", "obj", "--jobs", "1", "-q"]) == 0
    assert [path.name for path in (tmp_path / "maps").rglob("*.png")] == ["L01H02.png"]
    capsys.readouterr()
    for chosen in (["--role", "obj"], ["--sort", "nmod:poss", "--top", "1"], ["--role", "syntax"]):
        for probe in ([], ["--probe"]):
            assert main(["heads", ROLES_TEXT, *given, *chosen, "-q", "--json"]) == 0
            listed = json.loads(capsys.readouterr().out)["heads"]
            assert [head["head"] for head in listed] == ["1.2"]
            assert "1.2  " in ok(capsys, "heads", ROLES_TEXT, *given, *chosen, *probe, "-q")
    assert main(["heads", ROLES_TEXT, *given, "--sort", "nsubj"]) == 2
    assert "nmod:poss, obj" in capsys.readouterr().err
