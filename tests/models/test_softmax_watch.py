"""Modules with attention written out: masks, several layers, training."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import attnviz as av
from attnviz.core.heads import Head, Site

B, T, S, D, H = 3, 6, 4, 16, 4


class Causal(nn.Module):
    """One matrix for queries, keys and values, a buffer for the mask, dropout on the weights."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.joint, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.drop = nn.Dropout(dropout)
        self.register_buffer("bias", torch.tril(torch.ones(T, T)).view(1, 1, T, T))
        self.seen: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, H, width // H).transpose(1, 2)
            for part in self.joint(x).split(width, dim=2)
        )
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :length, :length] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        self.seen = att.detach()
        y = self.drop(att) @ v
        return self.out(y.transpose(1, 2).contiguous().view(batch, length, width))


class Folded(nn.Module):
    """Heads folded into the batch, lengths masked by a large number, ``bmm`` on both sides."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(D, D, bias=False) for _ in range(3))
        self.seen: Tensor | None = None

    def fold(self, x: Tensor) -> Tensor:
        x = x.reshape(x.shape[0], x.shape[1], H, -1).permute(0, 2, 1, 3)
        return x.reshape(-1, x.shape[2], x.shape[3])

    def forward(self, queries: Tensor, keys: Tensor, lengths: Tensor) -> Tensor:
        q, k, v = self.fold(self.q(queries)), self.fold(self.k(keys)), self.fold(self.v(keys))
        scores = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(q.shape[-1])
        beyond = torch.arange(keys.shape[1])[None, :] >= lengths.repeat_interleave(H)[:, None]
        scores = scores.masked_fill(beyond[:, None], -1e6)
        weights = nn.functional.softmax(scores, dim=-1)
        self.seen = weights.detach().view(B, H, *weights.shape[1:])
        mixed = torch.bmm(nn.functional.dropout(weights, 0.0), v)
        return mixed.reshape(B, H, -1, D // H).permute(0, 2, 1, 3).flatten(2)


class Einsum(nn.Module):
    """A picture's patches, with einsum on both sides and a class token."""

    def __init__(self) -> None:
        super().__init__()
        self.joint = nn.Linear(D, 3 * D)
        self.head = nn.Linear(D, 5)
        self.seen: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.joint(x).view(*x.shape[:2], 3, H, D // H).unbind(2)
        dots = torch.einsum("bihd,bjhd->bhij", q, k) * (D // H) ** -0.5
        attn = dots.softmax(dim=-1)
        self.seen = attn.detach()
        out = torch.einsum("bhij,bjhd->bihd", attn, v).flatten(2)
        return self.head(out[:, 0]).softmax(-1)


class Joint(nn.Module):
    """Text and picture tokens in one map, as diffusion transformers have them."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self.image = nn.Linear(D, 3 * D), nn.Linear(D, 3 * D)
        self.seen: Tensor | None = None

    def forward(self, text: Tensor, image: Tensor) -> Tensor:
        both = torch.cat([self.text(text), self.image(image)], 1)
        q, k, v = both.view(*both.shape[:2], 3, H, D // H).permute(2, 0, 3, 1, 4)
        weights = torch.matmul(q, k.transpose(-1, -2)).div(2.0).softmax(-1)
        self.seen = weights.detach()
        return torch.matmul(weights, v).transpose(1, 2).flatten(2)


def modules() -> dict[str, tuple[Any, tuple[Tensor, ...]]]:
    torch.manual_seed(0)
    x, y = torch.randn(B, T, D), torch.randn(B, S, D)
    return {
        "causal": (Causal().eval(), (x,)),
        "folded": (Folded(), (x, x, torch.tensor([2, 6, 4]))),
        "folded across": (Folded(), (x, y, torch.tensor([2, 4, 3]))),
    }


@pytest.mark.parametrize("name", list(modules()))
def test_its_weights_are_seen_and_its_output_is_its_own(name: str) -> None:
    module, inputs = modules()[name]
    torch.manual_seed(1)
    plain = module(*inputs)
    torch.manual_seed(1)
    with av.watch(module) as watched:
        output = module(*inputs)
    assert torch.equal(output, plain)
    kind = {"causal": "decoder", "folded across": "cross"}.get(name, "encoder")
    for item in range(B):
        capture = watched.capture(item=item)
        assert capture.layout.heads == {kind: (module.seen.shape[1],)}
        np.testing.assert_allclose(
            capture.maps[Site(kind, 0)], module.seen[item].float(), atol=1e-7
        )


def test_keys_that_a_mask_blocks_are_no_choice() -> None:
    module, inputs = modules()["folded"]
    with av.watch(module) as watched:
        module(*inputs)
    reach = watched.capture(item=0).reach[Site("encoder", 0)].allowed(T, T)
    assert reach[0].sum(-1).tolist() == [2] * T


def test_several_layers_are_several_sites_and_training_changes_nothing() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(Causal(0.5), nn.ReLU(), Causal(0.5))
    x = torch.randn(B, T, D)
    torch.manual_seed(2)
    module(x).sum().backward()
    plain = module[0].joint.weight.grad.clone()
    module.zero_grad()
    torch.manual_seed(2)
    with av.watch(module, passes=3) as watched:
        module(x).sum().backward()
        module(x)
    assert torch.equal(module[0].joint.weight.grad, plain)
    capture = watched.capture(item=1, index=0)
    assert capture.layout.heads == {"decoder": (H, H)}
    np.testing.assert_allclose(capture.maps[Site("decoder", 1)].sum(-1), 1, atol=1e-6)
    last = watched.capture(item=1)
    np.testing.assert_allclose(last[Head(Site("decoder", 1), 2)], module[2].seen[1, 2], atol=1e-7)
