"""Writes small transformers of which every head is known: RASP programs, compiled by tracr.

    pip install tracr-pypi
    python -m training.compiled tests/features/patch/compiled

Needed once; the files are read by tests, and nothing else depends on tracr (Lindner et al. 2023,
arXiv:2301.05062). Each ``.npz`` holds the tensors of a GPT-2 without normalization: the compiled
heads, and idle ones beside them that write where nobody reads.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

IDLE = 3
"""Heads beside each compiled one."""
LONGEST = 8
VOCABULARY = ("a", "b", "c", "d", "e")


def programs() -> dict[str, Any]:
    """RASP programs whose last position is right under a causal mask as well."""
    from tracr.compiler import lib
    from tracr.rasp import rasp

    previous = rasp.Aggregate(
        rasp.Select(rasp.indices, rasp.indices, lambda key, query: key == query - 1), rasp.tokens
    ).named("previous")
    followed = rasp.Aggregate(
        rasp.Select(previous, rasp.tokens, rasp.Comparison.EQ), rasp.tokens
    ).named("followed")
    return {"reverse": lib.make_reverse(rasp.tokens), "followed": followed}


def compiled(name: str, program: Any) -> dict[str, np.ndarray]:
    """Return the tensors of a program, and what they mean as JSON under ``meta``."""
    from tracr.compiler import compiling

    model = compiling.compile_rasp_to_model(
        program, vocab=set(VOCABULARY), max_seq_len=LONGEST, compiler_bos="BOS", causal=True
    )
    params, config = model.params, model.model_config
    size = params["token_embed"]["embeddings"].shape[1]
    heads = config.num_heads * (1 + IDLE)
    narrow = max(config.key_size, math.ceil((size + 8) / heads))
    wide = heads * narrow
    draw = np.random.default_rng(0)
    tensors = {
        "wte": _padded(params["token_embed"]["embeddings"], None, wide),
        "wpe": _padded(params["pos_embed"]["embeddings"], None, wide),
    }
    known = []
    for layer in range(config.num_layers):
        attention = f"transformer/layer_{layer}/attn"
        taken = np.zeros((4, wide, wide))
        biases = np.zeros((4, wide))
        for head in range(heads):
            mine = slice(head * narrow, (head + 1) * narrow)
            if head % (1 + IDLE):
                taken[0, :size, mine] = draw.normal(0, 0.1, (size, narrow))
                taken[2, :size, mine] = draw.normal(0, 1, (size, narrow))
                taken[3, mine, size:] = draw.normal(0, 1, (narrow, wide - size))
                continue
            own = slice(head // (1 + IDLE) * config.key_size,
                        (head // (1 + IDLE) + 1) * config.key_size)  # fmt: skip
            for part, word in enumerate(("query", "key", "value")):
                factor = math.sqrt(narrow / config.key_size) if word == "query" else 1.0
                place = slice(mine.start, mine.start + config.key_size)
                taken[part, :size, place] = params[f"{attention}/{word}"]["w"][:, own] * factor
                biases[part, place] = params[f"{attention}/{word}"]["b"][own] * factor
            out = params[f"{attention}/linear"]["w"][own]
            taken[3, mine.start : mine.start + config.key_size, :size] = out
            if np.abs(out).max() > 0:
                known.append(f"{layer}.{head}")
        biases[3, :size] = params[f"{attention}/linear"]["b"]
        tensors[f"qkv.{layer}"] = np.concatenate(list(taken[:3]), 1)
        tensors[f"qkv_bias.{layer}"] = np.concatenate(list(biases[:3]))
        tensors[f"out.{layer}"], tensors[f"out_bias.{layer}"] = taken[3], biases[3]
        mlp = f"transformer/layer_{layer}/mlp"
        first, second = params[f"{mlp}/linear_1"], params[f"{mlp}/linear_2"]
        tensors[f"up.{layer}"] = _padded(first["w"], wide, None)
        tensors[f"up_bias.{layer}"] = np.asarray(first["b"])
        tensors[f"down.{layer}"] = _padded(second["w"], None, wide)
        tensors[f"down_bias.{layer}"] = np.pad(np.asarray(second["b"]), (0, wide - size))
    words = model.input_encoder.encoding_map
    unembed = np.zeros((len(words), wide))
    for word, number in words.items():
        label = f"{program.label}:{word}"
        if label in model.residual_labels:
            unembed[number, model.residual_labels.index(label)] = 1
    tensors["unembed"] = unembed
    meta = {"heads": heads, "words": words, "wrote": known, "name": name}
    found = {name: np.asarray(value, np.float32) for name, value in tensors.items()}
    return found | {"meta": np.frombuffer(json.dumps(meta).encode(), np.uint8)}


def _padded(matrix: Any, rows: int | None, columns: int | None) -> np.ndarray:
    """Return a matrix with zeros below and to the right."""
    found = np.asarray(matrix, np.float64)
    more = [(rows or found.shape[0]) - found.shape[0], (columns or found.shape[1]) - found.shape[1]]
    return np.pad(found, [(0, more[0]), (0, more[1])])


def main(folder: str) -> None:
    """Write every program into a folder."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, program in programs().items():
        np.savez_compressed(Path(folder) / f"{name}.npz", **compiled(name, program))


if __name__ == "__main__":
    main(sys.argv[1])
