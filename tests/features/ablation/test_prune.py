"""Checkpoints without heads: transformers alone loads them, and computes what gating computes."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.cli import main
from attnviz.core.source import ForwardRequest
from attnviz.features.ablation import prune
from attnviz.models.demo import DEMOS
from tests import forking
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


def gated(model: str | Path, heads: str) -> Iterator[torch.Tensor]:
    """Logits of the model whose heads are gated, and those with the first of them gated alone."""
    source = av.load(model, dtype="float32")
    inputs = source.prepare(av.Prompt(ids=SHORT, special_tokens=False))
    for some in (heads.split(", "), heads.split(", ")[:1]):
        with source.gated(dict.fromkeys(some, 0.0)):
            logits = source.forward([inputs], [], ForwardRequest(logits=True)).logits
        assert logits is not None
        yield logits[0]


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
        logits, (expected, whole) = alone(folder), gated(model, heads)
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


def test_the_command_measures_and_writes(tmp_path: Path, capsys) -> None:
    line = ["ablate", "a b a b", "--select", "2.0+2.1", "--method", "zero"]
    assert main([*line, "--out-dir", str(tmp_path / "new")]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "without 2 heads" in said
    assert "2 heads set to zero and as large as before (3,401,856 parameters, 6.8 MB)" in said
    assert av.load(tmp_path / "new").layout == av.load("demo-gpt2").layout
    assert main([*line, "--out-dir", str(tmp_path / "new")]) == 1
    assert "is there already; name a folder that is not, or empty" in capsys.readouterr().err
    assert main(["ablate", "a b a b", "--out-dir", str(tmp_path / "other")]) == 2
    assert (
        "--out-dir is for the checkpoint without the heads of --select; say which ones"
        in capsys.readouterr().err
    )


def test_what_cannot_be_pruned_is_refused(tiny: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(av.UsageError, match="only a checkpoint"):
        av.prune_heads("fresh", "0.0", tmp_path / "a")
    with pytest.raises(av.ModelError, match="its projections are none of GPT-2's, BERT's or"):
        av.prune_heads(tiny("GPTNeoX"), "0.0", tmp_path / "a")
    assert not (tmp_path / "a").exists() or not list((tmp_path / "a").iterdir())
    with pytest.raises(av.SelectionError):
        av.prune_heads("demo-gpt2", "9.9", tmp_path / "a")


def test_a_checkpoint_that_does_something_else_is_not_kept(tmp_path: Path, monkeypatch) -> None:
    from attnviz.models.pruned import checkpoint

    monkeypatch.setattr(checkpoint, "removed", lambda tensors, *_: tensors)
    with pytest.raises(av.ModelError, match=r"differ by .* from the gated model, so it is not"):
        av.prune_heads("demo-gpt2", "2.0", tmp_path / "a")
    assert list(tmp_path.iterdir()) == []
    assert set(DEMOS) >= {"demo-gpt2"}


@pytest.mark.parametrize("there", [False, True])
def test_what_comes_into_the_folder_meanwhile_stays(tmp_path, monkeypatch, there: bool) -> None:
    folder = tmp_path / "new"
    if there:
        folder.mkdir()
    check = prune._difference

    def meanwhile(*arguments: Any) -> float:
        folder.mkdir(exist_ok=True)
        for name in ("mine.txt", "config.json"):
            (folder / name).write_text("mine")
        return check(*arguments)

    monkeypatch.setattr(prune, "_difference", meanwhile)
    with pytest.raises(av.OutputError, match="is there already; name a folder that is not"):
        av.prune_heads("demo-gpt2", "2.0", folder)
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "mine.txt": "mine",
        "config.json": "mine",
    }
    assert list(tmp_path.iterdir()) == [folder], "what was built is gone"


def test_what_comes_into_the_folder_that_is_built_stays(tmp_path: Path, monkeypatch) -> None:
    def meanwhile(expected: Any, part: Path, device: str) -> float:
        (part / "mine.txt").write_text("mine")
        return 1e9

    monkeypatch.setattr(prune, "_difference", meanwhile)
    with pytest.raises(av.ModelError, match="so it is not kept"):
        av.prune_heads("demo-gpt2", "2.0", tmp_path / "new")
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"mine.txt"}


def test_an_empty_folder_keeps_its_mode_and_a_link_leads_to_the_new_one(tmp_path: Path) -> None:
    there, link = tmp_path / "there", tmp_path / "link"
    there.mkdir(mode=0o700)
    link.symlink_to(there)
    av.prune_heads("demo-gpt2", "2.0", link)
    assert link.is_symlink()
    assert there.stat().st_mode & 0o777 == 0o700
    assert av.load(there).layout == av.load(link).layout == av.load("demo-gpt2").layout


def test_a_folder_that_must_stay_itself_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["ablate", "a b", "--select", "2.0", "--out-dir", "."]) == 1
    assert "the folder you are in; name a folder inside it" in capsys.readouterr().err


KILLED = """
import os, signal, sys
import attnviz as av
from attnviz.features.ablation import prune
from attnviz.models.pruned import checkpoint

def killed(*arguments, **more):
    os.kill(os.getpid(), signal.SIGKILL)

place, name = (checkpoint, "keep") if sys.argv[2] == "checked" else (prune, "_difference")
setattr(place, name, killed)
av.prune_heads("demo-gpt2", "2.0", sys.argv[1])
"""


@pytest.mark.parametrize("moment", ["written", "checked"])
def test_a_killed_process_leaves_nothing_that_loads(tmp_path: Path, moment: str) -> None:
    process = forking.Popen([sys.executable, "-c", KILLED, str(tmp_path / "new"), moment])
    assert process.wait(timeout=120) == -signal.SIGKILL
    (part,) = tmp_path.iterdir()  # all of it, and no folder of the name that was asked for
    assert {"config.json", "model.safetensors"} <= {path.name for path in part.iterdir()}
    for name in (part, Path(f"{part}/../{part.name}")):
        with pytest.raises(av.ModelError, match="was never finished and checked; delete it"):
            av.load(name)
    assert av.prune_heads("demo-gpt2", "2.0", tmp_path / "new").zeroed == ("2.0",)


FULL = """
import resource, sys
from attnviz.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (4_000_000, 4_000_000))
sys.exit(main(["ablate", "a b a b", "--select", "2.0", "--out-dir", sys.argv[1]]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of files are those of Linux")
def test_a_full_disk_is_said_in_a_line(tmp_path: Path) -> None:
    process = forking.run([sys.executable, "-c", FULL, str(tmp_path / "new")], text=True)
    said = " ".join(process.stderr.split())
    assert process.returncode == 1, said
    assert "File too large" in said
    assert "choose another place" in said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []
