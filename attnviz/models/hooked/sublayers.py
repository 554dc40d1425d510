"""What a hooked model does around its attention: found in a few tokens' pass, proved by its sums.

Modules are not known by name. With Y what W_O gives and h what the attention module gets, the
residual connection carries an x with x + Y somewhere behind: x is h itself, or what a module made h
of. The layer is post-norm if the pass goes on from the normalized sum, pre-norm if it goes on from
the sum. Feed-forward parts that run beside attention (GPT-NeoX) add to the same sum.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attnviz.core.heads import Site
from attnviz.core.weights import OutputProjection, Sublayer
from attnviz.models.hooked.interface import WatchedPass, hooking
from attnviz.models.hooked.network import HookedModel, Item
from attnviz.models.hooked.trace import ModuleCall, calls_of, close, listening, normalization


class _Ran(NamedTuple):
    """A module that has run: what it got and gave, [N, D] each, None where that is no states."""

    module: nn.Module
    entered: Tensor | None
    left: Tensor | None


@dataclass(frozen=True)
class Sublayers:
    """What was found."""

    known: Mapping[Site, Sublayer] = field(default_factory=dict)  # by site
    # for every layer with a known order, the module that gets x before attention runs
    carriers: Sequence[nn.Module] = ()

    @contextlib.contextmanager
    def handing(self, run: WatchedPass) -> Iterator[None]:
        """Inside the ``with`` block, let the run know what goes past each of its calls."""

        def entering(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            run.residual = args[0] if args else kwargs.get("hidden_states")

        with listening({id(module): module for module in self.carriers}.values(), before=entering):
            yield


def find_sublayers(
    network: HookedModel,
    plan: Sequence[tuple[int, Site]],
    projections: Mapping[Site, OutputProjection],
    items: Sequence[Item],
) -> Sublayers:
    """Try with a few tokens what every layer does around its attention."""
    ran: list[_Ran] = []
    marks: list[int] = []

    def ended(call: ModuleCall) -> None:
        entered, left = (_flat(states, network.device) for states in (call.entered, call.left))
        ran.append(_Ran(call.module, entered, left))

    run = WatchedPass((), plan, attended=lambda z: marks.append(len(ran)))
    with torch.no_grad(), calls_of(network.body.modules(), ended), hooking(run):
        network.run(items)
    ends = [0, *marks, len(ran), len(ran)]
    known, carriers = {}, []
    for number, (module, site) in enumerate(plan):
        before = ran[ends[number] : ends[number + 1]]
        after = ran[ends[number + 1] : ends[number + 3]]
        sublayer, carrier = _sublayer(module, projections[site], before, after)
        known[site] = sublayer
        if carrier is not None:
            carriers.append(carrier)
    return Sublayers(known, tuple(carriers))


def _sublayer(
    attention: int, projection: OutputProjection, before: Sequence[_Ran], after: Sequence[_Ran]
) -> tuple[Sublayer, nn.Module | None]:
    """One layer's arrangement and the module that gets x."""
    if projection.weight is None:
        return Sublayer(None, reason=projection.reason), None
    place = projection.weight.data_ptr()
    written = next((r.left for r in after if _at(r.module) == place), None)
    caller = next((r for r in after if id(r.module) == attention), None)
    if written is None or caller is None or caller.entered is None:
        return Sublayer(None, reason="what its attention module gets is not known"), None
    h = caller.entered
    sources = [caller, *(r for r in reversed(before) if r.left is not None and _same(r.left, h))]
    states = _distinct(t for r in after for t in (r.entered, r.left))
    parts = _distinct(r.left for r in after)
    for source in sources:
        x = source.entered
        if x is None or x.shape != written.shape:
            continue
        total = x + written
        norms = [r for r in after if r.entered is not None and _equal(r.entered, total)]
        for r in norms:
            if r.left is not None and source is caller and _goes_on(r.left, states, parts):
                norm = normalization(r.module, total, r.left)
                if norm is not None:
                    return Sublayer("post", norm), source.module
        if _goes_on(total, states, parts):
            norm = None if source is caller else normalization(source.module, x, h)
            return Sublayer("pre", norm), source.module
    reason = "its attention is neither added to what goes past it, nor is the sum normalized"
    return Sublayer(None, reason=reason), None


def _goes_on(base: Tensor, states: Sequence[Tensor], parts: Sequence[Tensor]) -> bool:
    """Whether a later state is this one and what one module gave."""
    fitting = [part for part in parts if part.shape == base.shape]
    return any(
        _equal(base + part, state)
        for state in states
        if state.shape == base.shape
        for part in fitting
        if part is not state
    )


def _equal(made: Tensor, given: Tensor) -> bool:
    """Whether two states are the same up to rounding; the first row tells most pairs apart."""
    return made.shape == given.shape and close(made[0], given[0]) and close(made, given)


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a, b)


def _distinct(tensors: Iterable[Tensor | None]) -> list[Tensor]:
    """Each tensor once; a part of one, such as its first row, is another."""
    return list({(t.data_ptr(), t.shape): t for t in tensors if t is not None}.values())


def _at(module: nn.Module) -> int:
    weight = getattr(module, "weight", None)
    return weight.data_ptr() if isinstance(weight, Tensor) else 0


def _flat(states: Any, device: torch.device) -> Tensor | None:
    """Flatten the batch, [N, D], as some layers do, on one device."""
    if not isinstance(states, Tensor) or states.ndim < 2 or not states.is_floating_point():
        return None
    return states.detach().flatten(0, -2).to(device)
