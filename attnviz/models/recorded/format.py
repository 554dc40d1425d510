"""The format of recorded attention: its fields as arrays of a file, and as one JSON document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from attnviz.core.heads import SiteKind
from attnviz.core.record import Record, parsed
from attnviz.errors import InputError, system_errors
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


def read_fields(path: Path) -> dict[str, Array]:
    """The fields of a file that the format knows, as arrays."""
    if path.suffix == JSON:
        return read_document_fields(path)
    if path.suffix not in SUFFIXES:
        raise InputError(f"cannot read {path}: recorded attention is .npz or .safetensors")
    fields = read_arrays(path, names())
    if not fields.keys() & {*PLAIN, *BY_KIND}:
        there = ", ".join(list_arrays(path))[:300] or "nothing"
        raise InputError(
            f"{path} has no array 'attentions' [layers, heads, queries, keys]; it has {there}: "
            f"rename the one with the weights"
        )
    return dict(fields)


def names() -> set[str]:
    """Every field that the format knows."""
    flags = {prefix + flag for prefix in ("", "source_") for flag in ("tokens", REAL, *FLAGS)}
    return {*PLAIN, *BY_KIND, *flags, *MEDIA, BITS, "meta"}


def meta_of(fields: dict[str, Any]) -> dict[str, Any]:
    """What a file says of itself; empty where that is no JSON object."""
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
    """A file as JSON, also with NaN in it; InputError where it is none."""
    with system_errors(InputError, f"cannot read {path}"):
        text = contents(path, LARGEST)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return parsed(text, path.name)  # which says what is wrong


def is_recording(document: Any) -> bool:
    """Whether JSON says that it is a recording."""
    return isinstance(document, dict) and document.get("schema") == Recording.schema


def read_document_fields(path: Path) -> dict[str, Array]:
    """Read a recording in JSON as the arrays of a ``.npz`` file; InputError for another document.

    Also for a damaged one, and one whose lists are of unequal length.
    """
    recording = Recording.from_dict(read_document(path), str(path))
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
