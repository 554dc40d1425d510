"""From the fields of a file of recorded attention to a capture."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from attnviz.attention.sizes import MAX_LAYERS
from attnviz.core.capture import Capture
from attnviz.core.heads import Layout, Mean, Site, SiteKind
from attnviz.core.key_mask import KeyMask
from attnviz.core.own_names import called
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo
from attnviz.core.quantities import QUANTITIES
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import InputError, UsageError, cut
from attnviz.models import media_layout, recorded_masks
from attnviz.models.external_errors import one_line
from attnviz.models.recorded.checks import check_sums, distributions, slack
from attnviz.models.recorded.fields import BY_KIND, PLAIN, Array, meta_of, read_fields
from attnviz.models.recorded.tokens import span_of, tokens_of, with_output, with_spans

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
    return _capture(path, read_fields(path), item)


def load_all(path: Path) -> Iterator[Capture | InputError]:
    """Read every item of recorded attention, one at a time.

    Args:
        path: a .npz (without pickles) or .safetensors file.

    Yields:
        Items, and in place of one that cannot be read what is wrong with it, as :func:`load` says.
    """
    try:
        fields = read_fields(path)
    except InputError as error:
        yield error
        return
    batches = [fields[name] for name in (*PLAIN, *BY_KIND) if name in fields]
    items = batches[0].shape[1] if batches and batches[0].ndim == 5 else 1
    for item in range(items):
        try:
            yield _capture(path, dict(fields), item)
        except InputError as error:
            yield error


def _capture(path: Path, fields: dict[str, Any], item: int | None) -> Capture:
    present: dict[str, SiteKind | None] = {n: k for n, k in BY_KIND.items() if n in fields}
    present |= dict.fromkeys([n for n in PLAIN if n in fields][:1])
    for name in present:
        fields[name] = _one_item(path, name, fields[name], item)
    for name in ("tokens", "source_tokens"):
        if name in fields and fields[name].ndim == 2 and len(fields[name]) <= (item or 0):
            raise InputError(
                f"{path}: {name} has {len(fields[name])} rows, too few for item {item or 0}"
            )
    queries = tokens_of(path, fields, "", item)
    source = tokens_of(path, fields, "source_", item)
    if queries is None:
        raise InputError(f"{path} has no 'tokens'; store the text of each token beside the maps")
    meta = meta_of(fields)
    queries = with_output(queries, meta)
    if source is None:
        keys = queries = with_spans(path, queries, meta)
    else:
        keys = with_spans(path, source, meta)
    rows = span_of(fields["tokens"], item)
    columns = span_of(fields["source_tokens"], item) if "source_tokens" in fields else rows
    known = QUANTITIES.get(str(meta.get("quantity", "weights")))
    signed = known is not None and known.signed
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
        array = distributions(path, name, array, sides[kind], signed=signed)
        layers = _layers(path, meta, kind, len(array))
        count = array.shape[1]
        heads[kind] = tuple(count if n in layers else 0 for n in range(layers[-1] + 1))
        maps |= {Site(kind, layer): weights for layer, weights in zip(layers, array, strict=True)}
    reach: dict[Site, KeyMask] = {}
    if "reach" in meta:
        try:
            bits, ranks = fields.get(recorded_masks.BITS), known is not None and known.ranks
            reach = recorded_masks.unpack(meta["reach"], bits, maps, ranks=ranks)
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
            check_sums(path, site, weights, slack(meta, weights.shape[-1]), sink=sink)
    empty = sum(int((~m.any(-1)).any(0).sum()) for m in maps.values())
    mean: Any = meta.get("mean") if meta.get("mean") in get_args(Mean) else ""
    layout = Layout(heads, whole=meta.get("whole") is True, mean=mean)
    inputs = _placed(path, Inputs(sides), fields, meta, (queries, keys))
    return Capture(_info(path, meta), layout, inputs, maps, empty, reach, what)


def _placed(
    path: Path, inputs: Inputs, fields: Mapping[str, Any], meta: Any, sides: tuple[Tokens, Tokens]
) -> Inputs:
    """The same with the places of its tokens, and the picture or sound in which they are."""
    try:
        queries, keys = (
            replace(tokens, places=media_layout.places(fields.get(f"{prefix}places"), len(tokens)))
            for prefix, tokens in zip(("", "source_"), sides, strict=True)
        )
        if sides[0] is sides[1]:
            keys = queries
        named = {id(sides[1]): keys, id(sides[0]): queries}
        listed = (*queries.places, *keys.places)
        return replace(
            inputs,
            sides={
                kind: Sides(named[id(sides.queries)], named[id(sides.keys)])
                for kind, sides in inputs.sides.items()
            },
            picture=media_layout.picture(fields.get("picture"), meta.get("picture"), listed),
            sound=media_layout.sound(fields.get("sound"), meta.get("sound")),
        )
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise InputError(
            f"{path}: where its tokens stand cannot be read ({one_line(error)}); record it again"
        ) from None


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


def _layers(path: Path, meta: dict[str, Any], kind: SiteKind, count: int) -> Sequence[int]:
    """The numbers of the layers whose maps a file holds: as it says, or one after the other."""
    named = meta.get("layers")
    listed = named.get(kind) if isinstance(named, dict) else None
    if listed is None:
        return range(count)
    if (
        not isinstance(listed, list)
        or len(listed) != count
        or any(type(layer) is not int or not 0 <= layer < MAX_LAYERS for layer in listed)
        or any(a >= b for a, b in itertools.pairwise(listed))
    ):
        raise InputError(
            f"{path}: its meta must list the numbers of its {count} {kind} layers, rising from 0, "
            f"not {cut(str(listed))}"
        )
    return listed


def _kind(array: Array, cross: bool, meta: dict[str, Any]) -> SiteKind:
    """The kind of a file's only maps: as it says, or cross, or causal like a decoder's, or not."""
    kinds = meta.get("kinds")
    if isinstance(kinds, list) and len(kinds) == 1 and kinds[0] in BY_KIND.values():
        return kinds[0]  # type: ignore[no-any-return]
    if cross:
        return "cross"
    return "encoder" if np.triu(array, 1).any() or array.shape[-1] == 1 else "decoder"


def _cut(array: Array, rows: slice, keys: slice) -> Array:
    """Leave out the padding of a batch's item; keys that got weight are no padding and stay."""
    array = array[:, :, rows]
    outside = np.ones(array.shape[-1], np.bool_)
    outside[keys] = False
    return array if array[..., outside].any() else array[..., keys]
