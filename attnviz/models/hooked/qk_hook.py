"""Queries, keys and values of models that compute their attention in code of their own.

Such code hands out weights alone. While it runs, every product of two tensors and every softmax is
recorded; a softmax whose scores are one product, scaled, plus what depends on the key or on its
distance alone (ALiBi, Press et al. 2021, arXiv:2108.12409) has told its queries and keys. Scores
that are sums of several products (disentangled or Transformer-XL attention) have not. The next
product with what the softmax gave is that with the values, and gives the heads' outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attnviz.core.arrays import exact
from attnviz.core.heads import Site
from attnviz.core.source import Terms
from attnviz.models.hooked.norms import close

_PRODUCTS = frozenset({"matmul", "__matmul__", "bmm", "baddbmm"})
_CLOSE = 1e-4
"""How far weights that are computed again may be off, and biases from depending on keys alone."""


@dataclass
class _Heard:
    """One softmax: the product before it, its scores and weights, and what follows it."""

    query: Tensor
    key: Tensor
    alpha: float
    scores: Tensor
    weights: Tensor
    value: Tensor | None = None
    output: Tensor | None = None


class QKHook(TorchFunctionMode):
    """Listens inside its ``with`` block."""

    def __init__(self, attended: Callable[[Tensor], None] | None = None) -> None:
        super().__init__()
        self._attended = attended
        self._product: tuple[Tensor, Tensor, float, int] | None = None
        self._heard: list[_Heard] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Let a function run, and note what it did."""
        out = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name in _PRODUCTS:
            self._multiplied(name, args, kwargs or {}, out)
        elif name == "softmax" and self._product is not None and args:
            query, key, alpha, size = self._product
            if args[0].numel() == size:
                self._heard.append(_Heard(query, key, alpha, args[0], out))
            self._product = None
        return out

    def terms(self, returned: Mapping[Site, Tensor]) -> dict[Site, Terms]:
        """What the weights that came back are made of, for the layers that told it."""
        terms, heard = {}, iter(self._heard)
        for site, weights in returned.items():
            call = next((h for h in heard if _same(h.weights, weights)), None)
            made = None if call is None else _terms(call, weights)
            if made is not None:
                terms[site] = made
        return terms

    def values(self, returned: Mapping[Site, Tensor]) -> dict[Site, tuple[int, Tensor]]:
        """The values that the weights that came back were multiplied with.

        Returns: by layer, the number of its call among those that multiplied, and the values, [B,
        G, S, d_v]; of layers where weights times values are what that product gave.
        """
        products, heard = {}, iter(enumerate(h for h in self._heard if h.value is not None))
        for site, weights in returned.items():
            call = next(((n, h) for n, h in heard if _same(h.weights, weights)), None)
            made = None if call is None else _values(call[1], weights)
            if call is not None and made is not None:
                products[site] = (call[0], made)
        return products

    def _multiplied(
        self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any
    ) -> None:
        if name == "baddbmm":
            named = (kwargs.get("batch1"), kwargs.get("batch2"))
            left, right = named if len(args) < 3 else args[1:3]
        else:
            left, right = args[:2] if len(args) > 1 else (None, None)
        if not isinstance(left, Tensor) or not isinstance(right, Tensor) or right.ndim < 3:
            return
        last = self._heard[-1] if self._heard else None
        if last is not None and last.value is None and left.numel() == last.weights.numel():
            last.value, last.output = right, out
            if self._attended is not None:
                self._attended(out)
        else:
            self._product = (left, right, float(kwargs.get("alpha", 1)), out.numel())


def _same(heard: Tensor, returned: Tensor) -> bool:
    return heard.numel() == returned.numel() and torch.equal(
        heard.reshape(returned.shape).to(returned.dtype), returned
    )


def _values(heard: _Heard, weights: Tensor) -> Tensor | None:
    """[B, G, S, d_v], if weights times these are what the model made of them."""
    assert heard.value is not None
    assert heard.output is not None
    batch, heads, queries, keys = weights.shape
    value = _split(heard.value, batch, keys)
    output = _split(heard.output, batch, queries)
    if value is None or output is None or output.shape[1] != heads or heads % value.shape[1]:
        return None
    made = exact(weights) @ exact(value.repeat_interleave(heads // value.shape[1], 1))
    return value if close(made, output) else None


def _terms(heard: _Heard, weights: Tensor) -> Terms | None:
    """Queries, keys, scale and bias of one softmax, where its scores are made of these alone."""
    batch, heads, queries, keys = weights.shape
    if heard.value is None:
        return None
    query = _split(heard.query, batch, queries)
    key = _split(heard.key.mT, batch, keys)
    value = _split(heard.value, batch, keys)
    if query is None or key is None or value is None or query.shape[1] != heads:
        return None
    if heads % key.shape[1] or key.shape[:2] != value.shape[:2]:
        return None
    products = exact(query) @ exact(key.repeat_interleave(heads // key.shape[1], 1)).mT
    scores, used = exact(heard.scores.reshape(weights.shape)), weights > 0
    for scale in (heard.alpha, heard.alpha / query.shape[-1] ** 0.5):
        bias = _simple(scores - scale * products, used)
        if bias is None:
            continue
        again = (scale * products + bias).masked_fill(~used, -torch.inf).softmax(-1).nan_to_num()
        if bool(((again - weights).abs() <= _CLOSE).all()):
            biases = (bias.to(query.dtype),) if bool((bias.abs() > _CLOSE).any()) else ()
            return Terms(query, key, value, scale, None, biases)
    return None


def _split(x: Tensor, batch: int, length: int) -> Tensor | None:
    """[B, heads, length, width] of a tensor that may have batch and heads in one axis."""
    if x.shape[-2] != length or x.numel() % (batch * length * x.shape[-1]):
        return None
    return x.reshape(batch, -1, length, x.shape[-1])


def _simple(rest: Tensor, used: Tensor) -> Tensor | None:
    """What is left of scores, [B, H, T, S], made of keys alone or of distances alone; or None."""
    low = rest.masked_fill(~used, torch.inf)
    high = rest.masked_fill(~used, -torch.inf)
    by_key = low.amin(2, keepdim=True)
    tolerance = _CLOSE * (1 + rest.masked_fill(~used, 0).abs().amax())
    if bool(((high.amax(2, keepdim=True) - by_key) <= tolerance).all()):
        return by_key.nan_to_num(posinf=0.0).expand_as(rest)
    size = rest.shape[2:]
    distance = torch.arange(size[1])[None] - torch.arange(size[0])[:, None] + size[0] - 1
    flat = distance.flatten().to(rest.device).expand(*rest.shape[:2], -1)
    least = rest.new_full((*rest.shape[:2], sum(size)), torch.inf)
    most = -least
    least = least.scatter_reduce(2, flat, low.flatten(2), "amin")
    most = most.scatter_reduce(2, flat, high.flatten(2), "amax")
    if bool(((most - least) <= tolerance).all()):
        return least.nan_to_num(posinf=0.0).gather(2, flat).view_as(rest)
    return None
