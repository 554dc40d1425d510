"""What stands in a file of recorded attention, under the names of the format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from attnviz.core.heads import SiteKind
from attnviz.errors import InputError
from attnviz.models import media_layout, recorded_masks
from attnviz.models.containers import list_arrays, read_arrays
from attnviz.models.recorded import document

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

Array = NDArray[Any]


def read_fields(path: Path) -> dict[str, Array]:
    """The fields of a file that the format knows, as arrays.

    Raises:
        InputError: another suffix, no maps, or what :func:`containers.read_arrays` refuses.
    """
    if path.suffix == JSON:
        return document.read_fields(path)
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
    flags = {prefix + flag for prefix in ("", "source_") for flag in ("tokens", *FLAGS)}
    return {*PLAIN, *BY_KIND, *flags, *media_layout.FIELDS, recorded_masks.BITS, "meta"}


def meta_of(fields: dict[str, Any]) -> dict[str, Any]:
    """What a file says of itself; empty where that is no JSON object."""
    try:
        meta = json.loads(str(fields["meta"]))
    except (KeyError, ValueError, RecursionError):
        return {}
    return meta if isinstance(meta, dict) else {}
