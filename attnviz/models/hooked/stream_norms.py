"""Layers that normalize the whole stream, not only what they read: found by their sums.

Going back from what left such a layer, every state is what a normalization gave, or r s + a A +
f p of an earlier state s, of A what W_O gave, and of p what one module gave
(:mod:`attnviz.models.hooked.layer_sums`); the first state is what entered the layer. Post-norm
layers give norm(norm(x + A) + p) (Vaswani et al. 2017, arXiv:1706.03762), MiniMax's
r norm(r norm(x) + a A) + f p.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attnviz.core.arrays import exact
from attnviz.core.weights import Normalization, StreamNorms
from attnviz.models.hooked.agreement import is_low
from attnviz.models.hooked.layer_sums import (
    HOW,
    Attended,
    Fit,
    LayerSum,
    ModuleCall,
    as_sum,
    attended_of,
    calls_inside,
    first_item,
    fitted,
    layer_sum,
    weighted,
)
from attnviz.models.hooked.norms import normalization

_STEPS = 6  # states that are gone back through


class _Norm(NamedTuple):
    """A normalization on the way, and what it got and gave, [T, D]."""

    module: nn.Module
    norm: Normalization
    entered: Tensor
    left: Tensor


class _Sum(NamedTuple):
    """A sum on the way; with what W_O gave, if that is in it, behind a normalization or none."""

    fit: Fit
    attention: Tensor | None
    behind: Normalization | None


_Steps = list[_Norm | _Sum]


def explained(
    layer: nn.Module,
    projection: Tensor | None,
    ran: Mapping[int, ModuleCall],
    entered: Tensor,
    left: Tensor,
) -> LayerSum | None:
    """What the output of a layer is made of; arguments as of :func:`~.layer_sums.layer_sum`.

    A plain sum, where that is one. In half precision a normalization that changes little passes for
    none, and one of the stream for a part beside it: what ends with one, or takes one for a part,
    is none.
    """
    plain = layer_sum(layer, projection, ran, entered, left)
    if plain is not None and not is_low(left.dtype):
        return plain
    normed = normed_sum(layer, projection, ran, entered, left)
    if plain is None or normed is None:
        return plain or normed
    assert normed.places is not None
    ends = len(normed.over) > max(normed.places.heads, normed.places.mlp)
    return normed if ends or any(part.module in normed.over for part in plain.parts) else plain


def normed_sum(
    layer: nn.Module,
    projection: Tensor | None,
    ran: Mapping[int, ModuleCall],
    entered: Tensor,
    left: Tensor,
) -> LayerSum | None:
    """What the output of a layer with normalizations over the stream is made of.

    Returns None where no such way is found, or no normalization is on it.
    """
    inside = calls_inside(layer, ran)
    attended: Attended = []
    if projection is not None:
        attended = attended_of(inside, projection)
        if not attended or attended[0][1].shape != left.shape:
            return None
    order = list(ran.values())
    for steps in _Way(inside, attended, entered, left.shape).back(left, _STEPS):
        if any(isinstance(step, _Norm) for step in steps):
            whole = _as_layer(layer, steps, inside, order, attends=bool(attended))
            if whole is not None:
                return whole
    return None


class _Way:
    """The way back from what left a layer to what entered it.

    ``entered`` [T, D].
    """

    def __init__(
        self,
        inside: Sequence[ModuleCall],
        attended: Sequence[tuple[Normalization | None, Tensor]],
        entered: Tensor,
        shape: torch.Size,
    ) -> None:
        self._attended, self._entered = attended, entered
        self._norms: list[_Norm] = []
        self._parts: list[ModuleCall] = []  # the outermost of those that gave the same
        for call in inside:
            if call.left.shape != shape:
                continue
            got, gave = first_item(call) if isinstance(call.entered, Tensor) else (None, call.left)
            # a dropout behind a normalization without γ gives what another one would give
            if got is not None and got.shape == shape and not torch.equal(got, gave):
                norm = normalization(call.module, got, gave)
                if norm is not None:
                    self._norms.append(_Norm(call.module, norm, got, gave))
        taken = [entered, *(tensor for _, tensor in attended), *(norm.left for norm in self._norms)]
        for call in inside:
            if call.left.shape == shape and not any(torch.equal(call.left, t) for t in taken):
                self._parts.append(call)
                taken.append(call.left)

    def back(self, state: Tensor, most: int) -> Iterator[_Steps]:
        """The ways to a state, each its steps from first to last; the closest sums first."""
        if torch.equal(state, self._entered):
            yield []
        elif most:
            for norm in self._norms:
                if torch.equal(norm.left, state):
                    for steps in self.back(norm.entered, most - 1):
                        yield [*steps, norm]
            for _, base, step in sorted(self._sums(state), key=lambda found: found[0]):
                for steps in self.back(base, most - 1):
                    yield [*steps, step]

    def _sums(self, state: Tensor) -> Iterator[tuple[float, Tensor, _Sum]]:
        """The sums that a state is: what each leaves, the earlier state in it, and the step."""
        bases = [self._entered]
        bases += [norm.left for norm in self._norms if not torch.equal(norm.left, state)]
        options: list[tuple[Normalization | None, Tensor | None, int]] = [
            (norm, attention, count) for norm, attention in self._attended for count in (0, 1)
        ]
        for base in bases:
            for norm, attention, count in [*options, (None, None, 1)]:
                fixed = [base] if attention is None else [base, attention]
                fit = fitted(fixed, self._parts, state, count, HOW[0])
                if fit is not None:
                    parts = [*fixed, *(call.left for call in fit.calls)]
                    factors = [*(fit.residual, fit.attention)[: len(fixed)], *fit.factors]
                    rest = (weighted(factors, parts) - exact(state)).square().sum()
                    yield float(rest), base, _Sum(fit, attention, norm)


def _as_layer(
    layer: nn.Module,
    steps: _Steps,
    inside: Sequence[ModuleCall],
    ran: Sequence[ModuleCall],
    *,
    attends: bool,
) -> LayerSum | None:
    """The steps as one sum, with what stands where among its normalizations."""
    residual: float = 1.0
    norms: list[_Norm] = []
    heads: set[int] = set()
    mlps: set[int] = set()
    whole = LayerSum(())
    for number, step in enumerate(steps):
        if isinstance(step, _Norm):
            norms.append(step)
            continue
        if number and isinstance(steps[number - 1], _Sum):
            return None
        factor = step.fit.residual
        assert isinstance(factor, float)
        if norms:
            norms[-1] = norms[-1]._replace(norm=_times(norms[-1].norm, factor))
        else:
            residual = factor
        own = as_sum(layer, step.fit, inside, ran, step.behind, step.attention)
        if step.attention is not None:
            heads.add(len(norms))
            whole = replace(whole, attention=own.attention, norm=own.norm)
        for part in own.parts:
            (heads if part.mixer else mlps).add(len(norms))
        whole = replace(whole, parts=(*whole.parts, *own.parts))
    if not _in_order(steps, ran):
        return None
    counts = [step.attention is not None for step in steps if isinstance(step, _Sum)]
    if len(heads) > 1 or len(mlps) > 1 or (attends and sum(counts) != 1):
        return None
    over = StreamNorms(
        tuple(norm.norm for norm in norms), next(iter(heads), 0), next(iter(mlps), 0)
    )
    return replace(whole, residual=residual, over=tuple(norm.module for norm in norms), places=over)


def _in_order(steps: _Steps, ran: Sequence[ModuleCall]) -> bool:
    """Whether every normalization ran after those before it on the way, and after what they add."""
    order = {id(call.module): n for n, call in enumerate(ran)}
    last = -1
    for step in steps:
        if isinstance(step, _Norm):
            if order[id(step.module)] <= last:
                return False
            last = order[id(step.module)]
        else:
            last = max([last, *(order[id(call.module)] for call in step.fit.calls)])
    return True


def _times(norm: Normalization, factor: float) -> Normalization:
    """A normalization with what its output is multiplied with."""
    if factor == 1.0:
        return norm
    shift = None if norm.shift is None else norm.shift * factor
    return replace(norm, scale=norm.scale * factor, shift=shift)
