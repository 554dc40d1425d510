"""Attention as people write it: right modules, each in its own way, and a bug planted in each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Written(nn.Module):
    """Step by step; ``bug`` names what is wrong with it."""

    def __init__(self, d_model: int, num_heads: int, bug: str = "", causal: bool = False) -> None:
        super().__init__()
        self.h, self.d = num_heads, d_model // num_heads
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model) for _ in range(4))
        self.bug, self.causal = bug, causal

    def split(self, x: Tensor, side: str) -> Tensor:
        batch, tokens, _ = x.shape
        if self.bug in ("view", f"view of {side}"):
            return x.view(batch, self.h, tokens, self.d)
        if self.bug == "heads":
            return x.view(batch, tokens, self.h, self.d)
        return x.view(batch, tokens, self.h, self.d).transpose(1, 2)

    def shared(self, *parts: Tensor) -> Tensor:
        q, k, v = (part[:, None].repeat(1, self.h, 1, 1) for part in parts)
        weights = (q @ k.transpose(-1, -2) / math.sqrt(self.d)).softmax(-1)
        return (weights @ v).transpose(1, 2).flatten(2)

    def scaled(self, scores: Tensor) -> Tensor:
        width = self.h * self.d
        by = {"no scale": 1.0, "by d": self.d, "by D": math.sqrt(width), "times": self.d**-0.5,
              "by H": math.sqrt(self.h), "by S": math.sqrt(scores.shape[-1])}  # fmt: skip
        return scores / by.get(self.bug, math.sqrt(self.d))

    def masked(self, scores: Tensor) -> Tensor:
        if not self.causal or self.bug in ("no mask", "after"):
            return scores
        ones = torch.ones(scores.shape[-2:], dtype=torch.bool)
        allowed = {"off up": ones.tril(1), "off down": ones.tril(-1), "inverted": ones.triu()}
        keep = allowed.get(self.bug, ones.tril())
        fill = {"fill 0": 0.0, "fill tiny": 1e-9}.get(self.bug, -math.inf)
        if self.bug == "one head":
            scores[:, 0].masked_fill_(~keep, fill)
            return scores
        return scores * keep if self.bug == "times mask" else scores.masked_fill(~keep, fill)

    def forward(self, x: Tensor) -> Tensor:
        if self.bug == "same head":  # the columns of head 0 for every head
            z = self.shared(*(w(x)[..., : self.d] for w in (self.w_q, self.w_k, self.w_v)))
            return self.w_o(z)
        q = self.split(self.w_q(x), "q")
        k = self.split(self.w_q(x) if self.bug == "one matrix" else self.w_k(x), "k")
        v = self.split(self.w_v(x), "v")
        across = k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2])
        scores = q @ (across if self.bug == "k reshaped" else k.transpose(-1, -2))
        axis = {"queries": -2, "across heads": 1, "across items": 0}.get(self.bug, -1)
        weights = self.masked(self.scaled(scores)).softmax(axis)
        if self.bug == "after":
            weights = weights.tril()
        if self.bug == "twice":
            weights = weights.softmax(-1)
        if self.bug == "doubled":
            weights = weights * 2
        if self.bug == "dropout":
            weights = F.dropout(weights, 0.5)
        z = weights @ v
        if self.bug in ("merge", "heads"):
            z = z.reshape(x.shape)
        elif self.bug == "not contiguous":
            z = z.transpose(1, 2).view(x.shape)
        else:
            z = z.transpose(1, 2).reshape(x.shape)
        return z if self.bug == "no W_O" else self.w_o(z)


PLANTED = {
    "view": "view", "view of q": "view", "view of k": "view", "view of v": "view",
    "heads": "heads", "one matrix": "one matrix", "k reshaped": "transpose", "no scale": "scale",
    "by d": "scale", "by D": "scale", "by H": "scale", "by S": "scale", "times": "scale",
    "queries": "axis", "across heads": "axis", "across items": "axis", "twice": "softmax twice",
    "doubled": "weights changed", "dropout": "dropout", "merge": "merge",
    "not contiguous": "contiguous", "no W_O": "no W_O",
}  # fmt: skip
"""What is planted into :class:`Written`, and the name it must get."""

PLANTED_MASKS = {
    "no mask": "no mask", "off up": "off by one", "off down": "off by one",
    "inverted": "inverted", "fill 0": "fill", "fill tiny": "fill", "times mask": "fill",
    "after": "mask after softmax", "one head": "mask axis",
}  # fmt: skip
"""The same of a causal one."""


class Fused(nn.Module):
    """One matrix for Q, K and V, and a triangle kept as a buffer."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.h = num_heads
        self.c_attn, self.c_proj = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.register_buffer("bias", torch.ones(1, 1, 32, 32).tril())

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = (
            part.view(batch, tokens, self.h, -1).transpose(1, 2)
            for part in self.c_attn(x).split(width, 2)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(k.shape[-1])
        blocked = self.get_buffer("bias")[:, :, :tokens, :tokens] == 0
        weights = scores.masked_fill(blocked, -math.inf).softmax(-1)
        return self.c_proj((weights @ v).transpose(1, 2).contiguous().view(batch, tokens, width))


class Kernel(Fused):
    """The same by PyTorch's function."""

    def forward(self, x: Tensor) -> Tensor:
        parts = self.c_attn(x).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.h, -1)).transpose(1, 2) for part in parts)
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(z.transpose(1, 2).flatten(2))


class Einsum(nn.Module):
    """Heads stay beside the width; letters say what meets."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.h = num_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (w(x).unflatten(-1, (self.h, -1)) for w in (self.q, self.k, self.v))
        weights = (torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5).softmax(-1)
        return self.o(torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(2))


class HeadsFirst(Einsum):
    """Heads and items on one axis, heads first; queries and keys scaled by the fourth root."""

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        q, k, v = (
            w(x).view(batch, tokens, self.h, -1).permute(2, 0, 1, 3).flatten(0, 1)
            for w in (self.q, self.k, self.v)
        )
        root = q.shape[-1] ** 0.25
        weights = torch.bmm(q / root, (k / root).transpose(1, 2)).softmax(2)
        z = torch.bmm(weights, v).view(self.h, batch, tokens, -1)
        return self.o(z.permute(1, 2, 0, 3).reshape(x.shape))


class OneHead(nn.Module):
    """A head of a list."""

    def __init__(self, d_model: int, width: int) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(d_model, width, bias=False) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.q(x) @ self.k(x).transpose(1, 2) * self.q.out_features**-0.5
        later = torch.ones(scores.shape[-2:]).triu(1).bool()
        return scores.masked_fill(later, -math.inf).softmax(-1) @ self.v(x)


class Listed(nn.Module):
    """A list of heads, joined."""

    causal = True

    def __init__(self, d_model: int, num_heads: int, bug: str = "") -> None:
        super().__init__()
        heads = [OneHead(d_model, d_model // num_heads) for _ in range(num_heads)]
        if bug == "same head":
            heads = heads[:1] * num_heads
        self.heads, self.proj = nn.ModuleList(heads), nn.Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(torch.cat([head(x) for head in self.heads], -1))


def rotated(x: Tensor) -> Tensor:
    """Rotary positions, by halves."""
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[-2]).double()[:, None] / 10.0 ** torch.arange(half)
    cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class Rotated(Written):
    """Rotary positions over a part of each head, with the base that it names; see ``kind``."""

    def __init__(self, d_model: int, num_heads: int, kind: str = "") -> None:
        super().__init__(d_model, num_heads)
        self.rope_theta, self.kind = 1e4, kind

    def turned(self, x: Tensor, side: str) -> Tensor:
        """Return the last numbers of each head turned, an even number of them."""
        wide = (self.d - 2) // 4 * 4 if self.kind.startswith("partial") else self.d // 2 * 2
        rest, x = x[..., : self.d - wide], x[..., self.d - wide :]
        base = 500.0 if self.kind == "base" else self.rope_theta
        base = 100.0 if self.kind == "two bases" and side == "k" else base
        late = {"offset": 1 if side == "k" else 0, "both late": 3}.get(self.kind, 0)
        places = torch.arange(x.shape[-2]).double()[:, None] + late
        angles = places * base ** (-torch.arange(0, wide, 2).double() / wide)
        if self.kind == "neighbours" or (self.kind == "two pairings" and side == "k"):
            pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
            turned = torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles))
            turned = turned.flatten(-2)
        else:
            cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)
            half = wide // 2
            turned = x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin
        swapped = self.kind == "partial, split" and side == "k"
        return torch.cat([turned, rest] if swapped else [rest, turned], -1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self.split(w(x), "") for w in (self.w_q, self.w_k, self.w_v))
        q, k = self.turned(q, "q"), self.turned(k, "k")
        weights = (q @ k.transpose(-1, -2) / math.sqrt(self.d)).softmax(-1)
        return self.w_o((weights @ v).transpose(1, 2).reshape(x.shape))


class Grouped(nn.Module):
    """Key heads that several query heads share, rotary positions; with what varies by ``kind``."""

    causal = True

    def __init__(self, d_model: int, num_heads: int, num_kv_heads: int = 2, kind: str = "") -> None:
        super().__init__()
        self.h, self.d, self.kind = num_heads, d_model // num_heads, kind
        self.g = num_kv_heads if num_heads % num_kv_heads == 0 else 1
        self.q, self.o = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.k, self.v = (nn.Linear(d_model, self.g * self.d) for _ in range(2))
        self.norm, self.sinks = nn.LayerNorm(self.d), nn.Parameter(torch.randn(num_heads))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.shape[1]
        q, k, v = (
            w(x).unflatten(-1, (-1, self.d)).transpose(1, 2) for w in (self.q, self.k, self.v)
        )
        if self.kind == "normed":
            q, k = self.norm(q), self.norm(k)
        q, k = rotated(q), k if self.kind == "keys not rotated" else rotated(k)
        v = rotated(v) if self.kind == "values rotated" else v
        size = self.h // self.g
        if self.kind == "tiled":
            k, v = k.repeat(1, size, 1, 1), v.repeat(1, size, 1, 1)
        else:
            k, v = k.repeat_interleave(size, 1), v.repeat_interleave(size, 1)
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.d)
        if self.kind == "alibi":
            slopes = 0.5 ** torch.arange(1.0, self.h + 1).double()[:, None, None]
            scores = scores + slopes * (torch.arange(tokens)[None] - torch.arange(tokens)[:, None])
        keep = torch.ones(tokens, tokens, dtype=torch.bool).tril()
        keep = keep.triu(-2) if self.kind == "window" else keep
        scores = scores.masked_fill(~keep, torch.finfo(scores.dtype).min)
        if self.kind == "sinks":
            sinks = self.sinks[None, :, None, None].expand(len(x), -1, tokens, 1)
            weights = torch.cat([scores, sinks], -1).softmax(-1)[..., :-1]
        else:
            weights = scores.softmax(-1)
        return self.o((weights @ v).transpose(1, 2).flatten(2))


class Biased(Einsum):
    """No scale, and a learned bias by distance, as T5 has it; a mask is added."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__(d_model, num_heads)
        self.bias = nn.Embedding(64, num_heads)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (
            w(x).unflatten(-1, (self.h, -1)).transpose(1, 2) for w in (self.q, self.k, self.v)
        )
        at = torch.arange(x.shape[1])
        scores = q @ k.transpose(-1, -2) + self.bias(at[None] - at[:, None] + 32).permute(2, 0, 1)
        scores = scores if mask is None else scores + mask
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Masked(Einsum):
    """Queries, keys and values of their own, and a mask that says what is kept."""

    def __init__(self, d_model: int, num_heads: int, bug: str = "") -> None:
        super().__init__(d_model, num_heads)
        self.bug = bug

    def forward(  # type: ignore[override]
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        q, k, v = (
            w(x).unflatten(-1, (self.h, -1)).transpose(1, 2)
            for w, x in ((self.q, query), (self.k, key), (self.v, value))
        )
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if mask is not None and self.bug != "mask ignored":
            mask = mask if mask.ndim < 3 else mask[:, None]
            scores = scores.masked_fill(mask == 0, 0.0 if self.bug == "fill" else -1e9)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Cross(Einsum):
    """Keys and values of another sequence."""

    def forward(self, x: Tensor, context: Tensor) -> Tensor:  # type: ignore[override]
        q = self.q(x).unflatten(-1, (self.h, -1)).transpose(1, 2)
        k, v = (w(context).unflatten(-1, (self.h, -1)).transpose(1, 2) for w in (self.k, self.v))
        weights = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1)
        return self.o((weights @ v).transpose(1, 2).flatten(2))


class ByHand(Einsum):
    """Softmax written out."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            w(x).unflatten(-1, (self.h, -1)).transpose(1, 2) for w in (self.q, self.k, self.v)
        )
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        powers = torch.exp(scores - scores.max(-1, keepdim=True).values)
        weights = powers / powers.sum(-1, keepdim=True)
        return self.o((weights @ v).transpose(1, 2).flatten(2))


class Wrapped(nn.Module):
    """PyTorch's own inside of another."""

    def __init__(self, d_model: int, num_heads: int, batch_first: bool = True) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(d_model, num_heads, batch_first=batch_first)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return output


class Block(nn.Module):
    """Normalizations, a residual path and an MLP around it."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.before, self.inside = nn.LayerNorm(d_model), Einsum(d_model, num_heads)
        wide = 2 * d_model
        self.mlp = nn.Sequential(nn.Linear(d_model, wide), nn.GELU(), nn.Linear(wide, d_model))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.inside(self.before(x))
        output: Tensor = x + self.mlp(x)
        return output


Make = Callable[[int, int], nn.Module]


def _own(cls: Any, **options: Any) -> Make:
    return lambda d_model, heads: cls(d_model, heads, **options)


RIGHT: dict[str, Make] = {
    "written out": _own(Written),
    "written out, causal": _own(Written, causal=True),
    "fused, with a buffer": _own(Fused),
    "by PyTorch's function": _own(Kernel),
    "einsum": _own(Einsum),
    "heads first": _own(HeadsFirst),
    "a list of heads": _own(Listed),
    "grouped, rotary": _own(Grouped),
    "rotary, by halves": _own(Rotated),
    "rotary, by neighbours": _own(Rotated, kind="neighbours"),
    "rotary in part": _own(Rotated, kind="partial"),
    "rotary, both from position 3": _own(Rotated, kind="both late"),
    "one key head": _own(Grouped, num_kv_heads=1),
    "normed queries and keys": _own(Grouped, kind="normed"),
    "ALiBi": _own(Grouped, kind="alibi"),
    "a window": _own(Grouped, kind="window"),
    "learned sinks": _own(Grouped, kind="sinks"),
    "a learned bias, no scale": _own(Biased),
    "queries, keys, values and a mask": _own(Masked),
    "cross-attention": _own(Cross),
    "softmax written out": _own(ByHand),
    "nn.MultiheadAttention": _own(nn.MultiheadAttention, batch_first=True),
    "nn.MultiheadAttention, sequence first": _own(nn.MultiheadAttention),
    "wrapped": _own(Wrapped),
    "a block": _own(Block),
}
"""Right modules by what they are, from D and H."""

WRONG: dict[str, tuple[Make, str]] = {
    **{name: (_own(Written, bug=name), bug) for name, bug in PLANTED.items()},
    **{f"causal, {name}": (_own(Written, bug=name, causal=True), bug)
       for name, bug in PLANTED_MASKS.items()},
    "a list of one head": (_own(Listed, bug="same head"), "same head"),
    "one matrix for all heads": (_own(Written, bug="same head"), "same head"),
    "another base than named": (_own(Rotated, kind="base"), "rotary base"),
    "two bases": (_own(Rotated, kind="two bases"), "rotary base"),
    "keys one position late": (_own(Rotated, kind="offset"), "rotary offset"),
    "two ways of pairing": (_own(Rotated, kind="two pairings"), "rotary"),
    "content and position swapped": (_own(Rotated, kind="partial, split"), "split"),
    "tiled key heads": (_own(Grouped, kind="tiled"), "tiled"),
    "values rotated": (_own(Grouped, kind="values rotated"), "rotary"),
    "keys not rotated": (_own(Grouped, kind="keys not rotated"), "rotary"),
    "a mask that is ignored": (_own(Masked, bug="mask ignored"), "mask ignored"),
    "a mask that fills with 0": (_own(Masked, bug="fill"), "fill"),
    "items attend to each other": (_own(Wrapped, batch_first=False), "batch_first"),
}  # fmt: skip
"""Wrong modules, and the name of each one's bug."""
