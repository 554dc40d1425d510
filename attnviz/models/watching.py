"""PyTorch's own attention modules, watched while somebody else's code runs them.

``nn.MultiheadAttention`` averages its heads or returns no weights at all, and the layers of
``nn.Transformer`` skip it altogether where they can take a fast path. While a :class:`Watch` is on,
that path is off, and after every call of an attention module its weights are computed again, head
by head, without dropout and without a gradient: what the module itself returns stays as it is.
Modules that call ``scaled_dot_product_attention`` themselves are seen by :mod:`.sdpa_patch`, those
that write softmax out by :mod:`.softmax_watch`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attnviz.core.capture import Capture
from attnviz.core.heads import Layout, Site, SiteKind
from attnviz.core.key_mask import KeyMask
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import InputError, UsageError
from attnviz.models.arrays import chosen
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
        weights: [B, H, T, S], zero in rows without an allowed key.
        allowed: bool [B, H or 1, T, S].
        crosses: whether keys came from another sequence than queries.
        extra: texts of the last keys, which are none of that sequence.
    """

    module: nn.MultiheadAttention | None
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
        if not self._watched and hasattr(module, "set_attn_implementation"):
            raise UsageError(
                "{} is a transformers model; give it to attnviz.load(model, tokenizer=...)",
                type(module).__name__,
            )
        decoding = [m for m in module.modules() if isinstance(m, nn.TransformerDecoderLayer)]
        self._decoding = {id(layer.self_attn) for layer in decoding}
        self._passes: deque[list[Called]] = deque(maxlen=passes)
        self._within = 0
        self._batch = 0

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
            hooks = [self._module.register_forward_pre_hook(self._begins, prepend=True)]
            hooks += [m.register_forward_hook(self._attended, with_kwargs=True)
                      for m in self._watched]  # fmt: skip
            hooks += [self._module.register_forward_hook(self._ends, always_call=True)]
            for hook in hooks:
                undo.callback(hook.remove)
            undo.enter_context(flex_refused())
            undo.enter_context(SdpaWatch(self._computed, lambda: self._within > 0))
            undo.enter_context(SoftmaxWatch(self._written, lambda: self._within > 0))
            yield

    def capture(
        self, tokens: Tokens | None, source_tokens: Tokens | None, item: int | None, index: int
    ) -> Capture:
        """One item of a pass as a capture; see :meth:`Watched.capture`."""
        calls = self._pass(index)
        maps: dict[Site, NDArray[Any]] = {}
        reach: dict[Site, KeyMask] = {}
        heads: dict[SiteKind, list[int]] = {}
        sizes: dict[SiteKind, tuple[int, int]] = {}
        kinds = self._kinds(calls)
        for call, kind in zip(calls, kinds, strict=True):
            number = chosen(len(call.weights), item)
            size = (call.weights.shape[2], call.weights.shape[3])
            if sizes.setdefault(kind, size) != size:
                raise UsageError(
                    "the {} layers attend over {} and over {} positions; watch one of them",
                    kind,
                    _by(sizes[kind]),
                    _by(size),
                )
            site = Site(kind, len(heads.setdefault(kind, [])))
            maps[site] = call.weights[number].cpu().numpy()
            reach[site] = KeyMask.of(call.allowed[number].cpu().numpy())
            heads[kind].append(len(maps[site]))
        order: list[SiteKind] = [kind for kind in ("encoder", "decoder", "cross") if kind in heads]
        extra = {kind: call.extra for call, kind in zip(calls, kinds, strict=True)}
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

    def _kinds(self, calls: list[Called]) -> list[SiteKind]:
        """Of a decoder's own attention, of what crosses over, and of the rest by its masks."""
        stacks = bool(self._decoding)
        kinds: list[SiteKind] = []
        for call in calls:
            ahead = call.allowed.triu(1).any() or call.allowed.shape[-1] == 1
            if call.crosses:
                kinds.append("cross")
            elif id(call.module) in self._decoding or not (stacks or ahead):
                kinds.append("decoder")
            else:
                kinds.append("encoder")
        return kinds

    def _begins(self, module: nn.Module, args: Any, *_: Any) -> None:
        if not self._within:
            self._passes.append([])
            first = next((x for x in args if isinstance(x, Tensor)), None)
            self._batch = 0 if first is None else len(first)
        self._within += 1

    def _ends(self, *_: Any) -> None:
        self._within -= 1

    def _attended(
        self, module: nn.MultiheadAttention, args: Any, kwargs: Mapping[str, Any], _: Any
    ) -> None:
        """A module has run."""
        outside = not self._within
        if not self._passes or (outside and any(c.module is module for c in self._passes[-1])):
            self._passes.append([])
        self._passes[-1].append(called(module, *args, **kwargs))

    def _computed(self, weights: Tensor, allowed: Tensor) -> None:
        """The function has run; it tells of no sequences but their lengths."""
        crosses = weights.shape[-1] != weights.shape[-2]
        self._passes[-1].append(Called(None, weights, allowed, crosses, ()))

    def _written(self, weights: Tensor, allowed: Tensor) -> None:
        """A softmax has met values; as for the function, only lengths tell of sequences."""
        crosses = weights.shape[-1] != weights.shape[-2]
        whole = by_head(weights, allowed, self._batch)
        self._passes[-1].append(Called(None, *whole, crosses, ()))


def called(module: nn.MultiheadAttention, *args: Any, **kwargs: Any) -> Called:
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
    return Called(module, weights, allowed, not same, extra)


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
