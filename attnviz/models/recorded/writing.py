"""Our attention on its way out: ``.npz`` and ``.safetensors``."""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from typing import Any

import numpy as np

from attnviz.core.capture import Capture
from attnviz.core.heads import Site
from attnviz.core.tokens import Tokens
from attnviz.errors import UsageError
from attnviz.models import media_layout, recorded_masks
from attnviz.models.recorded.fields import FLAGS, SCHEMA, SUFFIXES, Array


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
    meta["reach"], bits = recorded_masks.pack(capture)
    if len(bits):
        arrays[recorded_masks.BITS] = bits
    meta["written"] = sides.queries.written
    if spans := capture.inputs.sides[
        kinds[0]
    ].keys.spans:  # of the text, not of what a decoder says
        meta["spans"] = [asdict(span) for span in spans]
    if gaps:
        meta["layers"] = gaps
    meta["versions"] = dict(capture.source.versions)
    meta |= {"quantity": capture.quantity, "whole": layout.whole}
    meta |= {"mean": layout.mean} if layout.mean else {}
    named = {"": sides.queries} | ({"source_": sides.keys} if kinds[-1] == "cross" else {})
    beside, said = media_layout.pack(capture.inputs, named)
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
        prefix + flag: list(getattr(tokens, flag)) for flag in FLAGS if getattr(tokens, flag)
    }
