"""The residual stream of a hooked model: does it add up, and how does it become logits?

Parts are not known by name. In a few tokens' pass, the feed-forward part of a layer is the module
whose output is what the layer gives beyond what it gets and what W_O gives; the last normalization
is the module that turns the last layer's states into the final ones; and the logits must be those
times the head's matrix. Where one of these does not hold, logits are not split.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnviz.core.heads import Site
from attnviz.core.source import Normalization, OutputProjection, Readout
from attnviz.models.hooked.network import HookedModel, Item
from attnviz.models.hooked.norms import close, normalization
from attnviz.models.hooked.stack import Stack


@dataclass(frozen=True)
class Residual:
    """What was found.

    Attributes:
        readout: how the stream becomes logits, or why it does not add up.
        mlps: the feed-forward part of every layer, if it does.
        no_sum: why the layers do not add up, whatever becomes of it; empty where they do.
    """

    readout: Readout
    mlps: tuple[nn.Module, ...] = ()
    no_sum: str = ""

    @contextlib.contextmanager
    def keeping(self, added: list[Tensor], first: int = 0) -> Iterator[None]:
        """Inside the ``with`` block, collect what each feed-forward part adds.

        Args:
            added: filled, B · T · D numbers each, as the layer shapes them.
            first: the layer at which passes begin.
        """
        shares = dict(zip(map(id, self.mlps), self.readout.shares, strict=True))

        def gave(module: nn.Module, args: Any, out: Any) -> None:
            state, share = _tensor(out), shares[id(module)]
            added.append(state if share == 1 else state * share)

        with contextlib.ExitStack() as undo:
            for module in self.mlps[first:]:
                undo.callback(module.register_forward_hook(gave).remove)
            yield


def find_residual(
    network: HookedModel,
    stack: Stack | None,
    projections: Mapping[Site, OutputProjection],
    items: Sequence[Item],
) -> Residual:
    """Try with a few tokens whether a hooked single stack's residual stream adds up.

    Args:
        network: with our attention switched on.
        stack: its layers, or None where there is no plain list of them.
        projections: W_O of every layer.
        items: the tokens; the first is the longest.
    """
    if stack is None:
        return _none("it has no plain list of layers that run one after the other")
    ran: dict[int, tuple[Any, Tensor]] = {}
    states: list[Tensor] = []
    modules = [module for module in network.body.modules() if module is not network.body]

    def left(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        state = output[0] if isinstance(output, tuple | list) and output else output
        if isinstance(state, Tensor) and states and state.numel() == states[0].numel():
            first = state.reshape(states[0].shape)[0]  # some layers flatten the batch
            ran[id(module)] = (args[0] if args else None, first)

    with torch.no_grad(), contextlib.ExitStack() as undo:
        for module in modules:
            undo.callback(module.register_forward_hook(left).remove)
        undo.enter_context(stack.keeping(states))
        output = network.run(items, logits=True)
    by_layer = {site.layer: projection for site, projection in projections.items()}
    mlps, after, shares = [], dict[int, Normalization](), list[float]()
    for number, layer in enumerate(stack.layers):
        projection = by_layer.get(number)
        if projection is None:
            return _none(f"layer {number} has no attention, so that what it adds has no heads")
        if projection.weight is None:
            return _none(
                f"layer {number} cannot be split over its heads, since {projection.reason}"
            )
        added = _added(layer, projection.weight, ran, states[number][0], states[number + 1][0])
        if added is None:
            return _none(
                f"layer {number} does not simply add attention and a feed-forward part to its input"
            )
        mlps.append(added[0])
        if added[1] is not None:
            after[number] = added[1]
        shares.append(added[2])
    readout = _readout(network, modules, ran, states[-1][0], output)
    no_sum = ""
    if after:
        no_sum = f"layer {next(iter(after))} normalizes what its heads write before it is added"
    elif max(shares) != 1.0 or min(shares) != 1.0:
        no_sum = f"it adds what a layer writes {shares[0]:g} times"
    if readout.reason:
        return Residual(readout, no_sum=no_sum)
    return Residual(replace(readout, after=after, shares=tuple(shares)), tuple(mlps), no_sum)


def _readout(
    network: HookedModel,
    modules: Sequence[nn.Module],
    ran: Mapping[int, tuple[Any, Tensor]],
    last: Tensor,
    output: Mapping[str, Any],
) -> Readout:
    """How what leaves the last layer, [T, D], becomes logits."""
    if network.no_logits:
        return Readout(None, reason=network.no_logits)
    final = output["last_hidden_state"][0]
    norm = next((read for module in modules if (read := _norm(module, ran, last, final))), None)
    if norm is None:
        why = "its last normalization is neither layer nor RMS normalization"
        return Readout(None, reason=why)
    head: Any = network.model.get_output_embeddings()
    weight, bias = (_values(getattr(head, name, None)) for name in ("weight", "bias"))
    logits = output["logits"][0]
    unknown = "its logits are not its final states times one matrix"
    if not isinstance(weight, Tensor) or weight.shape != (logits.shape[-1], final.shape[-1]):
        return Readout(None, reason=unknown)
    made = F.linear(final, weight, bias)
    factor = _factor(made, logits)
    if factor is None or (factor != 1.0 and bias is not None):
        return Readout(None, reason=_capped(made, logits, network.config) or unknown)
    if factor == 1.0:
        return Readout(weight, norm.scale, norm.eps, norm.shift, bias, norm.centred)
    shift = None if norm.shift is None else norm.shift * factor
    return Readout(weight, norm.scale * factor, norm.eps, shift, None, norm.centred, factor=factor)


def _factor(made: Tensor, given: Tensor) -> float | None:
    """The number that makes one tensor of another; 1 for none, None where no number does."""
    if close(made, given):
        return 1.0
    a, b = made.double().flatten(), given.double().flatten()
    factor = float((a @ b) / (a @ a).clamp_min(1e-30))
    if factor <= 0 or not close(made * factor, given):
        return None
    round_ = (float(f"{factor:.6g}"), 1 / float(f"{1 / factor:.6g}"))  # as configurations have it
    nearest = min(round_, key=lambda number: abs(number - factor))
    return nearest if close(made * nearest, given) else factor


def _capped(made: Tensor, logits: Tensor, config: Any) -> str:
    """Why logits that are capped are not split; empty where they are not."""
    cap = getattr(config, "final_logit_softcapping", None)
    if not isinstance(cap, int | float) or not close(cap * (made / cap).tanh(), logits):
        return ""
    return f"it caps its logits, {cap:g} tanh(x / {cap:g}), which no sum can split"


def _added(
    layer: nn.Module,
    projection: Tensor,
    ran: Mapping[int, tuple[Any, Tensor]],
    entered: Tensor,
    left: Tensor,
) -> tuple[nn.Module, Normalization | None, float] | None:
    """The module whose output is what the layer adds beside attention; the outermost if several.

    Attention is what W_O gives, or that behind an RMS normalization, which then comes second. Third
    is what both are multiplied with before they are added.
    """
    inside = [module for module in layer.modules() if module is not layer and id(module) in ran]
    attended = None
    for module in inside:
        weight = getattr(module, "weight", None)
        if isinstance(weight, Tensor) and weight.data_ptr() == projection.data_ptr():
            attended = ran[id(module)][1]
    if attended is None or attended.shape != left.shape:
        return None
    behind: list[tuple[Normalization | None, Tensor]] = [(None, attended)]
    for module in inside:
        got, gave = ran[id(module)]
        if isinstance(got, Tensor) and got.numel() >= attended.numel() and gave is not attended:
            first = got.flatten(0, -2)[: len(attended)]
            same = first.shape == attended.shape and torch.equal(first, attended)
            norm = normalization(module, attended, gave) if same else None
            if norm is not None and not norm.centred:
                behind.append((norm, gave))
    for norm, attention in behind:
        for module in inside:
            added = ran[id(module)][1]
            if added.shape != left.shape:
                continue
            if close(entered + attention + added, left):
                return module, norm, 1.0
            share = _factor(attention + added, left - entered)
            if share is not None and close(entered + share * (attention + added), left):
                return module, norm, share
    return None


def _norm(
    module: nn.Module, ran: Mapping[int, tuple[Any, Tensor]], last: Tensor, final: Tensor
) -> Normalization | None:
    """The normalization that a module is, if it makes the final states of the last ones."""
    entered, left = ran.get(id(module), (None, None))
    if not isinstance(entered, Tensor) or left is None or not torch.equal(left, final):
        return None
    if entered.shape[1:] != last.shape or not torch.equal(entered[0], last):
        return None
    return normalization(module, last, final)


def _values(parameter: Any) -> Any:
    """A parameter of a model in memory, which may track gradients, without them."""
    return parameter.detach() if isinstance(parameter, Tensor) else parameter


def _tensor(output: Any) -> Tensor:
    """What a module gives, without what stands beside it (a router's scores)."""
    state: Tensor = output[0] if isinstance(output, tuple | list) else output
    return state


def _none(reason: str) -> Residual:
    return Residual(Readout(None, reason=reason), no_sum=reason)
