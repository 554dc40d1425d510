"""How large models get into memory: the precision they are stored in, quantized, divided."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.attention.layers import attend
from attnviz.core.heads import Layout, Site
from attnviz.core.prompt import Inputs
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import UsageError
from attnviz.models.folder import locate
from attnviz.scoring.observe import ScoreObserver

IDS = av.Prompt(ids=tuple(range(3, 19)))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One tiny Llama, stored in three precisions."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    settings = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    settings |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 60}
    model = LlamaForCausalLM(LlamaConfig(**settings))
    found = {}
    for name in ("float32", "float16", "bfloat16"):
        found[name] = tmp_path_factory.mktemp(name)
        model.to(getattr(torch, name)).save_pretrained(found[name])
    return found


def test_auto_keeps_bfloat16_and_nothing_else(folders: dict[str, Path]) -> None:
    kept = {name: av.load(str(folder)).info.dtype for name, folder in folders.items()}
    assert kept == {"float32": "float32", "float16": "float32", "bfloat16": "bfloat16"}
    assert av.load(str(folders["bfloat16"]), dtype="float32").info.dtype == "float32"
    assert locate(str(folders["bfloat16"])).precision == "bfloat16"


def test_a_device_map_changes_nothing(folders: dict[str, Path]) -> None:
    if find_spec("accelerate") is None:
        with pytest.raises(UsageError, match="pip install accelerate"):
            av.load(str(folders["float32"]), device="balanced")
        return
    plain = av.heads(IDS, model=str(folders["float32"]), device="cpu")
    placed = av.heads(IDS, model=av.load(str(folders["float32"]), device="balanced"))
    if placed.source.device != "cpu":
        pytest.skip("THE DEVICE MAP TOOK ANOTHER DEVICE")
    assert [one.scores for one in placed.heads] == [one.scores for one in plain.heads]


@pytest.mark.parametrize("bits", ["4bit", "8bit"])
def test_quantizing_needs_bitsandbytes(folders: dict[str, Path], bits: str) -> None:
    if find_spec("bitsandbytes") is not None:
        assert len(av.heads(IDS, model=av.load(str(folders["float32"]), dtype=bits)).heads) == 8
        return
    with pytest.raises(UsageError, match="needs bitsandbytes; pip install bitsandbytes"):
        av.load(str(folders["float32"]), dtype=bits)


def test_names_that_are_none() -> None:
    with pytest.raises(UsageError, match="float16, 8bit, 4bit"):
        av.load("demo-gpt2", dtype="3bit")
    with pytest.raises(UsageError, match="go with trained weights"):
        av.load("demo-gpt2", device="balanced", untrained=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_scores_in_half_precision_are_summed_in_float32(dtype: torch.dtype) -> None:
    """Within 2e-6 of float64 on the same queries and keys, which are in half precision."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 4, 200, 16) for _ in range(3))
    query, key, value = ((3 * query).to(dtype), key.to(dtype), value.to(dtype))
    side = Tokens(tuple(f"w{n % 31}" for n in range(200)))
    batch, layout = [Inputs({"decoder": Sides(side, side)})], Layout({"decoder": (4,)})
    observer, double = ScoreObserver(batch, layout), ScoreObserver(batch, layout)
    attend(query, key, value, causal=True, site=Site("decoder", 0), observers=[observer])
    wide = (query.double(), key.double(), value.double())
    attend(*wide, causal=True, site=Site("decoder", 0), observers=[double])
    for ours, theirs in zip(observer.result(), double.result(), strict=True):
        for name, score in ours.scores.items():
            if score.mean is None:
                assert theirs.scores[name].mean is None
            else:
                assert score.mean == pytest.approx(theirs.scores[name].mean, rel=2e-6), name
    exact = query.double() @ key.double().mT / 4
    exact = exact.masked_fill(torch.ones(200, 200).triu(1).bool(), -torch.inf).softmax(-1)
    rows = range(2, 200)  # from the first row whose previous token is not the first
    previous = exact[0][:, rows, [row - 1 for row in rows]].mean(-1)
    found = [head.scores["previous"].mean for head in observer.result()]
    np.testing.assert_allclose(found, previous, rtol=2e-6)
    bits = -(exact * exact.clamp(min=1e-300).log2()).sum(-1)[0, :, 1:].mean(-1)
    found = [head.scores["entropy"].mean for head in observer.result()]
    np.testing.assert_allclose(found, bits, rtol=2e-6)
