"""Tensors by the names of modules: TransformerLens caches, nnsight traces, arrays of a folder.

TransformerLens names hooks: ``blocks.0.attn.hook_pattern`` [batch, head, query, key], of weights,
and ``hook_attn_scores`` before it. nnsight saves what a module returned under whatever name its
user gives it, mostly the module's path: ``transformer.h.0.attn``, a tuple with the weights in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from attnviz.core.heads import SiteKind
from attnviz.errors import InputError
from attnviz.models.imported.recording import Imported, Layers

PATTERN, SCORES = "hook_pattern", "hook_attn_scores"

_NUMBER = re.compile(r"\d+")
_ATTENTION = re.compile(r"att(?:n|ention)|^\D*\d+$", re.IGNORECASE)
"""Names of attention, and those that are a layer's number with a word before it: ``layer_3``."""
_CROSS = re.compile(r"cross|encdec|encoder_attn", re.IGNORECASE)
_ENCODER, _DECODER = (re.compile(rf"(?:^|[._/]){word}", re.IGNORECASE) for word in ("enc", "dec"))


def wanted(names: Iterable[str]) -> list[str]:
    """Those of the names of a file's tensors that may be attention weights."""
    named = [name for name in names if isinstance(name, str)]
    for suffix in (PATTERN, SCORES):
        hooks = [name for name in named if name.endswith(suffix)]
        if hooks:
            return hooks
    return [name for name in named if _ATTENTION.search(name) and _NUMBER.search(name)]


def imported(tensors: Mapping[str, Any], of: str = "") -> Imported:
    """The attention in tensors by name.

    Args:
        tensors: by name, torch or NumPy; others than attention may be among them.
        of: what they are, in words, where the names do not tell.

    Raises:
        InputError: none of them is attention; two of one layer.
    """
    names = wanted(tensors)
    hooks = bool(names) and names[0].endswith((PATTERN, SCORES))
    maps = {name: _weights(tensors[name]) for name in names}
    whole = any(value is not None and value.ndim == 4 for value in maps.values())
    layers: dict[SiteKind | None, dict[int, Any]] = {}
    by: dict[tuple[SiteKind | None, int], str] = {}
    for name, value in maps.items():
        if value is None or (whole and value.ndim != 4 and not hooks):
            continue
        kind, number = _place(name)
        if (kind, number) in by:
            raise InputError(
                f"{by[kind, number]!r} and {name!r} are both of {kind or ''} layer {number}; leave "
                "one of them out".replace("  ", " ")
            )
        by[kind, number] = name
        layers.setdefault(kind, {})[number] = _softmax(value) if name.endswith(SCORES) else value
    if not layers:
        some = ", ".join(sorted(map(str, tensors))[:6]) or "nothing"
        raise InputError(
            f"no attention weights among these tensors ({some}); names must be such as "
            f"blocks.0.attn.{PATTERN} or transformer.h.0.attn, with [batch, heads, queries, keys]"
        )
    notes: tuple[str, ...] = ()
    if names[0].endswith(SCORES):
        notes = (f"The softmax of {SCORES}: {PATTERN} is not recorded.",)
    what = "a TransformerLens cache" if hooks else of or "tensors by module"
    return Imported(what, _kinds(layers), notes=notes)


def _kinds(layers: Mapping[SiteKind | None, Layers]) -> Mapping[SiteKind | None, Layers]:
    """Layers that do not say a kind are a decoder's where others are cross-attention."""
    if None in layers and "cross" in layers and "decoder" not in layers:
        return {("decoder" if kind is None else kind): maps for kind, maps in layers.items()}
    return layers


def _place(name: str) -> tuple[SiteKind | None, int]:
    """Of which kind a module's layer is, as far as its name tells, and its number."""
    number = _NUMBER.search(name)
    assert number is not None
    kind: SiteKind | None = None
    if _CROSS.search(name):
        kind = "cross"
    elif _ENCODER.search(name):
        kind = "encoder"
    elif _DECODER.search(name):
        kind = "decoder"
    return kind, int(number.group())


def _weights(value: Any) -> Any:
    """[heads, queries, keys] or [batch, heads, queries, keys] in what was saved; None for none."""
    value = getattr(value, "value", value)  # what older versions of nnsight save
    if isinstance(value, tuple | list):
        inside = [_weights(part) for part in value]
        return next((w for w in inside if w is not None and w.ndim == 4), None)
    if not hasattr(value, "ndim") or not hasattr(value, "shape"):
        return None
    kind = str(value.dtype)
    return value if value.ndim in (3, 4) and "float" in kind else None


def _softmax(scores: Any) -> Any:
    """Over keys; zero where a row has no key to attend to."""
    given = scores.detach().cpu().double().numpy() if hasattr(scores, "detach") else scores
    scores = np.asarray(given, np.float64)
    top = scores.max(-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        powers = np.where(np.isneginf(top), 0.0, np.exp(scores - top))
    sums = powers.sum(-1, keepdims=True)
    return (powers / np.where(sums, sums, 1.0)).astype(np.float32)
