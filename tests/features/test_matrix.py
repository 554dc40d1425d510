"""What one part makes others take; ``--split field:NAME`` divides wherever something is chosen."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.core.capture import Capture
from attnviz.core.heads import Head, Layout, Site
from attnviz.core.result import Finding, Result
from attnviz.core.scores import HeadsOf
from attnviz.core.split import sides, sides_by_name
from attnviz.drawing.grid import minus
from attnviz.drawing.renderable import Renderable
from attnviz.drawing.tables import HEAD, which_head
from attnviz.errors import AttnvizError, UsageError
from attnviz.features.atlas.gather import gather
from attnviz.features.atlas.page import document
from attnviz.features.atlas.result import Atlas
from attnviz.features.patch import shares
from attnviz.features.patch.pairs import pair_of, prepare, task_pairs
from attnviz.features.profile.function import with_evidence
from attnviz.features.profile.result import Profile
from attnviz.features.results import RESULTS
from attnviz.models.folder import locate
from tests import ROOT
from tests.checkpoints import write
from tests.cli.calling import ok, refused
from tests.corpus.gold.pronouns import pronouns
from tests.corpus.gold.sentences import treebank
from tests.features.profile.corpus import lines
from tests.features.profile.corpus import sentences as texts
from tests.features.test_reports import Tags
from tests.viewing import data_of

pytestmark = pytest.mark.usefixtures("few_sentences")

MODEL = "demo-gpt2"
HASH, FIELD = "hash:0.5", "field:side=chosen"


def _sides_of(names: list[Any]) -> list[str]:
    """What the hash says of each, as a field of theirs."""
    by_number = names and isinstance(names[0], int)
    chosen = sides(HASH, names)[0] if by_number else sides_by_name(HASH, names, 0)[0]
    return ["chosen" if there else "measured" for there in chosen.tolist()]


def _written(folder: Path, name: str, lines: list[str]) -> Path:
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def _syntax(folder: Path, split: str) -> Result:
    blocks = treebank(40).rstrip("\n").split("\n\n")
    said = _sides_of(list(range(1, len(blocks) + 1)))
    lines = [f"# side = {side}\n{block}\n" for block, side in zip(blocks, said, strict=True)]
    return av.syntax(_written(folder, "t.conllu", lines), split=split, model=MODEL, jobs=1)


def _coref(folder: Path, split: str) -> Result:
    head, *rows = pronouns(24).splitlines()
    said = _sides_of(list(range(1, len(rows) + 1)))
    lines = [f"{row}\t{side}" for row, side in zip(rows, said, strict=True)]
    return av.coref(
        _written(folder, "t.tsv", [f"{head}\tside", *lines]), split=split, model=MODEL, jobs=1
    )


def _retrieval(folder: Path, split: str) -> Result:
    said = _sides_of(list(range(1, 9)))
    lines = [
        json.dumps(
            {"needle": f"The key of {n} is {9 * n}.", "question": f"The key of {n}", "side": s}
        )
        for n, s in enumerate(said, 1)
    ]
    return av.retrieval(
        _written(folder, "n.jsonl", lines), split=split, model=MODEL, lengths=[60], depths=[0.5],
        group_size=(1,), draws=1, control=0, generate=2,
    )  # fmt: skip


def _spans(folder: Path, split: str) -> Result:
    rows = [
        {"question": f"Who has {n}?", "context": [f"Anna has {n}.", f"Paul lost {n}."],
         "answer": "Anna", "gold": 0}
        for n in range(8)
    ]  # fmt: skip
    said = _sides_of(["\n".join(row["context"]) for row in rows])
    lines = [json.dumps({**row, "side": side}) for row, side in zip(rows, said, strict=True)]
    return av.spans(_written(folder, "q.jsonl", lines), split=split, model=MODEL)


def _patch(folder: Path, split: str) -> Result:
    source = av.load(MODEL)
    pairs = task_pairs(source, "gender", 12, 0)[0]
    rows: list[dict[str, Any]] = [
        {"clean": pair.clean, "corrupted": pair.corrupted, "answer": pair.answer,
         "against": pair.against}
        for pair in pairs
    ]  # fmt: skip
    ready = prepare(source, [pair_of(row, "a row") for row in rows])
    said = _sides_of(shares.clusters(ready))
    given = [{**row, "side": side} for row, side in zip(rows, said, strict=True)]
    return av.patch(given, circuit=1, split=split, model=source)


def _sources(folder: Path, split: str) -> Result:
    some = texts(12)
    source = av.load(MODEL)
    ready = [source.prepare(av.Prompt(text)) for text in some]
    names = [str([sides.keys.ids for sides in inputs.sides.values()]) for inputs in ready]
    asked: dict[str, Any] = {"parts": _sides_of(names)} if split == FIELD else {}
    return av.sources(some, select="1.4", split=split, model=MODEL, **asked)


def _ablate(folder: Path, split: str) -> Result:
    some = [text for text in texts(60) if 3 < len(text.split()) < 12][:8]
    numbers = [str(number) for number in range(len(some))]
    asked: dict[str, Any] = {"parts": _sides_of(numbers)} if split == FIELD else {}
    model = write(folder, "gpt2", "GPT2LMHeadModel", n_positions=128)  # of six heads
    return av.ablate(some, curve="effect:0", method="mean", split=split, model=model, **asked)


MADE: dict[str, Callable[[Path, str], Result]] = {
    "ablate": _ablate, "coref": _coref, "patch": _patch, "retrieval": _retrieval,
    "sources": _sources, "spans": _spans, "syntax": _syntax,
}  # fmt: skip


@pytest.mark.parametrize("name", list(MADE))
def test_a_field_that_says_what_a_hash_says_gives_the_same(name: str, tmp_path: Path) -> None:
    """So both parts are those that are meant, in every command that chooses."""
    by_hash, by_field = (MADE[name](tmp_path, split) for split in (HASH, FIELD))
    assert (by_hash.divided, by_field.divided) == (HASH, FIELD)
    assert f"split {FIELD}" in by_field.origin()
    both = [json.dumps(result.to_dict()).replace(split, "")
            for result, split in ((by_hash, HASH), (by_field, FIELD))]  # fmt: skip
    assert both[0] == both[1]


@pytest.mark.parametrize("name", list(MADE))
def test_a_field_that_is_not_there_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(AttnvizError, match=r"split|nowhere"):
        MADE[name](tmp_path, "field:nowhere")


def test_the_parts_of_a_file_are_read_from_its_field(tmp_path: Path, capsys) -> None:
    rows = [{"text": text, "part": "ab"[n % 2]} for n, text in enumerate(texts(12))]
    path = _written(tmp_path, "t.jsonl", list(map(json.dumps, rows)))
    asked = ["sources", "--texts", str(path), "-s", "1.4", "--json", "-q"]
    told = json.loads(ok(capsys, *asked, "--split", "field:part"))
    assert (told["split"], told["chosen_on"]) == ("field:part=a", 6)
    assert "other" in refused(capsys, *asked, "--split", "field:other")
    plain = _written(tmp_path, "t.txt", texts(6))
    assert main(["sources", "--texts", str(plain), "-s", "1.4", "--split", "field:part"]) == 2
    assert "--split field:part is a field of texts" in capsys.readouterr().err
    assert main(["ablate", "--texts", str(path), "--split", "field:part"]) == 2
    assert "--split field:part is of a curve; add --curve" in capsys.readouterr().err


MODELS = ("demo-gpt2", "minilm")
OF_NO_MODEL = (
    "attnviz.shapes", "attnviz.check", "attnviz.module-check", "attnviz.model", "attnviz.models",
    "attnviz.families",
)  # fmt: skip
"""Results that are of sizes, of a file or of folders."""
PRODUCERS = tuple(
    sorted(name.removeprefix("attnviz.") for name in RESULTS if name not in OF_NO_MODEL)
)
TEXT = "The candle burned while the kettle sang and the candle burned."
PARTS = ("ablate", "syntax", "coref", "circuits")
NO_LM_HEAD = tuple(
    ("minilm", name)
    for name in ("logits", "writers", "patch", "lens", "explain", "knockout", "thoughts")
)
"""What a model without an LM head cannot give."""
NAMELESS = ("diff", "sources", "source-shares")
"""Results whose words for a picture are of texts and heads alone."""
OWN_PICTURES = ("heads", "ablate", "circuits", "diff", "logits")
"""Results that choose their picture in a notebook themselves, and one of the others."""
UNCOMPARED = ("explain", "flow", "diff", "sources", "source-shares")
"""Results that have no figures of heads to compare."""


@dataclass(frozen=True)
class Made:
    """What every command found of one model, the files of it, and what its heads do alone."""

    model: str
    results: Mapping[str, Result]
    files: Mapping[str, Path]
    kept: Path
    capture: Capture
    alone: HeadsOf

    def profile(self) -> Profile:
        found = self.results["profile"]
        assert isinstance(found, Profile)
        return found


MadeOf = Callable[[str], Made]


@pytest.fixture(scope="module")
def made(minilm: str, tmp_path_factory: pytest.TempPathFactory) -> MadeOf:
    @cache
    def of(name: str) -> Made:
        return _made(name, minilm if name == "minilm" else name, tmp_path_factory.mktemp(name))

    return of


def series(name: str, model: str, folder: Path) -> list[Path]:
    """Two checkpoints that are the same model; the last one has its name."""
    found = [folder / name.replace("gpt2", "gpt1"), folder / name]
    if found[0] == found[1]:
        found = [folder / f"{name}-1", folder / f"{name}-2"]
    for one in found:
        one.symlink_to(locate(model).folder)
    return found


def _made(name: str, model: str, folder: Path) -> Made:
    corpus, grammar, names = (folder / n for n in ("t.txt", "g.conllu", "p.tsv"))
    lines(corpus, texts(6))
    grammar.write_text(treebank(60))
    names.write_text(pronouns(80))
    kept = folder / "t.profile"
    results: dict[str, Any] = {
        "heads": av.heads(TEXT, model=model),
        "profile": av.profile(corpus, model=model, state=kept),
        "ablate": av.ablate(texts(5), model=model, select="0.0, 1.0, 0.1+0.2"),
        "syntax": av.syntax(grammar, model=model), "coref": av.coref(names, model=model),
        "film": av.film(corpus, model=series(name, model, folder)),
        "flow": av.flow(TEXT, model=model), "sources": av.sources(TEXT, select="1.4", model=model),
        "source-shares": av.sources(texts(5), select="1.4", model=model),
        "circuits": av.circuits(model=model, sample=50),
        "spans": av.spans(av.Prompt(TEXT, spans={"kettle": "all:kettle"}), model=model),
        "sinks": av.sinks(texts(5), model=model),
        "retrieval": av.retrieval(
            model=model, lengths=[40], depths=[0.5], count=12, group_size=(1,), draws=1, control=0
        ),
        "diff": av.diff(TEXT, TEXT.replace("sang", "rang"), model=model, align="position"),
    }  # fmt: skip
    if (name, "logits") not in NO_LM_HEAD:
        results["logits"] = av.logits(TEXT, model=model)
        results["writers"] = av.writers(texts(6), model=model)
        results["lens"] = av.lens(TEXT, model=model, by="head")
        results["explain"] = av.explain(TEXT, model=model)
        results["knockout"] = av.knockout(
            av.Prompt(TEXT, spans={"kettle": "all:kettle"}), select="0.0", draws=1, model=model
        )
        results["thoughts"] = av.thoughts(
            " ".join(f"{text}." for text in texts(6)), draws=1, model=model
        )
        results["patch"] = av.patch(task="gender", count=8, model=model)
    results["atlas"] = gather(
        results["profile"],
        ablate=results["ablate"],
        syntax=results["syntax"],
        coref=results["coref"],
        circuits=results["circuits"],
    )
    files = {one: found.save(folder / f"{one}.json") for one, found in results.items()}
    capture = av.capture(TEXT, model=model)
    return Made(model, results, files, kept, capture, av.heads(capture))


def every(*left_out: str) -> Any:
    """Each producer of the small model; of the real one in make slow."""
    pairs = [
        pytest.param(model, one, marks=[pytest.mark.slow] * (model == "minilm"))
        for model in MODELS
        for one in PRODUCERS
        if one not in left_out and (model, one) not in NO_LM_HEAD
    ]
    return pytest.mark.parametrize(("model", "name"), pairs)


both_models = pytest.mark.parametrize(
    "model", ["demo-gpt2", pytest.param("minilm", marks=pytest.mark.slow)]
)


@both_models
def test_every_registered_result_is_made(made: MadeOf, model: str) -> None:
    missing = {name for other, name in NO_LM_HEAD if other == model}
    assert set(made(model).results) == set(PRODUCERS) - missing


def test_real_annotation_gives_the_real_model_roles(minilm: str, tmp_path: Path) -> None:
    parts: dict[str, Any] = {
        "syntax": av.syntax(_written(tmp_path, "g.conllu", [treebank(60)]), model=minilm),
        "coref": av.coref(_written(tmp_path, "p.tsv", [pronouns(80)]), model=minilm),
    }
    found = gather(av.profile(texts=texts(1), model=minilm), **parts)
    syntax, coref, atlas = (
        one.annotated_roles() for one in (parts["syntax"], parts["coref"], found)
    )
    assert {role.title for given in syntax.values() for role, _ in given} >= {"syntactic: obj"}
    assert coref
    assert set(atlas) == set(syntax) | set(coref)
    for head, given in atlas.items():
        assert given == (*syntax.get(head, ()), *coref.get(head, ()))


@every()
def test_a_file_is_read_back_equal(made: MadeOf, model: str, name: str) -> None:
    found, read = made(model).results[name], av.read(made(model).files[name])
    assert type(read) is type(found)
    assert read.to_dict() == found.to_dict()
    assert read == found
    jsonschema_rs.validate(found.json_schema(), found.to_dict())


def beside(one: Made, name: str) -> Iterator[Any]:
    """What a result and its file say; the same but for the name."""
    found = one.results[name]
    assert isinstance(found, Renderable)
    for what, called in ((one.files[name], f"{name}.json"), (found, f"the {found.command} result")):
        yield what, found.finding(called)


def said_of(one: Made) -> list[Finding]:
    """What the files of all results say."""
    said = [next(beside(one, name))[1] for name in one.results]
    return [finding for finding in said if finding is not None]


@every()
def test_heads_take_it(made: MadeOf, model: str, name: str) -> None:
    one = made(model)
    alone, given = one.alone, one.results[name].annotated_roles()
    for what, said in beside(one, name):
        both = av.heads(one.capture, evidence=what)
        assert both.findings == (() if said is None else (said,))
        for before, after in zip(alone.heads, both.heads, strict=True):
            mine = {role for role, _ in given.get(after.head, ())}
            assert set(after.roles[: len(mine)]) == mine
            assert after.roles[len(mine) :] == before.roles


@every()
def test_a_profile_takes_it(made: MadeOf, model: str, name: str) -> None:
    one = made(model)
    given = one.results[name].annotated_roles()
    what, said = next(beside(one, name))
    both = with_evidence(one.profile(), what)
    assert both.findings == (() if said is None else (said,))
    for before, after in zip(one.profile().heads, both.heads, strict=True):
        mine = {role.title: estimate for role, estimate in given.get(after.head, ())}
        assert after.estimates == {**before.estimates, **mine}
        assert len(after.scores.roles) == len(before.scores.roles) + len(mine)
        assert all(after.evidence(role).mean is not None for role in after.scores.roles)


@both_models
def test_a_page_takes_them(made: MadeOf, model: str) -> None:
    one = made(model)
    data = data_of(av.view(one.capture, evidence=list(one.files.values())).page)
    findings = said_of(one)
    assert [(told["title"], told["name"]) for told in data["findings"]] == [
        (said.title, said.name) for said in findings
    ]
    keys = [measure["key"] for measure in data["measures"]]
    assert len(set(keys)) == len(keys)
    assert [(key.partition("-")[2], measure["finding"])
            for key, measure in zip(keys, data["measures"], strict=True)] == [
        (measure.name, number) for number, said in enumerate(findings) for measure in said.measures
    ]  # fmt: skip


@every(*UNCOMPARED)
def test_it_differs_in_nothing_from_itself(made: MadeOf, model: str, name: str) -> None:
    one = made(model)
    found = av.diff(one.results[name], one.files[name])
    assert found.kind == {"writers": "logits of texts"}.get(name, name)
    assert found.heads
    assert {change.change for head in found.heads for change in head.changes} == {0.0}
    assert not any(head.gained or head.lost for head in found.heads)


@pytest.mark.parametrize("name", UNCOMPARED)
def test_what_has_no_figures_of_heads_is_not_compared(made: MadeOf, name: str) -> None:
    file = made("demo-gpt2").files[name]
    with pytest.raises(UsageError, match="has no figures of heads to compare"):
        av.diff(file, file)


@both_models
def test_an_atlas_takes_them(made: MadeOf, model: str) -> None:
    one = made(model)
    findings = said_of(one)
    found = gather(one.profile(), findings=findings)
    assert found.findings == tuple(findings)
    assert Atlas.from_json(found.to_json()) == found
    data = document(found)
    assert [told["name"] for told in data["findings"]] == [said.name for said in findings]
    for head in data["heads"]:
        name = head["name"]
        assert head["told"] == [[*map(minus, said.said.get(name, ()))] for said in findings]
        assert head["measured"] == [m.values.get(name) for said in findings for m in said.measures]


@both_models
def test_an_atlas_of_files_is_that_of_results(made: MadeOf, model: str) -> None:
    one = made(model)
    read: dict[str, Any] = {name: av.read(one.files[name]) for name in PARTS}
    assert gather(av.read(one.files["profile"]), **read) == one.results["atlas"]
    for name in PARTS:
        alone = gather(one.profile(), **{name: read[name]})
        assert Atlas.from_json(alone.to_json()) == alone
        assert b"<title>attnviz atlas" in alone.page()


@pytest.mark.parametrize("name", PARTS)
def test_an_atlas_refuses_parts_of_another_model(made: MadeOf, name: str) -> None:
    one: Any = made("demo-gpt2").results[name]
    other = replace(one, source=replace(one.source, model="another"), identity={"files": "0"})
    with pytest.raises(UsageError, match=rf"the {name} result is of .*, and this is demo-gpt2"):
        gather(made("demo-gpt2").profile(), **{name: other})


@pytest.mark.parametrize("name", PRODUCERS)
def test_what_is_of_another_model_is_refused_in_one_line(
    made: MadeOf, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = made("demo-gpt2").files[name]
    error = refused(capsys, "heads", TEXT, "-m", "demo-bert", "--evidence", str(file), code=2)
    assert f"{name}.json is of demo-gpt2, and this is demo-bert" in " ".join(error.split())
    assert error.count("attnviz:") == 1
    other = tmp_path / f"{name}.json"
    document = json.loads(file.read_text())
    for field in {"identity", "other_identity"} & document.keys():  # a diff is of either
        document[field] = {"files": "0"}
    other.write_text(json.dumps(document))
    with pytest.raises(UsageError, match=rf"{name}\.json is of other weights under the name"):
        av.heads(TEXT, evidence=other)


@every()
def test_frames_and_notebooks_get_it(made: MadeOf, model: str, name: str) -> None:
    """A frame has the rows for programs; every picture has words, and keeps its proportions.

    A notebook shows what a file has, which other tests draw: of most the words are enough.
    """
    result: Any = made(model).results[name]
    records = result.to_records()
    frame = result.to_pandas()
    assert list(frame.columns) == list(records[0])
    assert len(frame) == len(records)
    if name in ("atlas", "lens"):  # which are pages, or what one head writes
        return
    if name in OWN_PICTURES:
        tags = Tags(result._repr_html_())
        ((_, image),) = [found for found in tags.found if found[0] == "img"]
        assert image["src"].startswith("data:image/png;base64,iVBOR")
        words = image["alt"]
        styles = [(attributes.get("style") or "") for _, attributes in tags.found]
        assert not any("height:" in style.replace("height:auto", "") for style in styles)
    else:
        assert type(result)._repr_html_ is Renderable._repr_html_
        assert type(result)._picture_png is Renderable._picture_png
        words = result.described()
    assert len(words) > 20
    assert (model in words) == (name not in NAMELESS) or model == "minilm"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("heads", ["layer ↓  head →", "role", "previous", "native backend"]),
        ("profile", ["layer ↓  head →", "95 %", "6 texts"]),
        ("ablate", ["layer ↓  head →", "effect", "loss in nats"]),
        ("logits", ["probability", "adds", "native backend"]),
        ("syntax", ["layer ↓  head →", "relation", "95 %", "fixed offset"]),
        ("coref", ["layer ↓  head →", "baseline", "95 %", "measured on"]),
        ("flow", ["own token", "native backend", "kettle"]),
        ("circuits", ["layer ↓  head →", "random", "Composition", "native backend"]),
        ("diff", ["distance", "rows matched by position", "largest change"]),
    ],
)
def test_printing_shows_the_grid_and_the_evidence(made: MadeOf, name: str, says: list[str]) -> None:
    text = str(made("demo-gpt2").results[name])
    assert all(word in text for word in says), text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_records_have_the_figures(made: MadeOf) -> None:
    reports: Any = made("demo-gpt2").results
    heads = reports["heads"].to_records()
    assert len(heads) == 24
    for row, scores in zip(heads, reports["heads"].heads, strict=True):
        assert (row["layer"], row["index"]) == (scores.head.layer, scores.head.index)
        assert row["does"] == (scores.does.name if scores.does else None)
        for name, score in scores.scores.items():
            assert row[f"{name}.mean"] is score.mean
            assert row[f"{name}.rows"] == score.rows
    profile = reports["profile"].to_records()
    first = next(row for row in profile if row["score"] == "previous")
    assert first["mean"] == reports["profile"].heads[0].estimates["previous"].mean
    assert [row["effect"] for row in reports["ablate"].to_records()] == [
        effect.change for effect in reports["ablate"].effects
    ]
    parts = reports["logits"].to_records()
    assert sum(row["value"] for row in parts) == pytest.approx(reports["logits"].logit, abs=1e-3)


def test_records_of_relations_and_antecedents(made: MadeOf) -> None:
    reports: Any = made("demo-gpt2").results
    syntax = reports["syntax"]
    rows = syntax.to_records()
    assert [row["relation"] for row in rows] == [found.name for found in syntax.relations]
    for row, found in zip(rows, syntax.relations, strict=True):
        assert row["accuracy"] == (found.best.accuracy.value if found.best else None)
    sure = [row for row in rows if row["role"]]
    assert len(sure) == sum(
        bool(found.best) and (role.head, role.relation) == (found.best.head, found.name)
        for role in syntax.roles
        for found in syntax.relations
    )
    coref = reports["coref"]
    rows = [row for row in coref.to_records() if row["kind"] == "all"]
    assert [row["head"] for row in rows] == [
        coref.layout.name(found.head) for found in coref.kinds[0].ranked
    ]
    assert rows[0]["accuracy"] == coref.best.accuracy.value


def test_records_of_flows_circuits_and_differences(made: MadeOf) -> None:
    reports: Any = made("demo-gpt2").results
    flow = reports["flow"]
    rows = flow.to_records()
    assert len(rows) == flow.reach.sum()
    for row in rows:
        assert row["share"] == pytest.approx(flow.total[row["position"], row["key"]], abs=1e-4)
    edges = reports["circuits"].to_records()
    assert [row["excess"] for row in edges] == [edge.excess for edge in reports["circuits"].edges]
    diff = reports["diff"]
    far = [row for row in diff.to_records() if row["figure"] == "js distance"]
    assert [row["change"] for row in far] == [head.distance.mean for head in diff.heads]
    assert far[0]["head"] == diff.heads[0].name


EVERY = ("heads", "profile", "sinks", "spans", "retrieval", "logits", "lens")
"""Whose tables have a row for every head at least."""


def heads_of(rows: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    """The heads that rows are of."""
    return {tuple(row[name] for name in HEAD) for row in rows if row.get("head") is not None}


def test_tables_join_on_the_head(made: MadeOf) -> None:
    one = made("demo-gpt2")
    every = heads_of(one.results["heads"].to_records())
    assert len(every) == 24
    assert all(name == f"{layer}.{index}" for layer, index, name in every)
    for command, result in one.results.items():
        rows = result.to_records()
        assert heads_of(rows) <= every, command
        assert all("stack" not in row for row in rows), command
        assert heads_of(rows) == every or command not in EVERY, command
    assert heads_of(one.capture.to_pandas().to_dict("records")) == every


def test_a_model_of_several_stacks_says_which() -> None:
    layout = Layout({"encoder": (2,), "decoder": (2,)})
    head = Head(Site("decoder", 0), 1)
    named = {"stack": "decoder", "layer": 0, "index": 1, "head": "dec:0.1"}
    assert which_head(layout, head) == named
    assert set(which_head(layout, head, head).values()) == {None}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("measure", "file", "asked"),
    [
        (av.syntax, "treebank.conllu", {}), (av.coref, "treebank.conllu", {}),
        (av.coref, "pronouns.tsv", {}),
        (av.syntax, "", {"model": "demo-bert", "also": "trees, rooted-trees, combined",
                         "control": 1}),
    ],
)  # fmt: skip
def test_several_processes_give_the_same_bits(
    measure: Any, file: str, asked: Any, minilm: str, tmp_path: Path
) -> None:
    given = ROOT / "sample_inputs" / file if file else _written(tmp_path, "t", [treebank(24)])
    one, two = (measure(given, **{"model": minilm, **asked}, jobs=jobs) for jobs in (1, 2))
    assert one == two
