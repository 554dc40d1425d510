"""Gaze at boxes of pictures: a planted head and its closed form, and sums made one at a time."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.cli import main
from attnviz.core.prompt import Prompt
from attnviz.core.source import ForwardRequest
from attnviz.features.spans.description import finding
from attnviz.features.spans.result import WORDS, Spans
from tests.models.tiny_pictures import build
from tests.models.tiny_senses import build_llava, transformers

Image = pytest.importorskip("PIL.Image")

TEXT = "what is this house ?"
SIDE, PATCH = 32, 8
BOX = (8, 0, 24, 16)
"""Two patches each way, of 4 x 4."""
PLANTED = 1
STRENGTH = math.log(5.0)


def nearly(value: float | None, wanted: float) -> bool:
    return value == pytest.approx(wanted, abs=1e-6)


@pytest.fixture(scope="module")
def planted(folder: Path) -> tuple[Path, Path]:
    """A model without positions of any kind, of which one head looks at white patches.

    A tower that attends to nothing makes the same of every white patch, and the same of every
    black one. In layer 0 queries are a constant, and keys of one head are that constant on white
    patches and zero on all else: a white patch has five times the weight of any other token.
    """
    build_llava(folder, text="opt")
    picture = folder / "white.png"
    pixels = np.zeros((SIDE, SIDE, 3), np.uint8)
    left, top, right, bottom = BOX
    pixels[top:bottom, left:right] = 255
    Image.fromarray(pixels).save(picture)
    model: Any = transformers.LlavaForConditionalGeneration.from_pretrained(folder)
    zero = torch.nn.init.zeros_
    for name, module in model.named_modules():
        if name.endswith("position_embedding") or name.endswith("embed_positions"):
            zero(module.weight)
        if "vision" in name and name.endswith("out_proj"):
            zero(module.weight)
            zero(module.bias)
    attention = model.model.language_model.decoder.layers[0].self_attn
    norm = model.model.language_model.decoder.layers[0].self_attn_layer_norm
    for part in (attention.q_proj, attention.k_proj):
        zero(part.weight)
        zero(part.bias)
    model.save_pretrained(folder)
    source = av.load(str(folder))
    inputs = source.prepare(Prompt(TEXT, image=picture, spans={"sun": box()}))
    tokens = inputs.sides["decoder"].keys
    states = source.forward([inputs], request=ForwardRequest(states=True)).states[0][0]
    with torch.no_grad():
        read = norm(states).double().numpy()
    wanted = np.zeros(len(tokens))
    wanted[list(tokens.spans[0].positions)] = 1
    functional, *_ = np.linalg.lstsq(read, wanted, rcond=None)
    np.testing.assert_allclose(read @ functional, wanted, atol=1e-5)
    size = attention.head_dim
    with torch.no_grad():
        attention.k_proj.weight[PLANTED * size] = torch.tensor(functional)
        attention.q_proj.bias[PLANTED * size] = STRENGTH / attention.scaling
    model.save_pretrained(folder)
    return folder, picture


def box(edges: tuple[int, ...] = BOX) -> str:
    return f"box:{','.join(map(str, edges))}"


def test_a_planted_head_has_the_gaze_of_its_closed_form(planted: tuple[Path, Path]) -> None:
    folder, picture = planted
    spans = {"sun": box(), "ground": box((0, 24, 32, 32)), "thing": "house"}
    found: Spans = av.spans(Prompt(TEXT, image=picture, spans=spans), model=str(folder))
    by = {(gaze.box, gaze.rows): gaze for gaze in found.gazes}
    assert list(by) == [
        ("sun", WORDS), ("sun", "thing"), ("ground", WORDS), ("ground", "thing"),
    ]  # fmt: skip
    in_layer = [(n, head) for n, head in enumerate(found.layout) if head.layer == 0]
    white, patches = 4, (SIDE // PATCH) ** 2
    on_picture = white * 5 + patches - white
    # the picture's 16 tokens, then five words
    rows = {WORDS: [patches + n for n in range(1, 6)], "thing": [patches + 4]}
    for (name, source), gaze in by.items():
        assert gaze.count == len(rows[source])
        for n, head in in_layer:
            look, planted_here = gaze.heads[n], head.index == PLANTED
            assert nearly(look.chance, white / patches), "four patches each"
            share = (white * 5 if name == "sun" else white) / on_picture
            share = share if planted_here else white / patches
            assert nearly(look.share, share)
            assert nearly(look.lift, share / (white / patches))
            extra = 5 * white - white if planted_here else 0
            reach = [(patches + extra) / (keys + extra) for keys in rows[source]]
            assert nearly(look.on_picture, float(np.mean(reach)))
    head, gaze, look = found.looks("sun")[0]
    assert (head.layer, head.index, gaze.box) == (0, PLANTED, "sun")
    assert nearly(look.share, 20 / 32)
    assert found == Spans.from_json(found.to_json())


@pytest.mark.parametrize("family", ["gemma3", "idefics3", "qwen2_5_vl"])
def test_gaze_is_the_sums_of_the_maps(family: str, tmp_path: Path) -> None:
    """Two pictures, tiles, windows: against the weights of a capture, one at a time."""
    build(family, tmp_path)
    paths = []
    for number, size in enumerate(((48, 32), (32, 48))):
        pixels = np.random.default_rng(number).integers(0, 256, (size[1], size[0], 3), np.uint8)
        paths.append(tmp_path / f"{number}.png")
        Image.fromarray(pixels).save(paths[-1])
    spans = {"a": "box:0,0,20,20", "b": "box2:8,8,32,40", "say": "what is", "start": "tokens:0"}
    source = av.load(str(tmp_path))
    capture = av.capture(Prompt(TEXT, image=paths, spans=spans), model=source)
    tokens = capture.inputs.sides["decoder"].keys
    of = [int(text[0]) if at else 0 for text, at in zip(tokens.texts, tokens.places, strict=True)]
    named = {span.name: set(span.positions) for span in tokens.spans}
    named[WORDS] = {n for n in range(len(tokens)) if not of[n] and not tokens.special[n]}
    assert [tokens.texts[n] for n in sorted(named[WORDS])] == TEXT.split()
    once: Spans = av.spans(Prompt(TEXT, image=paths, spans=spans), model=source)
    again: Spans = av.spans(capture)
    looked = {(gaze.box, gaze.rows) for gaze in once.gazes}
    assert looked >= {(name, rows) for name in "ab" for rows in (WORDS, "say")}
    assert not {rows for _, rows in looked} & {"start"}, "it may attend to no picture"
    for gaze in once.gazes:
        picture = [n for n, number in enumerate(of) if number == "ab".index(gaze.box) + 1]
        mine = named[gaze.rows] - {n for n, number in enumerate(of) if number}
        for n, head in enumerate(once.layout):
            weights = np.asarray(capture[head], np.float64)
            on_box = sum(weights[i, j] for i in mine for j in named[gaze.box])
            on_picture = sum(weights[i, j] for i in mine for j in picture)
            look = gaze.heads[n]
            assert nearly(look.share, on_box / on_picture)
            assert nearly(look.chance, len(named[gaze.box]) / len(picture))
    for first, other in zip(once.gazes, again.gazes, strict=True):
        assert (first.box, first.rows, first.count) == (other.box, other.rows, other.count)
        for a, b in zip(first.heads, other.heads, strict=True):
            np.testing.assert_allclose(a.share or 0, b.share or 0, atol=1e-6)


def test_texts_without_boxes_have_no_gaze() -> None:
    found = av.spans(Prompt("The keys are on the table", spans={"thing": "keys"}))
    assert found.gazes == ()


def test_the_command_shows_gaze(planted: tuple[Path, Path], tmp_path: Path, capsys) -> None:
    folder, picture = planted
    given = ["spans", TEXT, "--image", str(picture), "--span", f"sun={box()}", "-m", str(folder)]
    table, document = tmp_path / "gaze.csv", tmp_path / "gaze.json"
    assert main([*given, "--span", "thing=house", f"-o{table}", f"-o{document}"]) == 0
    said = capsys.readouterr().out
    shown = said[said.index("gaze at") :]
    first = shown.splitlines()[2].split()
    assert first[:2] == [f"0.{PLANTED}", "sun"]
    assert {"25", "×2.5"} <= set(first)
    assert {"62", "63"} & set(first), "62.5 %, rounded either way"
    assert "chance: the box's share of the picture's tokens" in " ".join(shown.split())
    header, *lines = table.read_text("utf-8").splitlines()
    column = header.split(",").index("gaze")
    values = [float(line.split(",")[column]) for line in lines if ",sun," in line]
    assert max(values) == pytest.approx(20 / 32, abs=1e-6)
    gazes = json.loads(document.read_text("utf-8"))["gazes"]
    assert [(gaze["box"], gaze["rows"]) for gaze in gazes] == [("sun", WORDS), ("sun", "thing")]


def test_gaze_stands_beside_heads(planted: tuple[Path, Path]) -> None:
    folder, picture = planted
    asked = Prompt(TEXT, image=picture, spans={"sun": box(), "thing": "house"})
    result: Spans = av.spans(asked, model=str(folder))
    found = finding(result, "gaze.json")
    said = found.said[f"0.{PLANTED}"][-1]
    assert re.fullmatch("gaze at sun 0.6[23], ×2.5 chance", said), "0.625, rounded either way"
    assert sum("gaze" in line for line in found.said[f"0.{PLANTED}"]) == 1, "from all words alone"
    (measure,) = (measure for measure in found.measures if measure.name == "gaze at sun")
    assert measure.values[f"0.{PLANTED}"][0] == pytest.approx(20 / 32, abs=1e-6)


def test_gaze_over_pictures_has_an_interval(tmp_path: Path) -> None:
    """By leaving pictures apart: the delta method done one picture at a time, two texts of one."""
    from scipy.stats import t

    build("gemma3", tmp_path)
    source = av.load(str(tmp_path))
    prompts, groups = [], [0, 0, 1, 2, 3, 4]
    for number, group in enumerate(groups):
        pixels = np.random.default_rng(group).integers(0, 256, (32, 48, 3), np.uint8)
        path = tmp_path / f"{number}.png"
        Image.fromarray(pixels).save(path)
        text = TEXT if number != 1 else "what is that ?"
        prompts.append(Prompt(text, image=path, spans={"a": "box:0,0,20,20"}))
    found: Spans = av.spans(prompts, model=source)
    alone = [av.spans(prompt, model=source).gazes[0] for prompt in prompts]
    (gaze,) = (gaze for gaze in found.gazes if gaze.rows == WORDS)
    for n, look in enumerate(gaze.heads):
        reach = [(own.heads[n].share or 0, (own.heads[n].on_picture or 0) * own.count)
                 for own in alone]  # fmt: skip
        a = [
            sum(s * b for g, (s, b) in zip(groups, reach, strict=True) if g == k) for k in range(5)
        ]
        b = [sum(b for g, (_, b) in zip(groups, reach, strict=True) if g == k) for k in range(5)]
        p = sum(a) / sum(b)
        rest = sum((x - p * y) ** 2 for x, y in zip(a, b, strict=True))
        half = float(t.ppf(0.975, 4)) * math.sqrt(5 / 4 * rest) / sum(b)
        assert look.share == pytest.approx(p, abs=1e-6)
        assert look.low == pytest.approx(p - half, rel=1e-3, abs=1e-6)
        assert look.high == pytest.approx(p + half, rel=1e-3, abs=1e-6)
        assert look.low < look.share < look.high
    assert found == Spans.from_json(found.to_json())
    told = str(found)
    assert "95 %" in told[told.index("gaze at") :]
    few: Spans = av.spans(prompts[:5], model=source)  # of four pictures
    assert {(look.low, look.high) for gaze in few.gazes for look in gaze.heads} == {(None, None)}
    assert all(gaze.heads[0].low is None for gaze in alone)
