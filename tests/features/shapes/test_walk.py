"""The walk, and its verification against the real layer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from attnviz.attention.spec import KINDS, AttentionSpec, RunSizes, check_sizes, spec_of
from attnviz.attention.walkthrough import walk
from attnviz.features.shapes import function as answers
from attnviz.features.shapes.verify import verify
from attnviz.models.configs.model import read_config, read_towers
from tests.models.tiny_senses import SEES, build, build_llava, transformers


def spec(
    kind: str, d_model: int, heads: int, *, bias: bool = True, **options: Any
) -> AttentionSpec:
    causal, window = options.pop("causal", False), options.pop("window", None)
    sizes = check_sizes(d_model, heads, kind=kind, **options)
    return spec_of(sizes, bias=bias, causal=causal, window=window)


# the walk


def test_the_walk_of_two_by_four_by_eight() -> None:
    steps = walk(spec("mha", 8, 2), RunSizes(2, 4)).steps
    assert [step.sizes for step in steps] == [
        (2, 4, 8),  # X
        (2, 4, 8),  # Q
        (2, 4, 8),  # K
        (2, 4, 8),  # V
        (2, 4, 2, 4),  # view
        (2, 2, 4, 4),  # transpose
        (2, 2, 4, 4),  # scores
        (2, 2, 4, 4),  # scaled
        (2, 2, 4, 4),  # masked
        (2, 2, 4, 4),  # weights
        (2, 2, 4, 4),  # head outputs
        (2, 4, 2, 4),  # transpose back
        (2, 4, 8),  # concat
        (2, 4, 8),  # Y
    ]
    assert sum(step.parameters for step in steps) == 4 * 8 * 8 + 4 * 8


@pytest.mark.parametrize("kind", KINDS)
def test_letters_agree_with_numbers(kind: str) -> None:
    one = spec(kind, 48, 6)
    context = 13 if kind == "cross" else None
    letters, numbers = walk(one, RunSizes(3)), walk(one, RunSizes(3, 7, context))
    for unset, known in zip(letters.steps, numbers.steps, strict=True):
        assert unset.symbols == known.symbols
        assert unset.flops.at(T=7, S=13) == known.flops
        assert (unset.bytes is None) == (known.bytes is None)
        if unset.bytes is not None and known.bytes is not None:
            assert unset.bytes.at(T=7, S=13) == known.bytes
    assert sum((s.flops for s in numbers.steps), 0) == numbers.flops.total
    assert sum(s.parameters for s in numbers.steps) == numbers.parameters.total


def test_views_take_no_memory_and_every_step_has_its_reason() -> None:
    for kind in KINDS:
        for run_ in (RunSizes(), RunSizes(cache=5)) if kind != "cross" else (RunSizes(),):
            for step in walk(spec(kind, 48, 6), run_).steps:
                assert (step.bytes is None) == (
                    step.operation[:5] == ".view"
                    or "transpose" in step.operation
                    or step.key == "share"
                )
                assert len(step.why) > 40
    whys = "\n".join(step.why for step in walk(spec("mha", 8, 2), RunSizes()).steps)
    for bug in (".contiguous()", "√d", "after softmax", "forget it"):
        assert bug in whys


# verification against the real layer

GRID: list[tuple[str, dict[str, Any]]] = [
    ("mha", {}), ("mha", {"head_dim": 5}), ("gqa", {"kv_heads": 3}), ("mqa", {}),
    ("mla", {"latent": 5, "rope_dim": 2}), ("mla", {"latent": 7, "rope_dim": 0}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "sizes"), GRID)
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"causal": True, "window": 3}])
def test_the_real_layer_does_what_the_walk_says(
    kind: str, sizes: dict[str, Any], options: dict[str, Any]
) -> None:
    for batch, seq in ((1, 1), (3, 7), (2, 13)):
        found = verify(
            walk(spec(kind, 30, 6, bias=batch == 3, **sizes, **options), RunSizes(batch, seq))
        )
        assert found.failures == ()
        assert {check.what for check in found.checks} >= {"shape", "parameters", "FLOPs", "bytes"}
    for cache in (0, 1, 8):
        one = spec(kind, 30, 6, **sizes, **options)
        assert verify(walk(one, RunSizes(2, cache=cache, dtype="float64"))).failures == ()
        chunk = RunSizes(2, 4, cache=cache, dtype="float64")
        assert verify(walk(one, chunk)).failures == ()


@pytest.mark.parametrize(("t", "s"), [(1, 1), (12, 20), (7, 3)])
@pytest.mark.parametrize("kv_heads", [6, 2])
def test_real_cross_attention_does_too(t: int, s: int, kv_heads: int) -> None:
    one = spec("cross", 30, 6, kv_heads=kv_heads)
    assert verify(walk(one, RunSizes(2, t, s, dtype="bfloat16"))).failures == ()


def test_a_wrong_walk_is_found_out() -> None:
    right = walk(spec("mha", 30, 6), RunSizes(2, 7))
    bad = [
        step._replace(parameters=step.parameters + 1) if step.key == "w_q" else step
        for step in right.steps
    ]
    (failure,) = verify(right._replace(steps=tuple(bad))).failures
    assert (failure.step, failure.what) == ("Q", "parameters")
    other = walk(spec("mha", 30, 5), RunSizes(2, 7))
    assert verify(right._replace(steps=other.steps)).failures


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
