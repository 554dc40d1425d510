"""Every family's closed forms beside a tiny model of it that transformers builds and runs."""

from __future__ import annotations

import json
import tomllib
from copy import deepcopy
from functools import cache, reduce
from operator import or_
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from attnviz.attention.costs import (
    Projection,
    blocked,
    cache_elements,
    crossing,
    index_flops,
    projections,
)
from attnviz.attention.spec import AttentionSpec, LayerAxes, RunSizes
from attnviz.errors import ModelError
from attnviz.features.shapes.costs import cache_bytes, stack_of
from attnviz.features.shapes.verify import verify_model
from attnviz.models.configs.families import FAMILIES, STATE_SPACE
from attnviz.models.configs.keys import defaults
from attnviz.models.configs.model import ModelSpec, read_config
from attnviz.models.parameter_count import count_names

TEXT = 21
DATA = tomllib.loads(Path(__file__).with_name("families.toml").read_text("utf-8"))
SIZES = DATA["parts"]["sizes"]
GROUPED = SIZES | DATA["parts"]["grouped"]
DECODERS, ENCODERS = (
    {
        family: reduce(or_, [DATA["parts"][name] for name in fields.pop("like", ())], {}) | fields
        for family, fields in DATA[kind].items()
    }
    for kind in ("decoders", "encoders")
)
DECODERS["gemma3n_text"]["activation_sparsity_pattern"] = None
SHARED = SIZES | {"relative_attention": True, "pos_att_type": ["c2p"], "share_att_key": True}
CASES = [(family, fields) for family, fields in {**DECODERS, **ENCODERS}.items()]
CASES += [
    ("deberta-v2", SHARED),
    ("phi", SIZES | {"qk_layernorm": True}),
    ("gpt_oss", DECODERS["gpt_oss"] | {"attention_bias": False}),
    ("modernbert", ENCODERS["modernbert"] | {"attention_bias": True}),
    ("llama4_text", DECODERS["llama4_text"] | {"attention_bias": True}),
    ("olmo", GROUPED | {"attention_bias": True}),
    ("jamba", DECODERS["jamba"] | {"attn_layer_period": 2, "attn_layer_offset": 0}),
    ("glm4_moe", DECODERS["glm4_moe"] | {"attention_bias": True}),
    ("glm4_moe", DECODERS["glm4_moe"] | {"use_qk_norm": False}),
    ("gemma3n_text", DECODERS["gemma3n_text"] | {"num_kv_shared_layers": 0}),
]

_FALCON = "query_key_value"
_NAMES = {
    "w_q": ("q_proj", "query_proj", "query", "q_b_proj", "Wqkv", "qkv_proj", "c_attn", _FALCON),
    "w_o": ("o_proj", "out_proj", "dense", "Wo", "c_proj"),
}


def built(family: str, fields: dict[str, Any]) -> tuple[Any, ModelSpec]:
    """A tiny random model, and what is said of its config as it would be saved."""
    return _made(family, json.dumps(fields))


@cache
def _made(family: str, written: str) -> tuple[Any, ModelSpec]:
    fields = json.loads(written)
    config = transformers.AutoConfig.for_model(family, **fields)
    torch.manual_seed(0)
    encoder = family in ENCODERS
    make = transformers.AutoModel if encoder else transformers.AutoModelForCausalLM
    model = make.from_config(config, attn_implementation="eager").eval()
    return model, read_config({"model_type": family, **fields}, family)


@pytest.mark.parametrize(("family", "fields"), CASES)
def test_attention_is_counted_as_transformers_builds_it(
    family: str, fields: dict[str, Any]
) -> None:
    model, spec = built(family, fields)
    counted = count_names(
        ((name, parameter.numel()) for name, parameter in model.named_parameters()), family
    )
    assert not verify_model(spec, dict(counted.layers), family).failures
    attending = {number for _, _, number in counted.layers}
    assert attending == {number for group in spec.groups for number in group.layers}
    assert spec.idle == model.config.num_hidden_layers - len(attending)


@pytest.mark.parametrize(("family", "fields"), CASES)
def test_projections_are_as_wide_as_those_of_transformers(
    family: str, fields: dict[str, Any]
) -> None:
    model, spec = built(family, fields)
    for group in spec.groups:
        ours = {p.name: p for p in projections(group.spec)}
        for number in group.layers:
            theirs = matrices(model, number)
            assert width(theirs, _NAMES["w_o"], out=False) == ours["w_o"].inputs
            assert width(theirs, _NAMES["w_q"], out=True) == queries(theirs, ours)
            for name, named in (("w_k", ("k_proj", "key_proj")), ("w_v", ("v_proj", "value_proj"))):
                if any(one in theirs for one in named):
                    assert width(theirs, named, out=True) == ours[name].outputs


def matrices(model: Any, number: int) -> dict[str, tuple[int, int]]:
    """[outputs, inputs] of every matrix of one layer's attention, by the last part of its name."""
    found = {}
    for name, parameter in model.named_parameters():
        parts = name.split(".")
        if str(number) not in parts or parameter.ndim != 2:
            continue
        inside = ".".join(parts[parts.index(str(number)) + 1 :])
        first = inside.split(".")[0]
        if ("attn" in first or "attention" in first) and first != "linear_attn":
            shape = tuple(parameter.shape)
            found[parts[-2]] = shape[::-1] if parts[-2].startswith("c_") else shape
    return found


def width(theirs: dict[str, tuple[int, int]], names: tuple[str, ...], *, out: bool) -> int:
    (name,) = (one for one in names if one in theirs)
    return theirs[name][0 if out else 1]


def queries(theirs: dict[str, tuple[int, int]], ours: dict[str, Projection]) -> int:
    """The width of W_Q, with whatever the family keeps in the same matrix."""
    wide = ours["w_q"].outputs + (ours["w_gate"].outputs if "w_gate" in ours else 0)
    if {"Wqkv", "qkv_proj", "c_attn", _FALCON} & theirs.keys():
        wide += ours["w_k"].outputs + ours["w_v"].outputs
    return wide


@pytest.mark.parametrize(("family", "fields"), [c for c in CASES if c[0] in DECODERS])
def test_a_decoding_step_reads_the_cache_that_is_said(family: str, fields: dict[str, Any]) -> None:
    model, spec = built(family, fields)
    ids = torch.arange(TEXT)[None] % 31 + 1
    with torch.no_grad():
        past = model(ids[:, :-1], use_cache=True).past_key_values
        read, update = [], past.update

        def watched(*arguments: Any, **more: Any) -> tuple[torch.Tensor, torch.Tensor]:
            key, value = update(*arguments, **more)
            read.append((key.nbytes, value.nbytes))
            return key, value

        choose = past.update_indexer

        def chosen(key: torch.Tensor, layer: int) -> torch.Tensor:
            keys = choose(key, layer)
            read[layer] = (*read[layer], keys.nbytes)  # after the layer's own cache
            return keys

        past.update, past.update_indexer = watched, chosen
        model(ids[:, -1:], past_key_values=past, use_cache=True)
    own = [group for group in spec.cached_groups if not group.spec.borrowed]
    assert len(read) == sum(len(group.layers) for group in own)
    assert sum(map(sum, read)) == cache_bytes(stack_of(spec), TEXT, 4)


@pytest.mark.parametrize(
    "family", ["qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "kimi_linear"]
)
@pytest.mark.parametrize("tokens", [9, TEXT])
def test_linear_layers_keep_the_state_that_is_said_at_any_length(family: str, tokens: int) -> None:
    model, spec = built(family, DECODERS[family])
    model = deepcopy(model).bfloat16()
    with torch.no_grad():
        past = model(torch.arange(tokens)[None] % 31 + 1, use_cache=True).past_key_values
    (group,) = spec.states
    assert group.layers == (0, 2)
    for number in group.layers:
        kept = past.layers[number]
        state, inputs = kept.recurrent_states[0], kept.conv_states[0]
        sides = sorted((group.state.key_dim, group.state.value_dim))
        assert tuple(state.shape[:2]) == (1, group.state.heads)
        assert sorted(state.shape[2:]) == sides
        assert state.numel() == group.state.elements
        assert state.dtype == torch.float32
        assert tuple(inputs.shape) == (1, group.state.channels, group.state.kernel)
        assert (inputs.numel(), inputs.dtype) == (group.state.inputs, torch.bfloat16)


def test_an_indexer_costs_what_its_products_do() -> None:
    from torch.utils.flop_counter import FlopCounterMode
    from transformers.models.deepseek_v32.modeling_deepseek_v32 import DeepseekV32Indexer

    model, spec = built("deepseek_v32", DECODERS["deepseek_v32"])
    seen: list[int] = []

    def counted(module: torch.nn.Module, arguments: Any, more: Any) -> None:
        with FlopCounterMode(display=False) as counter:
            type(module).forward(module, *arguments, **more)
        seen.append(counter.get_total_flops())

    for module in model.modules():
        if isinstance(module, DeepseekV32Indexer):
            module.register_forward_pre_hook(counted, with_kwargs=True)
    with torch.no_grad():
        model(torch.arange(TEXT)[None] % 31 + 1, use_cache=False)
    layer = spec.main.spec
    axes = LayerAxes(layer, RunSizes(seq=TEXT))
    own = sum(p.flops(axes).value or 0 for p in projections(layer) if p.name.startswith("w_index"))
    assert seen == [own + (index_flops(layer, axes).value or 0)] * 4
    assert (blocked(layer, TEXT), axes.seen.size) == (1 - (15 + 5 * (TEXT - 5)) / TEXT**2, 5)
    assert crossing(layer) == pytest.approx(_crossing(layer))


def _crossing(layer: AttentionSpec) -> float:
    """Where attention with its indexer costs the projections, found by halving."""
    matrices = sum(p.weights for p in projections(layer))
    low, high = 0.0, 1e9
    for _ in range(200):
        middle = (low + high) / 2
        cost = layer.heads * (layer.score_dim + layer.value_dim) * min(middle, 5) + 27 * middle
        low, high = (low, middle) if cost > matrices else (middle, high)
    return low


def test_cross_attention_keeps_every_source_token_once() -> None:
    config = transformers.T5Config(
        d_model=48, d_kv=8, num_heads=6, num_layers=2, num_decoder_layers=3, vocab_size=32, d_ff=64
    )
    model = transformers.T5ForConditionalGeneration(config).eval()
    spec = read_config(config.to_dict(), "t5")
    source, target = torch.ones(1, 9, dtype=torch.long), torch.ones(1, 4, dtype=torch.long)
    with torch.no_grad():
        past = model(source, decoder_input_ids=target, use_cache=True).past_key_values
    kept = sum(
        layer.keys.nbytes + layer.values.nbytes for layer in past.cross_attention_cache.layers
    )
    assert kept == 9 * 4 * sum(len(g.layers) * cache_elements(g.spec) for g in spec.cross_groups)
    own = sum(layer.keys.nbytes + layer.values.nbytes for layer in past.self_attention_cache.layers)
    assert own == cache_bytes(stack_of(spec), 4, 4)


@pytest.mark.parametrize(
    "family",
    [f for f, fields in CASES if "sliding_window" in fields or f in ("modernbert", "llama4_text")],
)
def test_masks_are_those_that_transformers_makes(family: str) -> None:
    model, spec = built(family, {**DECODERS, **ENCODERS}[family])
    seen = {}
    for number, module in attentions(model):
        module.register_forward_hook(
            lambda _, __, out, number=number: seen.update({number: out[1] > 0})
        )
    with torch.no_grad():
        model(torch.arange(TEXT)[None] % 31 + 1)
    for group in spec.groups:
        one, window = group.spec, group.spec.window or TEXT
        place = torch.arange(TEXT)
        back = place[:, None] - place
        allowed = (back >= 0 if one.causal else back > -TEXT) & (back.abs() < window)
        if one.chunked:
            allowed = (back >= 0) & (place[:, None] // window == place // window)
        for number in group.layers:
            assert (seen[number].any(1)[0] == allowed).all()


def attentions(model: Any) -> list[tuple[int, Any]]:
    """Every module that attends, with the number of its layer."""
    found = []
    for name, module in model.named_modules():
        parts = name.split(".")
        if parts[-1] in ("self_attn", "attn"):
            found.append((int(parts[-2]), module))
    return found


@pytest.mark.parametrize("family", STATE_SPACE)
def test_state_space_models_are_refused_by_name(family: str) -> None:
    with pytest.raises(ModelError, match=f"m has no attention: {STATE_SPACE[family]} keeps"):
        read_config({"model_type": family, "hidden_size": 8, "num_hidden_layers": 2}, "m")


def test_a_model_none_of_whose_layers_attend_is_refused() -> None:
    layers = {"layer_types": ["linear_attention"] * 4}
    with pytest.raises(ModelError, match="none of the 4 layers attends"):
        read_config({"model_type": "qwen3_next", **GROUPED, **layers}, "m")
    with pytest.raises(ModelError, match="its config lists 4 layers without"):
        read_config({"model_type": "zork", **SIZES, "layers_block_type": ["mamba"] * 4}, "m")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"layer_types": ["full_attention"]}, "layer_types must be a list of 4 names"),
        ({"attn_layer_indices": [9]}, "attn_layer_indices must list layers from 0 to 3"),
        ({"attn_layer_period": "x"}, "attn_layer_period must be a whole number from 1"),
        ({"full_attention_interval": 0}, "full_attention_interval must be a whole number from 1"),
    ],
)
def test_lists_of_layers_that_make_no_sense(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        read_config({"model_type": "llama", **GROUPED, **fields}, "m")


@pytest.mark.parametrize("family", defaults())
def test_left_out_fields_are_filled_as_transformers_does(family: str) -> None:
    assert family in FAMILIES
    config = transformers.AutoConfig.for_model(family)
    for name, value in defaults()[family].items():
        if hasattr(config, name):
            assert getattr(config, name) == value, name


def test_configs_inside_configs_are_read() -> None:
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34}
    text |= {"intermediate_size": 10_240, "sliding_window": 1024}
    whole = {"model_type": "gemma3", "text_config": text, "torch_dtype": "bfloat16"}
    found = read_config(whole, "Gemma 3 4B")
    spec = found.main.spec
    assert (spec.heads, spec.kv_heads, spec.head_dim) == (8, 4, 256)
    assert found.dtype == "bfloat16"
    assert "only text_config of a gemma3 model" in found.partial
    assert "num_attention_heads = 8" in found.notes[0]
    config = transformers.Gemma3Config(text_config=dict(text))
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config.text_config)
    counted = count_names(((n, p.numel()) for n, p in model.named_parameters()), "")
    assert counted.attention == found.attention_parameters
    llama = {"model_type": "llama", **GROUPED}
    for outer in (
        {"model_type": "llama4", "text_config": {**GROUPED, "torch_dtype": "float16"}},
        {"model_type": "omni", "thinker_config": {"text_config": llama}},
        {"model_type": "seeing", "llm_config": {"model_type": "qwen2", **GROUPED}},
    ):
        spec = read_config(outer, "m").main.spec
        assert (spec.heads, spec.kv_heads) == (6, 2)


@pytest.mark.parametrize(
    ("fields", "dtype"),
    [
        ({"torch_dtype": "bfloat16"}, "bfloat16"), ({"dtype": "float16"}, "float16"),
        ({"dtype": "torch.float16"}, "float16"), ({}, None), ({"dtype": "auto"}, None),
    ],
)  # fmt: skip
def test_the_dtype_is_the_config_s(fields: dict[str, Any], dtype: str | None) -> None:
    assert read_config({"model_type": "llama", **GROUPED, **fields}, "m").dtype == dtype
