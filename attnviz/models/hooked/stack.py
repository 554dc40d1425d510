"""The layers of a stack: what goes from one to the next, and passes that begin in between.

Where a model keeps its layers in a list and runs them one after the other, what enters each of them
can be read, and a pass can leave the first ones out. Whether that is so is tried before it is used.
Of an encoder-decoder model it is the decoder's, and a pass can begin behind the last of them, where
neither stack has anything left to do.
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
from attnviz.models.hooked.agreement import TOLERANCE_LOW, change
from attnviz.models.hooked.network import HookedModel, Item
from attnviz.models.hooked.trace import calls_of, is_low, listening

TOLERANCE = 1e-5
"""Largest difference of final states, relative to the largest, between a whole and a late pass."""


@dataclass(frozen=True)
class Stack:
    """Layers that run one after the other, some of them on other devices than the first."""

    layers: nn.ModuleList  # in order
    wrapped: int = 0  # how many values they return in a tuple, states first; 0 for states alone
    before: Stack | None = None  # the encoder, of an encoder-decoder model
    starts: bool = True  # whether a pass can begin at each of them, which was tried

    @contextlib.contextmanager
    def beginning(self, start: Start) -> Iterator[None]:
        """Inside the ``with`` block, passes begin at a layer; others hand on what they get."""

        def entering(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            hidden = start.hidden.to(_hidden(args, kwargs).device)
            if args:
                return (hidden, *args[1:]), kwargs
            return args, {**kwargs, "hidden_states": hidden}

        def given(*args: Any, **kwargs: Any) -> Any:
            return self._returned(start.hidden)

        with contextlib.ExitStack() as undo:
            ended = self.layers[len(self.layers) if start.end is None else start.end :]
            for layer in [*self.layers[: start.layer], *ended]:
                undo.enter_context(_replaced(layer, self._skip))
            if self.before is not None:
                for layer in self.before.layers:
                    undo.enter_context(_replaced(layer, self.before._skip))
            if start.layer == len(self.layers):
                undo.enter_context(_replaced(self.layers[-1], given))
                yield
                return
            undo.enter_context(listening([self.layers[start.layer]], before=entering))
            yield

    @contextlib.contextmanager
    def keeping(
        self, states: list[Tensor], first: int = 0, end: int | None = None
    ) -> Iterator[None]:
        """Inside the ``with`` block, collect what enters each layer, and what leaves the last."""

        def entering(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            keep(_hidden(args, kwargs))

        def keep(state: Tensor) -> None:
            states.append(state.to(states[0].device) if states else state)

        ran = self.layers[first:end]
        with listening(ran, before=entering), calls_of(ran[-1:], lambda call: keep(call.left)):
            yield

    def _skip(self, *args: Any, **kwargs: Any) -> Any:
        """What a layer that does nothing returns."""
        return self._returned(_hidden(args, kwargs))

    def _returned(self, hidden: Tensor) -> Any:
        return (hidden, *[None] * (self.wrapped - 1)) if self.wrapped else hidden


def find_stack(
    network: HookedModel, plan: Sequence[tuple[int, Site]], items: Sequence[Item]
) -> Stack | None:
    """The layers of a hooked model, tried with a few tokens."""
    own = [call for call in plan if not network.seq2seq or call[1].kind == "decoder"]
    layers = _listed(network.body, own)
    encoder = None
    if network.seq2seq:
        encoder = _listed(network.body, [call for call in plan if call[1].kind == "encoder"])
    if layers is None or (network.seq2seq and encoder is None):
        return None
    states: list[Tensor] = []
    returned: list[Any] = []
    firsts = [listed[0] for listed in (encoder, layers) if listed is not None]
    try:
        with torch.no_grad():
            returning = listening(firsts, after=lambda *call: returned.append(call[-1]))
            with returning, Stack(layers).keeping(states):
                whole = network.run(items).get("last_hidden_state")
            *before, last = (len(out) if isinstance(out, tuple | list) else 0 for out in returned)
            stack = Stack(layers, last, Stack(encoder, before[0]) if encoder is not None else None)
            start = len(layers) - (0 if network.seq2seq else 1)
            with stack.beginning(Start(start, states[start])):
                late = network.run(items).get("last_hidden_state")
    except Exception:  # whatever a model's own code raises when it is run in another way
        return None
    tolerance = TOLERANCE_LOW if is_low(network.dtype) else TOLERANCE
    if len(states) != len(layers) + 1 or change(whole, late, items) > tolerance:
        return None
    return stack


def find_layers(
    network: HookedModel, plan: Sequence[tuple[int, Site]], items: Sequence[Item]
) -> Stack | None:
    """The layers of a single stack, whether or not a pass can begin at one."""
    layers = _listed(network.body, plan)
    if layers is None:
        return None
    states: list[Tensor] = []
    left: list[Tensor] = []
    stack = Stack(layers, starts=False)
    ended = calls_of(layers, lambda call: left.append(call.left))
    with torch.no_grad(), ended, stack.keeping(states):
        network.run(items)
    once = len(left) == len(layers) and len(states) == len(layers) + 1
    pairs = zip(left, states[1:], strict=True)
    if not once or not all(torch.equal(a.to(b.device), b) for a, b in pairs):
        return None
    return stack


def _listed(body: nn.Module, plan: Sequence[tuple[int, Site]]) -> nn.ModuleList | None:
    """The list whose item number l holds the attention module of layer l, for every layer."""
    for listed in body.modules():
        deep = max((site.layer for _, site in plan), default=0)
        if not isinstance(listed, nn.ModuleList) or len(listed) <= deep:
            continue
        inside = [{id(module) for module in layer.modules()} for layer in listed]
        if all(module in inside[site.layer] for module, site in plan):
            return listed
    return None


@contextlib.contextmanager
def _replaced(layer: nn.Module, forward: Any) -> Iterator[None]:
    """Let a layer do something else inside the block; a forward of its own comes back."""
    original = vars(layer).get("forward")
    layer.forward = forward
    try:
        yield
    finally:
        del layer.forward
        if original is not None:
            layer.forward = original


def _hidden(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The states among the arguments of a layer."""
    return args[0] if args else kwargs["hidden_states"]
