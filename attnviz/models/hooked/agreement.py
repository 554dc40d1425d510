"""How far apart two passes of the same model over the same tokens are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from attnviz.core.heads import Site, SiteKind
from attnviz.core.weights import OutputProjection
from attnviz.models.hooked.network import Item
from attnviz.models.hooked.trace import is_low

TOLERANCE = 1e-4
"""Largest difference of a weight (and of a state, relative to the largest) that counts as exact."""

TOLERANCE_LOW = 3e-2
"""The same for float16 and bfloat16, in which eager attention rounds its scores and weights."""

Maps = Mapping[Site, Tensor]
"""[B, H, T, S] weights by site."""


@dataclass
class Trace:
    """What one pass of the comparison left: weights, final states, or why there are none.

    The hooked pass leaves the module and the output projection of every call as well.
    """

    items: Sequence[Item] = ()
    maps: Maps = field(default_factory=dict)
    states: Tensor | None = None
    fault: str = ""
    modules: tuple[int, ...] = ()
    projections: tuple[OutputProjection, ...] = ()


def compare(
    proofs: Sequence[tuple[Trace, Trace]],
    dtype: torch.dtype,
    fused: Callable[[Sequence[Item]], Tensor | None] = lambda _: None,
) -> tuple[str, str]:
    """Judge the hooks by what eager attention returned.

    Some models return the weights as they are without learned sinks, beside which they multiply the
    heads' outputs with what the sinks leave (Granite); ours are less that share.

    Rounding to half precision grows from layer to layer, so that no tolerance fits every depth.
    Final states of such a model may be twice as far from eager's as those of transformers' own
    fused attention are.
    """
    tolerance = TOLERANCE_LOW if is_low(dtype) else TOLERANCE
    worst = bare = furthest = 0.0
    seen = stateless = False
    changed = ""
    for eager, hooked in proofs:
        items = hooked.items
        if not hooked.maps:
            if eager.maps or eager.states is not None:
                return f"{hooked.fault} ({described(items)})", ""
            continue
        apart, most = change(eager.states, hooked.states, items), tolerance
        if most < apart < math.inf and is_low(dtype) and (other := fused(items)) is not None:
            most = max(most, min(2 * change(eager.states, other, items), 4 * TOLERANCE_LOW))
        furthest = max(furthest, apart)
        stateless |= eager.states is None
        if apart > most and (eager.states is not None or not eager.maps) and not changed:
            changed = f"its outputs change by {apart:.1e} of the largest when hooked"
            changed += f" ({described(items)})"
        if eager.maps:
            seen = True
            fault, *largest = _between(eager, hooked)
            if fault:
                return fault, ""
            worst, bare = max(worst, largest[0]), max(bare, largest[1])
    if not seen:
        said = f"hooked, outputs within {furthest:.1e} of eager's, which returns no weights"
        return changed, "" if changed else said
    difference = f"max |Δ| {worst:.1e}"
    if worst > tolerance >= bare and not stateless and not changed:
        return "", f"hooked, max |Δ| {bare:.1e} against eager's rows, which leave learned sinks out"
    if worst > tolerance:
        reason = f"hooked weights differ from eager by up to {worst:.1e}"
    elif changed:
        reason = changed
    else:
        return "", f"hooked, {difference} against eager"
    return reason, f"eager, as transformers returns it (hooked: {difference})"


def _between(eager: Trace, hooked: Trace) -> tuple[str, float, float]:
    """Compare the maps of two passes."""
    worst, bare, items = 0.0, 0.0, hooked.items
    for kind in {site.kind for site in [*eager.maps, *hooked.maps]}:
        theirs, ours = (
            [maps[site] for site in sorted(maps) if site.kind == kind]
            for maps in (eager.maps, hooked.maps)
        )
        if [w.shape for w in theirs] != [w.shape for w in ours]:
            which = f"{kind} layers" if items[0].target else "layers"
            return f"eager returns {len(theirs)} {which}, the hooks see {len(ours)}", 0.0, 0.0
        for a, b in zip(theirs, ours, strict=True):
            for one, other in zip(real(a, kind, items), real(b, kind, items), strict=True):
                x, y = one.float(), other.float()
                worst = max(worst, _largest(x - y))
                bare = max(bare, _largest(x - y / y.sum(-1, keepdim=True)))
    return "", worst, bare


def described(items: Sequence[Item]) -> str:
    """Say what ran: 7 tokens, or 33 and 7 tokens in a batch."""
    counts = " and ".join(f"{item.length:,}" for item in items)
    plural = "s" * (counts != "1")
    return f"{counts} token{plural}" + " in a batch" * (len(items) > 1)


def beside(batch: Trace, alone: Trace) -> float:
    """The largest difference of a weight of the last item of a batch from the same item alone."""
    worst = 0.0
    for site, weights in alone.maps.items():
        if site in batch.maps and alone.items == batch.items[-1:]:
            own = real(batch.maps[site], site.kind, batch.items)[-1]
            worst = max(worst, _largest(own.float() - weights[0].float()))
    return worst


def lengths(items: Sequence[Item]) -> dict[SiteKind, tuple[int, int]]:
    """(queries, keys) of each kind of site in a batch; a single stack has an encoder's."""
    source = max(item.length for item in items)
    target = max(len(item.target) for item in items)
    if not target:
        return {"encoder": (source, source)}
    return {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}


def real(weights: Tensor, kind: SiteKind, items: Sequence[Item]) -> list[Tensor]:
    """The [H, T, S] maps of a batch's items without their padding."""
    sizes = [lengths([item])[kind] for item in items]
    return [item[:, :queries, :keys] for item, (queries, keys) in zip(weights, sizes, strict=True)]


def change(a: Tensor | None, b: Tensor | None, items: Sequence[Item]) -> float:
    """Largest |a - b| over real positions relative to the largest |a|; infinite if unknown."""
    if a is None or b is None or a.shape != b.shape:
        return math.inf
    worst = 0.0
    for first, second, item in zip(a, b, items, strict=True):
        length = len(item.target) or item.length
        scale = first[:length].float().abs().max().clamp_min(1e-30)
        apart = first - second.to(first.device)
        worst = max(worst, _largest(apart[:length].float() / scale))
    return worst


def _largest(delta: Tensor) -> float:
    """Largest magnitude; infinite where something is not a number."""
    largest = delta.abs().max().item()
    return math.inf if math.isnan(largest) else largest
