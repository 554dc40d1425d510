"""Attention that somebody else has computed and holds in memory: lists of arrays, layer by layer.

What transformers returns with ``output_attentions=True``, or anything of that shape, in torch or
NumPy: a batch or one item, one stack or encoder, decoder and cross-attention. Everything is checked
before it is believed: shapes, tokens, and that rows are distributions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from attnviz.core.capture import Capture
from attnviz.core.heads import Layout, Site, SiteKind
from attnviz.core.key_mask import KeyMask
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import InputError, UsageError
from attnviz.models.recorded import SUM_TOLERANCE
from attnviz.models.text import marked
from attnviz.scoring.replay import allowed_keys

NAMES: Mapping[str, SiteKind | None] = {
    "attentions": None,
    "encoder_attentions": "encoder",
    "decoder_attentions": "decoder",
    "cross_attentions": "cross",
}
"""What a model's output calls its attention; None where it does not say of which kind it is."""

_LOW_TOLERANCE = 2e-2
"""How far the sum of a row may be from 1 in half precision, to which every weight was rounded."""

Array = NDArray[Any]


def from_arrays(
    attentions: Any,
    tokens: Tokens,
    source_tokens: Tokens | None = None,
    *,
    item: int | None = None,
    kind: str | None = None,
    sinks: bool = False,
    model: str = "attention in memory",
) -> Capture:
    """Believe attention that was computed elsewhere; see :func:`attnviz.from_arrays`."""
    given = _by_kind(attentions, source_tokens is not None, kind)
    maps: dict[Site, Array] = {}
    heads: dict[SiteKind, tuple[int, ...]] = {}
    sides: dict[SiteKind, Sides] = {}
    dtypes = []
    for said, layers in given.items():
        read = [_layer(layer, n, said, item) for n, layer in enumerate(layers)]
        site_kind = said or ("decoder" if _causal([layer for layer, _ in read]) else "encoder")
        keys = source_tokens or tokens
        own = keys if site_kind == "encoder" and len(given) > 1 else tokens
        sides[site_kind] = Sides(own, keys if site_kind == "cross" else own)
        heads[site_kind] = tuple(len(layer) for layer, _ in read)
        for number, (layer, low) in enumerate(read):
            site = Site(site_kind, number)
            _check(layer, site, sides[site_kind], _LOW_TOLERANCE if low else SUM_TOLERANCE, sinks)
            maps[site] = layer
            dtypes.append("half precision" if low else str(layer.dtype))
    info = SourceInfo(model, "recorded", "as given", dtype=dtypes[0])
    empty = sum(int((~layer.any(-1)).any(0).sum()) for layer in maps.values())
    reach = {}
    if sinks:
        for site, layer in maps.items():
            reach[site] = KeyMask.of(allowed_keys(layer, site.kind)[None], sink=True)
    return Capture(info, Layout(heads), Inputs(sides), maps, empty, reach)


def named(texts: Sequence[str]) -> Tokens:
    """Tokens by their texts; those that look like a model's own marks are special.

    Raises:
        UsageError: not a list of strings; InputError: an empty one.
    """
    wrong = isinstance(texts, str) or not isinstance(texts, Sequence)
    if wrong or not all(isinstance(text, str) for text in texts):
        of = (
            ""
            if wrong
            else f" of {type(next(t for t in texts if not isinstance(t, str))).__name__}"
        )
        raise UsageError(
            "tokens are a list of strings, one for each position, not {}{}",
            type(texts).__name__,
            of,
            remedy="ids need {tokenizer}",
            tokenizer=...,
        )
    if not len(texts):
        raise InputError("the list of tokens is empty; give one for each position")
    return marked(tuple(texts))


def spelled(ids: Any, tokenizer: Any) -> Tokens:
    """Tokens by their ids; UsageError for what are none."""
    from attnviz.models.hooked.tokenizer import Texts

    wrong = isinstance(ids, str) or not isinstance(ids, Sequence)
    if wrong or not all(isinstance(token_id, int) for token_id in ids):
        raise UsageError("with a {tokenizer}, tokens are a list of ids", tokenizer=...)
    return Texts(tokenizer, type(tokenizer).__name__).tokens(ids)


def chosen(count: int, item: int | None) -> int:
    """Which item of a batch; UsageError where it must be said, or is not there."""
    if item is None and count > 1:
        raise UsageError(
            "this is a batch of {}; choose one with {item} from 0 to {}", count, count - 1, item=...
        )
    if not 0 <= (item or 0) < count:
        raise UsageError("this is a batch of {}; there is no {item}", count, item=item)
    return item or 0


def _by_kind(given: Any, cross: bool, kind: str | None) -> dict[SiteKind | None, Sequence[Any]]:
    """Lists of layers by their kind; None for a single one that does not say."""
    if kind is not None and kind not in get_args(SiteKind):
        raise UsageError(
            "no {kind}; choose {}", " or ".join(map(repr, get_args(SiteKind))), kind=kind
        )
    if not isinstance(given, Mapping):
        said: Any = kind or ("cross" if cross else None)
        layers = layers_of(given)
        if not layers:
            raise InputError("there are no layers in these attentions; give at least one")
        return {said: layers}
    present = {NAMES[n]: layers_of(v) for n, v in given.items() if n in NAMES and v is not None}
    present = {name: layers for name, layers in present.items() if layers}
    if None in present and len(present) > 1:  # what BERT as a decoder returns
        if "decoder" in present:
            raise UsageError(
                "attentions and decoder_attentions are both there; leave one of them out"
            )
        present["decoder"] = present.pop(None)
    if not present:
        raise InputError(
            "there is none of {} in this output; run the model with output_attentions=True and "
            "eager attention",
            ", ".join(NAMES),
        )
    if kind is not None:
        raise UsageError("{kind} is for a single list of layers; an output names its own", kind=...)
    if "cross" in present and not cross:
        raise UsageError(
            "cross-attention has two sequences: add {source_tokens}", source_tokens=...
        )
    return present


def layers_of(given: Any) -> Sequence[Any]:
    """One array for each layer; layers without attention are left out."""
    if _is_array(given):
        if given.ndim not in (4, 5):
            raise InputError(
                "an array of all layers is [layers, heads, queries, keys] or [layers, batch, "
                "heads, queries, keys], not {}",
                list(given.shape),
                remedy="give one layer as a list of it: [array]" if given.ndim == 3 else "",
            )
        return list(given)
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise UsageError(
            "attentions are a list with an array for each layer, or a model's output, not {}",
            type(given).__name__,
        )
    layers = [layer for layer in given if layer is not None]
    for number, layer in enumerate(layers):
        if isinstance(layer, Sequence):
            raise UsageError(
                "layer {} is a list itself, as generate() returns a step at a time; run the whole "
                "text through the model once",
                number,
            )
        if not _is_array(layer):
            raise UsageError(
                "layer {} must be a torch or NumPy array, not {}", number, type(layer).__name__
            )
    return layers


def _is_array(given: Any) -> bool:
    return isinstance(given, np.ndarray) or hasattr(given, "detach")


def _layer(given: Any, number: int, kind: SiteKind | None, item: int | None) -> tuple[Array, bool]:
    """One item's [H, T, S] in float32 or float64, and whether it was in half precision."""
    what = f"{kind} layer {number}" if kind else f"layer {number}"
    if hasattr(given, "detach"):
        if given.is_meta or str(given.layout) != "torch.strided":
            form = "meta" if given.is_meta else "sparse"
            raise InputError("{} is a {} tensor; give a dense one with values", what, form)
        given = given.detach().cpu()
        low = given.dtype.is_floating_point and given.dtype.itemsize <= 2
        array: Array = (given.float() if low else given).numpy()
    else:
        # what a mask hides is no weight
        low, array = given.dtype == np.float16, np.ma.filled(given, 0)
    if array.dtype.kind != "f":
        raise InputError("{} holds {}, not floating-point weights", what, array.dtype)
    if array.ndim == 3:
        if item not in (None, 0):
            raise UsageError("{} is not a batch; leave out {item}", what, item=item)
        return _copied(array), low
    if array.ndim != 4:
        raise InputError(
            "{} has shape {}; it must be [heads, queries, keys] or [batch, heads, queries, keys]",
            what,
            list(array.shape),
            remedy="give a single layer as [array]" if array.ndim == 2 else "",
        )
    return _copied(array[chosen(len(array), item)]), low


def _copied(array: Array) -> Array:
    return np.array(array, np.float64 if array.dtype.itemsize == 8 else np.float32)


def _causal(layers: Sequence[Array]) -> bool:
    """Whether no query sees a later key, as in a decoder; a single token says nothing."""
    return layers[0].shape[-1] > 1 and not any(np.triu(layer, 1).any() for layer in layers)


def _check(layer: Array, site: Site, sides: Sides, tolerance: float, sinks: bool) -> None:
    """Raise InputError unless a layer fits the tokens and its rows are distributions."""
    what = f"{site.kind} layer {site.layer}"
    for axis, name, count in ((1, "query", len(sides.queries)), (2, "key", len(sides.keys))):
        if layer.shape[axis] != count:
            raise InputError(
                "{} has {} {} positions, and there are {} tokens; they must agree (padding is "
                "cut off from both or from none)",
                what,
                layer.shape[axis],
                name,
                count,
            )
    if not len(layer):
        raise InputError("{} has no heads", what)
    if not np.isfinite(layer).all():
        raise InputError("{} has NaN or infinite weights", what)
    if (layer < 0).any():
        raise InputError(
            "{} has negative weights (lowest {:.4g}); give them after softmax", what, layer.min()
        )
    sums = layer.sum(-1, dtype=np.float64)
    wrong = sums > 1 + tolerance
    if not sinks:
        wrong |= (sums < 1 - tolerance) & (sums > tolerance)
    if wrong.any():
        head, row = np.argwhere(wrong)[0]
        raise InputError(
            "row {} of head {} of the {} sums to {:.4g}, not 1 (or 0 where masked)",
            row,
            f"{site.layer}.{head}",
            site.kind,
            sums[head, row],
            remedy="give weights after softmax and before dropout, or say {sinks} where a learned "
            "sink takes a part",
            sinks=True,
        )
