"""The atlas: its figures are those of the commands, its page shows them, and it goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import attnviz as av
from attnviz import atlases
from attnviz.gathered import _summary
from attnviz.render.ablation.tables import ablation_json
from attnviz.render.circuits.tables import circuits_json
from tests.render.test_view_page import axe
from tests.viewing import ROOT, Opened, opened

SENTENCES = ROOT / "sample_inputs" / "sentences.txt"
TREEBANK = ROOT / "sample_inputs" / "treebank.conllu"
PRONOUNS = ROOT / "sample_inputs" / "pronouns.tsv"


@pytest.fixture(scope="module")
def demo() -> atlases.Atlas:
    return av.atlas(SENTENCES, conllu=TREEBANK, gap=PRONOUNS)


@pytest.fixture(scope="module")
def bert(minilm: str) -> atlases.Atlas:
    return av.atlas(SENTENCES, model=minilm, conllu=TREEBANK, ablated=4)


def test_its_figures_are_those_of_the_commands(demo: atlases.Atlas) -> None:
    heads = {head["name"]: head for head in demo.document["heads"]}
    assert len(heads) == 24
    profile = json.loads(av.profile(SENTENCES).json())
    for head in profile["heads"]:
        assert heads[head["name"]]["scores"] == head["scores"]
        assert heads[head["name"]]["does"] == head["does"]
    lines = [line for line in SENTENCES.read_text("utf-8").splitlines() if line.strip()]
    ablated = json.loads(ablation_json(av.ablate(lines, gradient=True)))
    costs = {effect["name"]: effect for effect in ablated["effects"] if not effect["members"]}
    for name, head in heads.items():
        assert head["effect"]["effect"] == pytest.approx(costs[name]["effect"], abs=1e-5)
    ranks = sorted(heads, key=lambda name: heads[name]["effect"]["rank"])
    assert ranks == sorted(heads, key=lambda name: -heads[name]["effect"]["effect"])
    wired = json.loads(circuits_json(av.circuits()))
    edge = max(wired["edges"], key=lambda one: one["excess"])
    assert heads[edge["writer"]]["feeds"][0] == edge
    assert edge in heads[edge["reader"]]["reads"]


def test_a_map_is_that_of_capture(demo: atlases.Atlas) -> None:
    for head in demo.document["heads"]:
        example = head["examples"][0]
        capture = av.capture(example["text"])
        whole = capture[av.select(head["name"], capture)[0]]
        first, rows = head["map"]["first"], head["map"]["weights"]
        for offset, row in enumerate(rows):
            wanted = whole[first + offset, first : first + len(row)]
            assert [round(1000 * float(weight)) for weight in wanted] == row
        assert head["map"]["queries"][head["map"]["row"]] == example["token"]


def test_the_summary_says_what_is_known(demo: atlases.Atlas) -> None:
    heads = demo.document["heads"]
    most = min(heads, key=lambda head: head["effect"]["rank"])
    summary = " ".join(demo.document["summary"])
    assert f"the costliest are {most['name']} " in summary
    for head in heads:
        if head["does"]:
            assert head["name"] in summary
    assert {method["part"] for method in demo.document["methods"]} == set(atlases.PARTS)


def test_what_a_model_cannot_give_is_said(bert: atlases.Atlas) -> None:
    assert len(bert.document["heads"]) == 72
    assert all(head["coreference"] is None for head in bert.document["heads"])
    assert all(head["effect"] for head in bert.document["heads"])


def test_it_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = tmp_path / "parts"
    with monkeypatch.context() as broken:
        broken.setattr(atlases, "run_circuits", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            av.atlas(SENTENCES, keep=keep)
    assert {path.stem for path in keep.iterdir()} == {"profile", "ablate"}
    with monkeypatch.context() as sure:
        sure.setattr(atlases, "run_profile", _interrupt)
        sure.setattr(atlases, "run_ablate", _interrupt)
        found = av.atlas(SENTENCES, keep=keep)
        with pytest.raises(KeyboardInterrupt):  # other texts: nothing of it holds
            av.atlas(ROOT / "sample_inputs" / "story.txt", keep=keep)
    assert found.document == av.atlas(SENTENCES).document
    (keep / "mine.txt").write_text("stays")
    atlases.forget(keep)
    assert [path.name for path in keep.iterdir()] == ["mine.txt"]


def _interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("options", "words"),
    [({"inputs": "nowhere.txt"}, "nowhere.txt"), ({"ablated": 0}, "at least 1"),
     ({"conllu": "no.conllu"}, "no.conllu")],
)  # fmt: skip
def test_what_cannot_be_made(options: dict[str, Any], words: str) -> None:
    with pytest.raises(av.AttnvizError, match=words):
        av.atlas(**{"inputs": SENTENCES, **options})


@pytest.fixture(scope="module")
def pages(
    demo: atlases.Atlas, bert: atlases.Atlas, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("atlas")
    return {
        name: one.save(folder / f"{name}.html") for name, one in (("demo", demo), ("bert", bert))
    }


@pytest.fixture
def page(browser: Any, pages: dict[str, Path]) -> Iterator[Opened]:
    with opened(browser) as found:
        found.documents.add(pages["demo"].as_uri())
        found.page.goto(pages["demo"].as_uri())
        yield found


def shown(page: Opened) -> list[str]:
    return page.page.eval_on_selector_all(
        "#heads tbody tr", "rows => rows.map(row => row.dataset.head)"
    )


def test_heads_are_found_and_sorted(page: Opened, demo: atlases.Atlas) -> None:
    heads = demo.document["heads"]
    assert shown(page) == [head["name"] for head in heads]
    page.page.fill("#find", "induction")
    assert shown(page) == [
        h["name"] for h in heads if h["does"] and h["does"]["name"] == "induction"
    ]
    page.page.fill("#find", "")
    page.page.click("#quick button:has-text('needed')")
    assert shown(page) == [head["name"] for head in heads if head["effect"]["needed"]]
    page.page.fill("#find", "")
    page.page.click("th button:has-text('taken away')")
    assert shown(page) == sorted(
        (head["name"] for head in heads),
        key=lambda name: next(h["effect"]["rank"] for h in heads if h["name"] == name),
    )
    assert page.page.locator("th[aria-sort=ascending]").count() == 1


def test_no_share_of_cases_without_how_many(page: Opened, demo: atlases.Atlas) -> None:
    heads = {head["name"]: head for head in demo.document["heads"]}
    cells = page.page.eval_on_selector_all(
        "#heads tbody td span[title='not enough for a role']",
        "spans => spans.map(one => [one.closest('tr').dataset.head, one.className, one.innerText])",
    )
    assert cells
    for name, kind, text in cells:
        first = heads[name]["relations"][0]
        assert not first["role"]
        assert kind == "soft"
        assert f"{first['relation']} {100 * first['accuracy']:.0f} % of {first['count']} (" in text
    once = next(name for name in heads for one in heads[name]["relations"] if one["count"] == 1)
    page.page.click(f'[data-head="{once}"] a')
    assert "of 1 held-out case (" in page.page.inner_text("#card")


def test_the_summary_counts_the_cases_of_a_relation(demo: atlases.Atlas) -> None:
    best = {"relation": "obj", "role": True, "accuracy": 0.74, "offset_accuracy": 0.34,
            "count": 1211}  # fmt: skip
    head = {**demo.document["heads"][0], "relations": [best], "coreference": None}
    (said,) = (
        line for line in _summary({"texts": 1, "tokens": 1}, [head], None, None) if "Gram" in line
    )
    assert f"obj by {head['name']} (74 % of 1,211, best offset 34 %)" in said


def test_a_head_has_a_link_and_a_card(page: Opened, pages: dict[str, Path]) -> None:
    page.page.click('[data-head="2.4"] a')
    assert page.page.evaluate("location.hash") == "#2.4"
    text = page.page.inner_text("#card")
    assert "Head 2.4" in text
    assert "taken away: loss +" in text
    assert "induction" in text
    page.page.goto("about:blank")
    page.page.goto(f"{pages['demo'].as_uri()}#1.4")
    assert "Head 1.4" in page.page.inner_text("#card")
    page.page.evaluate("document.body.classList.add('one-card')")
    page.page.emulate_media(media="print")
    assert page.page.is_visible("#card")
    assert not page.page.is_visible("#heads")


@pytest.mark.parametrize("name", ["demo", "bert"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_axe_finds_nothing(
    browser: Any, pages: dict[str, Path], name: str, scheme: str, width: int
) -> None:
    size = {"width": width, "height": 900}
    with opened(browser, color_scheme=scheme, viewport=size) as found:
        found.documents.add(pages[name].as_uri())
        found.page.goto(f"{pages[name].as_uri()}#2.4")
        assert found.page.evaluate("document.documentElement.scrollWidth") <= width
        found.page.evaluate(axe())
        violations = found.page.evaluate("axe.run()")["violations"]
        assert [(v["id"], [n["html"][:120] for n in v["nodes"]]) for v in violations] == []


@pytest.mark.parametrize("which", ["demo", "bert"])
def test_the_json_follows_its_schema(request: Any, which: str) -> None:
    schema = json.loads((ROOT / "docs" / "atlas.schema.json").read_text("utf-8"))
    Draft202012Validator(schema).validate(json.loads(request.getfixturevalue(which).json()))


def test_a_distance_is_no_evidence_of_need(bert: atlases.Atlas, demo: atlases.Atlas) -> None:
    assert not demo.document["metric"]["distance"]
    assert any(head["effect"]["needed"] for head in demo.document["heads"])
    assert bert.document["metric"] == {"name": "hidden", "unit": "1 - cosine", "distance": True}
    assert {head["effect"]["needed"] for head in bert.document["heads"]} == {None}
    (said,) = (line for line in bert.document["summary"] if line.startswith("Taken away"))
    assert "above zero" not in said
    assert "base" not in said
