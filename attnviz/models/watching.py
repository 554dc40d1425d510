"""Attention watched while somebody else's code runs it: passes, layers and their captures.

While a :class:`Watch` is on, the weights of every attention that runs in a module are kept, head
by head, without dropout and without a gradient; what the module itself returns stays as it is, to
the bit. :mod:`.softmax_watch` finds attention, :mod:`.axes` tells its axes apart, and here its
calls become the layers of passes.
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from types import FrameType
from typing import Any, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules import module as modules

from attnviz.core.capture import Capture, KeyMask, empty_rows
from attnviz.core.heads import SITE_PREFIX, Head, Layout, Site, SiteKind
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo
from attnviz.core.tokens import Tokens
from attnviz.errors import InputError, UsageError
from attnviz.models.recorded.arrays import earlier_keys, sides_of
from attnviz.models.recorded.layouts import choose_item
from attnviz.models.softmax_watch import AttentionWatch, Called, Soft, in_backward
from attnviz.models.tensor_calls import fast_paths_run_twice, flex_noted
from attnviz.models.weight_layout import (
    PARTLY,
    Factors,
    Form,
    Layer,
    Unread,
    arranged,
    batch_of,
    has_learned_queries,
    hinted,
    keys_of,
    kin_of,
    tokens_of,
)

T = TypeVar("T")

_HINTS = {
    3: "; say batch= (how many items) and order='bh' or 'hb', or layout='bqk'",
    4: "; say layout='bhqk', or another order of its axes",
}
"""What the caller may say of weights with so many axes."""


@dataclass(eq=False)
class Pass:
    """What ran in one pass."""

    calls: list[Called] = field(default_factory=list)  # of attention, in their order
    # of each the call of the part of the module that it ran in
    serials: list[int] = field(default_factory=list)
    # softmaxes of scores; those that are none of the calls could not be followed
    softs: list[Soft] = field(default_factory=list)
    # what could not be read, the module first
    unread: dict[tuple[str, str], None] = field(default_factory=dict)
    dtype: torch.dtype | None = None  # that of autocast, where it was on


class Watch:
    """Keeps what the attention inside a module attends to; see :func:`attnviz.watch`."""

    def __init__(
        self,
        module: nn.Module,
        passes: int = 1,
        layout: str | None = None,
        batch: int | None = None,
        order: str | None = None,
    ) -> None:
        if not isinstance(module, nn.Module):
            raise UsageError("{module} takes a torch module, not {}", type(module).__name__,
                             module=...)  # fmt: skip
        if passes < 1:
            raise UsageError("{passes} must be 1 or more", passes=passes)
        _check_hints(layout, batch, order)
        self._module = module
        self._hints = (layout, batch, order)
        parts = reversed([*module.named_modules()])  # of several names the first
        self._names: dict[int, str] = {id(part): name for name, part in parts}
        self._decoding = {
            f"{name}.self_attn".removeprefix(".")
            for name, part in module.named_modules()
            if isinstance(part, nn.TransformerDecoderLayer)
        }
        self._passes: deque[Pass] = deque(maxlen=passes)
        self._running: list[nn.Module] = []  # modules at work, the innermost last
        self._serial = 0
        self._frame: FrameType | None = None
        self._on = False
        self._gates: Mapping[int, tuple[Tensor, Form | None]] = {}

    @property
    def passes(self) -> int:
        """How many passes are kept."""
        return len(self._passes)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch inside the ``with`` block; afterwards everything is as it was."""
        mode = AttentionWatch(self._module, self)
        with ExitStack() as undo:
            undo.callback(modules.register_module_forward_pre_hook(self._enters).remove)
            leave = modules.register_module_forward_hook(self._leaves, always_call=True)
            undo.callback(leave.remove)
            undo.enter_context(fast_paths_run_twice(mode, lambda m: id(m) in self._names))
            undo.enter_context(flex_noted(lambda reason: self.unread(self.path() or "", reason)))
            undo.enter_context(mode)
            undo.callback(setattr, self, "_frame", None)
            undo.callback(setattr, self, "_on", False)
            self._on = True
            yield

    @property
    def layout(self) -> Layout:
        """The heads of the last pass, whatever its layers attend over."""
        heads: dict[SiteKind, list[int]] = {}
        for site, layer in self._layers(-1):
            heads.setdefault(site.kind, []).append(layer.weights.shape[1])
        return Layout({kind: tuple(numbers) for kind, numbers in heads.items()})

    @property
    def paths(self) -> dict[Site, str]:
        """The module that each layer of the last pass stands in; a second call has its number."""
        paths: dict[Site, str] = {}
        times: Counter[str] = Counter()
        for site, layer in self._layers(-1):
            times[layer.path] += 1
            suffix = f" (call {times[layer.path]})" if times[layer.path] > 1 else ""
            paths[site] = self._called_as(layer.path) + suffix
        return paths

    def unread_in(self, index: int) -> tuple[str, ...]:
        """Return what could not be read in a pass, each with its module and the reason."""
        try:
            run = self._passes[index]
        except IndexError:
            return ()
        _, refused = self._read(run)
        return tuple(f"{self._called_as(path)}: {reason}" for path, reason in refused)

    @contextmanager
    def gating(self, heads: Iterable[Head], gate: float | Tensor) -> Iterator[None]:
        """Multiply what heads of the last pass give by a gate, in every pass of the block.

        ``gate``: 0 takes them away, 1 leaves them; or a tensor with one for each, in their order.
        """
        if not self._on:
            raise UsageError("heads are ablated inside the with block of watch, where they run")
        if self._gates:
            raise UsageError("heads are ablated already; name all of them in one call")
        layers = dict(self._layers(-1))
        counts: dict[int, int] = {}
        forms: dict[int, Form | None] = {}
        for layer in layers.values():
            for number, form in layer.calls.items():
                counts[number] = layer.weights.shape[1] // len(layer.calls)
                forms[number] = form
        gated: dict[int, list[int]] = {}
        for head in heads:
            layer = layers[head.site]
            if not layer.gated:
                raise UsageError(
                    "heads of {} cannot be ablated: {}",
                    self._called_as(layer.path),
                    "; ".join(layer.notes) or "weights meet values one by one",
                )
            which, index = divmod(head.index, layer.weights.shape[1] // len(layer.calls))
            gated.setdefault(list(layer.calls)[which], []).append(index)
        gates = _by_call(counts, gated, gate)
        self._gates = {number: (shares, forms[number]) for number, shares in gates.items()}
        try:
            yield
        finally:
            self._gates = {}

    def capture(
        self,
        tokens: Tokens | None,
        source_tokens: Tokens | None,
        item: int | None,
        index: int,
        names: Sequence[str] | None = None,
    ) -> Capture:
        """One item of a pass as a capture; see :meth:`Watched.capture`."""
        layers = self._layers(index)
        called = by_name(layers)
        chosen = _chosen(called, names)
        maps: dict[Site, NDArray[Any]] = {}
        reach: dict[Site, KeyMask] = {}
        heads: dict[SiteKind, list[int]] = {}
        sizes: dict[SiteKind, tuple[int, int, int]] = {}
        notes: list[str] = []
        earlier: dict[SiteKind, int] = {}
        for site, layer in layers:
            kind, size = site.kind, layer.size
            if site not in chosen:
                heads.setdefault(kind, []).append(0)
                continue
            earlier[kind] = layer.earlier
            if sizes.setdefault(kind, size) != size:
                alike = [
                    name
                    for name, (key, entry) in called.items()
                    if key.kind == kind and entry.size == size
                ]
                raise UsageError(
                    "the {} layers attend over {} and over {} positions; choose those of one size",
                    kind,
                    _by(sizes[kind]),
                    _by(size),
                    remedy="{layers}",
                    layers=alike,
                )
            number = self._item(layer, item, notes)
            rows = (0, 0, layer.earlier, 0)  # of keys without queries
            maps[site] = nn.functional.pad(layer.weights[number], rows).cpu().numpy()
            allowed = layer.allowed[number]
            # of a row whose keys are all masked, those that the module attends to all the same
            allowed = allowed | (~allowed.any(-1, keepdim=True) & (layer.weights[number] > 0))
            reach[site] = KeyMask.of(nn.functional.pad(allowed, rows).cpu().numpy())
            heads.setdefault(kind, []).append(len(maps[site]))
            name = next(name for name, (key, _) in called.items() if key == site)
            label = f"layer {name} ({self._called_as(layer.path)})"
            notes += [f"In {label} {note}." for note in layer.notes]
            notes += _empty_rows(layer.weights[number], layer.allowed[number], label)
        order: list[SiteKind] = [kind for kind in ("encoder", "decoder", "cross") if kind in sizes]
        extra = {site.kind: layer.extra for site, layer in layers if site in chosen}
        sides = sides_of(
            {kind: sizes[kind][:2] for kind in order},
            extra,
            earlier,
            _learned(layers, chosen),
            tokens,
            source_tokens,
        )
        notes += [earlier_keys(count) for count in dict.fromkeys(earlier.values()) if count]
        weights = next(layer.weights for site, layer in layers if site in chosen)
        dtype = self._passes[index].dtype
        parameters = (p.dtype for p in self._module.parameters() if p.is_floating_point())
        if dtype is not None:
            notes.append(
                f"It ran under autocast ({_named(dtype)}), which rounds what it computes: weights "
                "are those of that run, and differ from a run without it."
            )
        notes += [f"Not read: {reason}." for reason in self.unread_in(index)]
        info = SourceInfo(
            type(self._module).__name__,
            "hooked",
            "as PyTorch computes it, before dropout",
            str(weights.device),
            _named(dtype or next(parameters, weights.dtype)),
            versions={"torch": torch.__version__},
        )
        layout = Layout({kind: tuple(heads[kind]) for kind in order})
        inputs = Inputs(sides, notes=tuple(notes))
        return Capture(info, layout, inputs, maps, empty_rows(maps), reach)

    def _item(self, layer: Layer, item: int | None, notes: list[str]) -> int:
        """Choose an item of a layer; of windows it is one of them, which is noted."""
        count, windows = len(layer.weights), layer.windows
        if windows == 1:
            return choose_item(count, item)
        path = self._called_as(layer.path)
        if item is None:
            raise UsageError(
                "{} attends inside {} windows of its tokens, and of the batch of {} each is an "
                "item; choose one with {item} from 0 to {}",
                path, windows, count // windows, count - 1, item=...,
            )  # fmt: skip
        number = choose_item(count, item)
        window, origin = layer.window(number)
        notes.append(
            f"{path} attends inside {windows} windows of its tokens: this is window {window} of "
            f"item {origin} of the batch, and positions are those inside it."
        )
        return number

    def _layers(self, index: int) -> list[tuple[Site, Layer]]:
        """Return the layers of a pass with the kind and number of each."""
        passes = [self._read(run)[0] for run in self._passes]
        if not any(passes):
            unread = self.unread_in(-1)
            raise UsageError(
                "no attention was seen: call the module, or its parts, inside the with block, then "
                "capture; seen are nn.MultiheadAttention, scaled_dot_product_attention, and a "
                "softmax of scores of tokens that meets values{}; attnviz.from_arrays takes "
                "weights of any other",
                "".join(f"; not read: {reason}" for reason in unread),
            )
        try:
            layers = passes[index]
        except IndexError:
            raise UsageError(
                "{} passes are kept; there is no {index}", len(self._passes), index=index
            ) from None
        return list(zip(self._sites(layers), layers, strict=True))

    def _read(self, run: Pass) -> tuple[list[Layer], list[tuple[str, str]]]:
        """Return the layers of a pass, and what could not be read: its module and the reason."""
        refused = list(run.unread)
        layers: list[Layer] = []
        merged = {id(partner) for call in run.calls for partner in call.partners}
        numbers = {id(call): number for number, call in enumerate(run.calls)}
        for call in run.calls:
            if id(call) in merged:
                continue
            try:
                layers.append(self._layer([call, *call.partners], numbers))
            except Unread as error:
                function = "scaled_dot_product_attention" if call.sdpa else "softmax"
                shape = list(call.weights.shape)
                hint = _HINTS.get(len(shape), "") if error.missing else ""
                refused.append((call.path, f"{error} ({function} of {shape}){hint}"))
        counts = Counter(layer.path for layer in layers if layer.is_partial)
        pieces = [layer for layer in layers if layer.is_partial and counts[layer.path] > 1]
        for layer in pieces:
            queries, keys = layer.weights.shape[2:]
            refused.append((layer.path, f"tokens ask piece by piece, {queries} of them {keys} keys "
                            "at a time, and no map has all of them"))  # fmt: skip
        layers = [layer for layer in layers if not any(layer is piece for piece in pieces)]
        for soft in run.softs:
            if not soft.verdict:
                shape = list(soft.weights.shape)
                reason = f"the softmax of {shape} over axis {soft.dim} meets no values that are "
                refused.append((soft.path, reason + "summed over that axis"))
        return layers, list(dict.fromkeys(refused))

    def _layer(self, calls: list[Called], numbers: Mapping[int, int]) -> Layer:
        """Get a call, or several of one head each, as a layer; Unread where axes cannot be told."""
        forms = [self._form(call) for call in calls]
        weights, allowed = (
            torch.cat([arranged(x, form) for x, form in zip(parts, forms, strict=True)], 1)
            for parts in ([c.weights for c in calls], [c.allowed for c in calls])
        )
        first = calls[0]
        notes = [note for call in calls for note in call.notes]
        head_axes = [n for n, group in enumerate(forms[0] or ()) if any(w == "h" for _, w in group)]
        if len(head_axes) > 1:
            axes = f"axes {' and '.join(map(str, head_axes))} of {list(first.weights.shape)}"
            notes.append(f"heads are counted over {axes}")
        queries, keys = weights.shape[-2:]
        crosses, earlier, extra, owner = first.crosses, 0, first.extra, ""
        if crosses is None:
            if first.soft is not None:
                owner = keys_of(first.soft.info, first.soft.dim)
            earlier = keys - queries if owner == "earlier" and keys > queries else 0
            if owner == "later" and keys > queries:
                extra = tuple(f"memory {n}" for n in range(keys - queries))
            crosses = owner == "other" or (keys != queries and not earlier and not extra)
        dtype = torch.promote_types(weights.dtype, torch.float32)
        tokens, learned = first.tokens, first.learned
        batch: tuple[tuple[int, bool], ...] = ()
        if first.soft is not None:
            batch = batch_of(first.soft.info, first.soft.dim)
            tokens = tokens_of(first.soft.info, first.soft.dim)
            learned = has_learned_queries(first.soft.info, first.soft.dim)
        asking, looked = (kin_of(axes) if axes else () for axes in tokens)
        overlaps = keys != queries and bool({*asking} & {*looked} - {PARTLY})
        if overlaps and (len(tokens[1]) > len(tokens[0]) or any(inside for _, inside in batch)):
            raise Unread(
                f"{queries} of its tokens attend to {keys} keys in and around their block, and no "
                "axis counts all tokens"
            )
        return Layer(
            _common([call.path for call in calls]),
            weights.to(dtype),
            allowed,
            crosses,
            extra,
            earlier,
            (asking, looked),
            learned,
            tuple(dict.fromkeys(notes)),
            {numbers[id(call)]: form for call, form in zip(calls, forms, strict=True)},
            all(call.gated for call in calls),
            batch,
        )

    def _form(self, call: Called) -> Form | None:
        """Return what the axes of a call's weights count; None of [B, H, T, S]."""
        soft = call.soft
        if soft is None:
            return None
        hint = hinted(soft.weights.shape, soft.dim, *self._hints)
        if hint is not None:
            return hint
        try:
            return soft.form()
        except Unread as error:
            if not (call.sdpa and error.missing and soft.weights.ndim == 4):
                raise
        return hinted(soft.weights.shape, soft.dim, "bhqk", None, None)  # as it is documented

    def _sites(self, layers: list[Layer]) -> list[Site]:
        """Tell a decoder's own attention, what crosses over, and the rest by its masks.

        Tokens that also ask another sequence, and are not asked by one, are a decoder's.
        """
        stacks = bool(self._decoding)
        crossing = [
            layer.tokens for layer in layers if layer.crosses and PARTLY not in layer.tokens[0]
        ]
        asking = {asking for asking, _ in crossing} - {looked for _, looked in crossing} - {()}
        count: Counter[SiteKind] = Counter()
        sites: list[Site] = []
        for layer in layers:
            visible = layer.allowed[..., : layer.allowed.shape[-1] - len(layer.extra)]
            ahead = visible.triu(1 + layer.earlier).any() or visible.shape[-1] == 1
            kind: SiteKind = "encoder"
            if layer.crosses:
                kind = "cross"
            elif (
                layer.path in self._decoding
                or not (stacks or ahead)
                or (not stacks and layer.tokens[0] in asking)
            ):
                kind = "decoder"
            sites.append(Site(kind, count[kind]))
            count[kind] += 1
        return sites

    def _called_as(self, path: str) -> str:
        return path or type(self._module).__name__

    # what the watch of functions asks and tells

    @property
    def is_gating(self) -> bool:
        """Whether any heads are gated."""
        return bool(self._gates)

    def path(self) -> str | None:
        """Give the module that runs now, innermost; None where no part of the watched one does."""
        if self._running:
            return self._names[id(self._running[-1])]
        for _, name in self._methods():
            return name
        return None

    def called(self, call: Called) -> tuple[Tensor, Form | None] | None:
        """Take in a call of attention; returns the gates of its heads, or None."""
        run = self._current()
        run.calls.append(call)
        run.serials.append(self._serial)
        device = call.weights.device.type
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            run.dtype = torch.get_autocast_dtype(device)
        return self._gates.get(len(run.calls) - 1)

    def found(self, soft: Soft) -> None:
        """Take in a softmax of scores."""
        self._current().softs.append(soft)

    def unread(self, path: str, reason: str) -> None:
        """Take in what could not be read."""
        self._current().unread[path, reason] = None

    def _current(self) -> Pass:
        """Return the pass that runs now.

        A call of the module, or of one of its methods, is one; where only parts of it are called,
        it ends when a part that has attended is called again.
        """
        if self._running and self._running[0] is self._module:
            return self._passes[-1]
        methods = [*self._methods()]
        outermost = next((f for f, name in reversed(methods) if name == ""), None)
        frame = outermost or (None if self._running or not methods else methods[-1][0])
        restarted = frame is not None and frame is not self._frame
        if restarted:
            self._frame = frame
            self._serial += 1
        if outermost is None:
            top = self._names[id(self._running[0])] if self._running else self.path() or ""
            last = self._passes[-1] if self._passes else Pass()
            restarted = any(
                serial != self._serial and f"{call.path}.".startswith(f"{top}.")
                for call, serial in zip(last.calls, last.serials, strict=True)
            )
        if restarted or not self._passes:
            self._passes.append(Pass())
        return self._passes[-1]

    def _methods(self) -> Iterator[tuple[FrameType, str]]:
        """Get the frames at work in methods of the module and of its parts, the innermost first."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            if code.co_argcount and code.co_varnames[0] == "self":
                instance = frame.f_locals.get("self")
                name = self._names.get(id(instance)) if isinstance(instance, nn.Module) else None
                if name is not None:
                    yield frame, name
            frame = frame.f_back

    def _enters(self, module: nn.Module, *_: Any) -> None:
        if torch.compiler.is_compiling() or id(module) not in self._names:
            return
        if in_backward():
            if self._gates:
                raise UsageError(
                    "heads of layers that checkpointing runs again in backward cannot be ablated; "
                    "switch it off"
                )
            return
        if not self._running:
            self._serial += 1
            if module is self._module:
                self._passes.append(Pass())
        self._running.append(module)
        if isinstance(module, torch.jit.ScriptModule):
            self.unread(self._names[id(module)], "TorchScript, inside which no call is seen")

    def _leaves(self, module: nn.Module, *_: Any) -> None:
        if torch.compiler.is_compiling() or in_backward():
            return
        if any(part is module for part in self._running):
            while self._running.pop() is not module:
                pass


def by_name(layers: Sequence[tuple[Site, T]]) -> dict[str, tuple[Site, T]]:
    """Give layers, or what belongs to them, by name: ``3``, ``cross:3`` where there are kinds."""
    several = len({site.kind for site, _ in layers}) > 1
    return {
        f"{SITE_PREFIX[site.kind]}:{site.layer}" if several else str(site.layer): (site, value)
        for site, value in layers
    }


def _by_call(
    calls: Mapping[int, int], heads: Mapping[int, list[int]], gate: float | Tensor
) -> dict[int, Tensor]:
    """Return the gates of every call that has heads to gate, [H]: 1 where nothing is gated.

    ``calls``: how many heads each call of a pass has; ``heads``: which of them are gated, by call;
    ``gate``: one for all, or a tensor with one for each, in the order of ``heads``.
    """
    shares = torch.as_tensor(gate, dtype=None if isinstance(gate, Tensor) else torch.float32)
    shares = shares.expand(sum(map(len, heads.values())))
    gates: dict[int, Tensor] = {}
    first = 0
    for call, indices in heads.items():
        chosen = shares[first : first + len(indices)]
        full = torch.ones(calls[call], dtype=chosen.dtype, device=chosen.device)
        gates[call] = full.index_put((torch.tensor(indices, device=chosen.device),), chosen)
        first += len(indices)
    return gates


def _check_hints(layout: str | None, batch: int | None, order: str | None) -> None:
    """Raise UsageError for a layout, a batch or an order that cannot be meant."""
    letters = set(layout or "qk")
    if layout is not None and not (
        len(letters) == len(layout) and {"q", "k"} <= letters <= set("bhqk")
    ):
        raise UsageError(
            "{layout} names each axis of the weights once: b batch, h heads, q queries, k keys, "
            "such as 'hbqk'",
            layout=layout,
        )
    if batch is not None and (not isinstance(batch, int) or batch < 1):
        raise UsageError("{batch} must be 1 or more", batch=batch)
    if order not in (None, "bh", "hb"):
        raise UsageError("{order} takes 'bh' or 'hb'", order=order)
    if order is not None and batch is None:
        raise UsageError("{order} needs the number of items too: {batch}", order=order, batch=...)


def _empty_rows(weights: Tensor, allowed: Tensor, label: str) -> Iterator[str]:
    """Say what a module gives in rows [H, T, S] whose keys are all masked."""
    empty = ~allowed.any(-1)
    if bool((~weights.isfinite().all(-1) & ~empty).any()):
        raise InputError("attention weights are not numbers (NaN): look at what the module was fed")
    bad = weights.isnan().any(-1)
    even = (weights - weights.mean(-1, keepdim=True)).abs().amax(-1) < 1e-6
    kinds = {
        "NaN": empty & bad,
        "uniform weights": empty & even & (weights.sum(-1) > 0),
        "weights over keys that are masked": empty & ~even & ~bad,
    }
    for kind, rows in kinds.items():
        count = int(rows.any(0).sum())
        if count:
            have = "row has" if count == 1 else "rows have"
            yield f"In {label} {count} {have} no key left; the module gives {kind} there."


def _common(paths: list[str]) -> str:
    """Return the module in which several stand, by their names."""
    parts = zip(*(path.split(".") for path in paths), strict=False)
    return ".".join(names[0] for names in takewhile(lambda names: len(set(names)) == 1, parts))


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _learned(layers: Sequence[tuple[Site, Layer]], chosen: set[Site]) -> set[SiteKind]:
    """Find the kinds of chosen layers whose queries are learned vectors, as those of objects are.

    A later layer reads what earlier ones made of them: the first that has an axis tells.
    """
    first: dict[Factors, bool] = {}
    for _, layer in layers:
        first.setdefault(layer.tokens[0], layer.learned)
    usual = {site.kind for site, layer in layers if site in chosen and not first[layer.tokens[0]]}
    return {site.kind for site in chosen} - usual


def _chosen(layers: Mapping[str, tuple[Site, Layer]], names: Sequence[str] | None) -> set[Site]:
    """Return the layers of these names, which may be those of modules; all for None."""
    if names is None:
        return {site for site, _ in layers.values()}
    chosen: set[Site] = set()
    for requested in map(str, names):
        matches = {
            site
            for name, (site, layer) in layers.items()
            if requested in (name, layer.path) or layer.path.startswith(f"{requested}.")
        }
        if not matches:
            available = [f"{name} ({layer.path})" for name, (_, layer) in layers.items()]
            raise UsageError("there is no layer {!r} in {layers}; there are {}", requested,
                             ", ".join(available), layers=...)  # fmt: skip
        chosen |= matches
    if not chosen:
        raise UsageError("{layers} names no layer", layers=names)
    return chosen


def _by(size: tuple[int, int, int]) -> str:
    queries, keys, windows = size
    return f"{queries}×{keys}" + f" in each of {windows} windows" * (windows > 1)
