"""``attnviz models --show``: one model from its configuration and headers alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.errors import ModelError
from attnviz.features.models.function import show
from attnviz.models import pretrained
from attnviz.models.demo import DEMOS

GEMMA = {
    "model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "hidden_size": 1152,
    "num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256,
    "sliding_window": 512, "sliding_window_pattern": 6, "intermediate_size": 6912,
    "vocab_size": 262144, "max_position_embeddings": 32768,
}  # fmt: skip
OSS = {
    "model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "hidden_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"],
    "intermediate_size": 64, "vocab_size": 99, "num_local_experts": 2, "num_experts_per_tok": 1,
}  # fmt: skip


def configured(folder: Path, config: dict[str, Any]) -> str:
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.mark.parametrize("name", ["demo-gpt2", "demo-bert", "minilm"])
def test_it_is_what_loading_finds(name: str, minilm: str) -> None:
    model = minilm if name == "minilm" else name
    card, source = show(model), av.load(model)
    (kind,) = source.layout.kinds
    heads = [0] * source.layout.layers(kind)
    for group in card.groups:
        for layer in group.layers:
            heads[layer] = group.heads
    assert tuple(heads) == source.layout.heads[kind]
    assert card.backend == source.info.backend
    assert card.max_tokens == source.max_tokens
    works = {one.name: one.works for one in card.abilities}
    assert works["logits by head, circuits"] == (not source.readout().reason)
    assert works["predictions"] in (not source.no_logits, None)


def test_sizes_are_those_of_the_files() -> None:
    from safetensors.numpy import load_file

    card = show("demo-gpt2")
    held = load_file(DEMOS["demo-gpt2"] / "model.safetensors")
    assert card.tensors == len(held)
    assert card.parameters == sum(array.size for array in held.values())
    assert card.stored == {"float16": sum(array.nbytes for array in held.values())}
    assert card.memory["float32"] == 4 * card.parameters


def test_no_weight_is_read(tmp_path: Path) -> None:
    """The header stays, the numbers are cut to zeros that no loader would take for weights."""
    folder = tmp_path / "m"
    shutil.copytree(DEMOS["demo-gpt2"], folder)
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    path.write_bytes(raw[:start] + b"\xff" * (len(raw) - start))  # NaN everywhere
    assert show(str(folder)).parameters == show("demo-gpt2").parameters
    with pytest.raises(ModelError):
        av.capture("a cat", model=str(folder))


def test_windows_and_sinks_by_layer(tmp_path: Path) -> None:
    card = show(configured(tmp_path, GEMMA))
    by_layer = {layer: group for group in card.groups for layer in group.layers}
    assert [n for n, group in by_layer.items() if group.sliding_window is None] == [5, 11, 17, 23]
    assert {group.sliding_window for group in card.groups} == {512, None}
    assert by_layer[0].kv_heads == 1
    assert card.backend == "hooked"
    assert card.reason.startswith("not the native backend: gemma3_text is not one of")
    assert card.notes == ("Its weights are not here: it has no weights; add model.safetensors.",)
    card = show(configured(tmp_path, OSS))
    assert all(group.sink for group in card.groups)
    assert sorted(group.sliding_window or 0 for group in card.groups) == [0, 8]


@pytest.mark.parametrize("family", ["llama", "gpt_neo", "bloom", "qwen2"])
def test_the_backend_is_the_one_that_is_taken(family: str, tmp_path: Path) -> None:
    """On small models that are saved and then loaded."""
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {
        "gpt_neo": {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "intermediate_size": 16,
                    "attention_types": [[["global", "local"], 1]], "max_position_embeddings": 64},
        "bloom": {"hidden_size": 16, "n_layer": 2, "n_head": 2},
    }.get(family, {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
                   "num_key_value_heads": 1, "intermediate_size": 16})  # fmt: skip
    config = AutoConfig.for_model(family, vocab_size=50, **sizes)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    card, source = show(str(tmp_path)), pretrained.load(str(tmp_path))
    assert card.backend == source.info.backend
    gates = next(one for one in card.abilities if one.name == "ablate, patch")
    assert gates.works == (not source.no_gates)


HYBRID = {
    "model_type": "minimax", "architectures": ["MiniMaxForCausalLM"], "hidden_size": 32,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
}  # fmt: skip
SEES = {
    "model_type": "vit", "architectures": ["ViTModel"], "hidden_size": 16, "num_hidden_layers": 2,
    "num_attention_heads": 2, "patch_size": 8, "image_size": 32,
}  # fmt: skip
WHISPER = {
    "model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"], "d_model": 16,
    "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "is_encoder_decoder": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "works"),
    [
        (HYBRID, {"logits by head, circuits": False, "norms": None, "predictions": True}),
        (WHISPER, {"logits by head, circuits": False, "texts": False, "predictions": True}),
        (SEES, {"logits by head, circuits, norms": None, "texts": False, "predictions": False}),
        (GEMMA, {"logits by head, circuits, norms": None, "predictions": True}),
    ],
)
def test_what_the_configuration_tells(
    config: dict[str, Any], works: dict[str, bool | None], tmp_path: Path
) -> None:
    card = show(configured(tmp_path, config))
    told = {one.name: one.works for one in card.abilities}
    assert told | works == told
    if config is not SEES:
        return
    said = {one.name: one.why for one in card.abilities}
    assert said["texts"] == "it reads pictures"


def test_a_family_that_is_not_described_sees_what_its_class_does(tmp_path: Path) -> None:
    """MiniMax stood there with "all keys"."""
    (group,) = show(configured(tmp_path, HYBRID)).groups
    assert (group.layers, group.causal) == ((1,), True)
    (group,) = show(configured(tmp_path, {**HYBRID, "architectures": []})).groups
    assert group.causal is None
    assert [g.causal for g in show(configured(tmp_path, SEES)).groups] == [False]


def test_a_family_that_nobody_has(tmp_path: Path) -> None:
    config = {"model_type": "zzz", "auto_map": {"AutoModel": "x.Y"}, "hidden_size": 8,
              "num_attention_heads": 2, "num_hidden_layers": 1}  # fmt: skip
    card = show(configured(tmp_path, config))
    assert card.backend == ""
    assert "has no zzz models, and attnviz runs no code that comes with a model" in card.reason
    assert [one.works for one in card.abilities] == [False]


def test_chat_templates_are_seen(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    shutil.copytree(DEMOS["demo-gpt2"], folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    assert settings.pop("chat_template")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    assert not show(str(folder)).chat_template
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert show(str(folder)).chat_template
    assert {one.name: one.works for one in show(str(folder)).abilities}["chat"]


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--show", "demo-gpt2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "attnviz.model/1"
    assert told["groups"][0]["heads"] == 6
    assert main(["models", "--show", "demo-gpt2"]) == 0
    shown = capsys.readouterr().out
    assert "native: attnviz's own forward pass" in shown
    assert "no chat template" not in shown
    assert main(["models", "--show", "/nowhere/at/all"]) == 1
    assert capsys.readouterr().err.count("\n") == 1
