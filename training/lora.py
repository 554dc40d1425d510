"""Train a low-rank adapter of demo-gpt2 on one book, written as peft writes them.

    python -m training.lora --book BOOKS/Doyle_Hound_1902.txt --out sample_inputs/lora

ΔW = α/r · B A (Hu et al. 2021, arXiv:2106.09685) is added to the matrices of queries, keys and
values, which GPT-2 keeps as one, and to W_O; all else stays. Rows are drawn from the first nine
tenths of the book; the mean loss on the last tenth is printed before and after. The folder has
``adapter_config.json`` and ``adapter_model.safetensors``, in half precision.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
import typer
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import GPT2LMHeadModel

from attnviz.models.demo import DEMOS

from .text import paragraphs

BASE, TARGETS = "demo-gpt2", ("attn.c_attn", "attn.c_proj")
LENGTH, BATCH, RATE = 128, 8, 2e-3
"""Tokens of a row, rows of a step, and the largest rate of AdamW, which falls to 0 as a cosine."""


class Added(nn.Module):
    """A layer of [in, out], and a product beside it that begins at 0."""

    def __init__(self, base: nn.Module, rank: int, alpha: float) -> None:
        super().__init__()
        width, out = base.weight.shape  # type: ignore[misc]
        self.base, self.scale = base, alpha / rank
        self.a = nn.Parameter(torch.randn(rank, width) / math.sqrt(width))
        self.b = nn.Parameter(torch.zeros(out, rank))

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        found: Tensor = self.base(x) + self.scale * (x @ self.a.T @ self.b.T)
        return found


def loss_of(model: nn.Module, rows: Tensor) -> Tensor:
    """Return the mean loss of next tokens, in nats; ``rows`` [B, T]."""
    logits = model(rows[:, :-1], use_cache=False).logits
    return F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


def held_loss(model: nn.Module, ids: Tensor) -> float:
    """Return the same over a text in rows that do not overlap."""
    rows = ids[: len(ids) // LENGTH * LENGTH].view(-1, LENGTH)
    with torch.no_grad():
        parts = [loss_of(model, rows[n : n + BATCH]) for n in range(0, len(rows), BATCH)]
    return float(torch.stack(parts).mean())


def main(
    book: Annotated[Path, typer.Option(help="a novel, as plain text")],
    out: Annotated[Path, typer.Option(help="folder for the adapter")],
    steps: Annotated[int, typer.Option(min=1, help="of the optimizer")] = 300,
    rank: Annotated[int, typer.Option(min=1, help="r")] = 4,
    alpha: Annotated[float, typer.Option(help="α")] = 8,
    seed: Annotated[int, typer.Option(help="of A and of the rows")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="torch threads")] = 1,
) -> None:
    """Train the adapter and write its folder."""
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    model = GPT2LMHeadModel.from_pretrained(DEMOS[BASE], dtype=torch.float32).eval()
    model.requires_grad_(False)
    added = {}
    for name, module in list(model.named_modules()):
        if name.endswith(TARGETS):
            added[name] = Added(module, rank, alpha)
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, added[name])
    tokenizer = Tokenizer.from_file(str(DEMOS[BASE] / "tokenizer.json"))
    text = "\n".join(paragraphs(book.read_text("utf-8")))
    ids = torch.tensor(tokenizer.encode(text, add_special_tokens=False).ids)
    part = len(ids) * 9 // 10
    train, held = ids[:part], ids[part:]
    before = held_loss(model, held)
    optimizer = torch.optim.AdamW([p for one in added.values() for p in (one.a, one.b)], RATE,
                                  weight_decay=0.0)  # fmt: skip
    rng = np.random.default_rng(seed)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * (1 + math.cos(math.pi * step / steps)) / 2
        starts = rng.integers(0, len(train) - LENGTH, BATCH)
        loss = loss_of(model, torch.stack([train[n : n + LENGTH] for n in starts]))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    out.mkdir(parents=True, exist_ok=True)
    stored = {
        f"base_model.model.{name}.lora_{letter}.weight": matrix.detach().half().contiguous()
        for name, one in added.items()
        for letter, matrix in (("A", one.a), ("B", one.b))
    }
    save_file(stored, out / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": BASE, "r": rank,
        "lora_alpha": alpha, "target_modules": list(TARGETS), "fan_in_fan_out": True,
        "bias": "none", "lora_dropout": 0.0,
    }  # fmt: skip
    (out / "adapter_model.safetensors").chmod(0o644)
    (out / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    typer.echo(f"held-out loss {before:.4f} -> {held_loss(model, held):.4f}; wrote {out}")


if __name__ == "__main__":
    typer.run(main)
