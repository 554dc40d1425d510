"""Attention recorded elsewhere, and ours on its way out: ``.npz`` and ``.safetensors``.

A file holds ``attentions`` [L, H, T, S], or [L, B, H, T, S] for a batch, and ``tokens`` [T] (or
[B, T]); ``source_tokens`` [S] make it cross-attention. An encoder-decoder model's file holds
``encoder_attentions``, ``decoder_attentions`` and ``cross_attentions`` instead. In safetensors,
which has no strings, the tokens are JSON in the metadata. What attnviz writes also has the token
flags, which keys were allowed and, under ``meta``, where the weights came from. docs/models.md has
the whole table.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from attnviz.core.capture import Capture
from attnviz.core.heads import Layout, Site, SiteKind
from attnviz.core.key_mask import Reach
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo, called
from attnviz.core.quantities import QUANTITIES
from attnviz.core.spans import Span, check_apart
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import InputError, UsageError
from attnviz.models import placed, reaches
from attnviz.models.containers import list_arrays, one_line, read_arrays

SCHEMA = "attnviz.capture/1"
SUFFIXES = (".npz", ".safetensors")
SUM_TOLERANCE = 1e-3
MOST_ROUNDED = 4e-3
"""A weight of 1 in 8 bits is off by at most this."""
MOST_ROUNDED_SUM = 0.1
"""No row is farther from its sum than this, however many rounded weights it has."""

_PLAIN = ("attentions", "attn")
_BY_KIND: Mapping[str, SiteKind] = {
    "encoder_attentions": "encoder",
    "decoder_attentions": "decoder",
    "cross_attentions": "cross",
}
_FLAGS = ("ids", "special", "separators", "words", "segments")
_ENDS = {"[SEP]", "</s>"}
_MARKS = {"[CLS]", "[SEP]", "[PAD]", "<s>", "</s>", "<pad>", "<|endoftext|>", "<bos>", "<eos>"}

Array = NDArray[Any]

_LONGEST = 200
"""Characters of a model's name, or of anything else that a file says of itself."""
_MOST_VERSIONS = 20


def load(path: Path, item: int | None = None) -> Capture:
    """Read recorded attention.

    Args:
        path: a .npz (without pickles) or .safetensors file.
        item: which item of a batch; needed when there are several.

    Raises:
        InputError: unreadable, hostile or inconsistent contents: the message says which.
        UsageError: an item that is not there, or none chosen.
    """
    return _capture(path, _fields(path), item)


def load_all(path: Path) -> Iterator[Capture | InputError]:
    """Read every item of recorded attention, one at a time.

    Args:
        path: a .npz (without pickles) or .safetensors file.

    Yields:
        Items, and in place of one that cannot be read what is wrong with it, as :func:`load` says.
    """
    try:
        fields = _fields(path)
    except InputError as error:
        yield error
        return
    batches = [fields[name] for name in (*_PLAIN, *_BY_KIND) if name in fields]
    items = batches[0].shape[1] if batches and batches[0].ndim == 5 else 1
    for item in range(items):
        try:
            yield _capture(path, dict(fields), item)
        except InputError as error:
            yield error


def _fields(path: Path) -> dict[str, Array]:
    if path.suffix not in SUFFIXES:
        raise InputError(f"cannot read {path}: recorded attention is .npz or .safetensors")
    fields = read_arrays(path, _names())
    if not fields.keys() & {*_PLAIN, *_BY_KIND}:
        there = ", ".join(list_arrays(path))[:300] or "nothing"
        raise InputError(
            f"{path} has no array 'attentions' [layers, heads, queries, keys]; it has {there}: "
            f"rename the one with the weights"
        )
    return dict(fields)


def dump(capture: Capture, suffix: str) -> bytes:
    """The bytes of a file that :func:`load` reads.

    Args:
        capture: maps of every layer.
        suffix: ``.npz`` or ``.safetensors``.

    Raises:
        UsageError: an unknown suffix, layers that were left out, or layers whose numbers of heads
            differ.
    """
    if suffix not in SUFFIXES:
        raise UsageError(f"cannot write attention as {suffix or 'a file without suffix'!r}; "
                         f"name the file .npz or .safetensors")  # fmt: skip
    arrays: dict[str, Array] = {}
    kinds = capture.layout.kinds
    for kind in kinds:
        maps = [capture.maps.get(site) for site in capture.layout.sites if site.kind == kind]
        shapes = {None if m is None else m.shape for m in maps}
        if None in shapes or len(shapes) > 1 or capture.kept:
            raise UsageError("a capture file needs every head, as many in one layer as in another")
        name = "attentions" if len(kinds) == 1 else f"{kind}_attentions"
        arrays[name] = np.stack([m for m in maps if m is not None])
    sides = capture.inputs.sides[kinds[-1]]  # cross where there is one: it has both sequences
    lists = _token_lists("", sides.queries)
    if kinds[-1] == "cross":
        lists |= _token_lists("source_", sides.keys)
    meta = {"schema": SCHEMA, **asdict(capture.source), "kinds": list(kinds)}
    meta["reach"], bits = reaches.pack(capture)
    if len(bits):
        arrays[reaches.BITS] = bits
    meta["written"] = sides.queries.written
    if spans := capture.inputs.sides[
        kinds[0]
    ].keys.spans:  # of the text, not of what a decoder says
        meta["spans"] = [asdict(span) for span in spans]
    meta["versions"] = dict(capture.source.versions)
    meta |= {"quantity": capture.quantity, "whole": capture.layout.whole}
    named = {"": sides.queries} | ({"source_": sides.keys} if kinds[-1] == "cross" else {})
    beside, said = placed.pack(capture.inputs, named)
    arrays |= beside
    meta |= said
    if suffix == ".npz":
        out = io.BytesIO()
        texts = {name: np.array(values) for name, values in lists.items()}
        everything: dict[str, Any] = {**arrays, **texts, "meta": np.array(json.dumps(meta))}
        np.savez_compressed(out, **everything)
        return out.getvalue()
    from safetensors.numpy import save

    metadata = {name: json.dumps(values) for name, values in lists.items()}
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return save(contiguous, metadata={**metadata, "meta": json.dumps(meta)})


def _token_lists(prefix: str, tokens: Tokens) -> dict[str, list[Any]]:
    lists = {f"{prefix}tokens": list(tokens.texts)}
    return lists | {
        prefix + flag: list(getattr(tokens, flag)) for flag in _FLAGS if getattr(tokens, flag)
    }


def _names() -> set[str]:
    flags = {prefix + flag for prefix in ("", "source_") for flag in ("tokens", *_FLAGS)}
    return {*_PLAIN, *_BY_KIND, *flags, *placed.FIELDS, reaches.BITS, "meta"}


def _capture(path: Path, fields: dict[str, Any], item: int | None) -> Capture:
    present: dict[str, SiteKind | None] = {n: k for n, k in _BY_KIND.items() if n in fields}
    present |= dict.fromkeys([n for n in _PLAIN if n in fields][:1])
    for name in present:
        fields[name] = _one_item(path, name, fields[name], item)
    for name in ("tokens", "source_tokens"):
        if name in fields and fields[name].ndim == 2 and len(fields[name]) <= (item or 0):
            raise InputError(
                f"{path}: {name} has {len(fields[name])} rows, too few for item {item or 0}"
            )
    queries = _tokens(path, fields, "", item)
    source = _tokens(path, fields, "source_", item)
    if queries is None:
        raise InputError(f"{path} has no 'tokens'; store the text of each token beside the maps")
    meta = _meta(fields)
    queries = _with_output(queries, meta)
    if source is None:
        keys = queries = _with_spans(path, queries, meta)
    else:
        keys = _with_spans(path, source, meta)
    rows = _span(fields["tokens"], item)
    columns = _span(fields["source_tokens"], item) if "source_tokens" in fields else rows
    maps: dict[Site, Array] = {}
    heads: dict[SiteKind, tuple[int, ...]] = {}
    sides: dict[SiteKind, Sides] = {}
    for name, named in present.items():
        kind = named or _kind(fields[name], "source_tokens" in fields, meta)
        sides[kind] = {
            "encoder": Sides(keys, keys) if named else Sides(queries, queries),
            "decoder": Sides(queries, queries),
            "cross": Sides(queries, keys),
        }[kind]
        spans = {"encoder": (columns, columns) if named else (rows, rows), "decoder": (rows, rows)}
        array = _cut(fields[name], *spans.get(kind, (rows, columns)))
        array = _distributions(path, name, array, sides[kind])
        heads[kind] = (array.shape[1],) * array.shape[0]
        maps |= {Site(kind, layer): array[layer] for layer in range(array.shape[0])}
    reach: dict[Site, Reach] = {}
    if "reach" in meta:
        try:
            reach = reaches.unpack(meta["reach"], fields.get(reaches.BITS), maps)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise InputError(
                f"{path}: what it says of allowed keys does not fit its maps ({one_line(error)}); "
                "record it again"
            ) from None
    what = meta.get("quantity", "weights")
    if what not in QUANTITIES:
        raise InputError(
            f"{path} holds {str(what)[:40]!r}, which is none of {', '.join(QUANTITIES)}"
        )
    if what == "weights":
        for site, weights in maps.items():
            sink = site in reach and reach[site].sink
            _check_sums(path, site, weights, _slack(meta, weights.shape[-1]), sink=sink)
    empty = sum(int((~m.any(-1)).any(0).sum()) for m in maps.values())
    layout = Layout(heads, whole=meta.get("whole") is True)
    inputs = _placed(path, Inputs(sides), fields, meta, (queries, keys))
    return Capture(_info(path, meta), layout, inputs, maps, empty, reach, what)


def _placed(
    path: Path, inputs: Inputs, fields: Mapping[str, Any], meta: Any, found: tuple[Tokens, Tokens]
) -> Inputs:
    """The same with the places of its tokens, and the picture or sound in which they are."""
    try:
        queries, keys = (
            replace(one, places=placed.places(fields.get(f"{prefix}places"), len(one)))
            for prefix, one in zip(("", "source_"), found, strict=True)
        )
        if found[0] is found[1]:
            keys = queries
        named = {id(found[1]): keys, id(found[0]): queries}
        listed = (*queries.places, *keys.places)
        return replace(
            inputs,
            sides={
                kind: Sides(named[id(sides.queries)], named[id(sides.keys)])
                for kind, sides in inputs.sides.items()
            },
            picture=placed.picture(fields.get("picture"), meta.get("picture"), listed),
            sound=placed.sound(fields.get("sound"), meta.get("sound")),
        )
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise InputError(
            f"{path}: where its tokens stand cannot be read ({one_line(error)}); record it again"
        ) from None


def _with_output(tokens: Tokens, meta: dict[str, Any]) -> Tokens:
    """The tokens, the last of them marked as written by the model where the file says so."""
    written = meta.get("written")
    if isinstance(written, bool) or not isinstance(written, int):
        return tokens
    return replace(tokens, written=min(max(written, 0), len(tokens)))


def _with_spans(path: Path, tokens: Tokens, meta: dict[str, Any]) -> Tokens:
    """The tokens with the named parts that the file says they have."""
    if "spans" not in meta:
        return tokens
    try:
        spans = msgspec.convert(meta["spans"], tuple[Span, ...])
        check_apart(spans)
        return replace(tokens, spans=spans)
    except (msgspec.ValidationError, ValueError, InputError) as error:
        raise InputError(f"{path}: its spans: {one_line(error)}; record it again") from None


def _meta(fields: dict[str, Any]) -> dict[str, Any]:
    try:
        meta = json.loads(str(fields["meta"]))
    except (KeyError, ValueError, RecursionError):
        return {}
    return meta if isinstance(meta, dict) else {}


def _info(path: Path, meta: dict[str, Any]) -> SourceInfo:
    """Who made the weights, as the file says; never more than text, and never a long one."""
    origin = SourceInfo(model=path.name, backend="recorded", exactness="as recorded")
    if not isinstance(meta.get("model"), str):
        return origin
    made, exactness = meta.get("backend") or meta.get("road", ""), meta.get("exactness", "")
    how = f"{_short(made)}: {_short(exactness)}".strip(": ")
    versions = meta.get("versions")
    known = list(versions.items()) if isinstance(versions, dict) else []
    return replace(
        origin,
        model=f"{called(_short(meta['model']))} ({path.name})",
        exactness=f"as recorded ({how})" if how else "as recorded",
        device=_short(meta.get("device", "")),
        dtype=_short(meta.get("dtype", "")),
        versions={_short(name): _short(version) for name, version in known[:_MOST_VERSIONS]},
    )


def _short(value: object) -> str:
    """What a file says of itself, as far as anybody reads it."""
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _one_item(path: Path, name: str, array: Array, item: int | None) -> Array:
    if array.dtype.kind != "f":
        raise InputError(f"{path}: {name} holds {array.dtype}, not floating-point weights")
    if array.ndim == 4:
        if item not in (None, 0):
            raise UsageError(
                "{} holds one item, not {}; leave out {item}", path, item + 1, item=...
            )
        return array
    if array.ndim != 5:
        raise InputError(
            f"{path}: {name} has shape {array.shape}; it must be [layers, heads, queries, keys] "
            "or [layers, batch, heads, queries, keys]"
        )
    count = array.shape[1]
    if item is None and count > 1:
        raise UsageError(
            "{} holds {} items; choose one with {item} from 0 to {}",
            path,
            count,
            count - 1,
            item=...,
        )
    if not 0 <= (item or 0) < count:
        raise UsageError(f"{path} has no item {item}; it holds {count}, from 0")
    return array[:, item or 0]


def _kind(array: Array, cross: bool, meta: dict[str, Any]) -> SiteKind:
    """The kind of a file's only maps: as it says, or cross, or causal like a decoder's, or not."""
    kinds = meta.get("kinds")
    if isinstance(kinds, list) and len(kinds) == 1 and kinds[0] in _BY_KIND.values():
        return kinds[0]  # type: ignore[no-any-return]
    if cross:
        return "cross"
    return "encoder" if np.triu(array, 1).any() or array.shape[-1] == 1 else "decoder"


def _tokens(path: Path, fields: dict[str, Any], prefix: str, item: int | None) -> Tokens | None:
    texts = fields.get(f"{prefix}tokens")
    if texts is None:
        return None
    if texts.dtype.kind != "U":
        raise InputError(f"{path}: {prefix}tokens holds {texts.dtype}, not text")
    flags = {flag: fields[prefix + flag] for flag in _FLAGS if prefix + flag in fields}
    if texts.ndim == 2:
        short = [prefix + flag for flag, v in flags.items() if v.shape[:2] != texts.shape]
        if short:
            raise InputError(f"{path}: {short[0]} has another shape than {prefix}tokens")
        span = _span(texts, item)
        texts = texts[item or 0, span]
        flags = {flag: values[item or 0, span] for flag, values in flags.items()}
    if texts.ndim != 1 or not len(texts):
        raise InputError(f"{path}: {prefix}tokens has shape {texts.shape}; it must be one row")
    listed = tuple(str(text) for text in texts)
    for flag, found in flags.items():
        if found.dtype.kind not in "biu":
            raise InputError(f"{path}: {prefix}{flag} holds {found.dtype}, not whole numbers")
    try:
        if flags:
            as_type = {"special": bool, "separators": bool}
            values: dict[str, Any] = {
                f: tuple(as_type.get(f, int)(x) for x in v) for f, v in flags.items()
            }
            return Tokens(listed, **values)
        return marked(listed)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{path}: {one_line(error)}; record it again") from None


def marked(texts: tuple[str, ...]) -> Tokens:
    """Tokens of which only the texts are known: those that are a model's own marks are special."""
    special = tuple(text in _MARKS for text in texts)
    return Tokens(texts, special=special, separators=tuple(text in _ENDS for text in texts))


def _span(texts: Array, item: int | None) -> slice:
    """Where an item's tokens stand in a batch: from the first to the last that is not empty."""
    if texts.ndim != 2:
        return slice(None)
    (real,) = np.nonzero(texts[item or 0] != "")
    return slice(int(real[0]), int(real[-1]) + 1) if len(real) else slice(0, 0)


def _distributions(path: Path, name: str, array: Array, sides: Sides) -> Array:
    """[L, H, T, S] in float32 or float64, finite and not negative."""
    array = array.astype(np.float64 if array.dtype.itemsize == 8 else np.float32)
    if 0 in array.shape:
        raise InputError(f"{path}: {name} has shape {array.shape}, which holds no weights")
    for axis, what, count in ((2, "query", len(sides.queries)), (3, "key", len(sides.keys))):
        if array.shape[axis] != count:
            raise InputError(
                f"{path}: {name} has {array.shape[axis]} {what} positions but there are {count} "
                "tokens; they must agree"
            )
    if not np.isfinite(array).all():
        raise InputError(f"{path}: {name} has NaN or infinite weights; record it again")
    if (array < 0).any():
        raise InputError(
            f"{path}: {name} has negative weights (lowest {array.min():.4g}); "
            "store them after softmax"
        )
    return array


def _slack(meta: Mapping[str, Any], keys: int) -> float:
    """How far a row may be from its sum: more where a file says how far its weights are rounded.

    Weights that a page saved are off by at most the ``error`` that it declares.
    """
    error = meta.get("error")
    if type(error) is not float or not 0 <= error <= MOST_ROUNDED:
        return SUM_TOLERANCE
    return SUM_TOLERANCE + min(error * keys, MOST_ROUNDED_SUM)


def _check_sums(path: Path, site: Site, weights: Array, slack: float, *, sink: bool) -> None:
    """Every row of [H, T, S] sums to 1, or to 0 where masked, or to less with a learned sink."""
    sums = weights.sum(-1, dtype=np.float64)
    wrong = (abs(sums - 1) > slack) & weights.any(-1)
    if sink:
        wrong = sums > 1 + slack
    if wrong.any():
        head, row = np.argwhere(wrong)[0]
        raise InputError(
            f"{path}: row {row} of head {site.layer}.{head} of the {site.kind} sums to "
            f"{sums[head, row]:.4g}, not 1 (or 0 where masked); store weights after softmax"
        )


def _cut(array: Array, rows: slice, keys: slice) -> Array:
    """Leave out the padding of a batch's item; keys that got weight are no padding and stay."""
    array = array[:, :, rows]
    outside = np.ones(array.shape[-1], np.bool_)
    outside[keys] = False
    return array if array[..., outside].any() else array[..., keys]
