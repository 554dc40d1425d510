"""Attention that somebody else has computed and holds in memory: lists of arrays, layer by layer.

What transformers returns with ``output_attentions=True``, or anything of that shape, in torch or
NumPy: a batch or one item, one stack or encoder, decoder and cross-attention, a text that was read
or one that was generated. Everything is checked before it is believed: axes
(:mod:`~attnviz.models.recorded.layouts`), padding and masks
(:mod:`~attnviz.models.recorded.validator`), and that rows are distributions (there too).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from attnviz.core.arrays import is_array, on_host
from attnviz.core.capture import Capture, KeyMask, empty_rows, seen_keys
from attnviz.core.heads import Layout, Site, SiteKind
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo
from attnviz.core.settings import Settings, setting
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import InputError, UsageError
from attnviz.models.recorded import validator
from attnviz.models.recorded.format import Array
from attnviz.models.recorded.layouts import Layers, read_layers, refuse_beams
from attnviz.models.recorded.reading import kind_of, without_padding
from attnviz.models.recorded.validator import (
    ENDS,
    HALF,
    HALF_TOLERANCE,
    SUM_TOLERANCE,
    Bool,
    Part,
    length_problems,
    refuse,
    sum_problems,
    weight_problems,
)
from attnviz.models.text import marked

NAMES: Mapping[str, SiteKind | None] = {
    "attentions": None,
    "encoder_attentions": "encoder",
    "decoder_attentions": "decoder",
    "cross_attentions": "cross",
}
"""What a model's output calls its attention; None where it does not say of which kind it is."""


@dataclass(frozen=True, kw_only=True)
class ArrayOptions(Settings):
    """What a caller says of attention from elsewhere, beside it and its tokens."""

    source_tokens: Any = setting(
        None,
        "The tokens of the other sequence, that of the encoder: they make a list of layers "
        "cross-attention.",
    )
    tokenizer: Any = setting(
        None, "A transformers tokenizer, to read ids; an array of ids without it is ``#5``."
    )
    item: int | None = setting(None, "Which item of a batch; needed where there are several.")
    kind: str | None = setting(
        None,
        "``encoder``, ``decoder`` or ``cross``, for layers that do not say; by default decoder "
        "where no query sees a later key.",
    )
    sinks: bool = setting(
        False, "Rows may sum to less than 1, for a learned sink takes a part (GPT-OSS)."
    )
    layout: str | None = setting(
        None,
        "The axes of an array by letters, l layers, b batch, h heads, q queries, k keys: "
        '``"blhqk"``; ``"bqk"`` of means over heads. Needed where shapes can be read in two ways.',
    )
    attention_mask: Any = setting(
        None,
        "1 for each token and 0 for padding, as the model took it, [T] or [B, T]; of "
        "{source_tokens} where there are some. Padding is left out of maps and tokens. Without it "
        "padding is found where tokens and weights tell, else asked for; a recording has it as a "
        "field.",
    )
    decoder_attention_mask: Any = setting(
        None, "The same of the tokens where there are {source_tokens}."
    )
    mask: Any = setting(
        None,
        "Which keys may be attended to, where the zeros that all heads of a layer share do not say "
        "it: booleans, True for those, or what was added to the scores, [queries, keys], [heads, "
        "queries, keys] or [batch, heads, queries, keys]; a list has one for each layer, a mapping "
        "one for each kind.",
    )
    picture: Any = setting(
        None,
        "What the patches among the tokens are of: a file, a PIL image, or bytes [height, width, "
        '3]. Patches are tokens that are None, row by row, or ``"3,5"`` by row and column.',
    )
    grid: tuple[int, int] | None = setting(
        None, "Rows and columns of its patches, where these are not a square."
    )
    rows: int | None = None  # of how many items there are tokens, where these come in rows
    pad: str | None = None  # the text of the tokenizer's padding


def from_arrays(
    attentions: Any,
    tokens: Tokens,
    source_tokens: Tokens | None = None,
    *,
    options: ArrayOptions = ArrayOptions(),
    model: str = "attention in memory",
) -> Capture:
    """Believe attention that was computed elsewhere; see :func:`attnviz.from_arrays`."""
    raw = by_kind(attentions, source_tokens is not None, options.kind)
    rows = options.rows
    for mask in (options.attention_mask, options.decoder_attention_mask):
        if getattr(mask, "ndim", 1) == 2 and len(mask) > 1:
            rows = len(mask)
    read = {
        stated: read_layers(
            layers, layout=options.layout, item=options.item, rows=rows, crossed=stated == "cross",
            label=f"{stated} " if stated else "",
        )
        for stated, layers in raw.items()
    }  # fmt: skip
    for stated, layers in read.items():
        _check_sizes(stated, layers)
    tokens, read, notes = _generated(tokens, read)
    if source_tokens is None:
        tokens, read, earlier = _with_earlier_keys(tokens, read, options.kind)
        notes += earlier
    own_real, source_real = _real(tokens, source_tokens, read, options)
    several = len(read) > 1
    kinds: dict[SiteKind, Layers] = {}
    real: dict[SiteKind, tuple[Bool, Bool]] = {}
    for stated, layers in read.items():
        written = layers.prompt is not None
        kind = stated or ("decoder" if written else kind_of(layers.maps, own_real))
        kinds[kind] = layers
        sequence = source_real if kind == "encoder" and several else own_real
        real[kind] = (sequence, source_real if kind == "cross" else sequence)
    target = without_padding(tokens, own_real)
    source = target if source_tokens is None else without_padding(source_tokens, source_real)
    maps: dict[Site, Array] = {}
    reach: dict[Site, KeyMask] = {}
    heads: dict[SiteKind, tuple[int, ...]] = {}
    sides: dict[SiteKind, Sides] = {}
    for kind, layers in kinds.items():
        self_side = source if kind == "encoder" and several else target
        sides[kind] = Sides(self_side, source if kind == "cross" else self_side)
        heads[kind] = tuple(map(len, layers.maps))
        notes += layers.notes
        for number, layer in enumerate(layers.maps):
            site, (queries, keys) = Site(kind, number), real[kind]
            part = Part(f"{kind} layer {number}", (), *map(np.flatnonzero, (queries, keys)))
            cut = validator.cut_padding(layer, queries, keys)
            _check(cut, part, sides[kind], layers.low[number], options.sinks)
            allowed = _allowed(options, kind, several, number, layer.shape)
            if allowed is not None:
                allowed = validator.cut_padding(allowed, queries, keys)
                validator.check_mask(cut, allowed, part.name)
                reach[site] = KeyMask.of(allowed, sink=options.sinks)
            maps[site] = cut
    if options.mask is None:
        reach = validator.infer_masks(maps, sink=options.sinks)
    low, first = next((layers.low[0], layers.maps[0]) for layers in kinds.values())
    info = SourceInfo(model, "recorded", "as given", dtype=HALF if low else str(first.dtype))
    padding = int((~own_real).sum()) + (0 if source_tokens is None else int((~source_real).sum()))
    notes = tuple(dict.fromkeys((*notes, *validator.padding_note(padding))))
    return Capture(info, Layout(heads), Inputs(sides, notes), maps, empty_rows(maps), reach)


def named(texts: Sequence[str]) -> Tokens:
    """Tokens by their texts; those that look like a model's own marks are special."""
    wrong = isinstance(texts, str) or not isinstance(texts, Sequence)
    if wrong or not all(isinstance(text, str) for text in texts):
        types = () if wrong else [type(t).__name__ for t in texts if not isinstance(t, str)]
        raise UsageError(
            "tokens are a list of strings, one for each position, not {}{}",
            type(texts).__name__,
            f" of {types[0]}" if types else "",
            remedy="ids need {tokenizer}",
            tokenizer=...,
        )
    if not len(texts):
        raise InputError("the list of tokens is empty; give one for each position")
    return marked(tuple(texts))


def spelled(ids: Any, tokenizer: Any) -> Tokens:
    """Tokens by their ids, ``#5`` where there is no tokenizer; UsageError for what are none."""
    from attnviz.models.hooked.tokenizer import Texts

    wrong = isinstance(ids, str) or not isinstance(ids, Sequence)
    if wrong or not all(isinstance(token_id, int) for token_id in ids):
        raise UsageError("with a {tokenizer}, tokens are a list of ids", tokenizer=...)
    return Texts(tokenizer, type(tokenizer).__name__).tokens(ids)


def by_kind(attentions: Any, cross: bool, kind: str | None) -> dict[SiteKind | None, Any]:
    """Layers by their kind; None for a single stack that does not say."""
    if kind is not None and kind not in get_args(SiteKind):
        raise UsageError(
            "no {kind}; choose {}", " or ".join(map(repr, get_args(SiteKind))), kind=kind
        )
    if not isinstance(attentions, Mapping):
        stated: Any = kind or ("cross" if cross else None)
        return {stated: attentions}
    refuse_beams(attentions)
    present = {NAMES[n]: v for n, v in attentions.items() if n in NAMES and v is not None}
    present = {
        name: layers
        for name, layers in present.items()
        if not isinstance(layers, list | tuple) or any(layer is not None for layer in layers)
    }
    if None in present and len(present) > 1:  # what BERT as a decoder returns
        if "decoder" in present:
            raise UsageError(
                "attentions and decoder_attentions are both there; leave one of them out"
            )
        present["decoder"] = present.pop(None)
    if not present and attentions and all(is_array(layer) for layer in attentions.values()):
        raise UsageError("a mapping of layers does not say their order; give [*layers.values()]")
    if not present:
        raise InputError(
            "there is none of {} in this output; run the model with output_attentions=True and "
            "eager attention",
            ", ".join(NAMES),
        )
    if kind is not None and set(present) != {None}:
        raise UsageError("{kind} is for a single list of layers; an output names its own", kind=...)
    if kind is not None:
        return {kind: present[None]}  # type: ignore[dict-item]
    if "cross" in present and not cross:
        raise UsageError(
            "cross-attention has two sequences: add {source_tokens}", source_tokens=...
        )
    return present


def _check_sizes(kind: SiteKind | None, layers: Layers) -> None:
    """Raise InputError for layers of unequal size, which have no tokens in common."""
    sizes: dict[tuple[int, ...], list[int]] = {}
    for number, layer in enumerate(layers.maps):
        sizes.setdefault(layer.shape[1:], []).append(number)
    if len(sizes) > 1:
        groups = (
            f"{' and '.join(map(str, numbers[:3]))}{' ...' * (len(numbers) > 3)} {t} × {s}"
            for (t, s), numbers in sizes.items()
        )
        raise InputError(
            "{}layers differ in queries × keys: {}; give those of one size, with their own tokens",
            f"{kind} " if kind else "", ", ".join(groups),
        )  # fmt: skip


def _generated(
    tokens: Tokens, read: dict[SiteKind | None, Layers]
) -> tuple[Tokens, dict[SiteKind | None, Layers], tuple[str, ...]]:
    """Tokens and layers of generated text, without what was never read.

    The last token was written and not read, and in a batch so was nothing after a text's end.
    """
    layers = next((n for k, n in read.items() if k != "encoder" and n.prompt is not None), None)
    if layers is None:
        return tokens, read, ()
    count = layers.maps[0].shape[1]
    if len(tokens) not in (count, count + 1):
        raise InputError(
            "{} tokens were read in these steps and {} tokens are given; give the sequences that "
            "generate() returned, prompt and all", count, len(tokens),
        )  # fmt: skip
    note = "" if len(tokens) == count else "The last token was written and never read: no query."
    texts = tokens.texts[:count]
    last = texts[-1]
    ending = next((n for n in range(count) if set(texts[n:]) == {last}), count) + 1
    prompt = layers.prompt or 0
    if last in ENDS and prompt < ending < count:
        count = ending
    keep = np.arange(len(tokens)) < count
    cut = {
        kind: part
        if kind == "encoder"
        else replace(
            part,
            maps=tuple(m[:, :count, : m.shape[2] if kind == "cross" else count] for m in part.maps),
        )
        for kind, part in read.items()
    }
    generated = max(0, count - prompt)
    return replace(without_padding(tokens, keep), written=generated), cut, (note,) if note else ()


def _with_earlier_keys(
    tokens: Tokens, read: dict[SiteKind | None, Layers], kind: str | None
) -> tuple[Tokens, dict[SiteKind | None, Layers], tuple[str, ...]]:
    """Tokens and layers of as many queries as keys, where keys of a cache or a prefix stand before.

    The keys before the first query have queries without weights.
    """
    sizes = {layer.shape[1:] for layers in read.values() for layer in layers.maps}
    ((stated, layers), *remaining) = read.items()
    queries, keys = next(iter(sizes))
    earlier = keys - queries
    if len(sizes) > 1 or remaining or stated == "cross" or earlier < 1:
        return tokens, read, ()
    if len(tokens) == queries:
        later = any(np.triu(seen_keys(layer), earlier + 1).any() for layer in layers.maps)
        if kind is None and (later or queries == 1):
            raise UsageError(
                "{} queries attend to {} keys; give {source_tokens} of cross-attention, or of a "
                "cache, memory or prefix the tokens of all keys", queries, keys, source_tokens=...,
            )  # fmt: skip
        tokens = joined(unspoken(prefix(earlier)), tokens)
    elif len(tokens) != keys:
        return tokens, read, ()
    maps = tuple(np.pad(layer, ((0, 0), (earlier, 0), (0, 0))) for layer in layers.maps)
    return tokens, {stated: replace(layers, maps=maps)}, (earlier_keys(earlier),)


def earlier_keys(count: int) -> str:
    """Say of keys before the first query's own that they ask nothing."""
    first = f"first {count} keys are" if count > 1 else "first key is"
    have = "they have no queries" if count > 1 else "it has no query"
    return f"The {first} of a cache, memory or prefix: {have} here."


def prefix(count: int) -> tuple[str, ...]:
    """Name keys that stand before those of the queries."""
    return tuple(f"prefix {n}" for n in range(count))


def unspoken(texts: tuple[str, ...]) -> Tokens:
    """Tokens that are no part of a text."""
    return Tokens(texts, special=(True,) * len(texts), words=(-1,) * len(texts))


def joined(first: Tokens, second: Tokens) -> Tokens:
    """Two token sequences as one, ids and places left out."""
    words = max(first.words, default=-1) + 1
    return Tokens(
        first.texts + second.texts,
        special=first.special + second.special,
        separators=first.separators + second.separators,
        words=first.words + tuple(n if n < 0 else n + words for n in second.words),
        segments=first.segments + second.segments,
        written=second.written,
    )


def _real(
    tokens: Tokens,
    source_tokens: Tokens | None,
    read: Mapping[SiteKind | None, Layers],
    options: ArrayOptions,
) -> tuple[Bool, Bool]:
    """Which positions of both sequences are no padding, bool [T] and [S]."""
    several = len(read) > 1
    cross = read["cross"].maps if "cross" in read else ()
    encoder = read["encoder"].maps if several and "encoder" in read else ()
    self_maps = next(
        (n.maps for k, n in read.items() if k != "cross" and not (several and k == "encoder")), ()
    )
    length = (self_maps or cross)[0].shape[1]
    mask = options.decoder_attention_mask
    if source_tokens is None:
        mask = options.attention_mask if mask is None else mask
    if mask is not None:
        real = validator.real_positions(_lengthened(mask, read, length), length, options.item)
        if self_maps:
            validator.check_real(self_maps, real, real, "decoder" if cross else "")
    else:
        real = validator.find_padding(
            tokens, self_maps, pad=options.pad, start=bool(cross) or "decoder" in read
        )
    if source_tokens is None:
        return real, real
    keys = (encoder or cross or self_maps)[0].shape[2]
    if options.attention_mask is not None:
        source = validator.real_positions(options.attention_mask, keys, options.item)
        validator.check_real(encoder, source, source, "encoder")
        validator.check_real(cross, source, real, "cross")
    else:
        maps = encoder or cross
        source = validator.find_padding(source_tokens, maps, pad=options.pad, crossed=not encoder)
    return real, source


def _lengthened(mask: Any, read: Mapping[SiteKind | None, Layers], length: int) -> Any:
    """Return an attention mask of a prompt as one of the text that was generated from it."""
    array = on_host(mask)
    prompt = next((n.prompt for n in read.values() if n.prompt is not None), None)
    if prompt is None or not array.ndim or array.shape[-1] not in (prompt, length + 1):
        return array
    extension = np.ones((*array.shape[:-1], max(0, length - array.shape[-1])), array.dtype)
    return np.concatenate([array, extension], -1)[..., :length]


def _allowed(
    options: ArrayOptions, kind: SiteKind, several: bool, layer: int, shape: tuple[int, ...]
) -> Bool | None:
    """Return the mask that is given for a layer, bool [H or 1, T, S]; None where none is."""
    mask = options.mask
    if isinstance(mask, Mapping):
        mask = mask.get(kind)
    elif mask is not None and several:
        raise UsageError(
            "{mask} is of one kind of layers, and there are several; give a mapping of kinds",
            mask=...,
        )
    if isinstance(mask, list | tuple):
        if layer >= len(mask):
            raise UsageError("{mask} is a list of {}, too few for the layers", len(mask), mask=...)
        mask = mask[layer]
    if mask is None:
        return None
    heads, queries, keys = shape
    return validator.read_mask(mask, (heads, queries, keys), options.item, f"{kind} layer {layer}")


def _check(layer: Array, part: Part, sides: Sides, low: bool, sinks: bool) -> None:
    """Raise InputError unless a layer fits the tokens and its rows are distributions."""
    refuse(length_problems(part, layer.shape, sides))
    refuse(weight_problems(layer, part, None))
    refuse(sum_problems(layer, part, HALF_TOLERANCE if low else SUM_TOLERANCE, sink=sinks))


def sides_of(
    sizes: Mapping[SiteKind, tuple[int, int]],
    extra: Mapping[SiteKind, tuple[str, ...]],
    earlier: Mapping[SiteKind, int],
    learned: set[SiteKind],
    tokens: Tokens | None,
    source: Tokens | None,
) -> dict[SiteKind, Sides]:
    """Return the tokens on both axes of every kind; numbers where nobody names them."""
    crosses = "cross" in sizes
    longest = max(earlier.values())
    if source is not None and not crosses and longest:  # the names of all keys
        if tokens is not None and len(source) == longest:
            tokens = joined(source, tokens)
        elif tokens is None or len(tokens) + longest != len(source):
            tokens = source
        else:
            tokens = joined(without_padding(source, np.arange(len(source)) < longest), tokens)
        source = None
    if source is not None and not crosses:
        raise UsageError("only one sequence was attended to; leave out {source_tokens}",
                         source_tokens=...)  # fmt: skip
    sides: dict[SiteKind, Sides] = {}
    for kind, (queries, keys) in sizes.items():
        row_tokens = source if kind == "encoder" and len(sizes) > 1 else tokens
        key_tokens = source if kind == "cross" else row_tokens
        if kind == "cross" and row_tokens is not None and len(row_tokens) == queries + longest:
            row_tokens = without_padding(row_tokens, np.arange(len(row_tokens)) >= longest)
        named = "query " if kind in learned else ""
        rows = _fitting(row_tokens, queries, kind, "query", (), earlier[kind], named)
        columns = rows
        if kind == "cross" or extra[kind]:
            columns = _fitting(key_tokens, keys, kind, "key", extra[kind], earlier[kind])
        sides[kind] = Sides(rows, columns)
    return sides


def _fitting(
    tokens: Tokens | None,
    count: int,
    kind: str,
    side: str,
    extra: tuple[str, ...],
    earlier: int,
    named: str = "",
) -> Tokens:
    """Fit tokens to positions, extra keys and those of a prefix among them; numbers for none."""
    length = count - len(extra)
    if tokens is None:
        tokens = Tokens(tuple(f"{named}{n}" for n in range(length - earlier)))
    if earlier and len(tokens) == length - earlier:
        tokens = joined(unspoken(prefix(earlier)), tokens)
    if len(tokens) != length:
        raise InputError(
            "the {} layers have {} {} positions, and there are {} tokens; they must agree",
            kind,
            length,
            side,
            len(tokens),
        )
    return joined(tokens, unspoken(extra)) if extra else tokens
