"""The atlas as a folder: an index and a page a head, linked by relative addresses."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import attnviz as av
from attnviz.cli import main
from attnviz.errors import OutputError
from attnviz.features.atlas.gather import gather
from attnviz.features.atlas.page import document, selection, write
from attnviz.features.atlas.result import Atlas
from attnviz.features.profile.result import Profile
from attnviz.models.demo import DEMOS
from tests import ROOT
from tests.checkpoints import needs_transformers_5
from tests.corpus.gold import results as gold
from tests.features.profile.corpus import lines, sentences
from tests.web.family import SETTLED

HEADS = [f"{layer}.{head}" for layer in range(4) for head in range(6)]


@pytest.fixture(scope="module")
def book(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("book") / "new" / "book"
    model = av.load("demo-gpt2")
    profile = av.profile(texts=sentences(30), model=model, select=selection(model.layout))
    written = write(gather(profile), profile, folder)
    assert [path.name for path in written] == ["index.html", *(f"{name}.html" for name in HEADS)]
    return folder


@pytest.mark.slow
def test_every_link_leads_somewhere(book: Path) -> None:
    for page in book.iterdir():
        text = page.read_text()
        links = re.search(r'"links":(\{.*?\})', text)
        assert links
        addresses = re.findall(r':"(.*?)"', links[1])
        assert addresses
        for address in addresses:
            assert (book / address.partition("#")[0]).is_file(), address
    assert "1.4.html" in (book / "index.html").read_text()
    assert len((book / "1.4.html").read_bytes()) < 5e6


@pytest.mark.slow
def test_one_click_leads_from_a_card_to_its_rows_and_back(browser: Any, book: Path) -> None:
    context = browser.new_context()
    page = context.new_page()
    try:
        page.goto(f"{(book / 'index.html').as_uri()}#2.4")
        page.evaluate(SETTLED)
        page.click("#card a[href='2.4.html']")
        page.wait_for_url("**/2.4.html")
        page.evaluate(SETTLED)
        assert "Head 2.4" in page.inner_text("main h2 >> nth=0")
        page.click("#links a:has-text('all heads')")
        page.wait_for_url("**/index.html#2.4")
        assert page.locator("#card").is_visible()
    finally:
        context.close()


def test_a_folder_that_is_a_file_is_refused(tmp_path) -> None:
    model = av.load("demo-gpt2")
    profile = av.profile(texts=sentences(6), model=model)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write into"):
        write(gather(profile), profile, tmp_path / "file")


@pytest.mark.slow
def test_the_command_writes_it(tmp_path, capsys) -> None:
    path = lines(tmp_path / "a.txt", sentences(8))
    folder = tmp_path / "book"
    assert main(["atlas", "--texts", str(path), "--out-dir", str(folder)]) == 0
    assert "index.html" in capsys.readouterr().out
    assert len(list(folder.iterdir())) == 25


@pytest.fixture(scope="module")
def profile() -> Profile:
    found = av.profile(ROOT / "sample_inputs" / "sentences.txt", model="demo-bert", limit=2)
    return replace(found, identity={})


def test_heads_have_the_relations_that_are_roles(profile: Profile) -> None:
    """A treebank that gives roles, which the sample is too small for."""
    det = gold.relation_head("1.2", "det", (0.95, 0.9, 1.0), (0.6, 0.5, 0.7), 80)
    obj = gold.relation_head("1.2", "obj", (0.75, 0.7, 0.8), (0.4, 0.3, 0.5), 200)
    every = replace(obj, relation="all")
    found = gold.syntax(best=[every, det, obj], roles=[obj])
    drawn = document(gather(profile, syntax=found))
    heads = {head["name"]: head for head in drawn["heads"]}
    assert [one["relation"] for one in heads["1.2"]["relations"]] == ["obj"]
    first = heads["1.2"]["relations"][0]
    assert (first["accuracy"], first["low"], first["high"]) == (0.75, 0.7, 0.8)
    assert (first["count"], first["offset_accuracy"], first["margin"]) == (200, 0.35, 0.4)
    assert heads["0.0"]["relations"] == []
    assert any("obj by 1.2 (75 % of 200, best offset 35 %)" in one for one in drawn["summary"])
    (method,) = (one for one in drawn["methods"] if one["part"] == "syntax")
    assert method["said"] == (
        "3,000 words in 20 documents; heads chosen on even documents, figures from odd documents"
    )


def test_heads_have_their_share_of_antecedents(profile: Profile) -> None:
    one = gold.antecedent_head("3.0", (0.75, 0.7, 0.8), (0.25, 0.2, 0.3))
    other = gold.antecedent_head("0.1", (0.5, 0.4, 0.6), (0.0, -0.1, 0.1))
    drawn = document(gather(profile, coref=gold.coref(ranked=[one, other], roles=[one])))
    heads = {head["name"]: head["coreference"] for head in drawn["heads"]}
    assert heads["0.1"] is heads["0.0"] is None  # of which one finds some, not sure ones
    assert (heads["3.0"]["baseline"], heads["3.0"]["baseline_accuracy"]) == ("nearest", 0.5)
    assert any("3.0 75 % right of 90 cases; nearest 50 %" in one for one in drawn["summary"])


TREEBANK = ROOT / "sample_inputs" / "treebank.conllu"
SENTENCES = ROOT / "sample_inputs" / "sentences.txt"


def saved(folder: Path, name: str, seed: int, kind: str = "", **sizes: Any) -> str:
    """A checkpoint of a bundled model's configuration before training, with its LM head or not."""
    shutil.copytree(DEMOS[name], folder)
    config = transformers.AutoConfig.from_pretrained(folder, **sizes)
    kind = kind or f"AutoModelFor{'CausalLM' if name == 'demo-gpt2' else 'MaskedLM'}"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = getattr(transformers, kind).from_config(config).float()
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder)
    return str(folder)


def named(atlas: Atlas) -> list[str]:
    """What is said of heads beyond where they rest."""
    found = []
    for one in atlas.heads:
        name = atlas.layout.name(one.head)
        if one.profile.scores.does is not None:
            found.append(f"{name} does {one.profile.scores.does.title}")
        found += [f"{name} is {role.title}" for role, _ in one.annotated]
        found += [f"{name} is needed"] if one.needed else []
        found += [f"{name} copies"] if one.copies else []
        found += [f"{name} finds {relation.relation}" for relation in one.relations]
        found += [f"{name} is like {len(one.profile.nearest)} heads"] * bool(one.profile.nearest)
        found += [f"{name} feeds {atlas.layout.name(edge.reader)}" for edge in one.feeds]
    return found


@pytest.mark.slow
@needs_transformers_5
@pytest.mark.parametrize("name", ["demo-gpt2", "demo-bert"])
def test_no_head_of_an_untrained_model_is_named(name: str, tmp_path: Path) -> None:
    model = saved(tmp_path / "m", name, 0)
    atlas = av.atlas(SENTENCES, model=model, gold=TREEBANK)
    assert not atlas.absent
    assert named(atlas) == []
    assert all(one.needed is False for one in atlas.heads)


@pytest.mark.slow
@needs_transformers_5
def test_nor_one_of_1024_heads_on_few_texts(tmp_path: Path) -> None:
    """Rows of few texts and a thousand heads: the largest of many small figures is small, too."""
    model = saved(tmp_path / "m", "demo-gpt2", 0, n_layer=32, n_head=32, n_embd=64)
    atlas = av.atlas(SENTENCES, model=model, gold=TREEBANK, limit=8)
    assert len(atlas.heads) == 1024
    assert named(atlas) == []
