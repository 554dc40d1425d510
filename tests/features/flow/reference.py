"""ALTI with every vector written out, in float64, from transformers' own modules."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

transformers = pytest.importorskip("transformers")

Table = Any  # float64 arrays of NumPy


@dataclass(frozen=True)
class Place:
    """Where a model has one attention: names of modules, with ``{}`` for the layer.

    Attributes:
        value: makes values (GPT-2: queries and keys too).
        output: W_O.
        norm: before attention (its input is the residual path) or after it.
        query: makes queries; its input is the residual path where the norm comes after.
    """

    value: str
    output: str
    norm: str
    query: str
    post: bool = False


GPT2 = {"decoder": Place("h.{}.attn.c_attn", "h.{}.attn.c_proj", "h.{}.ln_1", "h.{}.attn.c_attn")}
LLAMA = {
    "decoder": Place(
        "layers.{}.self_attn.v_proj", "layers.{}.self_attn.o_proj", "layers.{}.input_layernorm",
        "layers.{}.self_attn.q_proj",
    )
}  # fmt: skip
_BERT = "encoder.layer.{}.attention."
BERT = {
    "encoder": Place(
        _BERT + "self.value", _BERT + "output.dense", _BERT + "output.LayerNorm",
        _BERT + "self.query", post=True,
    )
}  # fmt: skip


def _t5(stack: str, number: int, name: str) -> Place:
    layer = f"{stack}.block.{{}}.layer.{number}."
    return Place(f"{layer}{name}.v", f"{layer}{name}.o", f"{layer}layer_norm", f"{layer}{name}.q")


def _bart(stack: str, name: str) -> Place:
    layer = f"{stack}.layers.{{}}.{name}"
    return Place(
        f"{layer}.v_proj", f"{layer}.out_proj", f"{layer}_layer_norm", f"{layer}.q_proj", post=True
    )


PLACES: dict[str, dict[str, Place]] = {
    "gpt2": GPT2,
    "llama": LLAMA,
    "bert": BERT,
    "t5": {
        "encoder": _t5("encoder", 0, "SelfAttention"),
        "decoder": _t5("decoder", 0, "SelfAttention"),
        "cross": _t5("decoder", 1, "EncDecAttention"),
    },
    "bart": {
        "encoder": _bart("encoder", "self_attn"),
        "decoder": _bart("decoder", "self_attn"),
        "cross": _bart("decoder", "encoder_attn"),
    },
}


def alti(
    family: str, folder: Path | str, ids: tuple[int, ...], target: tuple[int, ...] = ()
) -> Table:
    """The contributions of all tokens to all positions, [n, n]; the source's tokens first."""
    blocks, sizes = _blocks(family, folder, ids, target)
    count = sum(sizes)
    total = np.eye(count)
    for site in sorted(blocks, key=lambda s: (s[0] != "encoder", s[1], s[0] == "cross")):
        shares, own = blocks[site]
        step = np.eye(count)
        first = sizes[0] if len(sizes) > 1 else 0
        if site[0] == "cross":
            step[first:] = np.concatenate([shares, np.diag(own)], axis=1)
        elif site[0] == "decoder":
            step[first:, first:] = shares
        else:
            step[: sizes[0], : sizes[0]] = shares
        total = step @ total
    return total


def _blocks(family: str, folder: Any, ids: Any, target: Any) -> tuple[dict[Any, Any], list[int]]:
    """[T, S] and [T] of every attention, and how many tokens there are on each side."""
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").double()
    model.eval()
    entered: dict[str, torch.Tensor] = {}
    left: dict[str, torch.Tensor] = {}

    def keep(name: str) -> Any:
        def hook(module: Any, args: Any, output: Any) -> None:
            entered[name] = args[0][0]
            left[name] = output[0] if output.ndim == 3 else output

        return hook

    names = dict(model.named_modules())
    depth = dict.fromkeys(PLACES[family], 0)
    for kind, place in PLACES[family].items():
        while place.value.format(depth[kind]) in names:
            for name in (place.value, place.norm, place.query):
                full = name.format(depth[kind])
                names[full].register_forward_hook(keep(full))
            depth[kind] += 1
    more = {"decoder_input_ids": torch.tensor([target])} if target else {}
    with torch.no_grad():
        out = model(torch.tensor([ids]), output_attentions=True, **more)
    weights = {"encoder": "encoder_attentions", "decoder": "decoder_attentions",
               "cross": "cross_attentions"}  # fmt: skip
    found = {}
    for kind, place in PLACES[family].items():
        maps = out[weights[kind]] if target else out.attentions
        for layer in range(depth[kind]):
            modules = {n: getattr(place, n).format(layer) for n in ("value", "norm", "query")}
            residual = entered[modules["query" if place.post else "norm"]]
            projection = names[place.output.format(layer)]
            states, module = entered[modules["value"]], names[modules["value"]]
            made = _block(
                maps[layer][0], states @ _in_out(module) + _bias(module), projection, residual,
                names[modules["norm"]] if place.post else None, cross=kind == "cross",
            )  # fmt: skip
            if place.post:  # the whole is what the model itself computes
                torch.testing.assert_close(made[2], left[modules["norm"]])
            found[kind, layer] = made[0].numpy(), made[1].numpy()
    return found, [len(ids), len(target)] if target else [len(ids)]


def _block(
    weights: torch.Tensor, values: torch.Tensor, projection: Any, residual: torch.Tensor,
    norm: Any, *, cross: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Shares [T, S] and [T] of one attention, and the whole [T, D]."""
    heads, length, keys = weights.shape
    out = _in_out(projection)
    width = out.shape[0] // heads
    values = values[:, -(values.shape[1] // 3) :] if values.shape[1] == 3 * out.shape[0] else values
    values = values.view(keys, -1, width).repeat_interleave(heads * width // values.shape[1], 1)
    moved = torch.einsum("shv,hvd->hsd", values, out.view(heads, width, -1))  # f_h(x_j)
    parts = torch.einsum("hts,hsd->tsd", weights, moved)
    if not cross:
        parts[torch.arange(length), torch.arange(length)] += residual
    whole = torch.einsum("hts,hsd->td", weights, moved) + _bias(projection) + residual
    made = whole
    past = residual
    if norm is not None:
        deviation = (whole.var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()

        def through(v: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
            return norm.weight * (v - v.mean(-1, keepdim=True)) / sigma

        parts, past = through(parts, deviation[:, None]), through(residual, deviation)
        made = through(whole, deviation) + norm.bias
    size = made.abs().sum(-1)
    shares = (size[:, None] - (made[:, None] - parts).abs().sum(-1)).clamp(min=0)
    own = (size - (made - past).abs().sum(-1)).clamp(min=0) if cross else torch.zeros_like(size)
    sums = shares.sum(-1) + own
    assert (sums > 0).all()
    return (shares / sums[:, None]).detach(), (own / sums).detach(), made.detach()


def _in_out(module: Any) -> torch.Tensor:
    """A weight as [in, out]."""
    weight: torch.Tensor = module.weight
    return weight.T if isinstance(module, torch.nn.Linear) else weight


def _bias(module: Any) -> Any:
    bias = getattr(module, "bias", None)
    return 0.0 if bias is None else bias
