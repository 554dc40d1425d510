"""The residual stream of a hooked model: does it add up, and how does it become logits?

Parts are not known by name. In a few tokens' pass, what a layer gives is the sum of what it gets,
what W_O gives and what one or two of its modules give, or that with normalizations over all of it
(:mod:`attnviz.models.hooked.layer_sums`); the last normalization is the module that turns the
last layer's states into the final ones, if these are others; and the logits must be those times the
head's matrix. Where one of these does not hold, logits are not split.

What stands around attention is found by the same sums: with Y what W_O gives and h what the
attention module gets, the residual connection carries an x with x + Y somewhere behind: x is h
itself, or what a module made h of. The layer is post-norm if the pass goes on from the normalized
sum, pre-norm if it goes on from the sum. Feed-forward parts that run beside attention (GPT-NeoX)
add to the same sum.

The layers of a stack: what goes from one to the next, and passes that begin in between.

Where a model keeps its layers in a list and runs them one after the other, what enters each of them
can be read, and a pass can leave the first ones out. Whether that is so is tried before it is used.
Of an encoder-decoder model it is the decoder's, and a pass can begin behind the last of them, where
neither stack has anything left to do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnviz.attention.contributions import deviation
from attnviz.core.heads import Site
from attnviz.core.source import Start
from attnviz.core.weights import Normalization, OutputProjection, Readout, Sublayer
from attnviz.models.external_errors import replacing
from attnviz.models.hooked.interface import WatchedPass, hooking
from attnviz.models.hooked.layer_sums import LayerSum, explained, scale_between
from attnviz.models.hooked.network import HookedModel, Item
from attnviz.models.hooked.projection import OFFLOADED, head_layers
from attnviz.models.hooked.survey import TOLERANCE_LOW, change
from attnviz.models.hooked.trace import (
    TOLERANCE,
    ModuleCall,
    calls_of,
    close,
    first_of,
    is_low,
    listening,
    normalization,
)
from attnviz.models.tracing import Turns


@dataclass(frozen=True)
class Stack:
    """Layers that run one after the other, some of them on other devices than the first."""

    layers: nn.ModuleList  # in order
    wrapped: int = 0  # how many values they return in a tuple, states first; 0 for states alone
    encoder: Stack | None = None  # the encoder, of an encoder-decoder model
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
                undo.enter_context(replacing(layer, "forward", self._skip))
            if self.encoder is not None:
                for layer in self.encoder.layers:
                    undo.enter_context(replacing(layer, "forward", self.encoder._skip))
            if start.layer == len(self.layers):
                undo.enter_context(replacing(self.layers[-1], "forward", given))
                yield
                return
            undo.enter_context(listening([self.layers[start.layer]], pre_hook=entering))
            yield

    @contextlib.contextmanager
    def keeping(
        self, states: list[Tensor], first: int = 0, end: int | None = None
    ) -> Iterator[None]:
        """Inside the ``with`` block, collect what enters each layer, and what leaves the last."""

        def entering(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            keep(_hidden(args, kwargs))

        def keep(state: Tensor) -> Tensor:
            states.append(state.to(states[0].device) if states else state)
            return states[-1]

        def leaving(layer: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
            state = first_of(output)
            stored = keep(state)
            if stored is state or not state.requires_grad:
                return output
            # by way of the device where it is kept, so that gradients reach what is kept
            returned = stored.to(state.device)
            return (returned, *output[1:]) if isinstance(output, tuple | list) else returned

        ran = self.layers[first:end]
        with listening(ran, pre_hook=entering), listening(ran[-1:], hook=leaving):
            yield

    def _skip(self, *args: Any, **kwargs: Any) -> Any:
        """Return what a layer that does nothing returns."""
        return self._returned(_hidden(args, kwargs))

    def _returned(self, hidden: Tensor) -> Any:
        return (hidden, *[None] * (self.wrapped - 1)) if self.wrapped else hidden


def find_stack(
    network: HookedModel, plan: Sequence[tuple[int, Site]], items: Sequence[Item]
) -> Stack | None:
    """Return the layers of a hooked model, tried with a few tokens."""
    calls = [call for call in plan if not network.seq2seq or call[1].kind == "decoder"]
    layers = _listed(network.body, calls)
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
            returning = listening(firsts, hook=lambda *call: returned.append(call[-1]))
            with returning, Stack(layers).keeping(states):
                full = network.run(items).get("last_hidden_state")
            widths = [len(out) if isinstance(out, tuple | list) else 0 for out in returned]
            first = None if encoder is None else Stack(encoder, widths[0])
            stack = Stack(layers, widths[-1], first)
            start = len(layers) - (0 if network.seq2seq else 1)
            with stack.beginning(Start(start, states[start])):
                late = network.run(items).get("last_hidden_state")
    except Exception:  # whatever a model's own code raises when it is run in another way
        return None
    tolerance = TOLERANCE_LOW if is_low(network.dtype) else TOLERANCE
    if len(states) != len(layers) + 1 or change(full, late, items) > tolerance:
        return None
    return stack


def find_layers(
    network: HookedModel, plan: Sequence[tuple[int, Site]], items: Sequence[Item]
) -> Stack | None:
    """Return the layers of a single stack, whether or not a pass can begin at one."""
    layers = _listed(network.body, plan)
    if layers is None:
        return None
    states: list[Tensor] = []
    outputs: list[Tensor] = []
    stack = Stack(layers, starts=False)
    ended = calls_of(layers, lambda call: outputs.append(call.output))
    with torch.no_grad(), ended, stack.keeping(states):
        network.run(items)
    once = len(outputs) == len(layers) and len(states) == len(layers) + 1
    pairs = zip(outputs, states[1:], strict=True)
    if not once or not all(torch.equal(a.to(b.device), b) for a, b in pairs):
        return None
    return stack


def _listed(body: nn.Module, plan: Sequence[tuple[int, Site]]) -> nn.ModuleList | None:
    """Give the list whose item number l holds the attention module of layer l, for every layer."""
    for listed in body.modules():
        deep = max((site.layer for _, site in plan), default=0)
        if not isinstance(listed, nn.ModuleList) or len(listed) <= deep:
            continue
        inside = [{id(module) for module in layer.modules()} for layer in listed]
        if all(module in inside[site.layer] for module, site in plan):
            return listed
    return None


def _hidden(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Return the states among the arguments of a layer."""
    return args[0] if args else kwargs["hidden_states"]


@dataclass
class AddedParts:
    """What the parts of layers added to the stream in a pass, as the layers shape it."""

    # of feed-forward parts, B · T · D numbers by layer
    mlps: dict[int, Tensor] = field(default_factory=dict)
    # of parts that mix tokens without attention
    mixers: dict[int, Tensor] = field(default_factory=dict)
    # σ of the normalizations over the stream, one after the other, B · T numbers each in float64
    deviations: dict[int, list[Tensor]] = field(default_factory=dict)


@dataclass(frozen=True)
class Residual:
    """What was found."""

    readout: Readout  # how the stream becomes logits, or why it does not add up
    layers: tuple[LayerSum, ...] = ()  # what every layer is the sum of, if it does
    # why what heads write does not reach later layers as it is, whatever becomes of it; empty where
    # it does
    no_sum: str = ""

    @property
    def splits(self) -> bool:
        """Whether logits are a sum over what the layers add."""
        return bool(self.layers) and self.readout.summed.table is not None

    def named(self, names: Mapping[int, str]) -> Residual:
        """Return the same with what the mixers of some layers are known to compute."""
        readout = self.readout.summed
        mixers = {layer: names.get(layer, name) for layer, name in readout.mixers.items()}
        named = replace(readout, mixers=mixers)
        capped = self.readout.uncapped is not None
        return replace(self, readout=replace(self.readout, uncapped=named) if capped else named)

    @contextlib.contextmanager
    def keeping(self, added: AddedParts, first: int = 0) -> Iterator[None]:
        """Inside the ``with`` block, collect what each part of the layers adds."""
        layers = list(enumerate(self.layers))[first:]
        parts = Turns((part.module, (n, part)) for n, layer in layers for part in layer.parts)

        def gave(call: ModuleCall) -> None:
            number, part = parts.next(call.module)
            state, factor = call.output, part.factor
            if isinstance(factor, Tensor) or factor != 1:
                state = (state * factor).to(state.dtype)
            else:
                state = state.clone()  # Falcon adds to it in place
            sums = added.mixers if part.mixer else added.mlps
            sums[number] = sums[number] + state if number in sums else state

        norms = Turns(
            (module, (n, norm))
            for n, layer in layers
            if layer.places is not None
            for norm, module in zip(layer.places.norms, layer.over, strict=True)
        )

        def divided(call: ModuleCall) -> None:
            number, norm = norms.next(call.module)
            added.deviations.setdefault(number, []).append(deviation(norm, call.entered))

        with calls_of(parts.modules, gave), calls_of(norms.modules, divided):
            yield


def find_residual(
    network: HookedModel,
    stack: Stack | None,
    projections: Mapping[Site, OutputProjection],
    items: Sequence[Item],
) -> Residual:
    """Try with a few tokens whether a single stack's residual stream adds up."""
    if stack is None:
        return _none("it has no plain list of layers that run one after the other")
    if network.is_offloaded:
        return _none(OFFLOADED)
    ran: dict[int, ModuleCall] = {}
    states: list[Tensor] = []
    modules = [module for module in network.body.modules() if module is not network.body]

    def keep(call: ModuleCall) -> None:
        state = call.output
        if isinstance(state, Tensor) and states and state.numel() == states[0].numel():
            first = state.reshape(states[0].shape)[0]  # some layers flatten the batch
            ran[id(call.module)] = replace(call, output=first.to(states[0].device, copy=True))

    body = {id(module) for module in network.body.modules()}
    decodes = all(site.kind == "decoder" for site in projections)  # of others that is not sought
    beside = [m for m in network.model.modules() if decodes and id(m) not in body]
    with torch.no_grad(), calls_of([*modules, *beside], keep), stack.keeping(states):
        output = network.run(items, logits=True)
    by_layer = {site.layer: projection for site, projection in projections.items()}
    sums = list[LayerSum]()
    for number, layer in enumerate(stack.layers):
        projection = by_layer.get(number)
        if projection is not None and projection.weight is None:
            return _none(
                f"layer {number} cannot be split over its heads, since {projection.reason}"
            )
        weight = None if projection is None else projection.weight
        entered, ended = states[number][0], states[number + 1][0]
        added = explained(layer, weight, ran, entered, ended)
        if added is None and weight is None:
            return _none(
                f"layer {number} has no attention, and does not simply add what its modules give "
                "to its input"
            )
        if added is None:
            return _none(
                f"layer {number} does not simply add attention and a feed-forward part to its input"
            )
        sums.append(added)
    readout = _readout(network, modules, beside, ran, states[-1][0], output)
    scales = next((n for n, added in enumerate(sums) if isinstance(added.residual, Tensor)), None)
    no_sum = "" if scales is None else (
        f"layer {scales} multiplies every channel of what enters it with another number before it "
        "adds to that"
    )  # fmt: skip
    if readout.summed.table is None:
        reason = readout.reason
        over = next((number for number, added in enumerate(sums) if added.over), None)
        if over is not None:
            reason += f", and layer {over} normalizes the sum of its input and what it adds "
            reason += "(post-norm)"
        return Residual(replace(readout, reason=reason), tuple(sums), no_sum)
    summed = replace(
        readout.summed,
        after={n: added.norm for n, added in enumerate(sums) if added.norm is not None},
        shares=_factors([added.attention for added in sums]),
        residual_scales=_factors([added.residual for added in sums]),
        biases={n: added.bias for n, added in enumerate(sums) if added.bias is not None},
        mixers={n: part.mixer for n, added in enumerate(sums) for part in added.parts
                if part.mixer},
        without_mlp=frozenset(n for n, added in enumerate(sums)
                              if all(part.mixer for part in added.parts)),
        over={n: added.places for n, added in enumerate(sums) if added.places is not None},
    )  # fmt: skip
    readout = summed if readout.uncapped is None else replace(readout, uncapped=summed)
    return Residual(readout, tuple(sums), no_sum)


def _factors(factors: Sequence[Any]) -> tuple[Any, ...]:
    """Return the factors of all layers; nothing where all are 1."""
    plain = all(isinstance(factor, float) and factor == 1.0 for factor in factors)
    return () if plain else tuple(factors)


def _readout(
    network: HookedModel,
    modules: Sequence[nn.Module],
    beside: Sequence[nn.Module],
    ran: Mapping[int, ModuleCall],
    last: Tensor,
    output: Mapping[str, Any],
) -> Readout:
    """How what leaves the last layer, [T, D], becomes logits."""
    if network.no_logits:
        return Readout(None, reason=network.no_logits)
    final = output["last_hidden_state"][0].to(last.device)
    bare = torch.equal(last, final)  # post-norm layers end normalized
    identity = Normalization(torch.ones_like(last[0]), 0.0, centred=False)
    norm = identity if bare else next(
        (read for module in modules if (read := _norm(module, ran, last, final))), None
    )  # fmt: skip
    if norm is None:
        reason = "its last normalization is neither layer nor RMS normalization"
        return Readout(None, reason=reason)
    labels: Any = getattr(network, "labels", None)
    if labels is not None:  # proved where it was found
        return Readout(
            labels.table, norm.scale, norm.eps, norm.shift, labels.bias, norm.centred,
            normed=not bare, head=labels.layers,
        )  # fmt: skip
    head: Any = network.model.get_output_embeddings()
    parameters = (getattr(head, name, None) for name in ("weight", "bias"))
    weight, bias = (x.detach() if isinstance(x, Tensor) else x for x in parameters)
    logits = output["logits"][0].to(last.device)
    unknown = "its logits are not its final states times one matrix"
    if not isinstance(weight, Tensor) or weight.shape != (logits.shape[-1], final.shape[-1]):
        return Readout(None, reason=unknown)
    product = F.linear(final.to(weight.device), weight, bias).to(last.device)
    factor = scale_between(product, logits)
    cap = 0.0 if factor == 1.0 else _cap(product, logits, network.config)
    plain = Readout(weight, norm.scale, norm.eps, norm.shift, bias, norm.centred, normed=not bare)
    if cap:
        reason = f"it caps its logits, {cap:g} tanh(x / {cap:g}), which no sum can split"
        return Readout(None, reason=reason, uncapped=plain, cap=cap)
    if factor is None:
        calls = {id(module): ran[id(module)] for module in beside if id(module) in ran}
        layers = head_layers(calls, final, logits, weight, bias)
        if layers is not None:
            return replace(plain, head=layers)
    if factor is None or (factor != 1.0 and bias is not None):
        return Readout(None, reason=unknown)
    if factor == 1.0:
        return plain
    shift = None if norm.shift is None else norm.shift * factor
    return replace(plain, scale=norm.scale * factor, shift=shift, factor=factor)


def _cap(uncapped: Tensor, logits: Tensor, config: Any) -> float:
    """c, where logits are c tanh(x / c); 0 where they are not."""
    names = ("final_logit_softcapping", "logits_soft_cap")
    cap = next((cap for name in names if (cap := getattr(config, name, None))), None)
    if not isinstance(cap, int | float) or not close(cap * (uncapped / cap).tanh(), logits):
        return 0.0
    return float(cap)


def _norm(
    module: nn.Module, ran: Mapping[int, ModuleCall], last: Tensor, final: Tensor
) -> Normalization | None:
    """Return the normalization that a module is, if it makes the final states of the last ones."""
    call = ran.get(id(module))
    if call is None or not torch.equal(call.output, final):
        return None
    entered = call.args[0] if call.args else None
    if not isinstance(entered, Tensor):
        return None
    if entered.shape[1:] != last.shape or not torch.equal(entered[0].to(last.device), last):
        return None
    return normalization(module, last, final)


def _none(reason: str) -> Residual:
    return Residual(Readout(None, reason=reason), no_sum=reason)


@dataclass(frozen=True)
class Sublayers:
    """What was found."""

    by_site: Mapping[Site, Sublayer] = field(default_factory=dict)
    # for every layer with a known order, the module that gets x before attention runs
    carriers: Sequence[nn.Module] = ()

    @contextlib.contextmanager
    def handing(self, run: WatchedPass) -> Iterator[None]:
        """Inside the ``with`` block, let the run know what goes past each of its calls."""

        def entering(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            run.residual = args[0] if args else kwargs.get("hidden_states")

        carriers = {id(module): module for module in self.carriers}.values()
        with listening(carriers, pre_hook=entering):
            yield


def find_sublayers(
    network: HookedModel,
    plan: Sequence[tuple[int, Site]],
    projections: Mapping[Site, OutputProjection],
    items: Sequence[Item],
) -> Sublayers:
    """Try with a few tokens what every layer does around its attention."""
    ran: list[ModuleCall] = []  # what each got and gave [N, D], None where that is no states
    marks: list[int] = []

    def keep(call: ModuleCall) -> None:
        entered, output = (_flat(states, network.device) for states in (call.entered, call.output))
        ran.append(replace(call, args=(entered,), output=output))

    run = WatchedPass((), plan, attended=lambda z: marks.append(len(ran)))
    with torch.no_grad(), calls_of(network.body.modules(), keep), hooking(run):
        network.run(items)
    ends = [0, *marks, len(ran), len(ran)]
    sublayers, carriers = {}, []
    for number, (module, site) in enumerate(plan):
        earlier = ran[ends[number] : ends[number + 1]]
        later = ran[ends[number + 1] : ends[number + 3]]
        sublayer, carrier = _sublayer(module, projections[site], earlier, later)
        sublayers[site] = sublayer
        if carrier is not None:
            carriers.append(carrier)
    return Sublayers(sublayers, tuple(carriers))


def _sublayer(
    attention: int,
    projection: OutputProjection,
    earlier: Sequence[ModuleCall],
    later: Sequence[ModuleCall],
) -> tuple[Sublayer, nn.Module | None]:
    """One layer's arrangement and the module that gets x."""
    if projection.weight is None:
        return Sublayer(None, reason=projection.reason), None
    pointer = projection.weight.data_ptr()
    projected = next((r.output for r in later if _at(r.module) == pointer), None)
    caller = next((r for r in later if id(r.module) == attention), None)
    if projected is None or caller is None or caller.entered is None:
        return Sublayer(None, reason="what its attention module gets is not known"), None
    h = caller.entered
    producers = (r for r in reversed(earlier) if r.output is not None and r.output.shape == h.shape)
    sources = [caller, *(r for r in producers if r.output is not None and torch.equal(r.output, h))]
    states = _distinct(t for r in later for t in (r.entered, r.output))
    parts = _distinct(r.output for r in later)
    for source in sources:
        x = source.entered
        if x is None or x.shape != projected.shape:
            continue
        total = x + projected
        norms = [r for r in later if r.entered is not None and _equal(r.entered, total)]
        for r in norms:
            if r.output is not None and source is caller and _goes_on(r.output, states, parts):
                norm = normalization(r.module, total, r.output)
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


def _equal(a: Tensor, b: Tensor) -> bool:
    """Whether two states are the same up to rounding; the first row tells most pairs apart."""
    return a.shape == b.shape and close(a[0], b[0]) and close(a, b)


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
