"""An atlas of a model that has learned nothing names no head, however many there are."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import attnviz as av
from attnviz.features.atlas.result import Atlas
from attnviz.models.demo import DEMOS
from tests import ROOT
from tests.checkpoints import needs_transformers_5

TREEBANK = ROOT / "sample_inputs" / "treebank.conllu"
SENTENCES = ROOT / "sample_inputs" / "sentences.txt"


def saved(folder: Path, name: str, seed: int, **sizes: Any) -> str:
    """A checkpoint of a bundled model's configuration before training, LM head and all."""
    import transformers

    shutil.copytree(DEMOS[name], folder)
    config = transformers.AutoConfig.from_pretrained(folder, **sizes)
    kind = "AutoModelForCausalLM" if name == "demo-gpt2" else "AutoModelForMaskedLM"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = getattr(transformers, kind).from_config(config).float()
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder)
    return str(folder)


def named(atlas: Atlas) -> list[str]:
    """What is said of heads beyond where they rest."""
    found = []
    for one in atlas.heads:
        name = atlas.layout.name(one.head)
        if one.profile.scores.does is not None:
            found.append(f"{name} does {one.profile.scores.does.title}")
        found += [f"{name} is {role.title}" for role, _ in one.annotated]
        found += [f"{name} is needed"] if one.needed else []
        found += [f"{name} copies"] if one.copies else []
        found += [f"{name} finds {relation.relation}" for relation in one.relations]
        found += [f"{name} is like {len(one.profile.nearest)} heads"] * bool(one.profile.nearest)
        found += [f"{name} feeds {atlas.layout.name(edge.reader)}" for edge in one.feeds]
    return found


@pytest.mark.slow
@needs_transformers_5
@pytest.mark.parametrize("name", ["demo-gpt2", "demo-bert"])
def test_no_head_of_an_untrained_model_is_named(name: str, tmp_path: Path) -> None:
    model = saved(tmp_path / "m", name, 0)
    atlas = av.atlas(SENTENCES, model=model, gold=TREEBANK)
    assert not atlas.absent
    assert named(atlas) == []
    assert all(one.needed is False for one in atlas.heads)


@pytest.mark.slow
@needs_transformers_5
def test_nor_one_of_1024_heads_on_few_texts(tmp_path: Path) -> None:
    """Rows of few texts and a thousand heads: the largest of many small figures is small, too."""
    model = saved(tmp_path / "m", "demo-gpt2", 0, n_layer=32, n_head=32, n_embd=64)
    atlas = av.atlas(SENTENCES, model=model, gold=TREEBANK, limit=8)
    assert len(atlas.heads) == 1024
    assert named(atlas) == []
