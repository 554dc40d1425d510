"""The steps of positions, norms and windows, beside what transformers and torch compute."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers.masking_utils import chunked_overlay, sliding_window_overlay
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm
from transformers.models.t5.modeling_t5 import T5Attention

from attnviz.attention.spec import AttentionSpec, Buckets, Rotary, RunSizes
from attnviz.attention.walkthrough import Step, bucket, example, normalized, turned, visible, walk
from attnviz.cli import main
from attnviz.features.shapes.animation.page import animation_page
from attnviz.models.configs.model import presets, read_config
from tests.features.shapes.test_drawing import animation
from tests.viewing import opened

PLAIN = AttentionSpec("mha", 48, 6, 6, 8, 8, causal=True)
SIZES = {"hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 4, "head_dim": 8}
GEMMA = SIZES | {"num_hidden_layers": 6, "num_key_value_heads": 2}


def steps(family: str, **fields: Any) -> dict[str, Step]:
    model = read_config({"model_type": family, **SIZES, **fields}, family)
    return {step.key: step for step in walk(model.main.spec, RunSizes(2, 7)).steps}


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("count", "reach"), [(32, 128), (16, 20), (8, 100)])
def test_buckets_are_those_of_t5(causal: bool, count: int, reach: int) -> None:
    offsets = torch.arange(-2 * reach, 2 * reach + 1)
    theirs = T5Attention._relative_position_bucket(offsets, not causal, count, reach)
    table = Buckets(count, reach)
    assert [bucket(int(o), table, causal=causal) for o in offsets] == theirs.tolist()


def test_norms_are_those_of_torch_and_transformers() -> None:
    values = (3.0, -4.0, 0.5, 12.0)
    row = torch.tensor(values, dtype=torch.float64)
    root_mean_square = Qwen3RMSNorm(4, eps=0.0).double()(row)
    assert normalized(values, centred=False) == pytest.approx(root_mean_square.tolist())
    centred = torch.nn.LayerNorm(4, eps=0.0).double()(row)
    assert normalized(values, centred=True) == pytest.approx(centred.tolist())


@pytest.mark.parametrize("position", [0, 1, 2, 11])
def test_rotations_are_those_of_transformers(position: int) -> None:
    config = transformers.LlamaConfig(**SIZES, rope_theta=100.0)
    cos, sin = llama.LlamaRotaryEmbedding(config)(torch.zeros(1), torch.tensor([[position]]))
    unit = torch.eye(8)[None, :2, None]  # [1, 2, 1, 8]: numbers 0 and 1
    halves, _ = llama.apply_rotary_pos_emb(unit, unit, cos, sin)
    for number, frequency in ((0, 1.0), (1, 100.0 ** (-2 / 8))):
        pair = halves[0, number, 0, [number, number + 4]].tolist()
        assert pair == pytest.approx(turned((1, 0), position, frequency), abs=1e-6)
    table = gptj.create_sinusoidal_positions(12, 8)[position]
    sin, cos = table[None, None].chunk(2, -1)
    neighbours = gptj.apply_rotary_pos_emb(torch.eye(8)[None, :1, None], sin, cos)
    assert neighbours[0, 0, 0, :2].tolist() == pytest.approx(turned((1, 0), position, 1), abs=1e-6)


def test_the_pair_that_is_named_is_the_pair_that_turns() -> None:
    for adjacent, other in ((False, 4), (True, 1)):
        said = example("rotate_q", replace(PLAIN, rotary=Rotary(8, 100.0, adjacent)))
        assert said.startswith(f"Numbers 0 and {other} are pair 0")
        assert "(0.5403, 0.8415) at position 1 and (-0.4161, 0.9093) at position 2" in said
        assert "the last pair by 0.0316" in said  # 100^(-6/8)


@pytest.mark.parametrize("window", [1, 3, 8])
def test_what_a_window_shows_is_what_transformers_shows(window: int) -> None:
    overlays = {
        False: sliding_window_overlay(window),
        True: chunked_overlay(window, torch.zeros(1)),
    }
    for chunked, allowed in overlays.items():
        spec = replace(PLAIN, window=window, chunked=chunked)
        for query in range(20):
            seen = [k for k in range(query + 1) if allowed(0, 0, query, k)]
            assert visible(query, spec) == (seen[0], seen[-1])
    said = example("window", replace(PLAIN, window=window))
    assert said == f"Query {window + 2} (from 0) sees keys 3 to {window + 2}."


def test_which_steps_a_family_has_and_where() -> None:
    qwen = list(steps("qwen3", num_key_value_heads=2))
    assert qwen.index("transpose_kv") < qwen.index("norm_q") < qwen.index("rotate_q")
    assert qwen.index("rotate_k") < qwen.index("scores")
    olmo = list(steps("olmo2", num_key_value_heads=2))
    assert olmo.index("w_k") < olmo.index("norm_q") < olmo.index("view")
    assert steps("phi")["rotate_q"].operation == "rotate the first 4 by position"
    assert steps("gptj", rotary_dim=6)["rotate_k"].operation == "rotate the first 6 by position"
    assert not {"rotate_q", "norm_q", "window", "position_bias"} & set(steps("bert"))
    assert "rotate_q" not in steps("falcon", alibi=True)
    t5 = walk(presets()["t5-base"].model.main.spec, RunSizes())
    keys = [step.key for step in t5.steps]
    assert keys.index("unscaled") < keys.index("position_bias") < keys.index("mask")
    mistral = steps("mistral", num_key_value_heads=2, sliding_window=5)
    assert mistral["window"].sizes == mistral["scores"].sizes == (2, 6, 7, 7)
    assert mistral["window"].operation == "-∞ where query - key ≥ 5"


@pytest.mark.parametrize("local", [True, False])
def test_layers_with_a_window_may_turn_at_their_own_speed(local: bool) -> None:
    both = {"rope_theta": 1e6, "rope_local_base_freq": 1e4}
    nested = {"sliding_attention": {"rope_theta": 1e4}, "full_attention": {"rope_theta": 1e6}}
    for fields in (both, {"rope_parameters": nested}):
        groups = read_config({"model_type": "gemma3_text", **GEMMA, **fields}, "x").groups
        spec = next(g.spec for g in groups if (g.spec.window is not None) == local)
        assert spec.rotary == Rotary(8, 1e4 if local else 1e6)


@pytest.mark.parametrize(
    ("family", "fields"),
    [("qwen3", {"num_key_value_heads": 2}), ("olmo2", {}), ("phi", {"qk_layernorm": True})],
)
def test_norms_have_the_parameters_that_transformers_gives_them(
    family: str, fields: dict[str, Any]
) -> None:
    config = transformers.AutoConfig.for_model(family, **SIZES, **fields, vocab_size=8)
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(config)
    theirs = {
        name[0]: parameter.numel() * (2 if "layernorm" in name else 1)
        for name, parameter in model.layers[0].self_attn.named_parameters()
        if re.fullmatch(r"[qk]_(layer)?norm\.weight", name)
    }
    ours = steps(family, **fields)
    assert theirs == {"q": ours["norm_q"].parameters, "k": ours["norm_k"].parameters}


def test_learned_numbers_of_all_steps_are_those_of_the_layer() -> None:
    for name in ("qwen3-8b", "t5-base", "gemma2-9b", "mistral-7b", "llama3-8b"):
        for group in presets()[name].model.groups:
            walked = walk(group.spec, RunSizes(seq=3, context_length=None))
            assert sum(step.parameters for step in walked.steps) == walked.parameters.total


FACTS = (
    # shapes of every step
    ("X is [B, T, D]", "shapes --batch 2 --seq 4 --d-model 8 --heads 2", "X [B, T, D] (2, 4, 8)"),
    ("Q, K, V are [B, T, D]", "shapes --batch 2 --seq 4 --d-model 8 --heads 2",
     "V [B, T, D] (2, 4, 8) X W_V + b_V"),
    ("d = D / H", "shapes --d-model 512 --heads 8", "MHA, D = 512, 8 heads of 64"),
    ("D must be a multiple of H", "help 'embed_dim must be divisible by num_heads'",
     "D must be a multiple of H"),
    ("which head counts go", "shapes --d-model 512 --heads 6", "nearest: 4 or 8"),
    ("heads are cut by a view", "shapes --seq 4", "[B, T, H, d] (1, 4, 8, 64) .view"),
    ("and become a batch axis", "shapes --seq 4", "[B, H, T, d] (1, 8, 4, 64) .transpose(1, 2)"),
    ("scores are [B, H, T, S]", "shapes --seq 4", "scores [B, H, T, S] (1, 8, 4, 4) Q Kᵀ"),
    ("heads give [B, H, T, d]", "shapes --seq 4", "head outputs [B, H, T, d] (1, 8, 4, 64) A V"),
    ("concat is [B, T, D] again", "shapes --seq 4", "Z concat [B, T, D] (1, 4, 512)"),
    ("Y is as wide as X", "shapes --seq 4", "Y [B, T, D] (1, 4, 512) Z W_O"),
    ("a layer really has these shapes", "shapes --show verify --d-model 16 --heads 2",
     "comparisons are equal"),
    ("d_v may differ from d_k", "shapes --head-dim 64+32", "head outputs [B, H, T, dᵥ]"),
    # reshaping
    ("a view moves no number", "shapes --explain", "without moving a number"),
    ("a view straight to [B, H, T, d] mixes", "shapes --explain", "mixes tokens with heads"),
    ("contiguous before view", "shapes --explain", ".contiguous() copies it"),
    ("what the error of view means",
     "help \"view size is not compatible with input tensor's size and stride\"", "contiguous"),
    ("a reshaped module is found", "check sample_inputs/attention.py:Viewed", "1 bug: view"),
    ("Kᵀ swaps the last two axes", "shapes --explain", ".transpose(-1, -2), not .T"),
    ("batch comes first", "shapes --explain", "batch_first=True"),
    # scale
    ("scores are divided by √d", "shapes --heads 8", "· 1/√64"),
    ("not by √D", "shapes --explain", "√d of one head, not √D"),
    ("why: variance d", "shapes --explain", "A sum of d products has variance d"),
    ("what happens without", "shapes --show scaling", "Without the scale it dies as d grows"),
    ("scores and scaled scores", "shapes --show numbers 'cat sat'", "scaled by 1/√d"),
    ("a module without it is found", "check sample_inputs/attention.py:Unscaled", "1 bug: scale"),
    # masks
    ("a causal mask sets -∞", "shapes --causal --explain", "-∞ where key > query"),
    ("before softmax", "shapes --explain", "Blocked keys get -∞ before softmax"),
    ("shape of the mask", "shapes --heads 8", "[T, S], [B, 1, 1, S] for padding"),
    ("True = blocked, or allowed", "help attn_mask", "True = blocked"),
    ("the first query sees itself", "shapes --show numbers --file causal", "exactly its row of V"),
    ("padding blocks keys", "shapes --show numbers --file masked", "-∞"),
    ("no key left: NaN", "shapes --show numbers --file masked", "NaN NaN NaN NaN"),
    ("and what is robust", "shapes --show numbers --file masked", "robust: 0 where no key"),
    ("-1e9 makes it uniform", "shapes --show numbers:-1e9 --file masked",
     "0.250 0.250 0.250 0.250"),
    ("a mask after softmax", "shapes --show numbers:after --causal 'cat sat'",
     "rows sum to less than 1"),
    ("a late mask is found", "check sample_inputs/attention.py:LateMask", "mask after softmax"),
    ("the mask behind a cache", "shapes --seq 4 --cache 12 --causal", "torch.ones(4, 16).tril(12)"),
    # softmax
    ("softmax over keys", "shapes --heads 8", "softmax over keys"),
    ("dim=-1", "shapes --explain", "dim=-2 would normalize over queries"),
    ("a wrong axis is found", "check sample_inputs/attention.py:WrongAxis", "1 bug: axis"),
    ("less the maximum", "shapes --show numbers:overflow 'cat sat'", "exp(score - max)"),
    ("float16 overflows", "help 'float16 overflow'", "65,504"),
    ("dropout of weights", "shapes --show numbers:dropout 'cat sat'", "sums to 1 on average only"),
    # W_O, averages
    ("W_O mixes heads", "shapes --explain", "Mixes the heads: Y = Σ_h Z_h W_O"),
    ("its rows belong to heads", "shapes --show diagram --d-model 64 --heads 4",
     "W_O mixes the heads"),
    ("averaged weights are [B, T, S]", "help average_attn_weights", "[B, T, S]"),
    ("every head's are [B, H, T, S]", "shapes --heads 8", "averaged over heads"),
    # parameters and costs
    ("4·D² parameters", "shapes --d-model 512 --heads 8", "4·D² = 1,048,576"),
    ("with any number of heads", "shapes --d-model 512 --heads 16", "4·D² = 1,048,576"),
    ("FLOPs by a formula", "shapes --seq 128", "2·B·T·(matrix parameters)"),
    ("T² memory", "shapes --heads 8", "32·T² B B·H·T·S · 4 bytes"),
    ("attention dominates beyond 2·D", "shapes --heads 8", "as the projections at T = 1,024"),
    ("growth with T", "shapes --show seq=128..4096", "equal at T = 1,024"),
    # caches
    ("2·H·d numbers a token", "shapes --causal", "1,024 numbers, 4.00 KiB 2·H·d"),
    ("GQA keeps 2·G·d", "shapes --causal --kv-heads 2", "256 numbers, 1.00 KiB 2·G·d"),
    ("kinds side by side", "shapes --show compare", "MLA, r = 256"),
    ("a latent cache", "shapes --model deepseek-v2 --show compare", "576 numbers"),
    ("a batch's cache", "shapes --model llama3-8b --seq 8192 --batch 32", "32.0 GiB for all 32"),
    ("a window's cache", "shapes --model gemma2-9b --seq 8192", "a lower bound: many engines"),
    ("of latents", "shapes --model deepseek-v2 --show compare", "32,768"),
    ("and its share", "shapes --model deepseek-v2 --show compare", "1.76 %"),
    ("of whole systems", "shapes --model deepseek-v2 --show compare",
     "93.3 % reduction compares whole systems"),
    ("weights that are too large", "shapes --model llama3-70b --show compare:80GB",
     "The weights alone lack 56.9 GiB."),
    ("one token decoded", "shapes --cache 10 --causal", "decoding one token on a cache of 10"),
    ("heads on GPUs", "shapes --model qwen2.5-7b --show tp=8", "28 heads on 4 key heads do not go"),
    # models, other attention
    ("heads of GPT-3", "shapes --model gpt3", "MHA, D = 12,288, 96 heads of 128"),
    ("heads of Llama 3", "shapes --model llama3-70b", "64 heads of 128 on 8 key/value heads"),
    ("one key head", "shapes --model palm-540b", "48 heads of 256 on 1 key/value head"),
    ("cross-attention: S of the context", "shapes --kind cross --seq 12 --context-length 20",
     "weights A [B, H, T, S] (1, 8, 12, 20)"),
    ("positions rotate Q and K", "shapes --model llama3-8b --explain", "rotate by position"),
    ("or are added to scores", "shapes --model t5-base --explain", "table of the first layer"),
    ("attention alone has no order", "help 'positional encoding'", "does not know the order"),
    ("a window", "shapes --model mistral-7b --explain", "Query 4,098 (from 0) sees keys 3 to"),
    ("layers far apart are counted", "shapes --model gemma2-9b", "21 layers"),
    ("and listed for programs", "shapes --model gemma2-9b --csv", "0, 2, 4, "),
    ("layers in a row", "shapes --model gpt2", "0-11"),
    ("layers that attend", "shapes --model jamba-52b", "Jamba v0.1: 4 attention layers of 32"),
    ("and others", "shapes --model qwen3-next-80b-a3b", "36 of 48 layers have no attention"),
    # one is singular
    ("of a text", "shapes --show numbers cat", "1 token, "),
    ("of a model", "shapes --model gpt2 --seq 1", "at 1 token."),
    ("of a sequence", "shapes --show compare --seq 1", "of 1 token a sequence"),
    # what is blocked follows the window
    ("half of all", "shapes --causal --seq 8192", "blocks nearly half"),
    ("half within a window", "shapes --causal --sliding-window 4096 --seq 4096",
     "blocks nearly half"),
    ("more beyond it", "shapes --causal --sliding-window 4096 --seq 8192",
     "Masks block 62.5 % of the T·T scores. Counted are 4,096 keys a query"),
    ("at any T", "shapes --causal --sliding-window 4096",
     "Up to T = 4,096 the mask blocks nearly half of the scores; beyond"),
    ("no crossing", "shapes --causal --sliding-window 9", "less than the projections at any T"),
)  # fmt: skip
"""A fact, the command that shows it, and what the command says of it."""


@pytest.mark.parametrize(("fact", "command", "said"), FACTS, ids=[fact for fact, *_ in FACTS])
def test_a_fact_has_its_command(
    fact: str, command: str, said: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("COLUMNS", "110")
    main(shlex.split(command))
    shown = " ".join(re.sub(r"[│•]", "", "".join(capsys.readouterr())).split())
    assert said in shown, fact


def test_the_animation_goes_on_and_back_by_keys_and_says_when_it_fails(
    browser: Any, tmp_path: Path
) -> None:
    path = tmp_path / "animation.html"
    path.write_bytes(animation_page(animation()))
    with opened(browser, reduced_motion="reduce") as found:
        page = found.page
        found.documents.add(path.as_uri())
        page.goto(path.as_uri())
        last = page.eval_on_selector("#seek", "seek => seek.max")
        assert page.inner_text("#play") == "Play"
        assert page.inner_text("#where") == f"1 / {int(last) + 1}"
        assert page.eval_on_selector_all("#stage text", "all => all.some(one => one.textContent)")
        for key, where in (("ArrowRight", 2), ("End", int(last) + 1), ("ArrowLeft", int(last))):
            page.keyboard.press(key)
            assert page.inner_text("#where").split(" / ")[0] == str(where)
        page.keyboard.press("+")
        assert page.input_value("#speed") == "2"
        page.keyboard.press(" ")
        assert page.inner_text("#play") == "Pause"
        assert not page.is_visible("#failure")
        page.evaluate("dispatchEvent(new ErrorEvent('error', { message: 'a mishap' }))")
        assert page.inner_text("#failure") == "This page failed: a mishap"
        assert found.console == ["error: a mishap"]
        found.console.clear()
