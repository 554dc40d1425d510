"""W_Q, W_K and W_V of a hooked model: found by what comes out, proved number for number.

Modules are not known by name, and families keep the three matrices apart, side by side or
interleaved by head. In the pass of a few short texts, a column of a layer's queries is, number for
number, a column of what one of its linear layers gave: at the first position, where rotary
embeddings turn nothing. Whether it is so at the second position as well tells whether they turn.
Between the two may stand an RMS normalization of queries and keys, whose γ their columns then have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from attnviz.core.heads import Site
from attnviz.core.weights import Embedding, Reading
from attnviz.models.hooked.interface import WatchedPass, hooking
from attnviz.models.hooked.layer_sums import LayerSum
from attnviz.models.hooked.network import HookedModel, Item
from attnviz.models.hooked.projection import OFFLOADED, is_plain, matrix_of
from attnviz.models.hooked.residual import Stack
from attnviz.models.hooked.trace import ModuleCall, calls_of, close, normalization

_TEXTS, _LENGTH = 12, 2
"""Of the pass: so many numbers make a column."""

_OFFSETS = 8
"""Rows of a table of positions that may come before the first token's."""


@dataclass(frozen=True)
class _Part:
    """Queries, keys or values as columns of one linear layer."""

    linear: ModuleCall  # which, [B, T, in] and [B, T, out]
    columns: Tensor  # [heads · width] numbers of columns
    factor: float  # by which they were multiplied
    turned: bool  # whether that holds at the first position only
    # γ of a normalization behind it, of every column; None for no normalization
    gains: Tensor | None = None

    def matrix(self, heads: int) -> Tensor:
        """[heads, D, width]."""
        rows = matrix_of(self.linear.module)[self.columns] * self.factor
        rows = rows if self.gains is None else rows * self.gains[:, None].to(rows.dtype)
        return rows.view(heads, -1, rows.shape[1]).transpose(1, 2)

    def bias(self, heads: int) -> Tensor | None:
        """[heads, width], or None."""
        bias: Any = self.linear.module.bias
        return None if bias is None else (bias.detach()[self.columns] * self.factor).view(heads, -1)


@dataclass
class _Attended:
    """A call of the attention function, and what ran before it."""

    query: Tensor  # [B, heads, T, width], as ``key`` and ``value``
    key: Tensor
    value: Tensor
    scale: float  # the factor on scores
    linear: list[ModuleCall]  # linear layers, [B, T, in] and [B, T, out]
    norms: list[ModuleCall]  # modules with a vector for their weight that may have normalized


@dataclass(frozen=True)
class Anatomy:
    """What was found: what every layer reads, and what enters the first."""

    readings: Mapping[Site, Reading]
    embedding: Embedding


def find_anatomy(
    network: HookedModel, stack: Stack | None, plan: Sequence[tuple[int, Site]]
) -> Anatomy:
    """Look on while a few short texts go through a hooked single stack."""
    sites = [site for _, site in plan]
    if stack is None or network.sample is not None or network.is_offloaded:
        reason = OFFLOADED if network.is_offloaded else "the model reads no text to try it on"
        if stack is None:
            reason = "the model has no plain list of layers that run one after the other"
        return Anatomy({site: Reading(reason=reason) for site in sites}, Embedding(reason=reason))
    items = _texts(network)
    states: list[Tensor] = []
    ran: list[ModuleCall] = []
    calls: list[_Attended] = []

    def received(query: Tensor, key: Tensor, value: Tensor, scale: float) -> None:
        linear, norms = list[ModuleCall](), list[ModuleCall]()
        for call in ran:
            got, gave = call.entered, call.output
            if not isinstance(got, Tensor) or not isinstance(gave, Tensor):
                continue
            if _is_matrix(call.module):
                linear.append(_reshaped(call, lambda x: x.reshape(len(items), -1, x.shape[-1])))
            elif got.shape == gave.shape and len(gave) == len(items) and gave.ndim > 2:
                norms.append(call)
        calls.append(_Attended(query, key, value, scale, linear, norms))
        ran.clear()

    heard = [
        module
        for module in network.body.modules()
        if _is_matrix(module) or getattr(getattr(module, "weight", None), "ndim", 0) == 1
    ]
    run = WatchedPass((), plan, received=received)
    with torch.no_grad(), calls_of(heard, ran.append), stack.keeping(states), hooking(run):
        network.run(items)
    readings = {
        site: _reading(stack.layers[site.layer], states[site.layer], calls[number], site)
        for number, site in enumerate(sites)
    }
    return Anatomy(readings, _embedding(network, items, states[0]))


def around(reading: Reading, layer: LayerSum) -> Reading:
    """Return a reading with what its layer does to the stream, and to what its heads write.

    Numbers with which all channels are multiplied alike are left out, as σ is.
    """
    gain = None if layer.norm is None else layer.norm.scale
    if isinstance(layer.attention, Tensor):
        gain = layer.attention if gain is None else gain * layer.attention
    if layer.places is None:
        return replace(reading, gain=gain)
    norms, heads = layer.places.norms, layer.places.heads
    return replace(reading, gain=gain, before=norms[:heads], after=norms[heads:])


def _texts(network: HookedModel) -> list[Item]:
    """Short texts that begin with different tokens."""
    step = max(network.vocab_size // (_TEXTS + 1), 1)
    ids = [(1 + n) * step % network.vocab_size for n in range(_TEXTS)]
    length = min(_LENGTH, network.max_tokens or _LENGTH)
    return [Item((first, *(ids[::-1] * 2)[n : n + length - 1])) for n, first in enumerate(ids)]


def _is_matrix(module: nn.Module) -> bool:
    """Whether a module is a linear layer that keeps its matrix as numbers."""
    from transformers.pytorch_utils import Conv1D

    return isinstance(module, nn.Linear | Conv1D) and is_plain(module)


def _reading(layer: nn.Module, state: Tensor, call: _Attended, site: Site) -> Reading:
    """Return what the heads of one layer read."""
    query, key, value, scale = call.query, call.key, call.value, call.scale
    v = _find(value, call.linear)
    q, k = (_find(p, call.linear) or _normalized(p, call) for p in (query, key))
    unknown = "are not what one matrix makes of the normalized stream"
    if v is None or v.turned:
        return Reading(reason=f"its values {unknown}")
    read: Tensor = v.linear.entered
    if read.numel() != state.numel():  # a latent
        return Reading(reason=f"its values {unknown}")
    state, norm = state.reshape(read.shape).to(read.device), None
    if not torch.equal(read, state):
        norms = (normalization(module, state, read) for module in layer.modules())
        norm = next((norm for norm in norms if norm is not None), None)
        if norm is None:
            return Reading(reason=f"its values {unknown}")
    values, causal = v.matrix(value.shape[1]), site.kind == "decoder"
    if q is None or k is None or not all(torch.equal(part.linear.entered, read) for part in (q, k)):
        return Reading(value=values, norm=norm, scale=scale, causal=causal,
                       reason=f"its queries and keys {unknown}")  # fmt: skip
    heads, shared = query.shape[1], key.shape[1]
    if q.gains is not None or k.gains is not None:
        return Reading(value=values, norm=norm, scale=scale, causal=causal,
                       turned=q.turned or k.turned,
                       normed=(q.matrix(heads), k.matrix(shared)),
                       reason="its queries and keys are normalized by head")  # fmt: skip
    return Reading(
        q.matrix(heads),
        k.matrix(shared),
        values,
        q.bias(heads),
        k.bias(shared),
        norm,
        scale=scale,
        turned=q.turned or k.turned,
        causal=causal,
    )


def _find(part: Tensor, linear: Iterable[ModuleCall]) -> _Part | None:
    """Return the columns of a linear layer that a part [B, heads, T, width] consists of.

    Some models multiply queries with 1 / √d before they hand them on.
    """
    columns = part.permute(0, 2, 1, 3).flatten(2)  # [B, T, heads * width]
    for layer in linear:
        for factor in (1.0, float(part.shape[-1] ** -0.5)):
            gave = layer.output * factor
            numbers = {column: n for n, column in enumerate(_keys(gave[:, 0]))}
            numbered = [numbers.get(column) for column in _keys(columns[:, 0])]
            indices = [n for n in numbered if n is not None]
            if len(indices) == len(numbered):
                chosen = torch.tensor(indices, device=part.device)
                turned = not torch.equal(gave[..., chosen], columns)
                return _Part(layer, chosen, factor, turned)
    return None


def _normalized(part: Tensor, call: _Attended) -> _Part | None:
    """Return the same of a part that is columns of a normalization of columns of a linear layer."""
    columns = part.permute(0, 2, 1, 3).flatten(2)  # [B, T, heads * width]
    for norm in (view for ran in call.norms for view in _views(ran, part.shape[2])):
        flat = _reshaped(norm, lambda x: x.flatten(2))
        normed = _find(columns[:, :, None].transpose(1, 2), [flat])
        if normed is None or normed.factor != 1.0:
            continue
        read = _find(flat.entered[..., normed.columns][:, None], call.linear)
        gains = _gains(norm)
        if read is not None and not read.turned and gains is not None:
            gains = gains[normed.columns]
            return _Part(read.linear, read.columns, read.factor, normed.turned, gains)
    return None


def _reshaped(call: ModuleCall, change: Callable[[Tensor], Tensor]) -> ModuleCall:
    """Return a call with what it got and gave in another shape."""
    return replace(call, args=(change(call.entered),), output=change(call.output))


def _views(norm: ModuleCall, length: int) -> Iterator[ModuleCall]:
    """Yield a call as of [B, T, ...], whether heads come after tokens or before them."""
    if norm.entered.shape[1] == length:
        yield norm
    if norm.entered.ndim == 4 and norm.entered.shape[2] == length:
        yield _reshaped(norm, lambda x: x.transpose(1, 2))


def _gains(call: ModuleCall) -> Tensor | None:
    """γ of every column, [n]; None where it is no RMS normalization without a shift."""
    norm = normalization(call.module, call.entered, call.output)
    if norm is None or norm.centred or norm.shift is not None:
        return None
    scale: Tensor = norm.scale
    return scale.repeat(call.entered.shape[2:].numel() // len(scale))


def _keys(matrix: Tensor) -> list[bytes]:
    """Return the columns of [B, n] as bytes, without the sign of zero."""
    columns = (matrix.float() + 0.0).t().contiguous().cpu().numpy()
    return [column.tobytes() for column in columns]


def _embedding(network: HookedModel, items: Sequence[Item], entered: Tensor) -> Embedding:
    """Get the table of tokens, and of positions if there is one, that what enters is the sum of."""
    table: Any = getattr(network.model.get_input_embeddings(), "weight", None)
    reason = "what enters its first layer is not tokens and learned positions alone"
    if not isinstance(table, Tensor) or table.shape[-1] != entered.shape[-1]:
        return Embedding(reason=reason)
    tokens = table.detach()
    ids = torch.tensor([item.ids for item in items], device=tokens.device)
    for factor in (1.0, float(tokens.shape[1] ** 0.5)):
        if close(tokens[ids] * factor, entered):
            return Embedding(tokens * factor if factor != 1 else tokens)
    for module in network.body.modules():
        rows = module.weight.detach() if isinstance(module, nn.Embedding) else tokens[:0]
        if rows.shape[1] == tokens.shape[1]:
            for first in range(min(_OFFSETS, len(rows) - ids.shape[1])):
                if close(tokens[ids] + rows[first : first + ids.shape[1]], entered):
                    return Embedding(tokens, rows[first:])
    return Embedding(reason=reason)
