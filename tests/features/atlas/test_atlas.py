"""The atlas: its figures are those of the commands, its page shows them, and it goes on."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.drawing.grid import BLUE, ORANGE, color, minus
from attnviz.drawing.palette import rgb
from attnviz.errors import UsageError
from attnviz.features.atlas import function as atlases
from attnviz.features.atlas.description import headline
from attnviz.features.atlas.gather import gather
from attnviz.features.atlas.page import document
from attnviz.features.atlas.result import Atlas
from attnviz.features.circuits.result import Circuits
from attnviz.features.profile.result import Profile
from tests import ROOT
from tests.features.atlas.test_book import saved
from tests.repeated import REPEATED
from tests.viewing import Opened, opened

SENTENCES = ROOT / "sample_inputs" / "sentences.txt"
TREEBANK = ROOT / "sample_inputs" / "treebank.conllu"
PRONOUNS = ROOT / "sample_inputs" / "pronouns.tsv"


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("few") / "sentences.txt"
    path.write_text("".join(SENTENCES.read_text("utf-8").splitlines(keepends=True)[:6]))
    return path


SAMPLED = 50
"""Tokens that copying is read off."""


@pytest.fixture(scope="module")
def demo(sentences: Path) -> Atlas:
    with pytest.MonkeyPatch.context() as patch:
        fewer = partial(atlases.run_circuits, sample=SAMPLED)
        patch.setattr(atlases, "run_circuits", fewer)
        return av.atlas(sentences, gold=[TREEBANK, PRONOUNS])


@pytest.fixture(scope="module")
def profile(sentences: Path) -> Profile:
    return av.profile(sentences)


@pytest.fixture(scope="module")
def circuits(demo: Atlas) -> Circuits:
    """Of the command, with what the atlas measured beside the weights."""
    return av.circuits(evidence=demo, sample=SAMPLED)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two heads are ablated and two split by source, for tests of what else is in an atlas."""
    monkeypatch.setattr(atlases, "MEASURED_HEADS", 2)
    ablated = partial(atlases.run_ablate, select="0.5, 2.0", method="zero")
    monkeypatch.setattr(atlases, "run_ablate", ablated)
    monkeypatch.setattr(atlases, "run_circuits", partial(atlases.run_circuits, sample=SAMPLED))


@pytest.fixture(scope="module")
def repeats() -> Atlas:
    """Of texts on which heads are needed, some of which are ablated."""
    turned = []
    for text in REPEATED:  # what came first comes second: other texts, as many again
        _, a, b, _, _, c, d, *_ = text.split()
        turned.append(f"The {c} {d} and the {a} {b} while the {c} {d} and the {a} {b}.")
    model = av.load("demo-gpt2")
    effects = av.ablate([*REPEATED, *turned], model=model, select="0.5, 1.4, 2.1, 3.3")
    return gather(av.profile(texts=REPEATED[:6], model=model), ablate=effects)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Atlas:
    """Of an encoder without an LM head."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "t.txt").write_text("".join(SENTENCES.read_text().splitlines(keepends=True)[:2]))
    model = saved(folder / "m", "demo-bert", 0, "AutoModel", num_hidden_layers=2, hidden_size=64,
                  num_attention_heads=4, intermediate_size=128)  # fmt: skip
    return av.atlas(folder / "t.txt", model=model, gold=TREEBANK)


def test_its_figures_are_those_of_the_commands(
    sentences: Path, demo: Atlas, profile: Profile, circuits: Circuits
) -> None:
    assert len(demo.heads) == 24
    for one in demo.heads:
        assert one.profile.estimates == profile[one.head].estimates
        assert one.profile.scores == profile[one.head].scores
    lines = [line for line in sentences.read_text("utf-8").splitlines() if line.strip()]
    for effect in av.ablate(lines, select="0.5, 3.3").effects:
        found = demo[effect.heads[0]].effect
        for ours, theirs in zip(found.by, effect.by, strict=True):
            assert ours.method == theirs.method
            assert ours.change == pytest.approx(theirs.change, abs=1e-5)
    drawn = document(demo)["heads"]
    ranks = sorted(drawn, key=lambda head: head["effect"]["rank"])
    assert ranks == sorted(drawn, key=lambda head: -head["effect"]["effect"])
    edge = max(circuits.edges, key=lambda one: one.excess)
    assert demo[edge.writer].feeds[0] == edge
    assert edge in demo[edge.reader].reads


def test_no_text_is_no_limit(sentences: Path) -> None:
    for limit in (0, -5):
        with pytest.raises(UsageError, match=f"limit must be at least 1, not {limit}"):
            av.atlas(sentences, limit=limit)


def test_a_map_is_that_of_capture(demo: Atlas) -> None:
    captured = cache(av.capture)
    for head in document(demo)["heads"]:
        example = head["examples"][0]
        capture = captured(example["text"])
        whole = capture[av.select(head["name"], capture)[0]]
        first, rows = head["map"]["first"], head["map"]["weights"]
        for offset, row in enumerate(rows):
            wanted = whole[first + offset, first : first + len(row)]
            assert tuple(round(1000 * float(weight)) for weight in wanted) == row
        assert head["map"]["queries"][head["map"]["row"]] == example["token"]


def test_shares_measured_on_texts_stand_beside_the_weights(
    sentences: Path, demo: Atlas, circuits: Circuits
) -> None:
    lines = sentences.read_text("utf-8").splitlines()
    reader = next(one for one in demo.heads if demo.layout.name(one.head) == "2.0")
    found = av.sources(lines, select="2.0", role="induction")
    assert reader.shares is not None
    assert (reader.shares.rows, reader.shares.texts) == (found.rows, found.texts)
    writer = next(one for one in demo.heads if demo.layout.name(one.head) == "1.4").head
    edge = next(one for one in reader.reads if one.writer == writer and one.side == "K")
    wanted = next(one for one in found.by_key if one.origin.head == writer)
    assert demo.share_of(edge) == wanted
    assert demo.measured_edges()["K", writer, reader.head] == (
        wanted.share,
        wanted.low,
        wanted.high,
    )
    assert circuits.measured == demo.measured_edges()
    (drawn,) = (head for head in document(demo)["heads"] if head["name"] == "2.0")
    (told,) = (one for one in drawn["reads"] if (one["writer"], one["side"]) == ("1.4", "K"))
    assert told["measured"] == {
        "share": wanted.share, "low": wanted.low, "high": wanted.high,
        "score": "induction", "rows": found.rows, "texts": found.texts,
    }  # fmt: skip
    for head in demo.heads:
        sides = {edge.side for edge in head.reads}
        assert (head.shares is not None) == bool(sides & {"Q", "K"})
    assert f"1.4 for 2.0 ({100 * wanted.share:.0f} %)" in " ".join(document(demo)["summary"])


def test_the_summary_says_what_is_known(demo: Atlas) -> None:
    heads = document(demo)["heads"]
    summary = " ".join(document(demo)["summary"])
    for head in heads:
        if head["does"]:
            assert head["name"] in summary
    assert {method["part"] for method in document(demo)["methods"]} == set(atlases.PARTS)


def test_what_is_needed_is_a_sentence_about_heads(demo: Atlas, repeats: Atlas) -> None:
    (said,) = (line for line in document(repeats)["summary"] if line.startswith("Ablated"))
    assert (
        ". Heads 1.4, 0.5 and 3.3 are needed: without any of them the loss is significantly worse, "
        "by two methods" in said
    )
    (said,) = (line for line in document(demo)["summary"] if line.startswith("Ablated"))
    assert not any(head["effect"]["needed"] for head in document(demo)["heads"])
    assert said.endswith("; whether heads are needed takes two methods and several texts.")
    assert "significantly worse" not in said


def _with_effects(atlas: Atlas, sure: bool | None, ends: tuple[float, float] | None) -> Atlas:
    """The same atlas with every effect as sure as that; of the first head alone if it is."""
    heads = []
    for number, head in enumerate(atlas.heads):
        assert head.effect is not None
        low, high = ends if ends is not None else (None, None)
        first = replace(
            head.effect.first, sure=sure and number == 0 if sure is not None else None,
            joint_low=low, joint_high=high, change=0.6 if number == 0 else 0.01, detectable=0.8,
        )  # fmt: skip
        effect = replace(head.effect, by=(first, *head.effect.by[1:]), verdict=None)
        effect = replace(effect, verdict="nothing" if sure is not None else None)
        heads.append(replace(head, effect=effect))
    return replace(atlas, heads=tuple(heads))


def test_headlines_take_sure_effects_only(demo: Atlas) -> None:
    """Else nothing was found, and how large an effect would have been seen is said."""
    unsure = _with_effects(demo, False, (-0.19, 1.4))
    assert headline(unsure) == {
        "number": "None", "said": "of 24 heads surely cost anything when ablated alone", "head": "",
        "ends": "; 0.8 nats without the median head would have been seen in four of five such "
        "samples",
    }  # fmt: skip
    (said,) = (line for line in document(unsure)["summary"] if line.startswith("Ablated"))
    assert "no head surely costs anything; 0.8 nats" in said
    assert "+0.6" not in said
    sure = headline(_with_effects(demo, True, (0.2, 1.1)))
    assert sure is not None
    assert (sure["number"], sure["head"], sure["ends"]) == ("+0.6", "0.0", " [+0.2, +1.1]")
    alone = headline(_with_effects(demo, None, None))
    assert alone is not None
    assert alone["ends"] == ", which is not judged: nothing is known of other texts"


def test_what_a_model_cannot_give_is_said(bert: Atlas) -> None:
    assert len(document(bert)["heads"]) == 8
    assert all(head["coreference"] is None for head in document(bert)["heads"])
    assert all(head["effect"] for head in document(bert)["heads"])


@pytest.mark.usefixtures("few")
def test_it_goes_on_where_it_was_and_a_limit_holds_for_every_part(
    sentences: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep, others = tmp_path / "parts", tmp_path / "others.txt"
    others.write_text("The dog ran home.\nIt was old.\n")
    with monkeypatch.context() as broken:
        broken.setattr(atlases, "run_circuits", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            av.atlas(sentences, state=keep, limit=2)
    kept = {path.name.partition(".")[0] for path in keep.iterdir()}
    assert kept == {"attnviz-atlas", "profile", "ablate"}
    with monkeypatch.context() as sure:
        sure.setattr(atlases, "run_profile", _interrupt)
        sure.setattr(atlases, "run_ablate", _interrupt)
        found = av.atlas(sentences, state=keep, limit=2)
        with pytest.raises(KeyboardInterrupt):  # other texts: nothing of it holds
            av.atlas(others, state=keep, limit=2)
        with pytest.raises(KeyboardInterrupt):  # nor on fewer of them
            av.atlas(sentences, state=keep, limit=1)
    split: list[int] = []
    run = atlases.measure

    def counted(source: Any, texts: Any, *given: Any, **more: Any) -> Any:
        split.append(len(texts))
        return run(source, texts, *given, **more)

    monkeypatch.setattr(atlases, "measure", counted)
    assert found == av.atlas(sentences, limit=2)
    assert found.ablation is not None
    assert found.texts == found.ablation.texts == 2
    assert set(split) == {2}
    (keep / "mine.txt").write_text("stays")
    atlases.forget(keep)
    assert [path.name for path in keep.iterdir()] == ["mine.txt"]


def _made(atlas: Atlas) -> Callable[..., Atlas]:
    """An atlas of one part that is made at once."""

    def make(*_: Any, state: Path | None = None, **__: Any) -> Atlas:
        atlases._Kept(state, "the same").part(Atlas, lambda: atlas)
        return atlas

    return make


def test_only_a_folder_of_its_own_is_used_and_removed(
    sentences: Path,
    demo: Atlas,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(atlases, "atlas", _made(demo))
    monkeypatch.setattr(atlases, "PARTS", ("atlas",))
    page, parts, mine = (tmp_path / name for name in ("c.html", ".c.html.parts", "mine"))
    line = ["atlas", "--texts", str(sentences), "-o", str(page)]
    mine.mkdir()
    (mine / "ablate.json").write_text("mine")
    parts.symlink_to(mine)
    for replaced in (False, True):
        assert main(line) == 1
        assert ".c.html.parts is not of attnviz atlas, which keeps" in capsys.readouterr().err
        assert [path.name for path in mine.iterdir()] == ["ablate.json"]
        assert not page.exists()
        if not replaced:  # a file and a folder of somebody else in place of the link
            parts.unlink()
            parts.mkdir()
            (parts / "ablate.json").write_text("mine")
    atlases.forget(parts)
    assert (parts / "ablate.json").read_text() == "mine"
    shutil.rmtree(parts)
    assert main(line) == 0
    assert av.read(page).to_dict() == demo.to_dict()
    assert not parts.exists()


def _interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


@pytest.fixture(scope="module")
def pages(demo: Atlas, bert: Atlas, repeats: Atlas, tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("atlas")
    made = {"demo": demo, "bert": bert, "repeats": repeats}
    return {name: one.save(folder / f"{name}.html") for name, one in made.items()}


@pytest.fixture
def page(browser: Any, pages: dict[str, Path]) -> Iterator[Opened]:
    with opened(browser) as found:
        yield found.visit(pages["demo"])


def shown(page: Opened) -> list[str]:
    return page.page.eval_on_selector_all(
        "#heads tbody tr", "rows => rows.map(row => row.dataset.head)"
    )


def test_heads_are_found_and_sorted(page: Opened, demo: Atlas) -> None:
    heads = document(demo)["heads"]
    assert shown(page) == [head["name"] for head in heads]
    page.page.fill("#find", "induction")
    assert shown(page) == [
        h["name"] for h in heads if h["does"] and h["does"]["name"] == "induction"
    ]
    page.page.fill("#find", "")
    page.page.click("th button:has-text('ablated')")
    assert shown(page) == sorted(
        (head["name"] for head in heads),
        key=lambda name: next(h["effect"]["rank"] for h in heads if h["name"] == name),
    )
    assert page.page.locator("th[aria-sort=ascending]").count() == 1


def test_needed_heads_are_found(page: Opened, pages: dict[str, Path], repeats: Atlas) -> None:
    assert page.page.locator("#quick button:has-text('needed')").count() == 0  # none is
    page.visit(pages["repeats"]).page.click("#quick button:has-text('needed')")
    needed = [
        one["name"] for one in document(repeats)["heads"] if (one["effect"] or {}).get("needed")
    ]
    assert needed == ["0.5", "1.4", "3.3"]
    assert sorted(shown(page)) == needed


def test_strings_are_those_that_get_more_than_their_frequency(
    demo: Atlas, profile: Profile
) -> None:
    for one in demo.heads:
        shares = dict(profile[one.head].tokens)
        told = [share.weight * log(share.weight / share.uniform) for _, share in one.profile.tokens]
        assert told == sorted(told, reverse=True)
        assert all(
            one.profile.tokens[n][1].weight > one.profile.tokens[n][1].uniform
            for n in range(len(told))
        )
        left = [shares[text] for text in shares if text not in dict(one.profile.tokens)]
        assert all(
            s.weight * log(s.weight / s.uniform) <= told[-1]
            for s in left
            if len(told) == 8 and s.uniform
        )


def test_likeness_is_held_against_a_random_pair(demo: Atlas, profile: Profile) -> None:
    rows = np.array(profile.likeness["decoder"])
    usual = np.median(rows[np.triu_indices(len(rows), 1)])
    assert demo.usual == {"decoder": pytest.approx(usual)}
    for one in demo.heads:
        assert all(far**2 < usual**2 / 2 + 0.01 for _, far in one.profile.nearest)


def test_the_grid_is_tinted_and_the_address_holds_it_all(page: Opened, demo: Atlas) -> None:
    look = page.page
    grounds = "all => all.map(one => [one.dataset.head, one.style.background])"
    roles = dict(look.eval_on_selector_all("#grid button", grounds))
    named = {
        demo.layout.name(one.head) for one in demo.heads if one.profile.scores.does is not None
    }
    assert {name for name, ground in roles.items() if ground} == named
    look.select_option("#tint", "cost")
    costs = dict(look.eval_on_selector_all("#grid button", grounds))
    assert all(costs.values())
    look.click('#grid [data-head="1.4"]')
    assert look.inner_text("#card h2") == "Head 1.4"
    edges = {
        (edge.writer, edge.side, edge.reader)
        for one in demo.heads
        if demo.layout.name(one.head) == "1.4"
        for edge in (*one.feeds, *one.reads)
    }
    assert look.locator(".arcs path.own").count() >= len(edges) > 0
    look.click("#columns summary")
    look.uncheck("#columns [data-column='copies']")
    look.fill("#find", "needed")
    link = look.evaluate("location.href")
    before = look.inner_text("#heads")
    look.goto("about:blank")
    look.goto(link)
    assert look.input_value("#tint") == "cost"
    assert look.input_value("#find") == "needed"
    assert look.inner_text("#heads") == before
    assert not look.is_visible("#heads th[data-column='copies']")
    assert look.inner_text("#card h2") == "Head 1.4"


def test_the_grid_is_a_map_with_arrows_of_the_chosen_head_alone(page: Opened, demo: Atlas) -> None:
    look = page.page
    look.goto(look.url.partition("#")[0] + "#")
    mapped = {demo.layout.name(one.head) for one in demo.heads if one.map is not None}
    drawn = "all => all.filter(one => one.querySelector('canvas')).map(one => one.dataset.head)"
    assert set(look.eval_on_selector_all("#grid button", drawn)) == mapped != set()
    size = look.locator('#grid [data-head="1.4"]').bounding_box()
    assert size["width"] == size["height"] == 64
    pixels = """one => [...one.getContext('2d').getImageData(0, 0, one.width, one.height).data]
        .filter((_, n) => n % 4 === 0)"""
    reds = look.eval_on_selector('#grid [data-head="1.4"] canvas', pixels)
    assert len(set(reds)) > 5, "its own weights"
    assert look.locator(".arcs > path").count() == 0
    look.click('#grid [data-head="1.4"]')
    ends = look.eval_on_selector_all(
        ".arcs > path", "all => all.map(p => p.getAttribute('marker-end'))"
    )
    assert set(ends) == {"url(#arrow)"}


def test_three_numbers_stand_in_large_letters(page: Opened, demo: Atlas) -> None:
    named = [one for one in demo.heads if one.profile.scores.does is not None]
    numbers = page.page.locator("#large .number").all_inner_texts()
    assert numbers[0] == f"{len(named)} of {len(demo.heads)}"
    told = headline(demo)
    assert told is not None
    assert numbers[-1] == told["number"]
    large = page.page.inner_text("#large")
    assert minus(f"{told['said']}{told['head']}{told['ends']}") in large
    assert "·" not in large


def test_what_a_head_is_worth_has_the_colours_of_every_other_picture(
    page: Opened, demo: Atlas
) -> None:
    look = page.page
    look.select_option("#tint", "cost")
    top = max(abs(one.effect.change) for one in demo.heads if one.effect)
    ground = "one => one.style.background.match(/\\d+/g).map(Number)"
    for one in demo.heads:
        assert one.effect is not None
        name, change = demo.layout.name(one.head), one.effect.change
        red, green, blue = rgb(color(change, top, -1))  # as av.ablate's picture draws it
        shown = look.eval_on_selector(f'#grid [data-head="{name}"]', ground)
        assert np.abs(np.subtract(shown, (red, green, blue))).max() <= 4, name
    said = look.inner_text("#grid-legend")
    assert re.search(r"^−[\d.]+, better without it\s+\+[\d.]+ nats, worse without it$", said)
    ends = look.eval_on_selector("#grid-legend i", "one => one.style.background")
    assert [rgb(ORANGE), rgb(BLUE)] == [
        tuple(map(int, part)) for part in re.findall(r"rgb\((\d+), (\d+), (\d+)\)", ends)[::2]
    ]
    look.select_option("#tint", "role")
    roles = {one.profile.scores.does.title for one in demo.heads if one.profile.scores.does}
    assert set(look.inner_text("#grid-legend").split("\n")) - {""} == roles


def test_a_head_has_a_link_and_a_card(page: Opened, pages: dict[str, Path], demo: Atlas) -> None:
    page.page.click('[data-head="2.4"] a')
    assert page.page.evaluate("location.hash") == "#2.4"
    text = page.page.inner_text("#card")
    assert "Head 2.4" in text
    effect = next(one for one in demo.heads if one.head.name == "2.4").effect
    shown = re.search(r"ablated: loss ([+−]\d\.\d+)", text)
    assert shown is not None
    assert float(shown[1].replace("−", "-")) == pytest.approx(effect.change, abs=0.005)
    assert "induction" in text
    page.page.goto("about:blank")
    page.page.goto(f"{pages['demo'].as_uri()}#1.4")
    assert "Head 1.4" in page.page.inner_text("#card")
    page.page.evaluate("document.body.classList.add('one-card')")
    page.page.emulate_media(media="print")
    assert page.page.is_visible("#card")
    assert not page.page.is_visible("#heads")


def test_a_distance_is_no_evidence_of_need(bert: Atlas, repeats: Atlas) -> None:
    assert not document(repeats)["metric"]["distance"]
    assert any((head["effect"] or {}).get("needed") for head in document(repeats)["heads"])
    metric = document(bert)["metric"]
    assert (metric["name"], metric["unit"], metric["distance"]) == ("hidden", "1 - cosine", True)
    assert (metric["orange"], metric["ends"]) == (0, []), "a distance has no better and no worse"
    assert {head["effect"]["needed"] for head in document(bert)["heads"]} == {None}
    (said,) = (line for line in document(bert)["summary"] if line.startswith("Ablated"))
    assert "above zero" not in said
    assert "base" not in said


def test_a_row_has_what_is_known_of_a_head(demo: Atlas, bert: Atlas, tmp_path: Path) -> None:
    for atlas in (demo, bert):
        table = atlas.to_records()
        assert [(row["layer"], row["index"]) for row in table] == [
            (one.head.layer, one.head.index) for one in atlas.heads
        ]
        for row, one in zip(table, atlas.heads, strict=True):
            assert one.effect is not None
            assert row["effect"] == one.effect.change
            assert row["copies"] == one.copies
            assert len(row["feeds"].split(", ")) == max(1, len(one.feeds))
    lines = demo.save(tmp_path / "a.csv").read_text().splitlines()
    assert len(lines) == 1 + len(demo.heads)
    assert lines[0].startswith("layer,index,head,does,rests,effect,")
