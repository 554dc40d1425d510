"""Keys that an indexer selects: the hooks beside eager attention and an indexer done by hand."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.text import Text
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    DeepseekV32Config,
    PreTrainedTokenizerFast,
)

import attnviz as av
from attnviz.captures.inputs import tiled
from attnviz.core.capture import Capture, KeyMask
from attnviz.core.heads import Site
from attnviz.core.prompt import Prompt
from attnviz.core.provenance import Made
from attnviz.core.source import ForwardRequest
from attnviz.core.tokens import Sides, Tokens
from attnviz.drawing import terminal
from attnviz.drawing.palette import UNSELECTED, rgb
from attnviz.drawing.reasons import steps
from attnviz.errors import ModelError, UsageError
from attnviz.features.ablation import fills
from attnviz.features.explain.result import BLOCKED
from attnviz.features.explain.result import UNSELECTED as LEFT_OUT
from attnviz.features.view.document import document
from attnviz.features.view.long.page import page
from attnviz.models.hooked.trace import ModuleCall, calls_of
from attnviz.models.hooked.windows import Choosing, selected
from attnviz.models.norm_based import with_quantity
from attnviz.models.recorded.format import pack_masks as pack
from attnviz.models.recorded.format import unpack_masks as unpack
from attnviz.scoring.merged import shown_map
from attnviz.scoring.observe import Recorder, score_capture
from tests import families, reference_scores
from tests.models.tiny import same_maps
from tests.viewing import data_of

T, K = 17, 5
IDS = (5, 9, 2, 31, 17, 12, 3, 9, 2, 31, 7, 22, 6, 9, 2, 31, 8)
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 41}
SIZES |= {"num_key_value_heads": 4, "intermediate_size": 24, "moe_intermediate_size": 8}
SIZES |= {"n_routed_experts": 4, "num_experts_per_tok": 1, "n_group": 1, "topk_group": 1}
SIZES |= {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4}
SIZES |= {"v_head_dim": 4, "first_k_dense_replace": 1, "index_n_heads": 8, "index_head_dim": 6}
SIZES |= {"index_topk": K, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
Arrays = Mapping[str, NDArray[np.float64]]


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    made = AutoModelForCausalLM.from_config(DeepseekV32Config(**SIZES)).eval()
    for parameter in made.parameters():
        parameter.data.normal_(0, 0.4).add_(float(parameter.ndim < 2))
    return made.requires_grad_(False)


@pytest.fixture(scope="module")
def capture(model: Any) -> Capture:
    return av.capture(Prompt(ids=IDS), model=model)


def by_hand(
    weights: Arrays, states: NDArray[np.float64], heads: int
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """The keys that a query keeps, and all scores, [T, T]: one number at a time, in float64."""
    width, rope = len(weights["wk.weight"]), SIZES["qk_rope_head_dim"]

    def turned(vector: NDArray[np.float64], place: int) -> NDArray[np.float64]:
        out, half = vector.copy(), rope // 2
        for i in range(half):  # pair i is i and i + half
            angle = place * 10000 ** (-2 * i / rope)
            a, b = vector[i], vector[i + half]
            out[i] = a * np.cos(angle) - b * np.sin(angle)
            out[i + half] = b * np.cos(angle) + a * np.sin(angle)
        return out

    kept = np.zeros((len(states), len(states)), bool)
    every = np.zeros(kept.shape)
    keys: list[NDArray[np.float64]] = []
    for place, x in enumerate(states):
        k = weights["wk.weight"] @ x
        k = (k - k.mean()) / np.sqrt(k.var() + 1e-6)
        k = k * weights["k_norm.weight"] + weights["k_norm.bias"]
        keys.append(turned(k, place))
        latent = weights["q_a_proj.weight"] @ x
        latent = latent / np.sqrt((latent**2).mean() + 1e-6) * weights["q_a_layernorm.weight"]
        queries = (weights["wq_b.weight"] @ latent).reshape(heads, width)
        share = weights["weights_proj.weight"] @ x
        scores = [
            sum(share[h] * max(0.0, turned(queries[h], place) @ key) for h in range(heads))
            for key in keys  # those up to the query
        ]
        order = np.argsort(scores)[::-1]
        if place >= K:  # where the line is drawn there is no tie
            assert scores[order[K - 1]] > scores[order[K]] + 1e-4
        kept[place, order[:K]] = True
        every[place, : place + 1] = np.array(scores) / np.sqrt(width * heads)
    return kept, every


@pytest.fixture(scope="module")
def kept(indexed: Any) -> dict[int, NDArray[np.bool_]]:
    """By layer, the keys that stay."""
    return {layer: kept for layer, (kept, _) in indexed.items()}


@pytest.fixture(scope="module")
def indexed(model: Any) -> dict[int, tuple[NDArray[np.bool_], NDArray[np.float64]]]:
    """By layer, the keys that stay and the scores of all, from the weights and what enters it."""
    calls: list[ModuleCall] = []
    with calls_of([layer.self_attn for layer in model.model.layers], calls.append):
        model(torch.tensor([IDS]))
    found = {}
    for number, call in enumerate(calls):
        attention: Any = call.module
        names = {**dict(attention.named_parameters()), **dict(attention.indexer.named_parameters())}
        weights = {name: value.double().numpy() for name, value in names.items()}
        states = call.kwargs["hidden_states"][0].double().numpy()
        found[number] = by_hand(weights, states, 8)
    return found


def test_the_maps_are_those_of_eager_attention(model: Any, capture: Capture) -> None:
    assert capture.source.backend == "hooked"
    model.set_attn_implementation("eager")
    eager = model(torch.tensor([IDS]), output_attentions=True).attentions
    for site, maps in capture.maps.items():
        assert np.abs(maps - eager[site.layer][0].numpy()).max() < 2e-6


def test_the_keys_that_stay_are_those_of_an_indexer_done_by_hand(
    capture: Capture, kept: dict[int, NDArray[np.bool_]]
) -> None:
    past = np.tri(T, dtype=bool)
    for site, reach in capture.reach.items():
        allowed = reach.allowed(T, T)
        assert allowed.shape == reach.unselected.shape == (1, T, T)
        assert (allowed[0] == kept[site.layer]).all()
        assert (reach.unselected[0] == (past & ~kept[site.layer])).all()
        assert allowed[0].sum(1).tolist() == [min(i + 1, K) for i in range(T)]
        assert not capture.maps[site][:, ~allowed[0]].any()


def test_scores_and_chance_know_only_the_keys_that_stay(
    capture: Capture, kept: dict[int, NDArray[np.bool_]]
) -> None:
    """Beside scores done one key at a time, with the other keys blocked."""
    for scored in score_capture(capture).result():
        allowed, weights = kept[scored.head.layer], capture[scored.head].astype(np.float64)
        for name in ("previous", "first", "entropy", "self"):
            ((mean, chance, rows),) = reference_scores.score(
                name, [weights[None]], [allowed[None]], [capture.sides(scored.head)]
            )
            score = scored.scores[name]
            assert score.rows == rows > 0
            assert score.mean == pytest.approx(mean, abs=1e-5)
            assert score.chance == pytest.approx(chance, abs=1e-6)


def test_heads_observed_live_have_the_scores_of_their_maps(model: Any, capture: Capture) -> None:
    live = av.heads(Prompt(ids=IDS), model=model)
    for a, b in zip(live.heads, av.heads(capture).heads, strict=True):
        for name, score in a.scores.items():
            assert score.mean == pytest.approx(b.scores[name].mean, abs=1e-6, nan_ok=True)


def together_and_alone(source: Any) -> tuple[Recorder, Recorder]:
    """A text and a shorter one in a batch, and the shorter one alone."""
    items = [source.prepare(Prompt(ids=IDS)), source.prepare(Prompt(ids=IDS[:9]))]
    recorder, alone = Recorder(items), Recorder(items[1:])
    source.forward(items, [recorder], ForwardRequest())
    source.forward(items[1:], [alone], ForwardRequest())
    return recorder, alone


def test_a_shorter_text_in_a_batch_selects_among_its_own_keys(model: Any) -> None:
    recorder, alone = together_and_alone(av.load(model))
    for site, reach in recorder.reach(1).items():
        single = alone.reach()[site]
        assert (reach.allowed(9, 9) == single.allowed(9, 9)).all()
        assert (reach.unselected == single.unselected).all()


def test_a_text_no_longer_than_what_stays_has_nothing_left_out(model: Any) -> None:
    short = av.capture(Prompt(ids=IDS[:K]), model=model)
    assert all(reach.unselected is None and reach.causal for reach in short.reach.values())


def test_masks_of_both_kinds_lose_the_same_keys() -> None:
    places = torch.tensor([[[0, 2], [0, 1], [2, 1]]])
    mask = torch.ones(3, 3, dtype=torch.bool).tril()[None, None]
    plain, causal, left_out = selected(mask, places, False, 3)
    added, _, same = selected(
        torch.zeros(1, 1, 3, 3).masked_fill(~mask, torch.finfo(torch.float32).min), places, False, 3
    )
    expected = [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    assert plain[0, 0].int().tolist() == (added == 0)[0, 0].int().tolist() == expected
    assert left_out[0, 0].int().tolist() == same[0, 0].int().tolist()
    assert left_out[0, 0].int().tolist() == [[0, 0, 0], [0, 0, 0], [1, 0, 0]]
    unmasked, causal, _ = selected(None, places, True, 3)
    assert not causal
    assert (unmasked == plain).all()
    assert selected(mask, None, True, 3) == (mask, True, None)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_a_file_keeps_what_was_left_out(capture: Capture, suffix: str, tmp_path: Path) -> None:
    back = av.read(av.write_capture(capture, tmp_path / f"c{suffix}"))
    for site, reach in capture.reach.items():
        assert (back.reach[site].unselected == reach.unselected).all()
        assert (back.reach[site].allowed(T, T) == reach.allowed(T, T)).all()


def test_a_file_that_left_out_an_allowed_key_is_refused(capture: Capture) -> None:
    entries, bits = pack(capture)
    wrong = np.full_like(bits, 255)
    with pytest.raises(ValueError, match="allowed and were not selected"):
        unpack(entries, wrong, capture.maps)
    assert json.dumps(entries).count('"unselected": true') == len(entries)


def test_a_map_tells_what_was_left_out_from_what_is_not_allowed(
    capture: Capture, tmp_path: Path, kept: dict[int, NDArray[np.bool_]]
) -> None:
    picture = av.heatmap(capture, "1.2")
    ((_, weights, _),) = picture.maps
    cells, mask = np.ma.getdata(weights), np.ma.getmaskarray(weights)
    past = np.tri(T, dtype=bool)
    assert (mask == ~kept[1]).all()
    assert (np.isnan(cells) == (past & ~kept[1])).all()
    assert "not selected" in shown(picture)
    file = picture.save(tmp_path / "m.png")
    with Image.open(file) as image:
        colors = {color for _, color in image.convert("RGB").getcolors(1 << 20)}
    assert rgb(UNSELECTED) in colors
    svg = picture.save(tmp_path / "m.svg").read_text()
    assert UNSELECTED in svg
    assert "did not select" in svg
    plain = av.heatmap(av.capture("the cat and the cat", model="demo-gpt2"), "0.3")
    assert "not selected" not in shown(plain)
    assert UNSELECTED not in plain.save(tmp_path / "p.svg").read_text()


def shown(picture: Any) -> str:
    """The first map as a terminal without colours has it."""
    console = Console(width=120, file=StringIO(), color_system=None)
    _, weights, sides = picture.maps[0]
    console.print(terminal.heatmap(weights, sides, title="", style=picture.style))
    return str(console.file.getvalue())


def test_the_terminal_crosses_what_was_left_out(
    capture: Capture, kept: dict[int, NDArray[np.bool_]]
) -> None:
    lines = shown(av.heatmap(capture, "0.1")).splitlines()
    body = [line.split("│")[1] for line in lines if line.count("│") == 2]
    assert len(body) == T
    wide = len(body[0]) // T
    for i, line in enumerate(body):
        crossed = [line[j * wide : (j + 1) * wide].strip(" ") == "x" * wide for j in range(T)]
        if "x" * wide not in line:  # numbers stand in the cells
            crossed = [line[j * wide : (j + 1) * wide].strip() == "x" for j in range(T)]
        assert crossed == [bool(j <= i and not kept[0][i, j]) for j in range(T)]


def test_a_word_is_not_selected_if_none_of_its_tokens_is_and_one_was_left_out() -> None:
    tokens = Tokens(
        texts=("a", "b", "c"), special=(False,) * 3, separators=(False,) * 3, words=(0, 0, 1),
        segments=(0, 0, 0),
    )  # fmt: skip
    allowed = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1]], bool)
    left_out = np.array([[0, 0, 0], [0, 0, 0], [1, 0, 0]], bool)
    made = shown_map(
        allowed.astype(np.float32), allowed, Sides(tokens, tokens), words=True, hide_sink=False,
        unselected=left_out,
    )  # fmt: skip
    assert np.ma.getmaskarray(made).tolist() == [[False, True], [True, False]]
    assert np.isnan(np.ma.getdata(made)).tolist() == [[False, False], [True, False]]


def test_the_page_has_what_was_left_out_as_bits_of_its_own(capture: Capture) -> None:
    data, chunks = document([capture], [()], [frozenset(capture.layout)], [None], title="", bits=8)
    for site in data["items"][0]["kinds"][0]["sites"]:
        reach = capture.reach[Site("decoder", site["layer"])]
        raw = zlib.decompress(base64.b64decode(chunks[site["reach"]["unselected"]]))
        bits = np.unpackbits(np.frombuffer(raw, np.uint8), count=T * T)
        assert (bits.reshape(1, T, T).astype(bool) == reach.unselected).all()


def test_equal_layers_share_a_mask_and_others_do_not() -> None:
    allowed = np.tri(4, dtype=bool)[None]
    assert KeyMask.of(allowed, unselected=np.zeros((1, 4, 4), bool)).unselected is None
    few = allowed & ~np.eye(4, k=-2, dtype=bool)
    mask = KeyMask.of(few, unselected=allowed & ~few)
    assert mask.bits is not None
    assert mask.unselected is not None


def test_a_weight_taken_apart_says_that_its_key_was_not_selected(
    model: Any, kept: dict[int, NDArray[np.bool_]]
) -> None:
    held = av.capture(Prompt(ids=IDS), model=model, why="1.0")
    left_out = int(np.flatnonzero(~kept[1][T - 1])[0])
    for query, key, said in (
        (T - 1, left_out, "the layer's indexer did not select this key"),
        (T - 2, T - 1, "the query may not attend to this key"),
    ):
        cells = [
            cell for column in steps(held.why("1.0", query, key)).columns for cell in column.cells
        ]
        assert said in cells


def test_index_scores_are_those_of_an_indexer_done_by_hand(
    model: Any, capture: Capture, indexed: Any, tmp_path: Path
) -> None:
    scores = av.capture(Prompt(ids=IDS), model=model, quantity="indexer")
    assert scores.layout.whole
    assert [head.name for head in scores.layout] == ["0.0", "1.0"]
    for site, maps in scores.maps.items():
        kept, expected = indexed[site.layer]
        assert maps.shape == (1, T, T)
        assert np.abs(maps[0] - expected).max() < 1e-5 * np.abs(expected).max()
        assert (scores.reach[site].allowed(T, T)[0] == kept).all()
        assert (scores.reach[site].unselected == capture.reach[site].unselected).all()
    back = av.read(av.write_capture(scores, tmp_path / "c.npz"))
    assert back.quantity == "indexer"
    for site, maps in scores.maps.items():
        assert (back.maps[site] == maps).all()


@pytest.mark.parametrize("family", ["deepseek_v32", "glm_moe_dsa", "axk2", "hy_v4"])
def test_the_highest_index_scores_are_the_keys_that_attention_is_left(family: str) -> None:
    """Beside what the model's own indexers returned, in their order, and its eager attention."""
    if family not in CONFIG_MAPPING:
        pytest.skip(f"this transformers has no {family}")
    own = families.built(CONFIG_MAPPING[family])
    prompt = Prompt(ids=IDS)
    weights = av.capture(prompt, model=own)
    scores = av.capture(prompt, model=own, quantity="indexer")
    assert weights.source.backend == "hooked"
    order: dict[int, Any] = {}
    for number, layer in enumerate(own.model.layers):
        indexer = getattr(layer.self_attn, "indexer", None)
        if indexer is not None:
            indexer.register_forward_hook(
                lambda m, args, out, number=number: order.update({number: out[0].numpy()})
            )
    own.set_attn_implementation("eager")
    eager = own(torch.tensor([IDS]), output_attentions=True).attentions
    same_maps(weights, eager, within=1e-5)
    assert [site.layer for site in scores.maps] == sorted(order)
    for site, maps in scores.maps.items():
        allowed = weights.reach[site].allowed(T, T)[0]
        for query, row in enumerate(maps[0]):
            best = -np.sort(-row[: query + 1])[:5]
            own_order = order[site.layer][query][: len(best)]
            assert set(own_order) == set(np.flatnonzero(allowed[query]))
            assert row[own_order].tolist() == best.tolist()


def test_index_scores_have_no_scores_of_heads(model: Any, capture: Capture) -> None:
    prompt = Prompt(ids=IDS)
    scores = av.capture(prompt, model=model, quantity="indexer")
    for run in (
        lambda: av.heads(prompt, model=model, quantity="indexer"),
        lambda: av.heads(scores),
    ):
        with pytest.raises(UsageError, match="ranks keys and is no share of a row"):
            run()
    with pytest.raises(UsageError, match="has signs, which the page does not show"):
        av.view(prompt, model=model, quantity="indexer")
    with pytest.raises(ModelError, match="is of sparse attention"):
        av.heatmap("a b c", model="demo-gpt2", quantity="indexer")
    picture = av.heatmap(prompt, "1.*", model=model, quantity="indexer")
    assert picture.roles == {}
    assert "not selected" in shown(picture)
    assert "−" in shown(picture)
    assert av.heatmap(prompt, model=model, quantity="indexer").maps[0][0].layer == 0


def test_index_scores_of_a_batch_are_those_of_each_text(model: Any) -> None:
    recorder, alone = together_and_alone(with_quantity(av.load(model), "indexer", shares=False))
    for site, maps in recorder.maps(1).items():
        np.testing.assert_allclose(maps, alone.maps()[site], atol=1e-5)
        assert (recorder.reach(1)[site].allowed(9, 9) == alone.reach()[site].allowed(9, 9)).all()


def test_scores_that_did_not_choose_the_keys_are_refused(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = Choosing.taken

    def other(self: Choosing, items: int, keys: int) -> Any:
        call = taken(self, items, keys)
        return None if call is None else (call[0], (call[1] + 1) % keys)

    monkeypatch.setattr(Choosing, "taken", other)
    with pytest.raises(ModelError, match="are not those with its indexer's highest scores"):
        av.capture(Prompt(ids=IDS), model=model, quantity="indexer")


def test_tiles_of_a_long_text_tell_what_was_left_out(
    model: Any, capture: Capture, kept: dict[int, NDArray[np.bool_]]
) -> None:
    """Tiles of two tokens in which no key stays and some were left out."""
    source = av.load(model)
    inputs = source.prepare(Prompt(ids=IDS))

    def pooled(cells: NDArray[np.bool_]) -> NDArray[np.bool_]:
        side = -(-T // 2)
        padded = np.zeros((2 * side, 2 * side), bool)
        padded[:T, :T] = cells
        return padded.reshape(side, 2, side, 2).any((1, 3))

    tiles, layout = tiled(source, inputs, lambda *_: (2, 4))
    for site, allowed in tiles.allowed.items():
        past = np.tri(T, dtype=bool)
        stays, left_out = pooled(kept[site.layer]), pooled(past & ~kept[site.layer])
        assert (allowed == stays).all()
        assert (tiles.unselected[site] == (left_out & ~stays)).all()
        assert tiles.unselected[site].any()
        for what in ("max", "sum"):
            shown_tiles = tiles.shown(layout.head(f"{site.layer}.0"), what)
            assert (np.isnan(np.ma.getdata(shown_tiles)) == (left_out & ~stays)).all()
            assert (np.ma.getmaskarray(shown_tiles) == ~stays).all()
    data = data_of(page(tiles, layout, title="t", made=Made("m")))
    for n, (site, left_out) in enumerate(tiles.unselected.items()):
        codes = np.frombuffer(zlib.decompress(base64.b64decode(data["masks"][n])), np.uint8)
        assert (codes.reshape(left_out.shape) == tiles.allowed[site] + 2 * left_out).all()


def test_a_small_map_of_an_explanation_tells_what_was_left_out(
    model: Any, kept: dict[int, NDArray[np.bool_]], tmp_path: Path, monkeypatch: Any
) -> None:
    few = fills.sentences()[:4]
    monkeypatch.setattr(fills, "sentences", lambda: few)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({f"w{n}": n for n in range(41)}, "w0")), unk_token="w0"
    )
    tokenizer.backend_tokenizer.pre_tokenizer = Whitespace()
    report = av.explain(" ".join(f"w{n}" for n in IDS), model=av.load(model, tokenizer=tokenizer))
    assert report.heads
    for head in report.shown_heads:
        cells = np.array(head.map)
        past = np.tri(T, dtype=bool)
        assert ((cells == LEFT_OUT) == (past & ~kept[head.head.layer])).all()
        assert (cells[past] >= LEFT_OUT).all()
        assert min(head.weights) >= 0
    assert av.read(report.save(tmp_path / "e.json")) == report
    one = replace(report, heads=report.heads[:1], beside=(), negative=None)
    cells = np.array(one.heads[0].map)
    none = np.where(cells == LEFT_OUT, BLOCKED, cells).tolist()
    head = replace(one.heads[0], map=tuple(map(tuple, none)))
    figures = [found.figure() for found in (one, replace(one, heads=(head,)))]
    said = [any("did not select the key" in text.get_text() for text in figure.findobj(Text))
            for figure in figures]  # fmt: skip
    assert said == [True, False]
    figures[0].savefig(tmp_path / "e.png", dpi=60)
    with Image.open(tmp_path / "e.png") as image:
        colors = {color for _, color in image.convert("RGB").getcolors(1 << 24)}
    assert rgb(UNSELECTED) in colors
