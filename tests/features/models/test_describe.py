"""``attnviz models --show``: one model from its configuration and headers alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from safetensors.numpy import load_file
from transformers import AutoConfig, AutoModelForCausalLM

import attnviz as av
from attnviz.cli import main
from attnviz.errors import ModelError, UsageError
from attnviz.features.models.catalog import inspect
from attnviz.features.models.function import families, show
from attnviz.features.models.result import ModelCard
from attnviz.models import pretrained
from attnviz.models.demo import DEMOS
from tests import ROOT

CONFIGS = tomllib.loads(Path(__file__).with_name("configs.toml").read_text("utf-8"))


def configured(folder: Path, config: dict[str, Any]) -> str:
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@cache
def told(config: str) -> ModelCard:
    """What one of the configurations here tells, once for all tests that ask."""
    with TemporaryDirectory() as folder:
        return show(configured(Path(folder), CONFIGS[config]))


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


def test_windows_and_sinks_by_layer() -> None:
    card = told("gemma")
    by_layer = {layer: group for group in card.groups for layer in group.layers}
    assert [n for n, group in by_layer.items() if group.sliding_window is None] == [5, 11]
    assert {group.sliding_window for group in card.groups} == {512, None}
    assert by_layer[0].kv_heads == 1
    assert card.backend == "hooked"
    assert card.reason.startswith("not the native backend: gemma3_text is not one of")
    assert card.notes == ("Its weights are not here: it has no weights; add model.safetensors.",)
    card = told("oss")
    assert all(group.sink for group in card.groups)
    assert sorted(group.sliding_window or 0 for group in card.groups) == [0, 8]


@pytest.mark.parametrize("family", ["llama", "gpt_neo", "bloom", "qwen2"])
def test_the_backend_is_the_one_that_is_taken(family: str, tmp_path: Path) -> None:
    """On small models that are saved and then loaded."""
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


@pytest.mark.parametrize(
    ("config", "works"),
    [
        ("hybrid", {"logits by head, circuits": False, "norms": None, "predictions": True}),
        ("whisper", {"logits by head, circuits": False, "texts": False, "predictions": True}),
        ("sees", {"logits by head, circuits, norms": None, "texts": False, "predictions": False}),
        ("gemma", {"logits by head, circuits, norms": None, "predictions": True}),
    ],
)
def test_what_the_configuration_tells(config: str, works: dict[str, bool | None]) -> None:
    can = {one.name: one.works for one in told(config).abilities}
    assert can | works == can


def test_a_family_that_is_not_described_sees_what_its_class_does(tmp_path: Path) -> None:
    """MiniMax stood there with "all keys"."""
    (group,) = told("hybrid").groups
    assert (group.layers, group.causal) == ((1,), True)
    (group,) = show(configured(tmp_path, {**CONFIGS["hybrid"], "architectures": []})).groups
    assert group.causal is None
    assert [g.causal for g in told("sees").groups] == [False]
    said = {one.name: one.why for one in told("sees").abilities}
    assert said["texts"] == "it reads pictures"


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


CODE = """
import sys
from attnviz.cli import main
for options in sys.argv[1:]:
    assert main(["models", *options.split()]) == 0
    print("====")
assert "transformers" not in sys.modules
"""


def listed(home: Path, *options: str) -> list[str]:
    """What is printed with each of the options, by one process."""
    environment = {**os.environ, "HF_HOME": str(home)}
    environment.pop("HF_HUB_CACHE", None)
    out = subprocess.run(
        [sys.executable, "-c", CODE, *options], env=environment, capture_output=True, text=True,
        check=True,
    ).stdout  # fmt: skip
    return out.split("====\n")[:-1]


@pytest.fixture
def home(tmp_path: Path, minilm: str) -> Path:
    """A hub cache with a good model, a pickled one, and one without a tokenizer."""
    for name, files in {
        "models--org--good": ("config.json", "model.safetensors", "tokenizer.json"),
        "models--org--pickled": ("config.json", "tokenizer.json"),
        "models--org--silent": ("config.json", "model.safetensors"),
    }.items():
        snapshot = tmp_path / "hub" / name / "snapshots" / ("a" * 40)
        snapshot.mkdir(parents=True)
        (tmp_path / "hub" / name / "refs").mkdir()
        (tmp_path / "hub" / name / "refs" / "main").write_text("a" * 40)
        for file in files:
            shutil.copy(Path(minilm) / file, snapshot)
        if "pickled" in name:
            (snapshot / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    return tmp_path


def test_json_and_table_tell_what_can_be_used(home: Path) -> None:
    told, table = listed(home, "--json", "")
    document = json.loads(told)
    assert document["schema"] == "attnviz.models/1"
    models = {model["name"]: model for model in document["models"]}
    assert models["fresh"]["place"] == "built in"
    good = models["org/good"]
    assert (good["family"], good["shape"], good["usable"]) == ("bert", "6×12", True)
    assert good["size"] > 40_000_000
    assert not models["org/pickled"]["usable"]
    assert models["org/pickled"]["note"].startswith("has only pickled weights")
    assert models["org/silent"]["usable"]
    assert "--ids" in models["org/silent"]["note"]
    assert "org/good" in table
    assert "not usable: has only pickled weights" in " ".join(table.split())
    assert max(map(len, table.splitlines())) <= 100


@pytest.mark.slow
def test_no_cache_is_no_mistake(tmp_path: Path) -> None:
    (table,) = listed(tmp_path / "nothing", "")
    assert "fresh" in table


def test_a_damaged_configuration_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    entry = inspect("x", tmp_path, "hub cache")
    assert not entry.usable
    assert "config.json" in entry.note


PAGE = (ROOT / "docs" / "families.md").read_text("utf-8").partition("\n## ")[0]


def test_all_are_those_of_the_page() -> None:
    listed = families("all").families
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")][1:]
    assert len(listed) == len(rows)
    assert f"{len(listed)} families," in PAGE
    ran = sum(bool(family.heads) for family in listed)
    assert f"of which {ran} are built and give attention" in " ".join(PAGE.split())


def test_a_part_of_a_name_and_other_spellings_are_enough() -> None:
    names = [family.family for family in families("qwen3").families]
    assert {"qwen3", "qwen3_moe", "qwen3_next"} <= set(names)
    assert all("qwen3" in name for name in names)
    (oss,) = families("gpt-oss").families
    assert oss.family == "gpt_oss"
    assert oss.heads == 12


def test_a_family_that_there_is_not_has_neighbours() -> None:
    with pytest.raises(UsageError, match="has 'llamma' in its name; like it: llama"):
        families("llamma")
    with pytest.raises(UsageError, match="of any other is checked when it is loaded"):
        families("zzzzzz")


def test_the_table_of_families(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "llama", "--csv"]) == 0
    assert capsys.readouterr().out.startswith("family,maps,heads,logits,ablation,linear\n")
    assert main(["models", "llama", "--show", "demo-gpt2"]) != 0
    assert "leave out the other options" in capsys.readouterr().err
