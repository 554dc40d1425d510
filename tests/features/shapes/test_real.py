"""attnviz's layer with the weights of transformers' own, family by family."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers

from attnviz.errors import ModelError, UsageError
from attnviz.features.shapes import function as answers
from attnviz.features.shapes import result as verified
from attnviz.features.shapes import verify
from attnviz.models.configs.model import presets, read_config

SIZES = {"hidden_size": 96, "num_attention_heads": 6, "num_hidden_layers": 4}
GROUPED = SIZES | {"num_key_value_heads": 2, "head_dim": 16}
T5 = {"d_model": 96, "num_heads": 6, "d_kv": 24, "num_layers": 3, "num_decoder_layers": 2}
BART = {"d_model": 96, "encoder_attention_heads": 6, "decoder_attention_heads": 6}
WINDOW = {"sliding_window": 100}
CASES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("bert", "roberta", "electra"), SIZES),
    **dict.fromkeys(("llama", "gemma", "olmo", "olmo2", "qwen3"), GROUPED),
    "distilbert": {"dim": 96, "n_heads": 6, "n_layers": 2},
    "gpt2": {"n_embd": 96, "n_head": 6, "n_layer": 2},
    **dict.fromkeys(("mistral", "mixtral", "phi3", "gemma2"), GROUPED | WINDOW),
    "olmo3": GROUPED | WINDOW | {"layer_types": ["sliding_attention", "full_attention"] * 2},
    "gemma3_text": GROUPED | WINDOW | {"sliding_window_pattern": 3},
    "phi": SIZES | {"qk_layernorm": True},
    "qwen2": GROUPED | WINDOW | {"use_sliding_window": True, "max_window_layers": 2},
    "qwen3_moe": GROUPED | {"decoder_sparse_step": 1},
    "granite": GROUPED | {"attention_multiplier": 0.11},
    **dict.fromkeys(("t5", "mt5"), T5),
    "bart": BART | {"encoder_layers": 2, "decoder_layers": 2},
}


def run(family: str) -> list[verified.Compared]:
    config = {"model_type": family, **CASES[family]}
    model = read_config(config, family)
    assert verify.can_run(model)
    checks, said = verify.run_layers(model, config, None)
    assert "at tiny sizes" in said
    assert {check.step.rpartition(",")[0] for check in checks} == {g.label.replace(
        "window 100", "window 4") for g in model.groups}  # fmt: skip
    return checks


def test_every_family_that_is_said_to_run_is_tried() -> None:
    assert set(CASES) == verify.RUNS


@pytest.mark.parametrize("family", sorted(CASES))
def test_layers_are_those_of_transformers(family: str) -> None:
    checks = run(family)
    assert [check for check in checks if not check.equal] == []
    compared = [check.what for check in checks]
    groups = len({check.step for check in checks})
    for what in ("weights A, values", "Z concat, values", "Y, values", "Y, shape"):
        assert compared.count(what) == groups


@pytest.mark.parametrize(
    ("family", "step", "wrong"),
    [
        ("qwen3", "_rotated", lambda x, spec, base: x),
        ("qwen3", "_normed", lambda spec, x, norm, family: x),
        ("gemma3_text", "_ONE_PLUS", frozenset()),
        ("t5", "bucket", lambda offset, table, causal: min(abs(offset), 15)),
        ("mistral", "_base", lambda config, spec: 500.0),
    ],
)
def test_a_wrong_step_is_found_out(family: str, step: str, wrong: Any, monkeypatch) -> None:
    monkeypatch.setattr(verify, step, wrong)
    failed = [check for check in run(family) if not check.equal]
    assert failed
    assert all(check.found.startswith("differ by") for check in failed)


def test_a_wrong_window_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    right = read_config

    def wider(config: Any, name: str) -> Any:
        return right({**config, "sliding_window": 5}, name)

    monkeypatch.setattr(verify, "read_config", wider)
    config = {"model_type": "mistral", **CASES["mistral"]}
    checks, _ = verify.run_layers(right(config, "x"), config, None)
    failed = {check.what for check in checks if not check.equal}
    assert failed == {"weights A, values", "Z concat, values", "Y, values"}


def saved(folder: Path, family: str, **fields: Any) -> answers.Model:
    config = transformers.AutoConfig.for_model(
        family,
        **{**GROUPED, "intermediate_size": 16, "vocab_size": 32, "pad_token_id": 0},
        **fields,
    )
    transformers.AutoModel.from_config(config).save_pretrained(folder)
    return answers.Model(model=str(folder))


def test_weights_that_are_there_are_run(tmp_path: Path) -> None:
    answer = answers.verify(saved(tmp_path, "qwen3"))
    assert answer.equal is True
    assert any("Qwen3Model was run with its own weights" in note for note in answer.notes)
    assert sum("values" in check.what for check in answer.checks) == 3
    path = tmp_path / "config.json"
    wrong = json.loads(path.read_text()) | {"num_key_value_heads": 3}
    path.write_text(json.dumps(wrong))
    answer = answers.verify(answers.Model(model=str(tmp_path)))
    assert answer.equal is False
    assert "The layers were not run, since their parameters differ." in answer.notes


@pytest.mark.parametrize(("change", "error", "says"), [
    ({"hidden_act": "nothing"}, ModelError, "transformers cannot build"),
    ({"model_type": "somebody"}, UsageError, r"does not know the family of .*'somebody'"),
])  # fmt: skip
def test_what_cannot_be_built_is_refused(tmp_path: Path, change, error, says: str) -> None:
    model = saved(tmp_path, "llama")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(error, match=says):
        answers.verify(model)


def test_bundled_weights_are_run() -> None:
    answer = answers.verify(answers.Model(model="demo-gpt2"))
    assert answer.equal is True
    assert [c.found for c in answer.checks if "values" in c.what] == ["equal"] * 3


def test_what_is_not_run_is_said(tmp_path: Path) -> None:
    answer = answers.verify(answers.Model(model="deepseek-v2"))
    assert any("does not run the layers of the deepseek_v2 family" in n for n in answer.notes)
    rope = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
    answer = answers.verify(saved(tmp_path, "llama", rope_parameters=rope))
    assert any("scaled rotary positions" in note for note in answer.notes)
    assert not any("values" in check.what for check in answer.checks)


def test_tiny_sizes_keep_the_kind() -> None:
    chosen = presets()["gemma2-9b"]
    fields = {**chosen.config, **verify.tiny(chosen.model, chosen.config)}
    spec = read_config(fields, "x").main.spec
    assert (spec.kind, spec.window, spec.kv_heads, spec.group) == ("gqa", 4, 2, 2)
