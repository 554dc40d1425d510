"""Attention written out by hand, in the ways that people write it, and what is none.

A case is what it does and a function that runs it and says, with ``keep``, which weights it
computed, [B, H, T, S]. Weights that are read must be these to the bit of float32; what is no
attention, or cannot be told, must be refused with its reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import attnviz as av
from attnviz.core.heads import Site
from attnviz.errors import UsageError

B, T, S, D, H = 2, 6, 5, 24, 3
W = D // H


class Module(nn.Module):
    """Matrices to write attention with; ``run`` is the code of a case."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self.run = run
        self.q, self.k, self.v, self.o = (nn.Linear(D, D) for _ in range(4))
        self.qkv = nn.Linear(D, 3 * D)
        self.mix, self.mix2 = nn.Linear(H, H), nn.Linear(H, H)
        self.point = nn.Conv2d(H, H, 1)
        self.conv = nn.Conv1d(D, 3 * D, 1)
        self.a, self.b = nn.Parameter(torch.randn(H, W)), nn.Parameter(torch.randn(H, W))
        self.wq = nn.Parameter(torch.randn(D, H, W) / 5)
        self.latents = nn.Parameter(torch.randn(4, D))
        self.small = nn.Linear(D, 2 * W)
        self.gate, self.score = nn.Linear(D, 4), nn.Linear(D, 1)
        self.experts = nn.ModuleList(nn.Linear(D, D) for _ in range(4))
        self.lstm = nn.LSTM(D, D, batch_first=True)
        self.norm = nn.LayerNorm(W)
        self.bias = nn.Parameter(torch.randn(H, T, T))
        self.kept: list[Tensor] = []

    def keep(self, weights: Tensor) -> Tensor:
        """Remember weights, [B, H, T, S]."""
        self.kept.append(weights.detach().clone())
        return weights

    def heads(self, x: Tensor) -> Tensor:
        """[B, T, D] as [B, H, T, d]."""
        return x.view(x.shape[0], -1, H, W).transpose(1, 2)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(self, *args, **kwargs)


def by(normalize: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Module, Tensor], Tensor]:
    """Scores as some function of queries and keys makes weights of them."""

    def run(m: Module, x: Tensor) -> Tensor:
        q, k, v = (m.heads(f(x)) for f in (m.q, m.k, m.v))
        a = m.keep(normalize(q, k))
        return a @ v

    return run


def usual(q: Tensor, k: Tensor) -> Tensor:
    return (q @ k.mT).softmax(-1)


def chunked(m: Module, x: Tensor) -> Tensor:
    q, k, v = (torch.cat(torch.chunk(f(x), H, dim=2), dim=0) for f in (m.q, m.k, m.v))
    a = (torch.bmm(q, k.transpose(1, 2)) / W**0.5).softmax(-1)  # [H * B, T, T]
    m.keep(a.view(H, B, T, T).transpose(0, 1))
    return m.o(torch.cat(torch.chunk(a @ v, H, dim=0), dim=2))


def permuted_first(m: Module, x: Tensor) -> Tensor:
    q, k, v = (
        f(x).view(B, T, H, W).permute(2, 0, 1, 3).contiguous().view(-1, T, W)
        for f in (m.q, m.k, m.v)
    )
    a = F.softmax(torch.bmm(q, k.transpose(1, 2)), dim=2)
    m.keep(a.view(H, B, T, T).transpose(0, 1))
    out = torch.bmm(F.dropout(a, 0.1, m.training), v).view(H, B, T, W)
    return m.o(out.permute(1, 2, 0, 3).contiguous().view(B, T, -1))


def sequence_first(m: Module, x: Tensor) -> Tensor:
    x = x.transpose(0, 1)  # [T, B, D]
    q, k, v = (f(x).contiguous().view(T, B * H, W).transpose(0, 1) for f in (m.q, m.k, m.v))
    a = F.softmax(torch.bmm(q, k.transpose(1, 2)), dim=-1, dtype=torch.float32).type_as(q)
    m.keep(a.view(B, H, T, T))
    return m.o(torch.bmm(a, v).transpose(0, 1).contiguous().view(T, B, D))


def einsum(equation: str, arrange: str, back: str) -> Callable[[Module, Tensor], Tensor]:
    def run(m: Module, x: Tensor) -> Tensor:
        q, k, v = (f(x).view(B, T, H, W) for f in (m.q, m.k, m.v))
        a = torch.einsum(equation, q, k).div(W**0.5).softmax(-1)
        m.keep(torch.einsum(arrange, a))
        return m.o(torch.einsum(back, a, v).reshape(B, T, D))

    return run


def keywords(m: Module, *, states: Tensor, memory: Tensor) -> Tensor:
    fold = lambda x: x.view(B, -1, H, W).permute(2, 0, 1, 3).reshape(H * B, -1, W)  # noqa: E731
    q, k, v = fold(m.q(states)), fold(m.k(memory)), fold(m.v(memory))
    scores = torch.bmm(mat2=k.transpose(1, 2), input=q)
    a = F.softmax(input=scores, dim=-1)
    m.keep(a.view(H, B, T, S).transpose(0, 1))
    return torch.matmul(other=v, input=a)


def talking(mixer: str) -> Callable[[Module, Tensor], Tensor]:
    def run(m: Module, x: Tensor) -> Tensor:
        q, k, v = (m.heads(f(x)) for f in (m.q, m.k, m.v))
        scores = q @ k.mT * W**-0.5
        if mixer == "linear":
            scores = m.mix(scores.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
            a = scores.softmax(-1)
            mixed = m.mix2(a.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        elif mixer == "convolution":
            a = m.point(scores).softmax(-1)
            mixed = m.point(a)
        else:
            a = torch.einsum("bhij,hg->bgij", scores, m.mix.weight).softmax(-1)
            mixed = torch.einsum("bhij,hg->bgij", a, m.mix2.weight)
        m.keep(a)
        return m.o((mixed @ v).transpose(1, 2).reshape(B, T, D))

    return run


def dense_graph(m: Module, x: Tensor) -> Tensor:
    h = m.v(x).view(B, T, H, W)
    left, right = (h * m.a).sum(-1), (h * m.b).sum(-1)
    e = F.leaky_relu(left[:, :, None] + right[:, None], 0.2)
    a = e.softmax(2)  # [b, i, j, h]
    m.keep(a.permute(0, 3, 1, 2))
    return torch.einsum("bijh,bjhd->bihd", a, h).flatten(2)


def dense_graph_summed(m: Module, x: Tensor) -> Tensor:
    h = m.v(x).view(B, T, H, W)
    q, k = m.q(x).view(B, T, H, W), m.k(x).view(B, T, H, W)
    a = F.softmax((q[:, :, None] * k[:, None]).sum(-1), dim=2)
    m.keep(a.permute(0, 3, 1, 2))
    return (a.unsqueeze(-1) * h[:, None]).sum(dim=2).flatten(2)


def values_first(m: Module, x: Tensor) -> Tensor:
    q, k, v = m.q(x), m.k(x), m.v(x).permute(0, 2, 1)
    a = torch.bmm(q, k.permute(0, 2, 1)).softmax(-1)
    m.keep(a[:, None])
    return torch.bmm(v, a.permute(0, 2, 1)).permute(0, 2, 1)


def keys_first(m: Module, x: Tensor) -> Tensor:
    q, k, v = (m.heads(f(x)) for f in (m.q, m.k, m.v))
    a = F.softmax(k @ q.mT, dim=2)  # [B, H, keys, queries]
    m.keep(a.mT)
    return (v.mT @ a).transpose(1, 2)


def grouped(m: Module, x: Tensor) -> Tensor:
    q, k, v = m.q(x).view(B, T, 1, H, W), m.small(x)[..., :W], m.small(x)[..., W:]
    scores = torch.einsum("btgrd,bsgd->bgrts", q, k.view(B, T, 1, W))
    a = scores.softmax(-1)
    m.keep(a.view(B, H, T, T))
    return torch.einsum("bgrts,bsgd->btgrd", a, v.view(B, T, 1, W)).flatten(2)


def one_key_head(m: Module, x: Tensor) -> Tensor:
    q, (k, v) = m.heads(m.q(x)), m.small(x).split(W, -1)
    k, v = (y[:, None].expand(-1, H, -1, -1) for y in (k, v))
    a = m.keep((q @ k.transpose(-2, -1)).softmax(-1))
    return (a @ v).transpose(1, 2).flatten(2)


def repeated_keys(m: Module, x: Tensor) -> Tensor:
    q = m.q(x).view(B, T, H, W).transpose(1, 2)
    k, v = (
        y.view(B, T, 1, W).transpose(1, 2).repeat_interleave(H, 1) for y in m.small(x).chunk(2, -1)
    )
    a = m.keep((q @ k.mT).softmax(-1))
    return a @ v


def windows(m: Module, x: Tensor) -> Tensor:
    """Windows of a picture of 4 × 4 with a mask of −100, as Swin has them."""
    y = x[:, :4].repeat(1, 4, 1).view(B, 2, 2, 2, 2, D).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, D)
    q, k, v = m.qkv(y).reshape(-1, 4, 3, H, W).permute(2, 0, 3, 1, 4)
    attn = (q * W**-0.5) @ k.transpose(-2, -1)
    mask = torch.zeros(4, 4, 4)
    mask[1, :, 2:] = -100
    attn = attn.view(B, 4, H, 4, 4) + mask[None, :, None]
    a = m.keep(attn.view(-1, H, 4, 4).softmax(-1))
    return (a @ v).transpose(1, 2).reshape(-1, 4, D)


def rotary(way: str) -> Callable[[Module, Tensor], Tensor]:
    def turn(x: Tensor) -> Tensor:
        angle = torch.arange(T)[:, None] * torch.rand(W // 2)
        cos, sin = angle.cos(), angle.sin()
        if way == "complex":
            z = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
            return torch.view_as_real(z * torch.polar(torch.ones_like(angle), angle)).flatten(3)
        if way == "halves":
            x1, x2 = x[..., : W // 2], x[..., W // 2 :]
            return x * torch.cat((cos, cos), -1) + torch.cat((-x2, x1), -1) * torch.cat(
                (sin, sin), -1
            )
        x1, x2 = x[..., ::2], x[..., 1::2]
        return torch.stack([x1 * cos - x2 * sin, x2 * cos + x1 * sin], -1).flatten(-2)

    def run(m: Module, x: Tensor) -> Tensor:
        torch.manual_seed(5)
        q, k, v = turn(m.heads(m.q(x))), turn(m.heads(m.k(x))), m.heads(m.v(x))
        q, k, v = (y.reshape(B * H, T, W) for y in (q, k, v))
        a = torch.bmm(q, k.mT).softmax(-1)
        m.keep(a.view(B, H, T, T))
        return torch.bmm(a, v)

    return run


def cached(m: Module, x: Tensor) -> Tensor:
    past = torch.randn(2, B, H, 3, W)
    q, k, v = (m.heads(f(x)) for f in (m.q, m.k, m.v))
    k, v = torch.cat([past[0], k], dim=-2), torch.cat([past[1], v], dim=-2)
    a = m.keep((q @ k.transpose(2, 3)).softmax(-1))
    return (a @ v).transpose(1, 2).reshape(B, T, D)


def cosine(m: Module, x: Tensor) -> Tensor:
    q, k, v = m.qkv(x).view(B, T, 3, H, W).permute(2, 0, 3, 1, 4).unbind(0)
    a = (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT) * m.a[:, :1, None].exp()
    a = m.keep((a + m.bias).softmax(-1))
    return a @ v


def relative(m: Module, x: Tensor) -> Tensor:
    """Two scores added, one of them shifted, as Transformer-XL does."""
    q, k, v = (f(x).view(B, T, H, W) for f in (m.q, m.k, m.v))
    r = m.k(torch.randn(T, D)).view(T, H, W)
    ac = torch.einsum("bihd,bjhd->bhij", q + m.a, k)
    bd = torch.einsum("bihd,jhd->bhij", q + m.b, r)
    bd = F.pad(bd, (1, 0)).view(B, H, T + 1, T)[:, :, 1:].reshape(B, H, T, T)
    a = m.keep(((ac + bd) / math.sqrt(W)).softmax(3))
    return torch.einsum("bhij,bjhd->bihd", a, v)


def learned(m: Module, x: Tensor) -> Tensor:
    q = m.heads(m.q(m.latents).expand(B, -1, -1))
    k, v = m.heads(m.k(x)), m.heads(m.v(x))
    a = m.keep((q @ k.mT).softmax(-1))
    return a @ v


def recurrent(m: Module, x: Tensor) -> Tensor:
    y, _ = m.lstm(x)
    a = torch.bmm(m.q(y), y.transpose(1, 2)).softmax(2)
    m.keep(a[:, None])
    return torch.bmm(a, y)


def by_parameter(m: Module, x: Tensor) -> Tensor:
    q = torch.einsum("btd,dhk->bhtk", x, m.wq)
    k, v = (torch.einsum("btd,dhk->bhtk", x, w) for w in (m.wq * 2, m.wq))
    a = m.keep(torch.einsum("bhik,bhjk->bhij", q, k).softmax(-1))
    return torch.einsum("bhij,bhjk->bihk", a, v)


def convolved(m: Module, x: Tensor) -> Tensor:
    q, k, v = m.conv(x.transpose(1, 2)).view(B, 3, H, W, T).unbind(1)
    a = m.keep(torch.einsum("bhct,bhcs->bhts", q, k).softmax(-1))
    return torch.einsum("bhts,bhcs->bhct", a, v).reshape(B, D, T)


def exponentials(q: Tensor, k: Tensor) -> Tensor:
    e = (q @ k.mT).exp() * torch.ones(T, T).tril()
    return e / e.sum(-1, keepdim=True)


def stacked(m: Module, x: Tensor) -> Tensor:
    q, k, v = (torch.stack([f(x) for f in (m.q, m.k, m.v)], 1) for _ in range(3))
    a = m.keep(torch.einsum("bhid,bhjd->bhij", q, k).softmax(-1))
    return torch.einsum("bhij,bhjd->bhid", a, v)


def half_masked(q: Tensor, k: Tensor) -> Tensor:
    blocked = torch.zeros(B, 1, 1, T)
    blocked[..., -2:] = -10000.0
    return (q @ k.mT + blocked).softmax(-1)


def single(m: Module, x: Tensor) -> Tensor:
    """One query, as a decoder that goes on has it."""
    q, k, v = m.heads(m.q(x[:, -1:])), m.heads(m.k(x)), m.heads(m.v(x))
    a = m.keep((q @ k.mT).softmax(-1))
    return a @ v


def relative_values(m: Module, x: Tensor) -> Tensor:
    """The same weights meet values and a table of distances."""
    q, k, v = (m.heads(f(x)) for f in (m.q, m.k, m.v))
    a = m.keep((q @ k.mT).softmax(-1))
    near = m.v(torch.randn(T, T, D))[..., :W]
    return a @ v + torch.einsum("bhts,tsd->bhtd", a, near)


def mask_between(m: Module, x: Tensor) -> Tensor:
    """Sequence first, taken apart for a mask of padding and folded again."""
    q, k, v = (
        f(x).transpose(0, 1).contiguous().view(T, B * H, W).transpose(0, 1) for f in (m.q, m.k, m.v)
    )
    pad = torch.zeros(B, T, dtype=torch.bool)
    pad[-1, -2:] = True
    scores = torch.bmm(q, k.transpose(1, 2)).view(B, H, T, T)
    scores = scores.masked_fill(pad[:, None, None], float("-inf")).view(B * H, T, T)
    a = F.softmax(scores.float(), dim=-1).to(scores.dtype)
    m.keep(a.view(B, H, T, T))
    return torch.bmm(a, v)


def flat_tokens(m: Module, x: Tensor) -> Tensor:
    y = torch.addmm(m.qkv.bias, x.view(-1, D), m.qkv.weight.t()).view(B, T, 3 * D)
    q, k, v = (z.view(B, T, H, W).permute(0, 2, 1, 3) for z in y.split(D, dim=2))
    a = m.keep(torch.matmul(q, k.transpose(-1, -2)).softmax(-1))
    return torch.matmul(a, v)


def slopes(m: Module, x: Tensor) -> Tensor:
    q, k, v = m.qkv(x).view(B, T, H, 3, W).unbind(-2)
    q, v = (y.transpose(1, 2).reshape(B * H, T, W) for y in (q, v))
    k = k.permute(0, 2, 3, 1).reshape(B * H, W, T)
    scores = torch.randn(B * H, 1, T).baddbmm(batch1=q, batch2=k, beta=0.5, alpha=0.3)
    a = m.keep(F.softmax(scores.view(B, H, T, T) + torch.zeros(B, 1, T, T), dim=-1))
    return torch.bmm(a.view(B * H, T, T), v)


def empty_sum(m: Module, x: Tensor) -> Tensor:
    q, k, v = (
        f(x).reshape(B, T, H, W).permute(0, 2, 1, 3).reshape(B * H, T, W) for f in (m.q, m.k, m.v)
    )
    scores = torch.baddbmm(torch.empty(B * H, T, T), q, k.transpose(-1, -2), beta=0, alpha=0.2)
    a = scores.softmax(dim=-1)
    m.keep(a.view(B, H, T, T))
    return torch.bmm(a, v).reshape(B, H, T, W).permute(0, 2, 1, 3).reshape(B, T, D)


def queries_first(m: Module, x: Tensor) -> Tensor:
    x = x.transpose(0, 1)
    q, k, v = (f(x).view(T, B, H, W) for f in (m.q, m.k, m.v))
    a = nn.Softmax(dim=1)(torch.einsum("ibhd,jbhd->ijbh", q, k) / W**0.5)
    m.keep(a.permute(2, 3, 0, 1))
    return torch.einsum("ijbh,jbhd->ibhd", a, v).reshape(T, B, -1)


def pairs(m: Module, x: Tensor) -> Tensor:
    """Rows of a table of pairs, with a bias a head."""
    z = x[:, :, None] + x[:, None] * 0.5
    q, k, v = (f(z).view(B, T, T, H, W).transpose(2, 3) for f in (m.q, m.k, m.v))
    bias = m.mix(torch.randn(B, T, T, H)).permute(0, 3, 1, 2)
    a = (q @ k.mT + bias[:, None]).softmax(-1)
    m.keep(a.reshape(B * T, H, T, T))
    return a @ v


def columns(m: Module, x: Tensor) -> Tensor:
    """Columns of a picture, heads first."""
    z = (x[:, :, None] + x[:, None, :3]).transpose(1, 2)
    q, k, v = (
        f(z).view(B, 3, T, H, W).permute(3, 0, 1, 2, 4).reshape(H * B * 3, T, W)
        for f in (m.q, m.k, m.v)
    )
    a = torch.bmm(q, k.mT).softmax(-1)
    m.keep(a.view(H, B * 3, T, T).transpose(0, 1))
    return a @ v


def one_text(m: Module, x: Tensor) -> Tensor:
    q, k, v = (f(x[0]).view(T, H, W).permute(1, 0, 2) for f in (m.q, m.k, m.v))
    a = torch.bmm(q, k.transpose(1, 2)).softmax(-1)
    m.keep(a[None])
    return torch.bmm(a, v)


def one_head_of_one_text(m: Module, x: Tensor) -> Tensor:
    a = (m.q(x[0]) @ m.k(x[0]).T).softmax(-1)
    m.keep(a[None, None])
    return a @ m.v(x[0])


def a_loop(writes: bool) -> Callable[[Module, Tensor], Tensor]:
    def run(m: Module, x: Tensor) -> Tensor:
        q, k, v = m.q(x), m.k(x), m.v(x)
        out, results, weights = torch.zeros(B, T, D), [], []
        for head in range(H):
            part = slice(head * W, (head + 1) * W)
            weights.append((q[..., part] @ k[..., part].mT).softmax(-1))
            results.append(weights[-1] @ v[..., part])
            if writes:
                out[..., part] = results[-1]
        m.keep(torch.stack(weights, 1))
        return out if writes else torch.cat(results, -1)

    return run


def pixels(m: Module, x: Tensor) -> Tensor:
    kernel = m.q.weight[:, :, None, None]
    p = F.conv2d(x.transpose(1, 2).reshape(B, D, 2, T // 2), kernel)
    q, k = F.conv2d(p, kernel).view(B, D, -1), F.conv2d(p, kernel * 2).view(B, D, -1)
    a = torch.bmm(q.permute(0, 2, 1), k).softmax(-1)
    m.keep(a[:, None])
    return torch.bmm(p.view(B, D, -1), a.permute(0, 2, 1)).view(B, D, 2, T // 2)


def vocabulary(m: Module, x: Tensor) -> Tensor:
    return by(usual)(m, m.latents[torch.randint(0, 4, (B, T))])


def class_token(m: Module, x: Tensor) -> Tensor:
    return by(usual)(m, torch.cat([m.latents[:1].expand(B, -1, -1), x], 1))


def added(m: Module, x: Tensor) -> Tensor:
    """Scores of a sum, as Bahdanau has them."""
    q, k, v = m.q(x), m.k(x), m.v(x)
    a = m.score(torch.tanh(q.unsqueeze(2) + k.unsqueeze(1))).squeeze(-1).softmax(-1)
    m.keep(a[:, None])
    return torch.bmm(a, v)


def no_matrix(m: Module, x: Tensor) -> Tensor:
    q = x.view(B, T, H, W).transpose(1, 2)
    a = m.keep((q @ q.mT).softmax(-1))
    return a @ q


def changed(m: Module, x: Tensor) -> Tensor:
    q, k, v = (m.heads(f(x)) for f in (m.q, m.k, m.v))
    a = m.keep((q @ k.mT).softmax(-1))
    some = a * torch.ones(T, T).tril()
    return (some / some.sum(-1, keepdim=True)) @ v


def in_place(m: Module, x: Tensor) -> Tensor:
    """Everything written over: scores, weights, and what dropout leaves of them."""
    q, k, v = (m.heads(f(x)) for f in (m.q, m.k, m.v))
    scores = (q @ k.mT).mul_(0.5)
    scores.masked_fill_(torch.ones(T, T).triu(1).bool(), -1e9)
    a = m.keep(scores.softmax(-1))
    return F.dropout(a, 0.5, True, inplace=True) @ v


def heads_behind(m: Module, x: Tensor) -> Tensor:
    q, k, v = (f(x).view(B, T, W, H).permute(0, 3, 1, 2) for f in (m.q, m.k, m.v))
    a = m.keep((q @ k.mT).softmax(-1))
    return a @ v


def normalized(m: Module, x: Tensor) -> Tensor:
    """A picture's features, normalized by channel and pooled, then a view as heads."""
    y = F.conv2d(x.transpose(1, 2).reshape(B, D, 2, T // 2), m.q.weight[:, :, None, None])
    y = F.batch_norm(y, torch.zeros(D), torch.ones(D), torch.ones(D), torch.zeros(D))
    y = F.max_pool2d(F.group_norm(y, 2), 1)
    q = y.view(B, H, W, T)
    a = m.keep(torch.einsum("bhct,bhcs->bhts", q, q * 2).softmax(-1))
    return torch.einsum("bhts,bhcs->bhct", a, q)


def patches(m: Module, x: Tensor) -> Tensor:
    """Patches by unfold, which is not followed: heads are told by their matrix."""
    return by(usual)(m, F.unfold(x.transpose(1, 2).reshape(B, 1, D, T), (D, 1)).transpose(1, 2))


def split_and_stacked(m: Module, x: Tensor) -> Tensor:
    q, k, v = (torch.stack(torch.split(f(x), W, dim=2)) for f in (m.q, m.k, m.v))
    a = torch.einsum("hbik,hbjk->hbij", q, k).softmax(-1)
    m.keep(a.transpose(0, 1))
    return torch.cat(list(a @ v), -1)


def split_and_joined(m: Module, x: Tensor) -> Tensor:
    """Series of several places: heads before the batch, attention between places."""
    z = x[:, :, None] + x[:, None, :3]  # [batch, steps, places, features]
    q, k, v = (torch.cat(torch.split(f(z), W, dim=-1), dim=0) for f in (m.q, m.k, m.v))
    a = F.softmax(torch.matmul(q, k.transpose(2, 3)), dim=-1)
    m.keep(a.view(H, B * T, 3, 3).transpose(0, 1))
    return torch.cat(torch.split(a @ v, B, dim=0), dim=-1)


def by_layer(m: Module, x: Tensor) -> Tensor:
    """Five axes: what several matrices of one parameter make, and heads of each."""
    q = torch.einsum("btd,lde->lbte", x, m.wq.permute(1, 0, 2)).unsqueeze(2)
    a = (q @ q.mT).softmax(-1)  # [matrices, batch, 1, T, T]
    m.keep(a[:, :, 0].transpose(0, 1))
    return a @ q


def tensordots(m: Module, x: Tensor) -> Tensor:
    q, k, v = (
        torch.tensordot(x, w, dims=([2], [0])).permute(0, 2, 1, 3) for w in (m.wq, -m.wq, m.wq)
    )
    a = m.keep(torch.matmul(q, k.mT).softmax(-1))
    out = torch.matmul(a, v).permute(0, 2, 1, 3)
    return torch.tensordot(out, m.wq.permute(1, 2, 0), dims=([2, 3], [0, 1]))


def inner_products(m: Module, x: Tensor) -> Tensor:
    a = torch.inner(m.q(x[0]), m.k(x[0])).softmax(-1)
    m.keep(a[None, None])
    return torch.tensordot(a, m.v(x[0]), 1)


def sparse(q: Tensor, k: Tensor) -> Tensor:
    """Sparsemax: the nearest distribution to the scores, which has zeros."""
    s = q @ k.mT
    sums = (z := s.sort(-1, descending=True).values).cumsum(-1)
    count = (1 + torch.arange(1, s.shape[-1] + 1) * z > sums).sum(-1, keepdim=True)
    return torch.clamp(s - (sums.gather(-1, count - 1) - 1) / count, min=0)


def shared_values(m: Module, x: Tensor) -> Tensor:
    """One matrix of values for all heads, whose results are stacked and averaged."""
    v, weights = F.linear(x, m.v.weight[:W]), list[Tensor]()
    for n in range(H):
        q, k = (F.linear(x, f.weight[n * W : (n + 1) * W]) for f in (m.q, m.k))
        weights.append(torch.bmm(q, k.permute(0, 2, 1)).softmax(2))
    m.keep(torch.stack(weights, 1))
    return torch.stack([F.dropout(a @ v, 0.1, False) for a in weights], 2).mean(2)


def averaged(m: Module, x: Tensor) -> Tensor:
    """The mean over heads meets values, once for all."""
    a = m.keep((m.heads(m.q(x)) @ m.heads(m.k(x)).mT).softmax(-1))
    return a.mean(1) @ m.v(x)


def alignment(rows: bool) -> Callable[[Module, Tensor], Tensor]:
    """Sequences [rows, columns, batch, D]: one map for all rows, or one for each column."""
    scores, out, own = (
        ("rinhd,rjnhd->hnij", "hnij,rjnhd->rinhd", "hnij->nhij")
        if rows
        else ("icnhd,jcnhd->hcnij", "hcnij,jcnhd->icnhd", "hcnij->cnhij")
    )

    def run(m: Module, x: Tensor) -> Tensor:
        z = (x + torch.randn(S, 1, 1, D)).transpose(1, 2)
        q, k, v = (f(z).view(S, T, B, H, W) for f in (m.q, m.k, m.v))
        a = torch.einsum(scores, q, k).softmax(-1)
        m.keep(torch.einsum(own, a).flatten(0, -4))
        return torch.einsum(out, a, v)

    return run


def memory_behind(m: Module, x: Tensor) -> Tensor:
    """Learned keys behind those of the sequence, and nothing ahead."""
    q, slots = m.heads(m.q(x)), m.latents.expand(B, -1, -1)
    k, v = (m.heads(torch.cat([f(x), slots], 1)) for f in (m.k, m.v))
    ahead = F.pad(torch.ones(T, T).triu(1).bool(), (0, 4))
    a = m.keep((q @ k.mT).masked_fill(ahead, -torch.inf).softmax(-1))
    return a @ v


READ: list[tuple[str, Callable[..., Any]]] = [
    ("heads first, by chunk and cat", chunked), ("heads first, by permute", permuted_first),
    ("sequence first, heads beside the batch", sequence_first),
    ("einsum bqhd,bkhd->hbqk", einsum("bqhd,bkhd->hbqk", "hbqk->bhqk", "hbqk,bkhd->bqhd")),
    ("einsum bqhd,bkhd->bqhk", einsum("bqhd,bkhd->bqhk", "bqhk->bhqk", "bqhk,bkhd->bqhd")),
    ("einsum with dots", einsum("b...hd,bkhd->bh...k", "bhqk->bhqk", "bhqk,bkhd->bqhd")),
    ("heads mixed by a matrix before and after", talking("linear")),
    ("heads mixed by a convolution", talking("convolution")),
    ("heads mixed by einsum", talking("einsum")),
    ("a dense graph layer, softmax over axis 2", dense_graph),
    ("products and sums written out", dense_graph_summed),
    ("values before weights, permuted between", values_first),
    ("keys before queries, softmax over axis 2", keys_first),
    ("five axes, groups of query heads", grouped), ("one key head, expanded", one_key_head),
    ("key heads repeated", repeated_keys), ("windows with a mask of -100", windows),
    ("tensors by keyword, heads first, two sequences", keywords),
    ("rotary by complex numbers, heads folded", rotary("complex")),
    ("rotary by halves, heads folded", rotary("halves")),
    ("rotary by neighbours, heads folded", rotary("neighbours")),
    ("keys of a cache before the others", cached),
    ("cosines with a scale and a bias a head", cosine), ("two scores, one shifted", relative),
    ("learned queries", learned), ("states of an LSTM", recurrent),
    ("heads from a parameter's axis", by_parameter), ("heads from a convolution", convolved),
    ("exponentials over their sum, masked between", by(exponentials)),
    ("heads stacked from several matrices", stacked),
    ("an additive mask of -10000", by(half_masked)),
    ("one query", single), ("weights that meet two kinds of values", relative_values),
    ("sequence first, unfolded for a mask", mask_between),
    ("batch and tokens joined for a matrix", flat_tokens),
    ("a bias under the product, tensors by keyword", slopes),
    ("a product added to an empty tensor", empty_sum), ("ijbh, softmax over 1", queries_first),
    ("rows of pairs, five axes", pairs), ("columns of a picture, heads first", columns),
    ("no batch", one_text), ("neither batch nor heads", one_head_of_one_text),
    ("heads in a loop", a_loop(False)), ("heads in a loop, written into one tensor", a_loop(True)),
    ("pixels of a picture by 1 × 1 convolutions", pixels),
    ("a table of parameters that ids look up", vocabulary),
    ("a class token before the others", class_token), ("scores of a sum", added),
    ("no matrix at all", no_matrix), ("weights changed after the softmax", changed),
    ("in place throughout", in_place), ("heads behind features", heads_behind),
    ("channels that are normalized and pooled", normalized), ("patches by unfold", patches),
    ("heads split and stacked", split_and_stacked),
    ("heads split and joined before the batch", split_and_joined),
    ("five axes, matrices of one parameter", by_layer),
    ("tensordot with matrices of heads", tensordots),
    ("inner products of one text", inner_products),
    ("distances", by(lambda q, k: (-torch.cdist(q, k)).softmax(-1))),
    ("a logarithm of a softmax", by(lambda q, k: F.log_softmax(q @ k.mT, -1).exp())),
    ("exponentials of scores less their logarithm",
     by(lambda q, k: ((s := q @ k.mT) - s.logsumexp(-1, True)).exp())),
    ("a softmax with noise", by(lambda q, k: F.gumbel_softmax(q @ k.mT, dim=-1))),
    ("weights of a sparsemax", by(sparse)),
    ("features over their sum",
     by(lambda q, k: F.normalize(F.relu(q) @ F.relu(k).mT, p=1, dim=-1))),
    ("a softmax with one added", by(lambda q, k: (e := (q @ k.mT).exp()) / (1 + e.sum(-1, True)))),
    ("tanh of scores", by(lambda q, k: (torch.tanh(q @ k.mT / 5) * 5).softmax(-1))),
    ("values in common", shared_values),
    ("a mean over heads", averaged),
    ("an alignment, one map for all rows", alignment(True)),
    ("an alignment by columns", alignment(False)),
    ("learned keys behind the others", memory_behind),
]  # fmt: skip


def seeded(run: Callable[..., Any]) -> tuple[Module, dict[str, Tensor] | Tensor]:
    torch.manual_seed(0)
    module, x = Module(run).eval(), torch.randn(B, T, D)
    if run is keywords:
        return module, {"memory": torch.randn(B, S, D), "states": x}
    return module, x


def check_read(run: Callable[..., Any]) -> None:
    """Watched weights are those that the code kept, to the bit, and its result is its own."""
    module, x = seeded(run)
    call = (lambda: module(**x)) if isinstance(x, dict) else (lambda: module(x))
    torch.manual_seed(3)
    plain = call()
    module.kept.clear()
    torch.manual_seed(3)
    with av.watch(module) as watched:
        assert torch.equal(call(), plain)
    (kept,) = module.kept
    assert "not read" not in repr(watched)
    for item in range(len(kept)):
        (maps,) = watched.capture(item=item).maps.values()
        queries = kept[item].shape[1]  # keys of a cache have none
        np.testing.assert_array_equal(maps[:, -queries:], kept[item].numpy())
        assert not maps[:, :-queries].any()


@pytest.mark.parametrize("sizes", [(2, 6, 5, 3, 8), (4, 4, 4, 4, 4), (1, 4, 2, 2, 4)])
@pytest.mark.parametrize(("case", "run"), READ, ids=[case for case, _ in READ])
def test_weights_are_those_that_the_module_kept(
    case: str, run: Any, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For sizes that tell axes apart, for sizes that are all the same, and for one item."""
    batch, tokens, keys, heads, width = sizes
    for name, size in {"B": batch, "T": tokens, "S": keys, "H": heads, "W": width}.items():
        monkeypatch.setitem(globals(), name, size)
    monkeypatch.setitem(globals(), "D", heads * width)
    check_read(run)


@pytest.mark.parametrize(
    ("run", "kind", "says"),
    [
        (memory_behind, "decoder", ""), (keywords, "cross", ""),
        (by(sparse), "encoder", "no softmax was seen, but rows sum to 1"),
        (by(lambda q, k: (e := (q @ k.mT).exp()) / (1 + e.sum(-1, True))), "encoder", "less than"),
        (averaged, "encoder", "heads are mixed after the softmax"),
    ],
)  # fmt: skip
def test_what_is_said_of_them(run: Callable[..., Any], kind: str, says: str) -> None:
    module, x = seeded(run)
    with av.watch(module) as watched:
        module(**x) if isinstance(x, dict) else module(x)
    found = watched.capture(item=0)
    assert found.layout.kinds == (kind,)
    assert says in "".join(found.inputs.notes)
    if run is memory_behind:
        assert found.inputs.sides[kind].keys.texts[T:] == tuple(f"memory {n}" for n in range(4))


def test_keys_that_a_mask_blocks_are_no_choice() -> None:
    module, x = seeded(mask_between)
    with av.watch(module) as watched:
        module(x)
    reach = watched.capture(item=1).reach[Site("encoder", 0)].allowed(T, T)
    assert reach[0].sum(-1).tolist() == [T - 2] * T


def linear_attention(m: Module, x: Tensor) -> Tensor:
    q, k, v = (m.heads(f(x)) for f in (m.q, m.k, m.v))
    q, k = q.softmax(-1), k.softmax(-2)
    return q @ (k.mT @ v)


def dense_experts(m: Module, x: Tensor) -> Tensor:
    shares = m.gate(x).softmax(-1)
    outputs = torch.stack([expert(x) for expert in m.experts], 2)
    return torch.einsum("bte,bted->btd", shares, outputs)


def experts_by_product(m: Module, x: Tensor) -> Tensor:
    shares = m.gate(x).softmax(-1).unsqueeze(2)
    return (shares @ torch.stack([expert(x) for expert in m.experts], 2)).squeeze(2)


def channels(m: Module, x: Tensor) -> Tensor:
    q, k, v = m.qkv(x).view(B, T, 3, H, W).permute(2, 0, 3, 4, 1)
    a = (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT).softmax(-1)
    return (a @ v).permute(0, 3, 1, 2).reshape(B, T, D)


def distribution(m: Module, x: Tensor) -> Tensor:
    support = torch.linspace(-1, 1, W)
    chances = m.q(x).view(B, T, H, W).softmax(-1)
    return (chances * support).sum(-1) + chances @ support


def pooled(m: Module, x: Tensor) -> Tensor:
    a = m.score(x).softmax(1)
    return (a.mT @ x).squeeze(1)


def over_heads(m: Module, x: Tensor) -> Tensor:
    q, k, v = (f(x).view(B, T, H, W) for f in (m.q, m.k, m.v))
    return F.scaled_dot_product_attention(q, k, v)


def over_heads_written(m: Module, x: Tensor) -> Tensor:
    q, k, v = (f(x).view(B, T, H, W) for f in (m.q, m.k, m.v))
    return (q @ k.mT).softmax(-1) @ v


def not_transposed(m: Module, x: Tensor) -> Tensor:
    q, k, v = (f(x).view(B, H, T, W) for f in (m.q, m.k, m.v))
    return (q @ k.mT).softmax(-1) @ v


def table(m: Module, x: Tensor) -> Tensor:
    return (x @ m.latents.T).softmax(-1) @ m.latents


def memory(m: Module, x: Tensor) -> Tensor:
    return (m.q(x) @ m.k(m.latents).T).softmax(-1) @ m.v(m.latents)


def slots(m: Module, x: Tensor) -> Tensor:
    q, k, v = m.q(m.latents.expand(B, -1, -1)), m.k(x), m.v(x)
    a = (k @ q.mT).softmax(-1)
    a = a / a.sum(1, keepdim=True)
    return a.mT @ v


def contradicting(m: Module, x: Tensor) -> Tensor:
    q = m.q(x).view(B, T, H, W).transpose(1, 2).reshape(-1, T, W)
    k, v = (f(x).view(B, T, H, W).permute(2, 0, 1, 3).reshape(-1, T, W) for f in (m.k, m.v))
    return (q @ k.mT).softmax(-1) @ v


def unused(m: Module, x: Tensor) -> Tensor:
    return (m.q(x) @ m.k(x).mT).softmax(-1)


def projected(m: Module, x: Tensor) -> Tensor:
    """Keys that a matrix made of the sequence, as Linformer has them."""
    short = F.linear(m.k(x).mT, m.gate.weight[:, :T])
    return (m.q(x) @ short).softmax(-1) @ F.linear(m.v(x).mT, m.gate.weight[:, :T]).mT


def best_keys(q: Tensor, k: Tensor) -> Tensor:
    """The largest scores alone, put back where they were."""
    scores = q @ k.mT
    top, places = scores.topk(2, -1)
    return torch.zeros_like(scores).scatter_(-1, places, top.softmax(-1))


def every_pair(m: Module, x: Tensor) -> Tensor:
    """Scores of two features side by side, as the first graph attention has them."""
    h = m.v(x[0])
    both = torch.cat([h.repeat_interleave(T, 0), h.repeat(T, 1)], 1).view(T, T, 2 * D)
    e = F.leaky_relu(both @ m.qkv.weight.view(3, D, D)[:2].reshape(2 * D, D)[:, 0])
    return e.softmax(1) @ h


def offsets(m: Module, x: Tensor) -> Tensor:
    """Weights normalized once more over queries, which values are then summed over."""
    a = torch.bmm(m.q(x), m.k(x).mT).softmax(-1)
    return torch.bmm(m.v(x).mT, a / (1e-9 + a.sum(dim=1, keepdim=True)))


def deformable(m: Module, x: Tensor) -> Tensor:
    """Places near each query, weighted by a matrix of the query alone."""
    places = torch.stack([m.v(x).roll(n, 1) for n in range(4)], 2)
    return (m.gate(x).softmax(-1).unsqueeze(-1) * places).sum(2)


def beside_query(m: Module, x: Tensor) -> Tensor:
    """A decoder's one query beside each of the encoder's states, as the first translators had."""
    both = torch.cat([x[:, :1].repeat(1, T, 1), x], 2)
    energy = torch.tanh(F.linear(both, m.qkv.weight.view(D, 3 * D)[:, : 2 * D]))
    a = m.score(energy).squeeze(2).masked_fill(torch.arange(T) == T - 1, -1e10).softmax(1)
    return torch.bmm(a.unsqueeze(1), x)


@torch.library.custom_op("tests::attention", mutates_args=())
def _fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT).softmax(-1) @ v


def operator(m: Module, x: Tensor) -> Tensor:
    q, k, v = (m.heads(f(x)) for f in (m.q, m.k, m.v))
    return torch.ops.tests.attention(q, k, v)


def three_tensors(q: Tensor, k: Tensor) -> Tensor:
    return torch.einsum("bhtd,bhsd,h->bhts", q, k, torch.ones(H)).softmax(-1)


REFUSED: list[tuple[str, Callable[..., Any], str]] = [
    ("linear attention", linear_attention, "no product of two tensors"),
    ("a dense gate times experts", dense_experts, "no product of two tensors"),
    ("a dense gate times experts, by product", experts_by_product, "no product of two"),
    ("attention over channels", channels, "features or heads"),
    ("a distribution over a support", distribution, "no attention was seen"),
    ("sigmoid attention", by(lambda q, k: torch.sigmoid(q @ k.mT - 2)), "sigmoid of scores"),
    ("rectified attention", by(lambda q, k: F.relu(q @ k.mT) / T), "relu of scores"),
    ("pooling by one score a token", pooled, "no product of two tensors"),
    ("the function over heads", over_heads, "features or heads"),
    ("products over heads", over_heads_written, "features or heads"),
    ("a view without a transpose", not_transposed, "mix tokens and features"),
    ("a softmax over queries", by(lambda q, k: (q @ k.mT).softmax(2)),
     "axis 2 of [2, 3, 6, 6]; values are summed over axis 3"),
    ("a table of parameters", table, "no attention was seen"),
    ("keys made of parameters", memory, "its keys are parameters"),
    ("the largest scores alone", by(best_keys), "meets no values"),
    ("scores of features side by side", every_pair, "no product of two tensors"),
    ("slots", slots, "values are summed over axis 1"),
    ("orders that contradict", contradicting, "different orders"),
    ("weights that meet nothing", unused, "meets no values"),
    ("keys that a matrix made of a sequence", projected, "features or heads"),
    ("offsets by weights over the other axis", offsets,
     "axis 2 of [2, 6, 6]; values are summed over axis 1"),
    ("weights by a matrix of one side", deformable, "no product of two tensors"),
    ("scores beside a query, by one matrix", beside_query, "no product of two"),
    ("an operator of its own", operator, "tests.attention computes its weights inside a kernel"),
    ("einsum of three tensors", by(three_tensors), "could not be followed through einsum"),
]  # fmt: skip


def check_refused(run: Callable[..., Any], reason: str) -> None:
    """The reason stands in the refusal, and beside a layer that is read in a note."""
    module, x = seeded(run)
    plain = module(x)
    with av.watch(module) as watched:
        assert torch.equal(module(x), plain)
    with pytest.raises(UsageError) as refused:
        watched.capture(item=0)
    assert reason in str(refused.value)
    if "no attention" not in reason:
        assert reason in repr(watched)
        both = nn.Sequential(Module(sequence_first), Transposed(), module).eval()
        with av.watch(both) as watched:
            both(x)
        capture = watched.capture(item=0)
        assert dict(capture.layout.heads) == {"encoder": (H,)}
        (note,) = [note for note in capture.inputs.notes if note.startswith("Not read: 2: ")]
        assert reason in note


@pytest.mark.parametrize(("case", "run", "reason"), REFUSED, ids=[case for case, _, _ in REFUSED])
def test_what_is_no_attention_or_cannot_be_told_is_refused(
    case: str, run: Any, reason: str
) -> None:
    check_refused(run, reason)


class Transposed(nn.Module):
    """Batch and sequence in the other order."""

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(0, 1)
