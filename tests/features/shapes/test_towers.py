"""Models of several towers, and those that see or hear: each tower's parameters, counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from attnviz.features.shapes import function as answers
from attnviz.models.configs.model import read_config, read_towers
from tests.models.tiny_senses import SEES, build, build_llava, transformers


def verified(folder: Path) -> Any:
    return answers.verify(answers.Model(model=str(folder)))


def counted(answer: Any) -> dict[str, tuple[str, str]]:
    return {one.step: (one.said, one.found) for one in answer.checks}


SENSES = (
    "vit deit dinov2 dinov2_with_registers wav2vec2 hubert audio-spectrogram-transformer whisper"
)


@pytest.mark.parametrize("family", SENSES.split())
def test_models_that_see_or_hear_are_counted(family: str, tmp_path: Path) -> None:
    build(family, tmp_path)
    answer = verified(tmp_path)
    assert answer.equal is True
    assert len(answer.checks) >= 2


@pytest.mark.parametrize("family", ["clip", "siglip"])
def test_both_towers_are_counted_each_by_itself(family: str, tmp_path: Path) -> None:
    wider = {**SEES, "hidden_size": 32, "num_hidden_layers": 3}
    build(family, tmp_path, vision_config=wider)
    found = counted(verified(tmp_path))
    assert list(found) == [
        "text: self-attention", "text: all attention",
        "vision: self-attention", "vision: all attention",
    ]  # fmt: skip
    assert found["text: all attention"] == (f"{2 * 4 * (16 * 16 + 16):,}",) * 2
    assert found["vision: all attention"] == (f"{3 * 4 * (32 * 32 + 32):,}",) * 2
    towers = read_towers(json.loads((tmp_path / "config.json").read_text()), "x")
    assert towers["text"].main.spec.causal == (family == "clip")
    assert not towers["vision"].main.spec.causal


def test_a_wrong_tower_is_told_from_a_right_one(tmp_path: Path) -> None:
    build("clip", tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config["vision_config"]["num_hidden_layers"] = 5
    path.write_text(json.dumps(config))
    answer = verified(tmp_path)
    assert answer.equal is False
    found = counted(answer)
    assert len(set(found["text: all attention"])) == 1
    assert len(set(found["vision: all attention"])) == 2


def test_a_vision_language_model(tmp_path: Path) -> None:
    build_llava(tmp_path)
    answer = verified(tmp_path)
    assert answer.equal is True
    assert {name.partition(":")[0] for name in counted(answer)} == {"text", "vision"}
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config["vision_config"]["model_type"] = "somebody's own"
    path.write_text(json.dumps(config))
    answer = verified(tmp_path)
    assert {name.partition(":")[0] for name in counted(answer)} == {"text"}
    (said,) = [note for note in answer.notes if "vision tower" in note]
    assert said.startswith("2,176 attention parameters of its vision tower were not checked")


def test_fields_that_a_tower_leaves_out_are_those_of_transformers() -> None:
    for family in ("clip", "siglip"):
        usual = getattr(transformers, {"clip": "CLIP", "siglip": "Siglip"}[family] + "Config")()
        bare = {"model_type": family, "text_config": {}, "vision_config": {}}
        for tower, model in read_towers(bare, family).items():
            config = getattr(usual, f"{tower}_config")
            spec = model.main.spec
            assert spec.d_model == config.hidden_size
            assert spec.heads == config.num_attention_heads
            assert sum(len(group.layers) for group in model.groups) == config.num_hidden_layers
        assert "text_config" in read_config(bare, family).partial
