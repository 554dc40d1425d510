"""What is read from configurations and presets, against real models without memory."""

from __future__ import annotations

import json
import math
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import AutoConfig

from attnviz.attention import costs
from attnviz.errors import ModelError
from attnviz.features.shapes.verify import verify_model
from attnviz.models.configs.families import FAMILIES
from attnviz.models.configs.keys import FAMILY_KEYS
from attnviz.models.configs.model import presets, read_config
from attnviz.models.native.config import FAMILIES as NATIVE
from attnviz.models.parameter_count import count_checkpoint, count_config
from tests import mostly_slow

COUNTED = {name: preset for name, preset in presets().items() if preset.counted_as}
FIRST = {str(p.config["model_type"]): name for name, p in reversed(COUNTED.items())}
"""A preset of each family; its others differ in sizes."""


@pytest.mark.parametrize("name", mostly_slow(COUNTED, *FIRST.values()))
def test_presets_agree_with_transformers(name: str) -> None:
    chosen = presets()[name]
    counted = count_config(chosen.config, chosen.counted_as)
    found = verify_model(chosen.model, dict(counted.layers), counted.origin)
    assert not found.failures
    assert counted.attention == chosen.model.attention_parameters
    assert counted.whole == chosen.parameters


PUBLISHED = tomllib.loads(Path(__file__).with_name("published.toml").read_text("utf-8"))


@pytest.mark.parametrize("name", PUBLISHED)
def test_counts_are_the_published_ones_to_the_printed_digits(name: str) -> None:
    """Each figure counts what its source says that it counts, worked out from the config alone."""
    chosen, (figure, unit) = presets()[name], PUBLISHED[name]
    config, count = chosen.config, chosen.parameters
    width, words = config["hidden_size"], config["vocab_size"]
    if name.startswith("gemma3-"):
        count -= words * width
    if name.startswith("gemma3n"):  # W_K, W_V and the norm of keys of the borrowing layers
        key = config["num_key_value_heads"] * config["head_dim"]
        count += config["num_kv_shared_layers"] * (2 * width * key + config["head_dim"])
    if name == "deepseek-v3.2":
        queries = config["q_lora_rank"] * config["index_n_heads"] * config["index_head_dim"]
        keys = width * (config["index_head_dim"] + config["index_n_heads"])
        count -= config["num_hidden_layers"] * (queries + keys + 2 * config["index_head_dim"])
        assert count == presets()["deepseek-v3"].parameters
    if name == "glm-4.5":
        heads, keys = config["num_attention_heads"], config["num_key_value_heads"]
        head, experts = config["head_dim"], config["n_routed_experts"]
        attention = (heads + 2 * keys) * head * (width + 1) + heads * head * width + 2 * head
        inner = 3 * width * config["moe_intermediate_size"] * (experts + 1) + width * experts
        count += attention + inner + 2 * width * width + 5 * width
        count -= 2 * words * width
    digits = len(figure.partition(".")[2])
    assert f"{count / unit:.{digits}f}" == figure


def test_kimi_k2_is_read_under_both_names_of_its_family() -> None:
    config = dict(presets()["kimi-k2"].config)
    one = read_config(config, "m").groups
    assert one == read_config({**config, "model_type": "deepseek_v3"}, "m").groups


def test_kimi_linear_is_read_as_released_and_as_transformers_saves_it() -> None:
    released = dict(presets()["kimi-linear-48b-a3b"].config)
    nested = released.pop("linear_attn_config")
    types = ["linear_attention"] * 27
    for number in nested["full_attn_layers"]:
        types[number - 1] = "full_attention"
    sizes = {"linear_num_heads": 32, "linear_head_dim": 128, "linear_conv_kernel_dim": 4}
    saved = read_config({**released, **sizes, "layer_types": types}, "m")
    model = presets()["kimi-linear-48b-a3b"].model
    assert (saved.groups, saved.states) == (model.groups, model.states)
    assert [i + 1 for i in model.states[0].layers] == nested["kda_layers"]


def test_every_preset_has_a_source_and_a_plausible_share() -> None:
    for chosen in presets().values():
        assert chosen.source.startswith("https://")
        assert 0.001 < (chosen.model.share or 0) < 0.5
    table = {"gpt2": (12, 768, 64), "gpt2-large": (20, 1280, 64), "bert-base": (12, 768, 64)}
    table |= {"gpt3": (96, 12288, 128), "llama3-70b": (64, 8192, 128)}
    for name, sizes in table.items():
        spec = presets()[name].model.main.spec
        assert (spec.heads, spec.d_model, spec.head_dim) == sizes


def test_unlike_layers_are_told_apart() -> None:
    near, far = presets()["gemma2-9b"].model.groups
    assert (near.spec.window, near.layers[:3]) == (4096, (0, 2, 4))
    assert (far.spec.window, far.layers[:3]) == (None, (1, 3, 5))
    labels = [group.label for group in presets()["t5-base"].model.groups]
    assert labels[-1] == "cross-attention"
    assert len(labels) == 5
    albert = presets()["albert-base"].model
    assert albert.attention_parameters == costs.parameters(albert.main.spec).total


def test_windows_match_those_of_transformers() -> None:
    for name in ("gemma2-9b", "mistral-7b", "qwen2.5-7b", "gemma3n-e4b"):
        config = dict(presets()[name].config)
        built = AutoConfig.for_model(config.pop("model_type"), **config)
        types = getattr(built, "layer_types", None)
        if types is None:
            types = ["sliding_attention"] * built.num_hidden_layers
        windows = {i for g in presets()[name].model.groups if g.spec.window for i in g.layers}
        assert windows == {i for i, kind in enumerate(types) if kind == "sliding_attention"}


def test_checkpoint_is_counted_from_its_header(minilm: str) -> None:
    folder = Path(minilm)
    model = read_config(json.loads((folder / "config.json").read_text()), "MiniLM")
    counted = count_checkpoint(folder)
    assert counted is not None
    assert not verify_model(model, dict(counted.layers), "").failures
    assert counted.whole == presets()["minilm-l6"].parameters
    wrong = replace(model, groups=(replace(model.groups[0], layers=(0, 1, 2)),))
    assert verify_model(wrong, dict(counted.layers), "").failures


def test_checkpoint_that_is_none(tmp_path: Path) -> None:
    assert count_checkpoint(tmp_path) is None
    for junk in (b"", b"\xff" * 20, b"\x02" + b"\0" * 7 + b"[]", b"\x07" + b"\0" * 7 + b'{"a":1}'):
        (tmp_path / "model.safetensors").write_bytes(junk)
        with pytest.raises(ModelError, match="not a readable safetensors file"):
            count_checkpoint(tmp_path)


def test_unknown_family_is_answered_in_part() -> None:
    model = read_config({"model_type": "zork", "d_model": 64, "n_heads": 4, "n_layers": 3}, "z")
    assert "'zork' is not known" in model.partial
    assert model.attention_parameters == 3 * 4 * 64 * 64
    vision = {"model_type": "clip-like", "text_config": dict(presets()["gpt2"].config)}
    assert "only text_config" in read_config(vision, "v").partial


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "zork", "n_heads": 4}, "lacks a model width"),
        ({}, "lacks a model width .* and a number of heads"),
        ({"model_type": "gpt2", "n_embd": 64, "n_layer": 2}, "no number of heads .*n_head"),
        ({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 5}, "12.80 per head"),
        ({"model_type": "gpt2", "n_embd": "x", "n_layer": 2, "n_head": 5}, "n_embd must be"),
        ({"model_type": "gpt2", "n_embd": True, "n_layer": 2, "n_head": 5}, "n_embd must be"),
        ({"model_type": "gpt2", "n_embd": 64, "n_layer": 10**12, "n_head": 4}, "n_layer must be"),
        ({"model_type": "gpt2", "n_embd": 10**4000, "n_layer": 2, "n_head": 4}, "n_embd must .*…$"),
        ({**presets()["gemma2-9b"].config, "sliding_window": "far"}, "sliding_window must be"),
        ({**presets()["gemma2-9b"].config, "layer_types": ["full"]}, "layer_types must be"),
        ({**presets()["gemma2-9b"].config, "attn_logit_softcapping": math.inf},
         "softcapping must be"),
        ({**presets()["gemma2-9b"].config, "query_pre_attn_scalar": "x"}, "attn_scalar must be"),
        ({"model_type": "deepseek_v2", "hidden_size": 64}, "no kv_lora_rank"),
        ({**presets()["deepseek-v3.2"].config, "index_topk": 0}, "index_topk must be"),
        ({**presets()["kimi-linear-48b-a3b"].config, "linear_attn_config": {"num_heads": "x"}},
         "num_heads must be"),
        (
            {
                **presets()["kimi-linear-48b-a3b"].config,
                "linear_attn_config": {"full_attn_layers": [0]},
            },
            "full_attn_layers must list layers from 1 to 27",
        ),
        ({**presets()["gemma3n-e4b"].config, "num_kv_shared_layers": 35}, "leaves none of 35"),
        ({**presets()["qwen3.5-27b"].config, "linear_key_head_dim": -1}, "key_head_dim must be"),
    ],
)  # fmt: skip
def test_configs_that_say_too_little(config: dict[str, object], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        read_config(config, "m")


def test_every_table_of_keys_belongs_to_a_family_that_is_read() -> None:
    assert FAMILY_KEYS.keys() <= FAMILIES.keys()
    assert NATIVE.keys() <= FAMILIES.keys()


def test_names_that_transformers_takes_for_the_same_size_are_taken_too() -> None:
    usual = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 3}
    for family in ("gpt2", "distilbert", "bert"):
        (group,) = read_config({"model_type": family, **usual}, family).groups
        assert (group.spec.d_model, group.spec.heads, len(group.layers)) == (64, 4, 3)


def test_falcon_shares_keys_as_its_form_says() -> None:
    sizes = {"model_type": "falcon", "hidden_size": 64, "num_attention_heads": 8}
    sizes |= {"num_hidden_layers": 2, "num_kv_heads": 4}
    shared = {"multi_query": False}, {"new_decoder_architecture": True}
    for more, kv_heads in zip(({}, *shared), (1, 8, 4), strict=True):
        assert read_config({**sizes, **more}, "falcon").main.spec.kv_heads == kv_heads
