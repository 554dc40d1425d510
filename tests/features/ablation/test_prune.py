"""Checkpoints without heads: transformers alone loads them, and computes what gating computes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.cli import main
from attnviz.core.source import ForwardRequest
from attnviz.models.demo import DEMOS
from tests.models.tiny import SHORT

transformers = pytest.importorskip("transformers")

SIZES = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 3,
    "intermediate_size": 24, "vocab_size": 41, "max_position_embeddings": 32, "head_dim": 4,
}  # fmt: skip


def alone(folder: Path) -> torch.Tensor:
    """Logits by transformers' own classes, which load every tensor and miss none."""
    config = transformers.AutoConfig.from_pretrained(folder)
    kind = getattr(transformers, config.architectures[0])
    model, said = kind.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    assert not said["missing_keys"]
    assert not said["mismatched_keys"]
    with torch.no_grad():
        return model.eval()(torch.tensor([SHORT])).logits[0]


def gated(model: str | Path, heads: str) -> torch.Tensor:
    """Logits of the model whose heads are gated."""
    source = av.load(model, dtype="float32")
    inputs = source.prepare(av.Prompt(ids=SHORT, special_tokens=False))
    with source.gated(dict.fromkeys(heads.split(", "), 0.0)):
        logits = source.forward([inputs], [], ForwardRequest(logits=True)).logits
    assert logits is not None
    return logits[0]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        family = name
        if name in made:
            return made[name]
        more: dict[str, Any] = {}
        if family == "Odd":  # 24 is not divisible by 5, nor by 7
            family, more = "Llama", {"num_attention_heads": 8, "num_key_value_heads": 8}
        config = getattr(transformers, f"{family}Config")(**{**SIZES, **more})
        end = "ForMaskedLM" if family == "Roberta" else "ForCausalLM"
        torch.manual_seed(0)
        model = getattr(transformers, f"{family}{end}")(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=0.3)
        folder = tmp_path_factory.mktemp(name)
        model.save_pretrained(folder)
        made[name] = folder
        return folder

    return make


CASES = [
    # groups of two query heads: 0-1, 2-3, 4-5
    ("Llama", "0.2, 0.3, 1.4, 1.5", 2, ()),  # a group of every layer
    ("Mistral", "0.0, 0.1, 0.4, 0.5, 1.2, 1.3", 2, ("0.4", "0.5")),  # and one more of layer 0
    ("Qwen3", "0.2, 0.3, 1.4, 1.5", 2, ()),
    ("Llama", "0.2, 1.4, 1.5", 0, ("0.2", "1.4", "1.5")),  # half a group cannot be cut
    ("Olmo2", "0.2, 0.3, 1.4, 1.5", 0, ("0.2", "0.3", "1.4", "1.5")),
    ("Odd", "0.0, 0.1, 0.2, 1.3, 1.4, 1.5", 2, ("0.2", "1.5")),
    ("Roberta", "0.1, 1.5", 0, ("0.1", "1.5")),
]


def test_transformers_alone_loads_what_the_gated_model_computes(
    tiny: Callable[[str], Path], tmp_path: Path
) -> None:
    folders = []
    for number, (family, heads, cut, zeroed) in enumerate(CASES):
        pruned = av.prune_heads(tiny(family), heads, tmp_path / str(number))
        folders.append(pruned.folder)
        assert (pruned.cut, pruned.zeroed) == (cut, zeroed), (family, str(pruned))
        assert pruned.difference < 1e-5
        # query and output of each head, key and value of each group, in two layers
        before, after = pruned.parameters
        groups = cut if family == "Odd" else cut // 2
        assert before - after == 2 * (2 * cut + 2 * groups) * 4 * 24
    for demo in ("demo-gpt2", "demo-bert"):
        folders.append(av.prune_heads(demo, "2.0, 3.3", tmp_path / demo).folder)
    models = [(tiny(family), heads) for family, heads, _, _ in CASES]
    models += [("demo-gpt2", "2.0, 3.3"), ("demo-bert", "2.0, 3.3")]
    for folder, (model, heads) in zip(folders, models, strict=True):
        logits, expected = alone(folder), gated(model, heads)
        whole = gated(model, heads.split(", ")[0]) if ", " in heads else expected
        scale = max(1.0, float(expected.abs().max()))
        np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5 * scale)
        assert (whole - expected).abs().max() > 1e-3, "the heads do something"


def test_the_new_checkpoint_says_how_many_heads_it_has(
    tiny: Callable[[str], Path], tmp_path: Path
) -> None:
    av.prune_heads(tiny("Llama"), "0.2, 0.3, 1.4, 1.5", tmp_path / "new")
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    assert (config["num_attention_heads"], config["num_key_value_heads"]) == (4, 2)
    assert config["head_dim"] == 4
    assert av.load(tmp_path / "new").layout.heads == {"decoder": (4, 4)}


def test_the_command_measures_and_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["ablate", "a b a b", "--select", "2.0+2.1", "--method", "zero"]
    assert main([*line, "--write", str(tmp_path / "new")]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "without 2 heads" in said
    assert "2 heads set to zero and as large as before (2,615,424 parameters, 5.2 MB)" in said
    assert av.load(tmp_path / "new").layout == av.load("demo-gpt2").layout
    assert main([*line, "--write", str(tmp_path / "new")]) == 1
    assert "is there already; name a folder that is not, or empty" in capsys.readouterr().err
    assert main(["ablate", "a b a b", "--write", str(tmp_path / "other")]) == 2
    assert "--write removes the heads of --select; say which ones" in capsys.readouterr().err


def test_what_cannot_be_pruned_is_refused(tiny: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(av.UsageError, match="only a checkpoint"):
        av.prune_heads("fresh", "0.0", tmp_path / "a")
    with pytest.raises(av.ModelError, match="its projections are none of GPT-2's, BERT's or"):
        av.prune_heads(tiny("GPTNeoX"), "0.0", tmp_path / "a")
    assert not (tmp_path / "a").exists() or not list((tmp_path / "a").iterdir())
    with pytest.raises(av.SelectionError):
        av.prune_heads("demo-gpt2", "9.9", tmp_path / "a")


def test_a_checkpoint_that_does_something_else_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from attnviz.models.pruned import checkpoint

    monkeypatch.setattr(checkpoint, "removed", lambda tensors, *_: tensors)
    with pytest.raises(av.ModelError, match=r"differ by .* from the gated model, so it is not"):
        av.prune_heads("demo-gpt2", "2.0", tmp_path / "a")
    assert list((tmp_path / "a").iterdir()) == []
    assert set(DEMOS) >= {"demo-gpt2"}
