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
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnviz.attention.unembedding import deviation
from attnviz.core.heads import Site
from attnviz.core.weights import Normalization, OutputProjection, Readout, Sublayer
from attnviz.models.hooked.interface import WatchedPass, hooking
from attnviz.models.hooked.layer_sums import LayerSum, explained, scale_between
from attnviz.models.hooked.network import HookedModel, Item
from attnviz.models.hooked.projection import head_layers
from attnviz.models.hooked.stack import Stack
from attnviz.models.hooked.trace import ModuleCall, calls_of, close, listening, normalization
from attnviz.models.tracing import Turns


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
        """The same with what the mixers of some layers are known to compute."""
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
            state, factor = call.left, part.factor
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
    ran: dict[int, ModuleCall] = {}
    states: list[Tensor] = []
    modules = [module for module in network.body.modules() if module is not network.body]

    def keep(call: ModuleCall) -> None:
        state = call.left
        if isinstance(state, Tensor) and states and state.numel() == states[0].numel():
            first = state.reshape(states[0].shape)[0]  # some layers flatten the batch
            ran[id(call.module)] = replace(call, left=first.to(states[0].device, copy=True))

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
        if added is None:
            return _none(_not_added(number, attends=weight is not None))
        sums.append(added)
    readout = _readout(network, modules, beside, ran, states[-1][0], output)
    no_sum = _no_sum(sums)
    if readout.summed.table is None:
        reason = readout.reason
        over = next((number for number, added in enumerate(sums) if added.over), None)
        if over is not None:
            reason += f", and {_normalizes_sum(over)}"
        return Residual(replace(readout, reason=reason), tuple(sums), no_sum)
    known = replace(
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
    readout = known if readout.uncapped is None else replace(readout, uncapped=known)
    return Residual(readout, tuple(sums), no_sum)


def _normalizes_sum(number: int) -> str:
    """What is said of a post-norm layer."""
    return f"layer {number} normalizes the sum of its input and what it adds (post-norm)"


def _not_added(number: int, *, attends: bool) -> str:
    """Why a layer's output is no sum that is known."""
    if not attends:
        return (
            f"layer {number} has no attention, and does not simply add what its modules give to "
            "its input"
        )
    return f"layer {number} does not simply add attention and a feed-forward part to its input"


def _no_sum(sums: Sequence[LayerSum]) -> str:
    """Why what heads write does not reach later layers in a known way; empty where it does.

    Layers that mix tokens without attention add to it, as MLPs do.
    """
    for number, added in enumerate(sums):
        if isinstance(added.residual, Tensor):
            return (
                f"layer {number} multiplies every channel of what enters it with another number "
                "before it adds to that"
            )
    return ""


def _factors(factors: Sequence[Any]) -> tuple[Any, ...]:
    """The factors of all layers; nothing where all are 1."""
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
    same = torch.equal(last, final)  # post-norm layers end normalized
    none = Normalization(torch.ones_like(last[0]), 0.0, centred=False)
    norm = none if same else next(
        (read for module in modules if (read := _norm(module, ran, last, final))), None
    )  # fmt: skip
    if norm is None:
        why = "its last normalization is neither layer nor RMS normalization"
        return Readout(None, reason=why)
    labels: Any = getattr(network, "labels", None)
    if labels is not None:  # proved where it was found
        return Readout(
            labels.table, norm.scale, norm.eps, norm.shift, labels.bias, norm.centred,
            normed=not same, head=labels.layers,
        )  # fmt: skip
    head: Any = network.model.get_output_embeddings()
    weight, bias = (_values(getattr(head, name, None)) for name in ("weight", "bias"))
    logits = output["logits"][0].to(last.device)
    unknown = "its logits are not its final states times one matrix"
    if not isinstance(weight, Tensor) or weight.shape != (logits.shape[-1], final.shape[-1]):
        return Readout(None, reason=unknown)
    made = F.linear(final.to(weight.device), weight, bias).to(last.device)
    factor = scale_between(made, logits)
    cap = 0.0 if factor == 1.0 else _cap(made, logits, network.config)
    plain = Readout(weight, norm.scale, norm.eps, norm.shift, bias, norm.centred, normed=not same)
    if cap:
        why = f"it caps its logits, {cap:g} tanh(x / {cap:g}), which no sum can split"
        return Readout(None, reason=why, uncapped=plain, cap=cap)
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


def _cap(made: Tensor, logits: Tensor, config: Any) -> float:
    """c, where logits are c tanh(x / c); 0 where they are not."""
    names = ("final_logit_softcapping", "logits_soft_cap")
    cap = next((cap for name in names if (cap := getattr(config, name, None))), None)
    if not isinstance(cap, int | float) or not close(cap * (made / cap).tanh(), logits):
        return 0.0
    return float(cap)


def _norm(
    module: nn.Module, ran: Mapping[int, ModuleCall], last: Tensor, final: Tensor
) -> Normalization | None:
    """The normalization that a module is, if it makes the final states of the last ones."""
    call = ran.get(id(module))
    if call is None or not torch.equal(call.left, final):
        return None
    entered = call.args[0] if call.args else None
    if not isinstance(entered, Tensor):
        return None
    if entered.shape[1:] != last.shape or not torch.equal(entered[0].to(last.device), last):
        return None
    return normalization(module, last, final)


def _values(parameter: Any) -> Any:
    """A parameter of a model in memory, which may track gradients, without them."""
    return parameter.detach() if isinstance(parameter, Tensor) else parameter


def _none(reason: str) -> Residual:
    return Residual(Readout(None, reason=reason), no_sum=reason)


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

    def keep(call: ModuleCall) -> None:
        entered, left = (_flat(states, network.device) for states in (call.entered, call.left))
        ran.append(_Ran(call.module, entered, left))

    run = WatchedPass((), plan, attended=lambda z: marks.append(len(ran)))
    with torch.no_grad(), calls_of(network.body.modules(), keep), hooking(run):
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
