"""The steps of positions, norms and windows, beside what transformers and torch compute."""

from __future__ import annotations

import re
import shlex
import tomllib
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
from attnviz.models.configs.model import presets, read_config

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


FACTS = tomllib.loads(Path(__file__).with_name("facts.toml").read_text("utf-8"))["facts"]


@pytest.mark.parametrize(("fact", "command", "said"), FACTS, ids=[fact for fact, *_ in FACTS])
def test_a_fact_has_its_command(
    fact: str, command: str, said: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("COLUMNS", "110")
    main(shlex.split(command))
    shown = " ".join(re.sub(r"[│•]", "", "".join(capsys.readouterr())).split())
    assert said in shown, fact
