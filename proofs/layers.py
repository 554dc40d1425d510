"""Attention itself: PyTorch's own module, and transformers' eager attention family by family."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

import attnviz as av
from proofs.row import Proof
from tests import checkpoints
from tests.attention import test_layers
from tests.models import test_hooked, test_native, tiny

COMMAND = "python -m proofs layers"
TOLERANCE = 1e-5
SIZES = ((8, 2), (24, 4), (128, 8), (512, 8), (768, 12))
TEXT = "The keys to the cabinet are on the table because the keys to the cabinet were lost"


def rows(small: bool, minilm: str) -> Iterator[Proof]:
    """Every row; of small ones fewer sizes and families."""
    yield module(SIZES[:2] if small else SIZES)
    yield native(("bert", "gpt2") if small else test_native.FAMILIES)
    yield hooked(("llama", "bert") if small else tuple(tiny.HOOKED))
    yield real(("demo-gpt2",) if small else ("demo-gpt2", "demo-bert", minilm))


def module(sizes: tuple[tuple[int, int], ...]) -> Proof:
    worst = 0.0
    for width, heads in sizes:
        for cross in (False, True):
            for ours, theirs in test_layers.beside_torch(width, heads, cross, seed=0):
                worst = max(worst, float((ours - theirs).abs().max().detach()))
    return Proof(
        f"weights and output of {2 * len(sizes)} layers, self- and cross-attention, padded",
        "nn.MultiheadAttention", f"max ∣Δ∣ {worst:.1e}", f"{TOLERANCE:.0e}",
        worst <= TOLERANCE, COMMAND,
    )  # fmt: skip


def _worst(differences: dict[str, float]) -> tuple[str, bool]:
    family = max(differences, key=lambda name: differences[name])
    return f"max ∣Δ∣ {differences[family]:.1e} ({family})", differences[family] <= TOLERANCE


def native(families: tuple[str, ...]) -> Proof:
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for family in families:
            there = checkpoints.write(Path(folder) / family, family)
            source = test_native.load(there)
            inputs = source.prepare(av.Prompt(ids=tuple((11 * n) % 280 + 9 for n in range(17))))
            tokens = next(iter(inputs.sides.values())).queries
            expected, states = test_native.reference(there, tokens.ids, tokens.segments)
            pairs = [
                *zip(test_native.watch(source, [inputs]), expected, strict=True),
                *zip(test_native.hidden_states(source, inputs), states, strict=True),
            ]
            found[family] = max(float((a - b).abs().max()) for a, b in pairs)
    said, holds = _worst(found)
    return Proof(
        f"weights and states, own forward pass: {', '.join(families)}, random weights",
        "transformers, eager", said, f"{TOLERANCE:.0e}", holds, COMMAND,
    )  # fmt: skip


def hooked(families: tuple[str, ...]) -> Proof:
    import transformers

    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for family in families:
            there = Path(folder) / family
            tiny.build(family, there)
            source = test_hooked.load(there)
            batch = [tiny.inputs_of(source, tiny.LONG, tiny.SHORT)]
            given: dict[str, tuple[int, ...]] = {"input_ids": tiny.LONG}
            if family in tiny.SEQ2SEQ:
                given["decoder_input_ids"] = batch[0].sides["decoder"].queries.ids
            kind = "AutoModelForSeq2SeqLM" if family in tiny.SEQ2SEQ else "AutoModel"
            how = {"attn_implementation": "eager", "dtype": torch.float32}
            model = getattr(transformers, kind).from_pretrained(there, **how).eval()
            expected = test_hooked.eager_maps(model, family, **given)
            seen = test_hooked.watch(source, batch).weights
            ours = [seen[site] for site in sorted(seen, key=test_hooked.by_kind)]
            theirs = [expected[site] for site in sorted(expected, key=test_hooked.by_kind)]
            found[family] = max(
                float((a[0] - b).abs().max()) for a, b in zip(ours, theirs, strict=True)
            )
    said, holds = _worst(found)
    return Proof(
        f"weights through transformers' hooks: {', '.join(families)}, random weights",
        "transformers, eager", said, f"{TOLERANCE:.0e}", holds, COMMAND,
    )  # fmt: skip


def real(models: tuple[str, ...]) -> Proof:
    import transformers

    from attnviz.models.demo import DEMOS

    found = {}
    for name in models:
        capture = av.capture(TEXT, model=name)
        ids = next(iter(capture.inputs.sides.values())).queries.ids
        model = transformers.AutoModel.from_pretrained(
            DEMOS.get(name, name), attn_implementation="eager", dtype=torch.float32
        ).eval()
        with torch.no_grad():
            theirs = model(torch.tensor([ids]), output_attentions=True).attentions
        found["all-MiniLM-L6-v2" if "/" in name else name] = max(
            float(abs(capture.maps[site] - w[0].numpy()).max())
            for site, w in zip(capture.layout.sites, theirs, strict=True)
        )
    said, holds = _worst(found)
    return Proof(
        f"weights of trained models: {', '.join(found)}",
        "transformers, eager", said, f"{TOLERANCE:.0e}", holds, COMMAND,
    )  # fmt: skip
