"""Shapes on paper: transformers' modules, published counts, and torch's FLOP counter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch.utils.flop_counter import FlopCounterMode

from attnviz.features.shapes import function as shapes
from attnviz.features.shapes import verify
from attnviz.models.configs.model import presets, read_config
from attnviz.models.parameter_count import count_config
from proofs.row import Proof
from tests.features.shapes.test_real import CASES

COMMAND = "python -m proofs counts"
FEW = ("gpt2", "bert-base", "llama3-8b")
KINDS: tuple[Literal["mha", "gqa", "mqa", "mla", "cross"], ...] = (
    "mha", "gqa", "mqa", "mla", "cross"
)  # fmt: skip


def rows(small: bool, minilm: str) -> Iterator[Proof]:
    """Every row; of small ones three models and families."""
    yield from parameters(small)
    yield layers(("gpt2", "llama", "bert") if small else tuple(sorted(CASES)))
    yield flops()


def parameters(small: bool) -> Iterator[Proof]:
    chosen = [
        one for name, one in presets().items() if one.counted_as and (name in FEW or not small)
    ]
    counted = [count_config(one.config, one.counted_as) for one in chosen]
    formulas = [
        one.title
        for one, found in zip(chosen, counted, strict=True)
        if one.model.attention_parameters != found.attention
    ]
    whole = [
        one.title
        for one, found in zip(chosen, counted, strict=True)
        if one.parameters != found.whole
    ]
    command = f"{COMMAND}; attnviz shapes --model NAME --show verify"
    yield Proof(
        f"attention parameters by formula of {len(chosen)} published models, {chosen[0].title} to "
        f"{chosen[-1].title}",
        "parameters of transformers' attention modules",
        f"{len(chosen) - len(formulas)} of {len(chosen)} equal", "exact", not formulas, command,
    )  # fmt: skip
    yield Proof(
        "all parameters of the same models",
        "transformers' classes, built without memory (GPT-2 124,439,808; Llama 3 8B 8,030,261,248)",
        f"{len(chosen) - len(whole)} of {len(chosen)} equal", "exact", not whole, command,
    )  # fmt: skip


def layers(families: tuple[str, ...]) -> Proof:
    checks = []
    for family in families:
        config = {"model_type": family, **CASES[family]}
        found, _ = verify.run_layers(read_config(config, family), config, None)
        checks += found
    wrong = [check for check in checks if not check.equal]
    return Proof(
        f"shapes and values of every step of a layer, {len(families)} families with rotary "
        "positions, grouped keys, windows, norms and biases",
        "transformers' own layers with the same weights",
        f"{len(checks) - len(wrong)} of {len(checks)} checks equal", "values to 1e-4 of their size",
        not wrong, f"{COMMAND}; attnviz shapes --model FOLDER --show verify",
    )  # fmt: skip


def flops() -> Proof:
    """nn.MultiheadAttention under torch's counter, then every step of five kinds of layers."""
    exact, tried = 0, 0
    for width, heads, batch, length in ((512, 8, 2, 64), (768, 12, 1, 128), (128, 4, 3, 17)):
        module = torch.nn.MultiheadAttention(width, heads, batch_first=True)
        x = torch.randn(batch, length, width, requires_grad=True)
        with FlopCounterMode(display=False) as counter:
            module(x, x, x, average_attn_weights=False)
        run = shapes.RunSizes(batch=batch, seq=length)
        found = shapes.walk(shapes.Layer(d_model=width, heads=heads), run)
        ours = sum(step.flops.value or 0 for step in found.steps)
        tried, exact = tried + 1, exact + (ours == counter.get_total_flops())
    run = shapes.RunSizes(batch=2, seq=16)
    for kind in KINDS:
        layer = shapes.Layer(d_model=64, heads=4, kind=kind, kv_heads=2 if kind == "gqa" else None)
        checks = [one for one in shapes.verify(layer, run).checks if "FLOPs" in one.what]
        tried, exact = tried + len(checks), exact + sum(one.equal for one in checks)
    return Proof(
        "FLOPs of nn.MultiheadAttention at three sizes, and of every step of MHA, GQA, MQA, MLA "
        "and cross-attention",
        "torch's FlopCounterMode", f"{exact} of {tried} equal", "exact", exact == tried,
        f"{COMMAND}; attnviz shapes --d-model 64 --heads 4 --show verify",
    )  # fmt: skip
