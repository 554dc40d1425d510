"""A GPT-2 of a few lines of NumPy, for second measurements: nothing of attnviz computes here.

Weights come from the checkpoint, everything after is written out, and what heads hand to W_O can be
replaced. Texts of a batch have one length, so that there is no padding, and no mask but the causal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]
Heads = Mapping[tuple[int, int], Array]
"""By layer and head, what takes the place of z [B, T, d] or [T, d]."""


class Plain:
    """A GPT-2 checkpoint in a folder, in float32 or ``dtype``."""

    def __init__(self, folder: Path, dtype: Any = np.float32) -> None:
        from safetensors.numpy import load_file

        config = json.loads((folder / "config.json").read_text("utf-8"))
        self.layers, self.heads = config["n_layer"], config["n_head"]
        self.vocabulary, self.width = config["vocab_size"], config["n_embd"]
        loaded = load_file(str(folder / "model.safetensors"))
        self._w = {
            name.removeprefix("transformer."): value.astype(dtype) for name, value in loaded.items()
        }

    def run(
        self, ids: NDArray[np.int64], replaced: Heads | None = None, looks: Heads | None = None
    ) -> tuple[Array, Array]:
        """One pass over ids [B, T]; ``looks``: as ``replaced``, weights [B, T, T] of heads.

        Returns:
            Logits [B, T, V], and what every head hands to W_O, z [layers, B, heads, T, d].
        """
        w, (b, t) = self._w, ids.shape
        x = w["wte.weight"][ids] + w["wpe.weight"][:t]
        later = np.triu(np.full((t, t), -np.inf, x.dtype), 1)
        outputs = []
        for layer in range(self.layers):
            h = f"h.{layer}."
            y = _norm(x, w[h + "ln_1.weight"], w[h + "ln_1.bias"])
            y = y @ w[h + "attn.c_attn.weight"] + w[h + "attn.c_attn.bias"]
            q, k, v = y.reshape(b, t, 3, self.heads, -1).transpose(2, 0, 3, 1, 4)  # [B, H, T, d]
            scores = q @ k.swapaxes(-1, -2) / np.sqrt(np.asarray(q.shape[-1], x.dtype)) + later
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            for (at, head), other in (looks or {}).items():
                if at == layer:
                    weights[:, head] = other
            z = weights @ v
            for (at, head), other in (replaced or {}).items():
                if at == layer:
                    z[:, head] = other
            outputs.append(z)
            written = z.transpose(0, 2, 1, 3).reshape(b, t, -1)
            x = x + written @ w[h + "attn.c_proj.weight"] + w[h + "attn.c_proj.bias"]
            y = _norm(x, w[h + "ln_2.weight"], w[h + "ln_2.bias"])
            y = _gelu(y @ w[h + "mlp.c_fc.weight"] + w[h + "mlp.c_fc.bias"])
            x = x + y @ w[h + "mlp.c_proj.weight"] + w[h + "mlp.c_proj.bias"]
        x = _norm(x, w["ln_f.weight"], w["ln_f.bias"])
        return x @ w["wte.weight"].T, np.stack(outputs)

    def losses(
        self, ids: NDArray[np.int64], replaced: Heads | None = None, looks: Heads | None = None
    ) -> Array:
        """-log p of every token after the first, [B, T - 1]."""
        return losses(self.run(ids, replaced, looks)[0], ids)


def losses(logits: Array, ids: NDArray[np.int64]) -> Array:
    """-log p of every token after the first, [B, T - 1]."""
    some = logits[:, :-1]
    peak = some.max(-1)
    total = peak + np.log(np.exp(some - peak[..., None]).sum(-1))
    found: Array = total - np.take_along_axis(some, ids[:, 1:, None], -1)[..., 0]
    return found


def _norm(x: Array, scale: Array, bias: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    found: Array = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
    return found * scale + bias


def _gelu(x: Array) -> Array:
    found: Array = (
        0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi).astype(x.dtype) * (x + 0.044715 * x**3)))
    )
    return found
