"""PyTorch's own attention modules, watched while somebody else's code runs them.

``nn.MultiheadAttention`` averages its heads or returns no weights at all, and the layers of
``nn.Transformer`` skip it altogether where they can take a fast path. While a :class:`Watch` is on,
that path is off, and after every call of an attention module its weights are computed again, head
by head, without dropout and without a gradient: what the module itself returns stays as it is.
Modules that call ``scaled_dot_product_attention`` themselves are seen by :mod:`.sdpa_patch`, those
that write softmax out by :mod:`.softmax_watch`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from attnviz.core.capture import Capture
from attnviz.core.heads import Head, Layout, Site, SiteKind
from attnviz.core.key_mask import KeyMask
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import InputError, UsageError
from attnviz.models.arrays import chosen
from attnviz.models.output_gates import by_call, gate_module
from attnviz.models.sdpa_patch import SdpaWatch, flex_refused
from attnviz.models.softmax_watch import SoftmaxWatch, by_head

_FORWARD = signature(nn.MultiheadAttention.forward)
_EXTRA = ("<bias>", "<zero>")
"""Keys that no token stands for: ``add_bias_kv`` and ``add_zero_attn`` put them at the end."""


@dataclass(frozen=True, slots=True)
class Called:
    """What one call of an attention module did.

    Attributes:
        module: which; None of a call of the function.
        path: the module that called, by its name in the whole: ``blocks.3.attn``.
        weights: [B, H, T, S], zero in rows without an allowed key.
        allowed: bool [B, H or 1, T, S].
        crosses: whether keys came from another sequence than queries.
        extra: texts of the last keys, which are none of that sequence.
    """

    module: nn.MultiheadAttention | None
    path: str
    weights: Tensor
    allowed: Tensor
    crosses: bool
    extra: tuple[str, ...]


class Watch:
    """Keeps what the attention modules inside a module attend to.

    Args:
        module: an ``nn.MultiheadAttention``, or whatever has some inside or calls
            ``scaled_dot_product_attention``.
        passes: how many of the last passes to keep.

    Raises:
        UsageError: no module, or one of transformers.
    """

    def __init__(self, module: nn.Module, passes: int = 1) -> None:
        if not isinstance(module, nn.Module):
            raise UsageError("{module} takes a torch module, not {}", type(module).__name__,
                             module=...)  # fmt: skip
        if passes < 1:
            raise UsageError("{passes} must be 1 or more", passes=passes)
        self._module = module
        self._watched = [m for m in module.modules() if isinstance(m, nn.MultiheadAttention)]
        decoding = [m for m in module.modules() if isinstance(m, nn.TransformerDecoderLayer)]
        self._decoding = {id(layer.self_attn) for layer in decoding}
        self._passes: deque[list[Called]] = deque(maxlen=passes)
        self._running: list[str] = []  # modules at work, the innermost last
        self._batch = 0
        self._on = False
        self._gates: Mapping[int, Tensor] = {}
        self._undo: Callable[[], None] = _nothing

    @property
    def passes(self) -> int:
        """How many passes are kept."""
        return len(self._passes)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch inside the ``with`` block; afterwards the modules are as they were."""
        fast = torch.backends.mha.get_fastpath_enabled()
        with ExitStack() as undo:
            undo.callback(torch.backends.mha.set_fastpath_enabled, fast)
            torch.backends.mha.set_fastpath_enabled(False)
            for hook in self._hooks():
                undo.callback(hook.remove)
            undo.enter_context(flex_refused())
            undo.enter_context(SdpaWatch(self._computed, self._is_running))
            undo.enter_context(SoftmaxWatch(self._written, self._is_running))
            undo.callback(setattr, self, "_on", False)
            self._on = True
            yield

    def _hooks(self) -> Iterator[RemovableHandle]:
        for name, module in self._module.named_modules():
            begin = self._begins if module is self._module else partial(self._enters, name)
            yield module.register_forward_pre_hook(begin, prepend=True)
        for module in self._watched:
            yield module.register_forward_pre_hook(self._attends, with_kwargs=True)
            yield module.register_forward_hook(self._attended, with_kwargs=True)
            yield module.register_forward_hook(self._releases, always_call=True)
        for module in self._module.modules():
            yield module.register_forward_hook(self._leaves, always_call=True)

    @property
    def layout(self) -> Layout:
        """The heads of the last pass, whatever its layers attend over.

        Raises:
            UsageError: nothing has run.
        """
        heads: dict[SiteKind, list[int]] = {}
        calls = self._pass(-1)
        for site, call in zip(self._sites(calls), calls, strict=True):
            heads.setdefault(site.kind, []).append(call.weights.shape[1])
        return Layout({kind: tuple(numbers) for kind, numbers in heads.items()})

    @property
    def paths(self) -> dict[Site, str]:
        """The module that each layer of the last pass stands in; a second call has its number.

        Raises:
            UsageError: nothing has run.
        """
        calls = self._pass(-1)
        paths: dict[Site, str] = {}
        times: Counter[str] = Counter()
        for site, call in zip(self._sites(calls), calls, strict=True):
            times[call.path] += 1
            again = f" (call {times[call.path]})" if times[call.path] > 1 else ""
            paths[site] = (call.path or type(self._module).__name__) + again
        return paths

    @contextmanager
    def gating(self, heads: Iterable[Head], gate: float | Tensor) -> Iterator[None]:
        """Multiply what heads of the last pass give by a gate, in every pass of the block.

        Args:
            heads: of :attr:`layout`.
            gate: 0 takes them away, 1 leaves them; or a tensor with one for each, in their order.

        Raises:
            UsageError: outside of :meth:`watching`, or inside of another such block.
        """
        if not self._on:
            raise UsageError("heads are ablated inside the with block of watch, where they run")
        if self._gates:
            raise UsageError("heads are ablated already; name all of them in one call")
        calls = self._pass(-1)
        number = {site: index for index, site in enumerate(self._sites(calls))}
        counts = {index: call.weights.shape[1] for index, call in enumerate(calls)}
        gated: dict[int, list[int]] = {}
        for head in heads:
            gated.setdefault(number[head.site], []).append(head.index)
        self._gates = by_call(counts, gated, gate)
        try:
            yield
        finally:
            self._gates = {}

    def capture(
        self, tokens: Tokens | None, source_tokens: Tokens | None, item: int | None, index: int
    ) -> Capture:
        """One item of a pass as a capture; see :meth:`Watched.capture`."""
        calls = self._pass(index)
        maps: dict[Site, NDArray[Any]] = {}
        reach: dict[Site, KeyMask] = {}
        heads: dict[SiteKind, list[int]] = {}
        sizes: dict[SiteKind, tuple[int, int]] = {}
        sites = self._sites(calls)
        for call, site in zip(calls, sites, strict=True):
            number, kind = chosen(len(call.weights), item), site.kind
            size = (call.weights.shape[2], call.weights.shape[3])
            if sizes.setdefault(kind, size) != size:
                raise UsageError(
                    "the {} layers attend over {} and over {} positions; watch one of them",
                    kind,
                    _by(sizes[kind]),
                    _by(size),
                )
            maps[site] = call.weights[number].cpu().numpy()
            reach[site] = KeyMask.of(call.allowed[number].cpu().numpy())
            heads.setdefault(kind, []).append(len(maps[site]))
        order: list[SiteKind] = [kind for kind in ("encoder", "decoder", "cross") if kind in heads]
        extra = {site.kind: call.extra for call, site in zip(calls, sites, strict=True)}
        sides = _sides({kind: sizes[kind] for kind in order}, extra, tokens, source_tokens)
        info = SourceInfo(
            type(self._module).__name__,
            "hooked",
            "as PyTorch computes it, before dropout",
            str(calls[0].weights.device),
            str(calls[0].weights.dtype).removeprefix("torch."),
            versions={"torch": torch.__version__},
        )
        layout = Layout({kind: tuple(heads[kind]) for kind in order})
        empty = sum(int((~m.any(-1)).any(0).sum()) for m in maps.values())
        return Capture(info, layout, Inputs(sides), maps, empty, reach)

    def _pass(self, index: int) -> list[Called]:
        if not any(self._passes):
            raise UsageError(
                "no attention was seen: call the module inside the with block, then capture; seen "
                "are nn.MultiheadAttention, scaled_dot_product_attention, and a softmax of the "
                "last axis that meets values in a product; what a kernel of its own computes is "
                "not: give its weights to attnviz.from_arrays"
            )
        try:
            return self._passes[index]
        except IndexError:
            raise UsageError(
                "{} passes are kept; there is no {index}", len(self._passes), index=index
            ) from None

    def _sites(self, calls: list[Called]) -> list[Site]:
        """Of a decoder's own attention, of what crosses over, and of the rest by its masks."""
        stacks = bool(self._decoding)
        layers: Counter[SiteKind] = Counter()
        sites: list[Site] = []
        for call in calls:
            ahead = call.allowed.triu(1).any() or call.allowed.shape[-1] == 1
            kind: SiteKind = "encoder"
            if call.crosses:
                kind = "cross"
            elif id(call.module) in self._decoding or not (stacks or ahead):
                kind = "decoder"
            sites.append(Site(kind, layers[kind]))
            layers[kind] += 1
        return sites

    def _is_running(self) -> bool:
        """Whether the watched module, and not only a part of it, is at work."""
        return bool(self._running) and self._running[0] == ""

    def _begins(self, module: nn.Module, args: Any, *_: Any) -> None:
        if not self._running:
            self._passes.append([])
            first = next((x for x in args if isinstance(x, Tensor)), None)
            self._batch = 0 if first is None else len(first)
        self._running.append("")

    def _enters(self, name: str, *_: Any) -> None:
        self._running.append(name)

    def _leaves(self, *_: Any) -> None:
        self._running.pop()

    def _attends(self, module: nn.MultiheadAttention, args: Any, kwargs: Any) -> None:
        """A module is about to run."""
        outside = not self._is_running()
        if not self._passes or (outside and any(c.module is module for c in self._passes[-1])):
            self._passes.append([])
        gates = self._gates.get(len(self._passes[-1]))
        if gates is not None:
            self._undo = gate_module(module, gates)

    def _releases(self, *_: Any) -> None:
        self._undo()
        self._undo = _nothing

    def _attended(
        self, module: nn.MultiheadAttention, args: Any, kwargs: Mapping[str, Any], _: Any
    ) -> None:
        """A module has run."""
        self._passes[-1].append(called(module, self._running[-1], *args, **kwargs))

    def _computed(self, weights: Tensor, allowed: Tensor) -> Tensor | None:
        """The function is about to run; it tells of no sequences but their lengths."""
        calls = self._passes[-1]
        crosses = weights.shape[-1] != weights.shape[-2]
        calls.append(Called(None, self._running[-1], weights, allowed, crosses, ()))
        return self._gates.get(len(calls) - 1)

    def _written(self, weights: Tensor, allowed: Tensor) -> Tensor | None:
        """A softmax meets values; as for the function, only lengths tell of sequences."""
        return self._computed(*by_head(weights, allowed, self._batch))


def _nothing() -> None:
    """Undo nothing."""


def called(module: nn.MultiheadAttention, path: str, *args: Any, **kwargs: Any) -> Called:
    """What a call with these arguments attends to, head by head, and nothing else changed.

    Raises:
        InputError: weights that are not numbers though keys were allowed.
    """
    given = _FORWARD.bind(module, *args, **kwargs)
    given.arguments |= {"need_weights": True, "average_attn_weights": False}
    query, key = given.arguments["query"], given.arguments["key"]
    training = module.training
    try:
        module.training = False
        with torch.no_grad():
            _, weights = nn.MultiheadAttention.forward(*given.args, **given.kwargs)
    finally:
        module.training = training
    assert weights is not None  # they were asked for
    weights = weights if weights.ndim == 4 else weights[None]
    extra = _EXTRA[:1] * (module.bias_k is not None) + _EXTRA[1:] * module.add_zero_attn
    allowed = _allowed(weights, len(extra), given.arguments)
    weights = weights.masked_fill(~allowed.any(-1, keepdim=True), 0.0)
    weights = weights if weights.dtype == torch.float64 else weights.float()
    if not bool(weights.isfinite().all()):
        raise InputError("attention weights are not numbers (NaN): look at what the module was fed")
    same = query is key or (query.shape == key.shape and torch.equal(query, key))
    return Called(module, path, weights, allowed, not same, extra)


def _allowed(weights: Tensor, extra: int, given: Mapping[str, Any]) -> Tensor:
    """Bool [B, H or 1, T, S] of the masks that a module was called with."""
    batch, heads, queries, keys = weights.shape
    allowed = torch.ones(batch, 1, queries, keys - extra, dtype=torch.bool, device=weights.device)
    mask, padding = given.get("attn_mask"), given.get("key_padding_mask")
    if mask is not None:
        free = ~mask if mask.dtype == torch.bool else mask > -torch.inf
        allowed = allowed & (free if free.ndim == 2 else free.view(batch, heads, *free.shape[1:]))
    if padding is not None:
        free = ~padding if padding.dtype == torch.bool else padding > -torch.inf
        allowed = allowed & free.reshape(batch, 1, 1, -1)
    return nn.functional.pad(allowed, (0, extra), value=True)


def _sides(
    sizes: Mapping[SiteKind, tuple[int, int]],
    extra: Mapping[SiteKind, tuple[str, ...]],
    tokens: Tokens | None,
    source: Tokens | None,
) -> dict[SiteKind, Sides]:
    """The tokens on both axes of every kind; numbers where nobody names them."""
    crosses = "cross" in sizes
    if source is not None and not crosses:
        raise UsageError("only one sequence was attended to; leave out {source_tokens}",
                         source_tokens=...)  # fmt: skip
    sides: dict[SiteKind, Sides] = {}
    for kind, (queries, keys) in sizes.items():
        own = source if kind == "encoder" and len(sizes) > 1 else tokens
        other = source if kind == "cross" else own
        rows = _fitting(own, queries, kind, "query", ())
        columns = rows
        if kind == "cross" or extra[kind]:
            columns = _fitting(other, keys, kind, "key", extra[kind])
        sides[kind] = Sides(rows, columns)
    return sides


def _fitting(
    tokens: Tokens | None, count: int, kind: str, what: str, extra: tuple[str, ...]
) -> Tokens:
    """As many tokens as there are positions, the extra keys among them."""
    own = count - len(extra)
    if tokens is None:
        tokens = Tokens(tuple(map(str, range(own))))
    if len(tokens) != own:
        raise InputError(
            "the {} layers have {} {} positions, and there are {} tokens; they must agree",
            kind,
            own,
            what,
            len(tokens),
        )
    if not extra:
        return tokens
    return Tokens(
        (*tokens.texts, *extra),
        special=(*tokens.special, *(True for _ in extra)),
        separators=(*tokens.separators, *(False for _ in extra)),
        words=(*tokens.words, *(-1 for _ in extra)),
        segments=(*tokens.segments, *(0 for _ in extra)),
    )


def _by(size: tuple[int, ...]) -> str:
    return "×".join(map(str, size))
