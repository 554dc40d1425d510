"""The format of recorded attention: its fields as arrays of a file, and as one JSON document.

Beside the maps stands one entry for each set of layers that share a mask: causal or not, a window,
a learned sink, and, where these do not say it all, the allowed keys as packed bits. After them come
the keys that an indexer did not select, where one selects.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from msgspec import convert
from numpy.typing import NDArray

from attnviz.core.capture import Capture, KeyMask
from attnviz.core.heads import SITE_KINDS, Site, SiteKind
from attnviz.core.media import Crop, Picture, Place, Sound
from attnviz.core.prompt import Inputs
from attnviz.core.record import Record, parsed
from attnviz.core.tokens import Tokens
from attnviz.errors import InputError, UsageError, system_errors
from attnviz.files import contents
from attnviz.models.containers import list_arrays, read_arrays

SCHEMA = "attnviz.capture/1"
SUFFIXES = (".npz", ".safetensors")
"""Of files that attnviz writes."""
JSON = ".json"
"""Of a file of the same fields that any program can write."""

PLAIN = ("attentions", "attn")
BY_KIND: Mapping[str, SiteKind] = {
    "encoder_attentions": "encoder",
    "decoder_attentions": "decoder",
    "cross_attentions": "cross",
}
FLAGS = ("ids", "special", "separators", "words", "segments")
"""What a file may say of each token, beside its text."""
REAL = "attention_mask"
"""1 for each token, 0 for padding, as models take it; ``source_attention_mask`` of the others."""
MEDIA = ("places", "source_places", "picture", "sound")
"""Where tokens stand, and in what."""
BITS = "reach_bits"
"""The packed bits of the allowed keys of all layers that have some, one after the other."""

Array = NDArray[Any]


def read_fields(path: Path, document: Any = None) -> dict[str, Array]:
    """Return the fields of a file that the format knows, as arrays; ``document``: of JSON."""
    if path.suffix.lower() == JSON:
        return _document_fields(read_document(path) if document is None else document, path)
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"cannot read {path}: recorded attention is .npz or .safetensors")
    fields = read_arrays(path, names())
    if not fields.keys() & {*PLAIN, *BY_KIND}:
        present = ", ".join(list_arrays(path))[:300] or "nothing"
        raise InputError(
            f"{path} has no array 'attentions' [layers, heads, queries, keys]; it has {present}: "
            f"rename the one with the weights"
        )
    return dict(fields)


def names() -> set[str]:
    """Every field that the format knows."""
    flags = {prefix + flag for prefix in ("", "source_") for flag in ("tokens", REAL, *FLAGS)}
    return {*PLAIN, *BY_KIND, *flags, *MEDIA, BITS, "meta"}


def meta_of(fields: dict[str, Any]) -> dict[str, Any]:
    """Return what a file says of itself; empty where that is no JSON object."""
    try:
        meta = json.loads(str(fields["meta"]))
    except (KeyError, ValueError, RecursionError):
        return {}
    return meta if isinstance(meta, dict) else {}


Maps = tuple[tuple[tuple[tuple[float, ...], ...], ...], ...]
"""[layers, heads, queries, keys] as nested lists."""

LARGEST = 1 << 30
"""Bytes of a document that is read."""


@dataclass(frozen=True, kw_only=True)
class Recording(Record):
    """Attention that some program recorded, of one text.

    Either ``attentions`` is there, of one stack of layers, or those of ``encoder_attentions``,
    ``decoder_attentions`` and ``cross_attentions`` that the model has. Weights are after softmax:
    every row of keys sums to 1, or to 0 where it is masked, within 0.001.

    Attributes:
        tokens: the text of each query token; of the decoder where there are two sequences.
        attentions: [layers, heads, queries, keys].
        encoder_attentions: the same of an encoder-decoder model's encoder.
        decoder_attentions: the same of its decoder, on itself.
        cross_attentions: the same from its decoder to its encoder.
        source_tokens: the text of each key token, for cross-attention.
        ids: vocabulary ids of the tokens; ``source_ids`` of the others, as for the next ones.
        special: which tokens the tokenizer added, such as [CLS].
        separators: which tokens end a segment, such as [SEP].
        words: the number of the word of each token, from 0; -1 for special tokens.
        segments: BERT's segment numbers.
        attention_mask: 1 for each token, 0 for padding, which is left out.
        source_attention_mask: the same of ``source_tokens``.
        source_ids: see ``ids``.
        source_special: see ``special``.
        source_separators: see ``separators``.
        source_words: see ``words``.
        source_segments: see ``segments``.
        meta: what is known of the model: ``model``, ``backend``, ``exactness``, ``device``,
            ``dtype``, ``versions``, ``quantity`` (weights), ``kinds``, ``layers`` (their numbers by
            kind, where some have no attention), ``written`` (how many of the last tokens the model
            wrote), ``spans``, ``reach``.
    """

    schema: ClassVar[str] = "attnviz.capture/1"
    command: ClassVar[str] = "capture"

    tokens: tuple[str, ...]
    attentions: Maps | None = None
    encoder_attentions: Maps | None = None
    decoder_attentions: Maps | None = None
    cross_attentions: Maps | None = None
    source_tokens: tuple[str, ...] | None = None
    ids: tuple[int, ...] | None = None
    special: tuple[bool, ...] | None = None
    separators: tuple[bool, ...] | None = None
    words: tuple[int, ...] | None = None
    segments: tuple[int, ...] | None = None
    attention_mask: tuple[int, ...] | None = None
    source_attention_mask: tuple[int, ...] | None = None
    source_ids: tuple[int, ...] | None = None
    source_special: tuple[bool, ...] | None = None
    source_separators: tuple[bool, ...] | None = None
    source_words: tuple[int, ...] | None = None
    source_segments: tuple[int, ...] | None = None
    meta: dict[str, Any] | None = None


def read_document(path: Path) -> Any:
    """Return a file as JSON, also with NaN in it; InputError where it is none."""
    with system_errors(InputError, f"cannot read {path}"):
        text = contents(path, LARGEST)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return parsed(text, path.name)  # which says what is wrong


def is_recording(document: Any) -> bool:
    """Whether JSON says that it is a recording."""
    return isinstance(document, dict) and document.get("schema") == Recording.schema


def _document_fields(document: Any, path: Path) -> dict[str, Array]:
    """Return a recording in JSON as the arrays of a ``.npz`` file; InputError for another document.

    Also for a damaged one, and one whose lists are of unequal length.
    """
    recording = Recording.from_dict(document, str(path))
    arrays: dict[str, Array] = {}
    for field in fields(recording):
        value = getattr(recording, field.name)
        if value is None:
            continue
        if field.name == "meta":
            arrays["meta"] = np.array(json.dumps(value))
            continue
        maps = field.name.endswith("attentions")
        try:
            arrays[field.name] = np.array(value, np.float64 if maps else None)
        except ValueError:
            raise InputError(
                f"{path}: {field.name} has rows of unequal length; it must be [layers, heads, "
                "queries, keys]"
            ) from None
    if not any(name.endswith("attentions") for name in arrays):
        raise InputError(f"{path} has no 'attentions' [layers, heads, queries, keys]; add them")
    return arrays


def dump(capture: Capture, suffix: str) -> bytes:
    """Return the bytes of a file that :func:`load` reads."""
    if suffix not in SUFFIXES:
        raise UsageError(f"cannot write attention as {suffix or 'a file without suffix'!r}; "
                         f"name the file .npz or .safetensors")  # fmt: skip
    arrays: dict[str, Array] = {}
    layout = capture.layout
    kinds = layout.kinds
    gaps: dict[str, list[int]] = {}
    for kind in kinds:
        layers = [layer for layer, heads in enumerate(layout.heads[kind]) if heads]
        maps = [capture.maps.get(Site(kind, layer)) for layer in layers]
        shapes = {None if m is None else m.shape for m in maps}
        if None in shapes or len(shapes) > 1 or capture.kept:
            raise UsageError("a capture file needs every head, as many in one layer as in another")
        name = "attentions" if len(kinds) == 1 else f"{kind}_attentions"
        arrays[name] = np.stack([m for m in maps if m is not None])
        if len(layers) < layout.layers(kind):
            gaps[kind] = layers
    sides = capture.inputs.sides[kinds[-1]]  # cross where there is one: it has both sequences
    lists = _token_lists("", sides.queries)
    if kinds[-1] == "cross":
        lists |= _token_lists("source_", sides.keys)
    meta = {"schema": SCHEMA, **asdict(capture.source), "kinds": list(kinds)}
    meta["reach"], bits = pack_masks(capture)
    if len(bits):
        arrays[BITS] = bits
    meta["written"] = sides.queries.written
    spans = capture.inputs.sides[kinds[0]].keys.spans  # of the text, not of what a decoder says
    if spans:
        meta["spans"] = [asdict(span) for span in spans]
    if gaps:
        meta["layers"] = gaps
    meta["versions"] = dict(capture.source.versions)
    meta |= {"quantity": capture.quantity, "whole": layout.whole}
    meta |= {"mean": layout.mean} if layout.mean else {}
    named = {"": sides.queries} | ({"source_": sides.keys} if kinds[-1] == "cross" else {})
    beside, media_meta = pack_media(capture.inputs, named)
    arrays |= beside
    meta |= media_meta
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
        prefix + flag: list(getattr(tokens, flag)) for flag in FLAGS if getattr(tokens, flag)
    }


def pack_masks(capture: Capture) -> tuple[list[dict[str, Any]], NDArray[np.uint8]]:
    """Return a capture's reaches as entries for JSON, and their bits as bytes."""
    entries: dict[int, dict[str, Any]] = {}
    packed = []
    for site, reach in capture.reach.items():
        if site not in capture.maps:
            continue
        if id(reach) not in entries:
            entry: dict[str, Any] = {"sites": [], "causal": reach.causal, "window": reach.window}
            entry |= {"sink": reach.sink, "masks": 0}
            if reach.bits is not None:
                entry["masks"] = len(reach.bits)
                packed.append(np.packbits(reach.bits, axis=None))
            if reach.unselected is not None:
                entry["unselected"] = True
                packed.append(np.packbits(reach.unselected, axis=None))
            entries[id(reach)] = entry
        entries[id(reach)]["sites"].append([site.kind, site.layer])
    return list(entries.values()), np.concatenate(packed) if packed else np.zeros(0, np.uint8)


def unpack_masks(
    entries: Any,
    bits: NDArray[Any] | None,
    maps: Mapping[Site, NDArray[Any]],
    *,
    ranks: bool = False,
) -> dict[Site, KeyMask]:
    """Return the reaches that a file says its maps have.

    ``maps`` [H, T, S] by site.
    """
    data = np.zeros(0, np.uint8) if bits is None else np.asarray(bits, np.uint8).reshape(-1)
    by_site: dict[Site, KeyMask] = {}
    offset = 0
    for entry in _listed(entries):
        sites = [_site(name) for name in _listed(entry["sites"])]
        shapes = {maps[site].shape for site in sites if site in maps}
        if len(shapes) != 1:
            raise ValueError("layers that share a mask differ in size, or are not there")
        heads, queries, keys = shapes.pop()
        masks, window = int(entry["masks"]), entry["window"]
        allowed = unselected = None
        if masks:
            if masks not in (1, heads):
                raise ValueError(f"{masks} masks for {heads} heads")
            allowed, offset = _taken(data, offset, (masks, queries, keys))
        if entry.get("unselected") is True:
            unselected, offset = _taken(data, offset, (1, queries, keys))
        if window is not None and (type(window) is not int or window < 1):
            raise ValueError(f"a window of {window!r}")
        sink = entry["sink"] is True
        reach = KeyMask(entry["causal"] is True, window, allowed, sink, unselected)
        beyond = ~reach.allowed(queries, keys)
        if unselected is not None and not (beyond | ~unselected).all():
            raise ValueError("keys that are allowed and were not selected")
        beyond = beyond & ~unselected if ranks and unselected is not None else beyond
        if any((maps[site].astype(np.bool_) & beyond).any() for site in sites):
            raise ValueError("weights on keys that were not allowed")
        by_site |= dict.fromkeys(sites, reach)
    if offset != len(data):
        raise ValueError(f"{len(data)} bytes of masks where {offset} belong")
    return by_site


def _taken(
    data: NDArray[np.uint8], first: int, shape: tuple[int, int, int]
) -> tuple[NDArray[np.bool_], int]:
    """Bits of that shape from a place on, and where the next ones begin."""
    count = math.prod(shape)
    last = first + -(-count // 8)
    flat = np.unpackbits(data[first:last], count=count)
    return flat.astype(np.bool_).reshape(shape), last


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{type(value).__name__} in place of a list")
    return value


def _site(name: Any) -> Site:
    kind, layer = name
    if kind not in SITE_KINDS or type(layer) is not int:
        raise ValueError(f"{name!r} is no layer")
    return Site(kind, layer)


def pack_media(
    inputs: Inputs, sides: Mapping[str, Tokens]
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the arrays to store, and what to say of them."""
    arrays: dict[str, Array] = {}
    meta: dict[str, Any] = {}
    for prefix, tokens in sides.items():
        if tokens.places:
            arrays[f"{prefix}places"] = _rows(tokens.places)
    picture, sound = inputs.picture, inputs.sound
    if picture is not None:
        arrays["picture"] = picture.pixels
        meta["picture"] = {"rows": picture.rows, "columns": picture.columns, "name": picture.name}
        if picture.crops:
            meta["picture"]["crops"] = [asdict(crop) for crop in picture.crops]
    if sound is not None:
        arrays["sound"] = sound.samples
        meta["sound"] = {"rate": sound.rate, "name": sound.name}
    return arrays, meta


def places_in(array: Array | None, tokens: int) -> tuple[Place, ...]:
    """Return the places in an array [T, 1 or 2]; NaN where a token has none."""
    if array is None:
        return ()
    rows = np.asarray(array, np.float64)
    if rows.ndim != 2 or len(rows) != tokens or rows.shape[1] not in (1, 2):
        raise ValueError(f"places of shape {array.shape} for {tokens} tokens")
    if not (np.isnan(rows) | ((rows >= 0) & (rows < np.inf))).all():
        raise ValueError("places that are negative or infinite")
    kind = int if rows.shape[1] == 2 else float
    return tuple(
        () if any(map(math.isnan, row)) else tuple(map(kind, row)) for row in rows.tolist()
    )


def picture_in(array: Array | None, meta: Any, listed: tuple[Place, ...]) -> Picture | None:
    """Return the stored picture; ValueError where it does not fit its patches' places."""
    if array is None or not isinstance(meta, dict):
        return None
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3 or 0 in array.shape:
        raise ValueError(f"a picture of {array.dtype} {array.shape}")
    rows, columns = int(meta["rows"]), int(meta["columns"])
    patches = [patch for patch in listed if len(patch) == 2]
    if any(not (patch[0] < rows and patch[1] < columns) for patch in patches):
        raise ValueError(f"patches outside of {rows} × {columns}")
    crops = convert(meta.get("crops", []), tuple[Crop, ...])
    if not all(_inside(crop, rows, columns) for crop in crops):
        raise ValueError(f"a part of the picture outside of {rows} × {columns}")
    return Picture(array, rows, columns, str(meta.get("name", "")), crops)


def _inside(crop: Crop, rows: int, columns: int) -> bool:
    """Whether the patches of a crop are among those of its picture."""
    left, top, right, bottom = crop.box
    return (
        min(crop.row, crop.number - 1) >= 0 < min(crop.rows, crop.columns, *crop.size)
        and crop.row + crop.rows <= rows
        and crop.columns <= columns
        and left < right
        and top < bottom
    )


def sound_in(array: Array | None, meta: Any) -> Sound | None:
    """Return the sound that is stored; ValueError where it is none."""
    if array is None or not isinstance(meta, dict):
        return None
    samples, rate = np.asarray(array, np.float32), int(meta["rate"])
    if samples.ndim != 1 or not len(samples) or rate < 1 or not np.isfinite(samples).all():
        raise ValueError(f"a sound of shape {samples.shape} at {rate} Hz")
    return Sound(samples, rate, str(meta.get("name", "")))


def _rows(listed: tuple[Place, ...]) -> NDArray[np.float64]:
    width = max(map(len, listed))
    return np.array([row or (np.nan,) * width for row in listed], np.float64)
