"""The first use of a model: does hooking it show exactly what its own eager attention returns?

A long and a short text in a batch, the short text without padding, and a single token go through it
twice, once with transformers' eager attention and once with ours: a model may treat each of them
in another way, and one whose own eager attention fails on one of them is compared on the others.
The hooks are used only if every weight and the final states agree; otherwise the weights that eager
attention returns are. The first passes tell which layers there are and what they attend to: as many
keys as the decoder has tokens are its own, as many as the encoder has come from the encoder.

How far apart two passes of the same model over the same tokens are.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from attnviz.core.heads import SITE_KINDS, Layout, Site, SiteKind
from attnviz.core.provenance import Backend
from attnviz.core.settings import LOADING
from attnviz.core.source import Rows
from attnviz.core.weights import OutputProjection
from attnviz.errors import ModelError
from attnviz.models.configs.families import LISTS, mixers
from attnviz.models.external_errors import one_line
from attnviz.models.hooked.eager import returned
from attnviz.models.hooked.interface import NAME, WatchedPass, hooking, register
from attnviz.models.hooked.network import HookedModel, Item
from attnviz.models.hooked.projection import (
    NO_LAYER,
    OFFLOADED,
    HeldProjections,
    Passage,
    Projections,
    why_unsplit,
)
from attnviz.models.hooked.recurrences import find_states
from attnviz.models.hooked.trace import ModuleCall, calls_of, close, is_low
from attnviz.models.hooked.windows import are_taken, looking_at_all, windows_of

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
    compared = stateless = False
    changed = ""
    for eager, hooked in proofs:
        items = hooked.items
        if not hooked.maps:
            if eager.maps or eager.states is not None:
                return f"{hooked.fault} ({described(items)})", ""
            continue
        delta, limit = change(eager.states, hooked.states, items), tolerance
        if limit < delta < math.inf and is_low(dtype) and (fast := fused(items)) is not None:
            limit = max(limit, min(2 * change(eager.states, fast, items), 4 * TOLERANCE_LOW))
        furthest = max(furthest, delta)
        stateless |= eager.states is None
        if delta > limit and (eager.states is not None or not eager.maps) and not changed:
            changed = f"its outputs change by {delta:.1e} of the largest when hooked"
            changed += f" ({described(items)})"
        if eager.maps:
            compared = True
            fault, *largest = _between(eager, hooked)
            if fault:
                return fault, ""
            worst, bare = max(worst, largest[0]), max(bare, largest[1])
    if not compared:
        summary = f"hooked, outputs within {furthest:.1e} of eager's, which returns no weights"
        return changed, "" if changed else summary
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
            for first, second in zip(real(a, kind, items), real(b, kind, items), strict=True):
                x, y = first.float(), second.float()
                worst = max(worst, _largest(x - y))
                bare = max(bare, _largest(x - y / y.sum(-1, keepdim=True)))
    return "", worst, bare


def described(items: Sequence[Item]) -> str:
    """Say what ran: 7 tokens, or 33 and 7 tokens in a batch."""
    counts = " and ".join(f"{item.length:,}" for item in items)
    plural = "s" * (counts != "1")
    return f"{counts} token{plural}" + " in a batch" * (len(items) > 1)


def beside(batch: Trace, single: Trace) -> float:
    """Compare the last item of a batch with the same item alone: the largest difference."""
    worst = 0.0
    for site, weights in single.maps.items():
        if site in batch.maps and single.items == batch.items[-1:]:
            last = real(batch.maps[site], site.kind, batch.items)[-1]
            worst = max(worst, _largest(last.float() - weights[0].float()))
    return worst


def lengths(items: Sequence[Item]) -> dict[SiteKind, tuple[int, int]]:
    """Return (queries, keys) of each kind of site in a batch; a single stack has an encoder's."""
    source = max(item.length for item in items)
    target = max(len(item.target) for item in items)
    if not target:
        return {"encoder": (source, source)}
    return {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}


def real(weights: Tensor, kind: SiteKind, items: Sequence[Item]) -> list[Tensor]:
    """Return the [H, T, S] maps of a batch's items without their padding."""
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
        delta = first - second.to(first.device)
        worst = max(worst, _largest(delta[:length].float() / scale))
    return worst


def _largest(delta: Tensor) -> float:
    """Largest magnitude; infinite where something is not a number."""
    largest = delta.abs().max().item()
    return math.inf if math.isnan(largest) else largest


_LENGTHS = ((11, 6), (7, 3))
"""Tokens of the two items of the comparison: of the encoder or only stack, and of the decoder."""

_LONG, _WORK = (17, 80), 1 << 31
"""Tokens of the long text at least and at most, and how often a weight may be used by it."""

_STATEFUL = ("state_size", "ssm_state_size", "mamba_d_state", "attention_hidden_size")
"""Sizes of layers with a state, as configurations call them."""

_FAILED = "a forward pass failed"

_STATES = ("last_hidden_state", "logits")


@dataclass(frozen=True)
class Survey:
    """What the first use found."""

    backend: Backend  # "hooked" or "eager"
    exactness: str  # how far the weights can be trusted, with the largest difference measured
    reason: str  # why the hooks are not used; empty if it is
    layout: Layout  # which heads there are
    # what the layers of a single stack are; None for an encoder-decoder model
    kind: SiteKind | None
    # module and site of every attention call of a forward pass, in order (hooked only)
    plan: tuple[tuple[int, Site], ...] = ()
    # W_O of every layer, or why it is not known (hooked only)
    projections: Mapping[Site, OutputProjection] = field(default_factory=dict)


def foresee(network: HookedModel, name: str) -> Backend | None:
    """Which backend a model takes whose weights are not in memory, by the shapes of a pass.

    Returns None where only weights tell: its code asks for numbers on its way.
    """
    items = sample(network)[:1] * (1 if network.sample is not None else 2)
    eager = hooked = Trace()
    for network.masked in (True, False):
        network.switch("eager")
        eager = _eager_pass(network, items)
        if not is_untold(eager.fault) and _unrolls(network, items, eager):
            eager = _eager_pass(network, items)
        hooked = _hooked_pass(network, items)
        if not any(is_untold(trace.fault) for trace in (eager, hooked)):
            break
    else:
        return None
    if not eager.maps and (hooked.fault or not hooked.maps):
        if any(getattr(network.config, name, None) for name in _STATEFUL):
            return None
        raise _no_weights(network, name, eager, hooked.fault)
    return "eager" if hooked.fault else "hooked"


def is_untold(fault: str) -> bool:
    """Whether a pass failed since there are no numbers in it, and not as it does with them."""
    return any(
        word in fault for word in ("meta tensor", ".item()", "Expected inputs of", "cannot run:")
    )


def _no_weights(network: HookedModel, name: str, eager: Trace, reason: str) -> ModelError:
    """Return what to say of a model that gives no attention weights."""
    return ModelError(
        "{}: this {} model gives no attention weights: eager: {}; hooked: {}",
        name,
        network.family,
        eager.fault,
        reason,
        remedy="try {dtype}" if is_low(network.dtype) else "",
        dtype="float32",
    )


def survey(network: HookedModel, name: str) -> Survey:
    """Compare hooked with eager attention on a few tokens and choose the backend."""
    with network.lock:
        return _survey(network, name)


def _survey(network: HookedModel, name: str) -> Survey:
    with torch.no_grad():
        eagers, failures = _eager_passes(network)
        if _unrolls(network, eagers[0].items, eagers[0]):
            eagers, failures = _eager_passes(network)
        batches = [trace.items for trace in eagers]
        hookeds = [_hooked_pass(network, batches[0])]
        plan = tuple(zip(hookeds[0].modules, hookeds[0].maps, strict=True))
        if plan:
            remaining = _told(batches[1:], len(batches) + 1, 2 * len(batches))
            hookeds += [_watched_pass(network, items, WatchedPass([], plan)) for items in remaining]
    items, eager, hooked = batches[0], eagers[0], hookeds[0]
    reason, exactness = hooked.fault, "eager, as transformers returns it"
    if hooked.maps:
        fused = partial(_fused_states, network)
        pairs = list(zip(eagers, hookeds, strict=True))
        reason, difference = compare(pairs, network.rounding, fused)
        exactness = difference or exactness
    tolerance = TOLERANCE_LOW if is_low(network.rounding) else TOLERANCE
    if reason and len(eagers) > 1 and beside(eager, eagers[1]) > tolerance:
        network.one_by_one = True
    chosen = eager if reason else hooked
    low = is_low(network.dtype)
    if not chosen.maps or (reason and eager.fault):
        if not (eager.maps or hooked.maps) and (stateful := _without_attention(network)):
            return stateful
        raise _no_weights(network, name, eager, reason)
    if not all(
        bool(item.isfinite().all())
        for site, weights in chosen.maps.items()
        for item in real(weights, site.kind, items)
    ):
        raise ModelError(
            "{}: attention weights are not finite in {}",
            name,
            network.dtype,
            remedy="try {dtype}" if low else "its weights may be damaged",
            dtype="float32",
        )
    kind = None if network.seq2seq else _kind(chosen.maps, items)
    sites = [site if kind is None else Site(kind, site.layer) for site in chosen.maps]
    heads = [weights.shape[1] for weights in chosen.maps.values()]
    layout = _layout(dict(zip(sites, heads, strict=True)), _depth(network, kind))
    if kind is not None:
        layout = replace(layout, mixers=_mixers(network.config, layout.heads[kind]))
    absent = [kind for kind in SITE_KINDS if network.seq2seq and kind not in layout.kinds]
    if absent:
        exactness += f"; {' and '.join(absent)} attention is not from token to token and left out"
        exactness += ": load the encoder alone to see it" * (absent == ["encoder"])
    elif eager.maps and eager.fault:
        exactness += "; layers without weights from token to token are left out"
    if network.is_read_anew:
        exactness += f"; tried on {described(items)} alone, since weights are read in each pass"
    exactness += failures + ("" if network.windows is None else network.windows.note)
    if reason:
        network.switch("eager")
        return Survey("eager", exactness, reason, layout, kind)
    plan = tuple(zip(hooked.modules, sites, strict=True))
    projections = dict(zip(sites, hooked.projections, strict=True))
    return Survey("hooked", exactness, "", layout, kind, plan, projections)


def _without_attention(network: HookedModel) -> Survey | None:
    """Return what is known of a stack whose layers have a state and of which none attends.

    Returns None for any other model.
    """
    if network.seq2seq or network.sample is not None:
        return None
    network.switch("eager")
    try:
        states = find_states(network, sample(network))
    except Exception:  # as above, of a model that cannot run
        return None
    if not states.heads:
        return None
    depth = max(_depth(network, "decoder"), max(states.heads) + 1)
    mixers = tuple(states.names.get(layer, "no attention") for layer in range(depth))
    layout = Layout({"decoder": (0,) * depth}, mixers=mixers)
    exactness = f"hooked, outputs of layers with a state within {states.error:.1e}"
    return Survey("hooked", exactness, "", layout, "decoder")


def sample(network: HookedModel) -> list[Item]:
    """Return a batch of two, the second shorter, so that padding is compared as well.

    Of models that read no text it is the only sample that there is.
    """
    return [network.sample] if network.sample is not None else _drawn(network, _LENGTHS)


def proofs(network: HookedModel) -> list[list[Item]]:
    """Give the batches that are compared: a long text with a short one, that alone, and one token.

    The first alone where every pass reads the weights from disk.
    """
    if network.sample is not None:
        return [sample(network)]
    weights = sum(weights.numel() for weights in network.model.parameters())
    items = _drawn_with(network, min(max(_WORK // max(1, weights), _LONG[0]), _LONG[1]))
    if network.is_read_anew:
        return [items]
    single = Item(items[1].ids[:1], target=items[1].target[:1])
    return [items, items[1:], [single]]


def _eager_passes(network: HookedModel) -> tuple[list[Trace], str]:
    """Run eager attention over the proofs; those on which it fails are left out, or shortened.

    Returns the passes, all of them where none runs, and what failed, for the end of a sentence.
    """
    batches = proofs(network)
    announced = _told(batches, 0, 2 * len(batches))
    traces = [_eager_pass(network, items) for items in announced]
    failed = [trace for trace in traces if trace.fault.startswith(_FAILED)]
    longest = max(item.length for item in batches[0])
    while traces[0] in failed and network.sample is None and longest > _LENGTHS[0][0]:
        longest = max(longest // 2, _LENGTHS[0][0])
        traces[0] = _eager_pass(network, _drawn_with(network, longest))
        if traces[0].fault.startswith(_FAILED):
            traces[0] = failed[0]
    complete = [trace for trace in traces if trace not in failed]
    if not failed or not complete:
        return traces, ""
    which = ", ".join(described(trace.items) for trace in failed)
    reason = failed[0].fault.removeprefix(f"{_FAILED}: ")
    ran = ", ".join(described(trace.items) for trace in complete)
    return complete, f"; tried on {ran}, since its own eager attention fails on {which} ({reason})"


def _told(batches: Sequence[Sequence[Item]], start: int, total: int) -> Iterator[Sequence[Item]]:
    """Yield the batches of some of all passes, each told of when its pass begins."""
    for number, items in enumerate(batches, start):
        LOADING.get()("passes that prove the hooks", number, total)
        yield items
    LOADING.get()("passes that prove the hooks", start + len(batches), total)


def _unrolls(network: HookedModel, items: Sequence[Item], eager: Trace) -> bool:
    """Whether eager attention returns windows that are put together to maps, which are proved.

    Tried where no maps come from the encoder or the only stack; the network unrolls them then.
    """
    if not eager.fault or eager.fault.startswith(_FAILED) or network.sample is not None:
        return False
    network.switch("eager")
    try:
        length = max(item.length for item in items)
        windows = windows_of(network.run(items, weights=True), length, stacks=network.seq2seq)
        if windows is None:
            return False
        # some heads say which tokens look at all
        needs_head = bool(network.no_logits) and not network.seq2seq
        network.windows = replace(windows, needs_head=needs_head)
        linear = [part for part in network.body.modules() if isinstance(part, nn.Linear)]
        calls: list[ModuleCall] = []
        with calls_of(linear, calls.append), looking_at_all(network.body) as looking:
            output = network.run(items, weights=True)
        network.windows = replace(windows, needs_head=bool(looking))
        rows = network.padding([item.length for item in items])
        rows = rows & ~looking[-1] if looking else rows
        shapes = network.device.type == "meta"
        if shapes or are_taken(output[windows.field], calls, rows, close):
            return True
        eager.fault += ", which times values are not what a linear layer takes"
    except Exception as error:  # whatever a model's own code raises
        eager.fault += f"; {type(network.model).__name__} fails on drawn ids: {one_line(error)}"
    network.windows = None
    return False


def _drawn_with(network: HookedModel, length: int) -> list[Item]:
    """Return a text of so many tokens and a short one."""
    return _drawn(network, ((length, _LENGTHS[0][1]), _LENGTHS[1]))


def _drawn(network: HookedModel, lengths: Sequence[tuple[int, int]]) -> list[Item]:
    """Texts of so many tokens, of the encoder or only stack and of the decoder."""
    vocabulary = network.vocab_size
    named = set(network.ends()) | {
        getattr(network.config, f"{name}_token_id", None)
        for name in ("pad", "bos", "decoder_start", "image", "audio", "video")
    }
    pool = [n for n in range(min(vocabulary, 1000)) if n not in named] or [0]
    limit = min(
        network.max_tokens or max(max(pair) for pair in lengths),
        network.full_up_to[0] if network.full_up_to else sys.maxsize,
    )
    items = []
    for number, (encoder, decoder) in enumerate(lengths):
        source = min(encoder, limit)
        target = min(decoder, max(source - 1, 1)) if network.seq2seq else 0
        ids = [pool[(3 + number + 7 * n) % len(pool)] for n in range(source + target)]
        items.append(Item(tuple(ids[:source]), target=tuple(ids[source:])))
    return items


def _eager_pass(network: HookedModel, items: Sequence[Item]) -> Trace:
    try:
        output = network.run(items, weights=True)
    except Exception as error:  # whatever a model's own code raises
        return Trace(items, fault=f"{_FAILED}: {one_line(error)}")
    maps = returned(output, None if network.seq2seq else "encoder")
    states = _states(output)
    if not maps:
        return Trace(items, states=states, fault="output_attentions returned nothing")
    sizes = lengths(items)
    fitting = {
        site: weights
        for site, weights in maps.items()
        if weights.shape[2:] == sizes[site.kind] and len(weights) == len(items)
    }
    fault = ""
    if odd := next((site for site in maps if site not in fitting), None):
        queries, keys = sizes[odd.kind]
        size = "×".join(map(str, maps[odd].shape[2:]))
        fault = f"{size} weights for {queries}×{keys} tokens"
    elif network.device.type != "meta" and not all(map(_are_shares, fitting.values())):
        fault = "what it returns is below 0 or adds up to more than 1 in a row, as scores before "
        fault += "softmax do; run it inside of attnviz.watch(model)"
    return Trace(items, fitting, states, fault)


def _are_shares(weights: Tensor) -> bool:
    """Whether no weight is below 0 and no row adds up to more than 1; not numbers are no fault."""
    sums = weights.float().sum(-1)
    return not bool((weights < 0).any() | (sums > 1 + TOLERANCE_LOW).any())


def _hooked_pass(network: HookedModel, items: Sequence[Item]) -> Trace:
    register()
    projections = Projections()
    run = WatchedPass([], attended=projections.attended)
    shapes = network.device.type == "meta"
    with contextlib.nullcontext() if shapes else projections.watching(network.body):
        trace = _watched_pass(network, items, run)
    if trace.fault:
        return trace
    if not run.calls:
        return Trace(items, fault=f"{network.family} layers do not ask for an attention function")
    if run.strangers:
        names = ", ".join(sorted(run.strangers))
        fault = f"{network.family} layers pass {names}, which the hooks do not know"
        return Trace(items, fault=fault)
    if any(len(weights) != len(items) for weights in trace.maps.values()):
        return Trace(items, fault=f"{network.family} layers cut their input into pieces")
    sizes = lengths(items)
    kinds: list[SiteKind] = []
    for call in run.calls:
        fitting = [k for k, size in sizes.items() if size == (call.queries, call.keys)]
        if not fitting:
            expected = ", ".join(f"{q}×{k}" for q, k in sizes.values())
            return Trace(items, fault=f"{call.queries}×{call.keys} weights for {expected} tokens")
        kinds.append(fitting[0])
    depth = getattr(network.config, "num_hidden_layers", None) or 0
    numbers: dict[int, int] = {}
    for kind in set(kinds):
        calls = [n for n, call_kind in enumerate(kinds) if call_kind == kind]
        layers = _numbers([run.calls[n].layer for n in calls], depth)
        numbers |= dict(zip(calls, layers, strict=True))
    maps = {Site(kind, numbers[n]): trace.maps[Site("encoder", n)] for n, kind in enumerate(kinds)}
    modules = tuple(call.module for call in run.calls)
    outputs = projections.by_call
    if not shapes and any(out.weight is None and out.reason != OFFLOADED for out in outputs):
        held = _held_projections(network, items, len(outputs))
        for n, out in enumerate(outputs):
            behind = held.get(n)
            # what was refused for another reason than something before it stays refused
            if out.weight is None and behind and (behind.held or out.reason == NO_LAYER):
                outputs[n] = behind
            if outputs[n].weight is None:
                reason = why_unsplit(network.family, outputs[n].reason)
                outputs[n] = replace(outputs[n], reason=reason)
    return replace(trace, maps=maps, modules=modules, projections=tuple(outputs))


def _watched_pass(network: HookedModel, items: Sequence[Item], run: WatchedPass) -> Trace:
    """Run a pass with ours, its maps by the sites of its plan or the numbers of its calls."""
    maps: dict[Site, Tensor] = {}
    run.observers = [_Keeper(run, maps)]
    try:
        network.switch(NAME)
        with hooking(run):
            output = network.run(items)
        run.check_complete()
    except Exception as error:  # as above
        return Trace(items, fault=f"the hooked pass failed: {one_line(error)}")
    return Trace(items, maps, _states(output))


def _held_projections(
    network: HookedModel, items: Sequence[Item], calls: int
) -> Mapping[int, OutputProjection]:
    """W_O of layers that multiply their heads' outputs first, by the number of the call."""
    held = HeldProjections()
    run = WatchedPass([], follows=held.passed)
    try:
        with hooking(run), Passage() as run.passage:
            network.run(items)
    except Exception:  # as above, of a pass that is followed
        return {}
    return held.by_call if len(run.calls) == calls else {}


def _fused_states(network: HookedModel, items: Sequence[Item]) -> Tensor | None:
    """Return the final states with transformers' fused attention; ours is on afterwards."""
    try:
        with torch.no_grad():
            network.switch("sdpa")
            return _states(network.run(items))
    except Exception:  # a model without it, or whatever its own code raises
        return None
    finally:
        network.switch(NAME)


@dataclass
class _Keeper:
    """An observer that puts the blocks of each call back together."""

    run: WatchedPass
    maps: dict[Site, Tensor]

    def observe(self, rows: Rows) -> None:
        batch, heads, r, s = rows.weights.shape
        if rows.site not in self.maps:
            call = self.run.calls[-1]
            self.maps[rows.site] = rows.weights.new_zeros(batch, heads, call.queries, call.keys)
        queries = slice(rows.start, rows.start + r)
        self.maps[rows.site][:, :, queries, rows.key_start : rows.key_start + s] = rows.weights


def _states(output: Mapping[str, Any]) -> Tensor | None:
    states = [output[name] for name in _STATES if isinstance(output.get(name), Tensor)]
    return states[0] if states else None


def _kind(maps: Maps, items: Sequence[Item]) -> SiteKind:
    """Tell a decoder, a single stack in which no query sees a later key, from an encoder."""
    item_maps = [item for weights in maps.values() for item in real(weights, "encoder", items)]
    ahead = any(bool(weights.triu(1).any()) for weights in item_maps)
    return "encoder" if ahead or items[0].length == 1 else "decoder"


def _numbers(layers: Sequence[int | None], depth: int) -> list[int]:
    """Give the layers' own numbers if they are sound, otherwise 0, 1, 2, ... in order of the calls.

    Shared layers (ALBERT) carry one number or none; layers without attention leave gaps.
    """
    named = [layer for layer in layers if layer is not None]
    rising = all(a < b for a, b in itertools.pairwise([-1, *named, max(depth, len(named))]))
    if len(named) == len(layers) and rising:
        return named
    return list(range(len(layers)))


def _depth(network: HookedModel, kind: SiteKind | None) -> int:
    """How many layers the configuration says that a single stack has; 0 where it does not.

    A decoder that is half of a family with two stacks keeps the encoder's number beside its own.
    """
    decoder = getattr(network.config, "decoder_layers", None) if kind == "decoder" else None
    named = decoder or getattr(network.config, "num_hidden_layers", None)
    return 0 if kind is None else named or 0


def _layout(heads: Mapping[Site, int], depth: int) -> Layout:
    """Layers without attention have no heads; a single stack has ``depth`` layers or more."""
    kinds: dict[SiteKind, tuple[int, ...]] = {}
    for kind in SITE_KINDS:
        layers = max((site.layer + 1 for site in heads if site.kind == kind), default=0)
        if layers:
            layers = max(layers, depth)
            kinds[kind] = tuple(heads.get(Site(kind, layer), 0) for layer in range(layers))
    return Layout(kinds)


def _mixers(config: Any, heads: Sequence[int]) -> tuple[str, ...]:
    """List a hybrid's kinds of layers, by its config; lists that it makes itself are properties."""
    if all(heads):
        return ()
    listed = {name: getattr(config, name) for name in LISTS if getattr(config, name, None)}
    try:
        return mixers({**config.to_dict(), **listed}, heads)
    except ModelError:  # a size that makes no sense, of a config that is not read otherwise
        return ()
