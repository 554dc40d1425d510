"""Sources against an independent computation in float64, family by family."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import attnviz as av
from attnviz.core.prompt import Prompt
from tests.features.sources import reference
from tests.models import tiny

transformers = pytest.importorskip("transformers")

IDS, TARGET = tiny.LONG, (0, 9, 2, 31, 17)
LAYERS = 3
GEMMA3: dict[str, Any] = {
    **tiny.NARROW,
    "num_hidden_layers": LAYERS,
    "sliding_window": 6,
    "query_pre_attn_scalar": 4,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}
EXPERTS: dict[str, Any] = {
    **tiny.GROUPED,
    "num_hidden_layers": LAYERS,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 8,
}
FAMILIES = {
    "gpt2": (reference.gpt2, {"n_layer": LAYERS}),
    "llama": (reference.llama, {"num_hidden_layers": LAYERS}),
    "qwen3": (reference.llama, {"num_hidden_layers": LAYERS}),
    "gemma2": (reference.llama, {"num_hidden_layers": LAYERS, "sliding_window": 6}),
    "gemma3": (reference.llama, {}), "mixtral": (reference.llama, {}),
    "qwen3_moe": (reference.llama, {}), "bert": (reference.bert, {"num_hidden_layers": LAYERS}),
    "bloom": (reference.bloom, {"n_layer": LAYERS}),
    "falcon": (reference.falcon, {"num_hidden_layers": LAYERS}),
    "falcon-alibi": (reference.falcon, {"num_hidden_layers": LAYERS, "alibi": True}),
}  # fmt: skip


def model(family: str, changes: dict[str, Any], folder: Path) -> Any:
    """A tiny model whose biases and normalizations say something, saved; and itself in float64."""
    known = {
        **tiny.FAMILIES,
        "gemma3": ("Gemma3Text", GEMMA3),
        "mixtral": ("Mixtral", EXPERTS),
        "qwen3_moe": ("Qwen3Moe", EXPERTS),
    }
    name, sizes = known[family.partition("-")[0]]
    config = getattr(transformers, f"{name}Config")(**{**sizes, **changes})
    torch.manual_seed(3)
    kind = transformers.AutoModelForSeq2SeqLM if family == "t5" else transformers.AutoModel
    made = kind.from_config(config, attn_implementation="eager").eval()
    for parameter in made.parameters():
        if parameter.ndim > 1:
            parameter.data *= tiny.GAIN.get(family, 12.0)
        else:
            parameter.data += torch.randn_like(parameter) / 3
    made.save_pretrained(folder)
    made.config._experts_implementation = "eager"  # others have no float64
    return made.double().requires_grad_(False)


def compared(found: av.features.sources.result.Sources, split: reference.Split) -> None:
    """Every entry of the matrix, the score, the bias and the weight, to 1e-4 of the score."""
    wanted = split.matrix(found.head.index, found.query, found.key)
    score = sum(wanted.values())
    bias = float(split.bias[found.head.index, found.query, found.key])
    allowed = 1e-4 * max(1.0, abs(score))
    rows = [one.name(found.layout) for one in found.query_origins]
    columns = [one.name(found.layout) for one in found.key_origins]
    ours = {
        (a, b): value
        for a, row in zip(rows, found.matrix, strict=True)
        for b, value in zip(columns, row, strict=True)
    }
    assert ours.keys() == wanted.keys()
    assert max(abs(ours[pair] - wanted[pair]) for pair in wanted) <= allowed
    assert abs(found.score - (score + bias)) <= allowed
    assert abs(found.sum - (score + bias)) <= allowed
    assert abs(found.added - bias) <= allowed
    weight = float(split.weights[found.head.index, found.query, found.key])
    assert found.weight == pytest.approx(weight, abs=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_pair_of_sources(family: str, tmp_path: Path) -> None:
    compute, changes = FAMILIES[family]
    exact = model(family, changes, tmp_path)
    splits = compute(exact, torch.tensor(IDS))
    source = av.load(str(tmp_path))
    for head, at, key in (("0.1", -1, 8), ("1.2", -1, None), ("2.3", -2, 9), ("2.0", -1, -1)):
        found = av.sources(Prompt(ids=IDS), select=head, query=at, key=key, model=source)
        compared(found, splits[found.head.layer])
        assert (found.softcap is not None) == (family == "gemma2")


def test_two_stacks(tmp_path: Path) -> None:
    exact = model("t5", {}, tmp_path)
    splits = reference.t5(exact, torch.tensor(IDS), torch.tensor(TARGET))
    source = av.load(str(tmp_path))
    inputs = tiny.inputs_of(source, IDS, TARGET)
    from attnviz.features.sources.result import SourcesSettings
    from attnviz.features.sources.run import answer

    for head in ("enc:0.1", "enc:1.3", "dec:2.2", "cross:0.1", "cross:2.0"):
        found = answer(source, inputs, SourcesSettings(select=head, query=4))
        compared(found, splits[head.partition(":")[0]][found.head.layer])
