"""The residual stream of a hooked model: does it add up, and how does it become logits?

Parts are not known by name. In a few tokens' pass, the feed-forward part of a layer is the module
whose output is what the layer gives beyond what it gets and what W_O gives; the last normalization
is the module that turns the last layer's states into the final ones; and the logits must be those
times the head's matrix. Where one of these does not hold, logits are not split.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
        with contextlib.ExitStack() as undo:
            for module in self.mlps[first:]:
                hook = module.register_forward_hook(lambda _, args, out: added.append(_tensor(out)))
                undo.callback(hook.remove)
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
    mlps = []
    for number, layer in enumerate(stack.layers):
        projection = by_layer.get(number)
        if projection is None:
            return _none(f"layer {number} has no attention, so that what it adds has no heads")
        if projection.weight is None:
            return _none(
                f"layer {number} cannot be split over its heads, since {projection.reason}"
            )
        mlp = _mlp(layer, projection.weight, ran, states[number][0], states[number + 1][0])
        if mlp is None:
            return _none(
                f"layer {number} does not simply add attention and a feed-forward part to its input"
            )
        mlps.append(mlp)
    readout = _readout(network, modules, ran, states[-1][0], output)
    return Residual(readout, () if readout.reason else tuple(mlps))


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
    if (
        not isinstance(weight, Tensor)
        or weight.shape != (logits.shape[-1], final.shape[-1])
        or not close(F.linear(final, weight, bias), logits)
    ):
        return Readout(None, reason="its logits are not its final states times one matrix")
    return Readout(weight, norm.scale, norm.eps, norm.shift, bias, norm.centred)


def _mlp(
    layer: nn.Module,
    projection: Tensor,
    ran: Mapping[int, tuple[Any, Tensor]],
    entered: Tensor,
    left: Tensor,
) -> nn.Module | None:
    """The module whose output, with W_O's, is what the layer adds; the outermost if several."""
    inside = [module for module in layer.modules() if module is not layer and id(module) in ran]
    attended = None
    for module in inside:
        weight = getattr(module, "weight", None)
        if isinstance(weight, Tensor) and weight.data_ptr() == projection.data_ptr():
            attended = ran[id(module)][1]
    if attended is None or attended.shape != left.shape:
        return None
    for module in inside:
        added = ran[id(module)][1]
        if added.shape == left.shape and close(entered + attended + added, left):
            return module
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
