"""The library as a notebook uses it."""

from __future__ import annotations

import struct
import warnings
from pathlib import Path

import numpy as np
import pytest

import attnviz as av
from attnviz.captures import inputs
from attnviz.captures.settings import KeptSettings, ModelSettings
from attnviz.cli import main
from attnviz.scoring.select import leading
from attnviz.testing.assertions import assert_role

SENTENCE = "The keys to the cabinet are on the table"


@pytest.fixture(scope="module")
def cap(minilm: str) -> av.Capture:
    return av.capture(SENTENCE, model=minilm)


def test_a_loaded_model_serves_many_texts(minilm: str) -> None:
    model = av.load(minilm)
    one, two = (av.capture(text, model=model) for text in ("a cat", "a dog ran away"))
    assert one.maps[av.Site("encoder", 0)].shape == (12, 4, 4)
    assert two.maps[av.Site("encoder", 5)].shape == (12, 6, 6)
    again = av.capture("a cat", model=minilm)
    site = av.Site("encoder", 3)
    assert np.array_equal(one.maps[site], again.maps[site])


def test_select_keeps_only_the_layers_asked_for(minilm: str) -> None:
    cap = av.capture(SENTENCE, model=minilm, select="4.11, L0H2")
    assert [site.layer for site in cap.maps] == [0, 4]
    assert av.select("4.11", cap) == (av.Head(av.Site("encoder", 4), 11),)
    assert cap[av.select("0.2", cap)[0]].shape == (11, 11)
    with pytest.raises(av.SelectionError, match=r"does not hold 1\.0"):
        av.heatmap(cap, "1.0")
    report = av.heads(cap, select="0.2")
    assert [r.name for r in report.heads[0].roles] == ["previous"]


def test_fresh_options_and_context() -> None:
    cap = av.capture("a b c", model=av.FreshConfig(kind="gqa", heads=6, d_model=30, kv_heads=2))
    assert len(cap.layout) == 6
    cross = av.capture("a b c", pair="x y", model="fresh")
    assert cross.maps[av.Site("cross", 0)].shape == (8, 3, 2)


def test_words_merge_in_heatmaps(minilm: str) -> None:
    cap = av.capture("unbelievable tokenizers", model=minilm)
    plain = av.heatmap(cap, "0.0").maps[0]
    words = av.heatmap(cap, "0.0", words=True).maps[0]
    assert len(plain[2].keys) > 4
    assert words[2].keys.texts == ("[CLS]", "unbelievable", "tokenizers", "[SEP]")
    assert words[1].sum(-1) == pytest.approx(1, abs=1e-5)


def png_size(data: bytes) -> tuple[int, int]:
    assert data.startswith(b"\x89PNG")
    return struct.unpack(">II", data[16:24])


def test_notebooks_show_pictures_and_facts(tmp_path: Path) -> None:
    cap = av.capture("the cat sat", model="demo-bert")
    picture = av.heatmap(cap, "0.2,1.1")
    assert min(png_size(picture._picture_png())) > 200
    assert picture.save(tmp_path / "x.png").read_bytes() == picture._picture_png()
    report = av.heads(cap)
    assert min(png_size(report._picture_png())) > 200
    assert report.save(tmp_path / "grid.svg").read_bytes().startswith(b"<?xml")
    shown = cap._repr_html_()
    assert "<table>" in shown
    assert "native" in shown
    with pytest.raises(av.UsageError, match=r"x\.gif"):
        picture.save(tmp_path / "x.gif")
    assert not hasattr(picture, "_repr_png_")  # a notebook would store the picture twice


def test_a_loaded_model_says_what_it_is() -> None:
    said = repr(av.load("demo-gpt2"))
    assert said == "<Native demo-gpt2: 24 heads, layers: decoder 4; native backend, cpu float32>"


def test_reprs_inform(cap, minilm: str) -> None:
    assert "11 tokens" in repr(cap)
    assert "native backend" in repr(cap)
    assert "of 72 heads with a role" in repr(av.heads(cap))
    assert "Heatmap of 0.2" in repr(av.heatmap(cap, "0.2"))
    assert "a×b" not in repr(av.capture("a b c", pair="x y", model="fresh"))
    assert "3×2 tokens" in repr(av.capture("a b c", pair="x y", model="fresh"))


def test_html_escapes_hostile_names(cap) -> None:
    from dataclasses import replace

    evil = replace(cap, source=replace(cap.source, model="<script>alert(1)</script>"))
    assert "<script>" not in evil._repr_html_()


def test_maps_too_large_to_keep_are_refused_before_running(monkeypatch, minilm: str) -> None:
    monkeypatch.setattr("attnviz.models.limits.physical_memory", lambda: 50_000)
    with pytest.raises(av.InputError, match=r"take 34\.8 kB.*select fewer heads"):
        av.capture(SENTENCE, model=minilm)
    assert len(av.capture(SENTENCE, model=minilm, select="0.*").maps) == 1
    settings = ModelSettings(model=minilm)
    with pytest.raises(
        av.InputError, match=r"maps of 12 heads on \d texts or more .* half of .* 50\.0 kB"
    ):
        inputs.captures([SENTENCE] * 9, model=settings, maps=KeptSettings(select="0.*"))


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        (av.Prompt(), "either a text, token ids or the messages"),
        (av.Prompt("a", ids=(1,)), "either a text, token ids or the messages"),
        (av.Prompt(" \n"), "text is empty"), (av.Prompt("a", pair=" "), "pair is empty"),
        (av.Prompt(ids=()), "ids is empty"), (av.Prompt("\udcff"), "not valid UTF-8"),
    ],
)  # fmt: skip
def test_prompts_that_are_nothing(prompt: av.Prompt, says: str) -> None:
    for function in (av.capture, av.heads):
        with pytest.raises(av.AttnvizError, match=says):
            function(prompt)


def test_a_heatmap_without_a_selection_shows_the_clearest_head() -> None:
    text = "the keys to the cabinet are on the table"
    for model in ("demo-gpt2", "demo-bert", "fresh"):
        (only,) = av.heatmap(text, model=model).maps
        heads = av.heads(text, model=model).heads
        assert only[0] == min(heads, key=leading).head
    assert av.heatmap(text).roles[av.heatmap(text).maps[0][0]][0].name != "diffuse"
    part = av.capture("the keys to the cabinet", select="2.*")
    assert [(h.layer, p.among) for p in [av.heatmap(part, scale="log")] for h, _, _ in p.maps] == [
        (2, 6)
    ]
    assert av.heatmap(part, "2.1").among == 0
    assert av.heatmap(part).caption == "demo-gpt2: the keys to the cabinet"
    with pytest.raises(TypeError, match="unexpected keyword argument 'color'"):
        av.heatmap(part, color="red")


def test_a_causal_heatmap_is_masked_and_a_bidirectional_one_is_not() -> None:
    (one,) = av.heatmap("the keys to the cabinet", "1.0").maps
    length = len(one[1])
    assert (np.ma.getmaskarray(one[1]) == np.triu(np.ones((length, length), bool), 1)).all()
    (pieces,) = av.heatmap("the critics of the owl", "1.0").maps
    (words,) = av.heatmap("the critics of the owl", "1.0", words=True).maps
    assert len(words[1]) < len(pieces[1])
    assert (np.ma.getmaskarray(words[1]) == np.triu(np.ones((len(words[1]),) * 2, bool), 1)).all()
    (free,) = av.heatmap("the keys to the cabinet", "1.0", model="demo-bert").maps
    assert not np.ma.is_masked(free[1])


def test_texts_go_wherever_captures_do() -> None:
    capture = av.capture("a b c")
    assert av.capture(capture) is capture
    (ran,), (held,) = av.heatmap("a b c", "0.0").maps, av.heatmap(capture, "0.0").maps
    np.testing.assert_allclose(ran[1], held[1], rtol=1e-6)
    data = [page.page.split(b'id="data">')[1] for page in (av.view("a b c"), av.view(capture))]
    assert len({part.split(b"</script>")[0] for part in data}) == 1
    assert b"d e f" in av.view(["a b c", capture, av.Prompt("d e f")]).page


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda: av.heads(["a"]), "not list"), (lambda: av.capture(None), "not None"),
        (lambda: av.view([]), "nothing to look at"), (lambda: av.view(3), "not 3"),
        (lambda: av.capture("a", model=object()), "model takes a name.*not object"),
        (lambda: av.load(Path("no/where")), "no/where"),
        (lambda: av.load(device=3), "device takes a name"),
        (lambda: av.load(dtype=32), "dtype takes a name"),
        (lambda: av.select("0.0", "x"), "where takes"),
        (lambda: av.load(av.FreshConfig(layers=10**7, d_model=8)), "choose .* fewer layers"),
    ],
)  # fmt: skip
def test_wrong_types_get_our_errors(ask, says: str) -> None:
    with pytest.raises(av.AttnvizError, match=says):
        ask()


def test_torch_names_its_devices_and_precisions_itself() -> None:
    import torch

    source = av.load("fresh", device=torch.device("cpu"), dtype=torch.bfloat16)
    assert (source.info.device, source.info.dtype) == ("cpu", "bfloat16")


def test_a_selection_keeps_single_heads_with_the_weights_and_scores_of_all() -> None:
    text = "one two three one two three one two three"
    whole, part = av.capture(text), av.capture(text, select="2.3, 2.0, 1.4")
    assert {site.layer: len(maps) for site, maps in part.maps.items()} == {1: 1, 2: 2}
    assert [whole.layout.name(h) for h in part.layout if part.holds(h)] == ["1.4", "2.0", "2.3"]
    for name in ("1.4", "2.0", "2.3"):
        assert np.array_equal(part[name], whole[name])
    with pytest.raises(av.SelectionError, match=r"does not hold 2\.1; capture it again"):
        part["2.1"]
    everything = {found.head: found for found in av.heads(whole).heads}
    mine = av.heads(part).heads
    assert [found.head.name for found in mine] == ["1.4", "2.0", "2.3"]
    assert all(found == everything[found.head] for found in mine)
    assert av.diff(part, part).heads[0].largest() == 0
    assert av.flow(part) == av.flow(whole)  # both know their text, and run it again
    with pytest.raises(av.UsageError, match="a capture file needs every head"):
        av.write_capture(part, "part.npz")


def test_a_capture_of_gigabytes_is_preceded_by_a_warning(monkeypatch, capsys) -> None:
    monkeypatch.setattr("attnviz.captures.inputs.LARGE", 50_000)
    with pytest.warns(av.AttnvizWarning, match=r"the maps of 24 heads on 41 tokens take 161\.4 kB"):
        av.capture("a " * 39)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        av.capture("a " * 39, select="2.*")
    assert main(["heatmap", "a " * 39, "-s", "*.*"]) == 0
    assert "note: the maps of 24 heads on 41 tokens" in " ".join(capsys.readouterr().err.split())


def test_a_text_that_names_a_file_is_run_and_warned_of(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("story.txt").write_text("the cat sat\n")
    for function in (av.heads, av.capture, av.logits):
        with pytest.warns(av.AttnvizWarning, match=r"story\.txt is taken as the text itself"):
            function("story.txt")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        av.heads("the story")
        av.heads(av.Prompt("story.txt"))  # as the command line does, which has its own note


def test_texts_in_files_are_those_of_lines_and_columns(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    (tmp_path / "b.jsonl").write_text('{"said": "three"}\n{"said": "four"}\n')
    assert av.read_texts(tmp_path / "a.txt", limit=1) == ["one"]
    assert av.read_texts([tmp_path / "b.jsonl"], column="said") == ["three", "four"]
    found = av.ablate(av.read_texts("sample_inputs/sentences.txt", limit=2), select="1.4")
    assert found.texts == 2
    with pytest.raises(av.AttnvizError, match="there is no file"):
        av.read_texts(tmp_path / "none.txt")


def test_a_model_by_its_place_is_told_its_name() -> None:
    with pytest.raises(TypeError, match="name it: model='gpt2'"):
        av.heads("a", "gpt2")


@pytest.mark.parametrize("given", [np.full((2, 3, 3), 1 / 3, "f4"), [np.full((3, 3), 1 / 3, "f4")]])
def test_a_single_layer_is_asked_for_as_a_list(given) -> None:
    with pytest.raises(av.InputError, match=r"\[array\]"):
        av.from_arrays(given, list("abc"))


def test_a_missing_role_is_answered_with_what_the_head_does_on_text(monkeypatch) -> None:
    monkeypatch.setattr("attnviz.testing.assertions.sentences", lambda: ["The old man read it."])
    with pytest.raises(AssertionError, match=r"it shows: previous 1\.00"):
        assert_role("demo-gpt2", "1.4", "induction")


def test_ids_of_a_pair_say_that_segments_are_missing() -> None:
    pair = av.capture(av.Prompt("the cat", pair="sat down"), model="demo-bert")
    ids = pair.inputs.sides["encoder"].queries.ids
    assert not any("segment" in note for note in pair.inputs.notes)
    again = av.capture(av.Prompt(ids=ids), model="demo-bert")
    assert any("all are of segment 0" in note for note in again.inputs.notes)
    assert not np.array_equal(again["0.0"], pair["0.0"])
    alone = av.capture(av.Prompt("the cat"), model="demo-bert")
    once = av.capture(av.Prompt(ids=alone.inputs.sides["encoder"].queries.ids), model="demo-bert")
    assert once.inputs.notes == alone.inputs.notes
