"""The layers of a single stack: what goes from one to the next, and passes that begin in between.

Where a model keeps its layers in a list and runs them one after the other, what enters each of them
can be read, and a pass can leave the first ones out. Whether that is so is tried before it is used.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnviz.core.heads import Site
from attnviz.core.source import Start
from attnviz.models.hooked.compare import TOLERANCE_LOW, change, is_low
from attnviz.models.hooked.network import HookedModel, Item

TOLERANCE = 1e-5
"""Largest difference of final states, relative to the largest, between a whole and a late pass."""


@dataclass(frozen=True)
class Stack:
    """Layers that run one after the other.

    Attributes:
        layers: in order.
        wrapped: whether they return their states in a tuple.
    """

    layers: nn.ModuleList
    wrapped: bool = False

    @contextlib.contextmanager
    def beginning(self, start: Start) -> Iterator[None]:
        """Inside the ``with`` block, passes begin at a layer; others hand on what they get."""

        def entering(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if args:
                return (start.hidden, *args[1:]), kwargs
            return args, {**kwargs, "hidden_states": start.hidden}

        def skip(*args: Any, **kwargs: Any) -> Any:
            hidden = _hidden(args, kwargs)
            return (hidden,) if self.wrapped else hidden

        def given(*args: Any, **kwargs: Any) -> Any:
            return (start.hidden,) if self.wrapped else start.hidden

        with contextlib.ExitStack() as undo:
            ended = self.layers[len(self.layers) if start.end is None else start.end :]
            for layer in [*self.layers[: start.layer], *ended]:
                undo.enter_context(_replaced(layer, skip))
            if start.layer == len(self.layers):
                undo.enter_context(_replaced(self.layers[-1], given))
                yield
                return
            first = self.layers[start.layer]
            undo.callback(first.register_forward_pre_hook(entering, with_kwargs=True).remove)
            yield

    @contextlib.contextmanager
    def keeping(
        self, states: list[Tensor], first: int = 0, end: int | None = None
    ) -> Iterator[None]:
        """Inside the ``with`` block, collect what enters each layer, and what leaves the last.

        Args:
            states: filled.
            first: the layer at which passes begin.
            end: the layer before which they end.
        """

        def entering(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            states.append(_hidden(args, kwargs))

        def leaving(layer: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            states.append(output[0] if isinstance(output, tuple) else output)

        with contextlib.ExitStack() as undo:
            ran = self.layers[first:end]
            for layer in ran:
                undo.callback(layer.register_forward_pre_hook(entering, with_kwargs=True).remove)
            undo.callback(ran[-1].register_forward_hook(leaving).remove)
            yield


def find_stack(
    network: HookedModel, plan: Sequence[tuple[int, Site]], items: Sequence[Item]
) -> Stack | None:
    """The layers of a hooked single stack, tried with a few tokens.

    Args:
        network: with our attention switched on.
        plan: module and site of every attention call.
        items: the tokens.

    Returns:
        None where the model has no plain list of layers, or where a pass that begins at the last
        one, with what entered it in a whole pass, does not end as that did.
    """
    layers = _listed(network.body, plan)
    if layers is None:
        return None
    states: list[Tensor] = []
    returned: list[Any] = []
    handle = layers[0].register_forward_hook(lambda layer, args, out: returned.append(out))
    try:
        with torch.no_grad():
            with Stack(layers).keeping(states):
                whole = network.run(items).get("last_hidden_state")
            stack = Stack(layers, isinstance(returned[0], tuple))
            with stack.beginning(Start(len(layers) - 1, states[-2])):
                late = network.run(items).get("last_hidden_state")
    except Exception:  # whatever a model's own code raises when it is run in another way
        return None
    finally:
        handle.remove()
    tolerance = TOLERANCE_LOW if is_low(network.dtype) else TOLERANCE
    if len(states) != len(layers) + 1 or change(whole, late, items) > tolerance:
        return None
    return stack


def _listed(body: nn.Module, plan: Sequence[tuple[int, Site]]) -> nn.ModuleList | None:
    """The list whose item number l holds the attention module of layer l, for every layer."""
    for listed in body.modules():
        if not isinstance(listed, nn.ModuleList) or len(listed) <= max(s.layer for _, s in plan):
            continue
        inside = [{id(module) for module in layer.modules()} for layer in listed]
        if all(module in inside[site.layer] for module, site in plan):
            return listed
    return None


@contextlib.contextmanager
def _replaced(layer: nn.Module, forward: Any) -> Iterator[None]:
    """Let a layer do something else inside the block; a forward of its own comes back."""
    kept = vars(layer).get("forward")
    layer.forward = forward
    try:
        yield
    finally:
        del layer.forward
        if kept is not None:
            layer.forward = kept


def _hidden(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The states among the arguments of a layer."""
    hidden: Tensor = args[0] if args else kwargs["hidden_states"]
    return hidden
