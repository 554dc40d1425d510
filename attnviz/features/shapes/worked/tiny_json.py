"""The numeric walk's input from a JSON file or a bundled example, checked field by field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attnviz.errors import InputError
from attnviz.features.shapes.worked.tiny import MAX_TOKENS, MAX_WIDTH, TinyInput, build

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

MAX_BYTES = 1 << 20

CAUSAL_EXAMPLE: Mapping[str, Any] = {
    "q": [[0.2, 0.1, 0.4], [0, 0.5, 0.3], [0.1, 0, 0.2], [0.3, 0.2, 0.1]],
    "k": [[0.2, 0, 0.1], [0.1, 0.4, 0.3], [0.3, 0.1, 0.2], [0, 0.2, 0.2]],
    "v": [[0.5, 0], [-0.2, 0.1], [0.3, -0.1], [0, 0.2]],
    "causal": True,
}
"""One causal head, T = 4, d = 3, d_v = 2; the first output is exactly the first row of V."""

EXAMPLES = ("words", "causal")
"""``words`` is the four bundled words on a seeded layer, ``causal`` the head above."""


def causal_example() -> TinyInput:
    """The bundled example of one causal head."""
    return from_json(CAUSAL_EXAMPLE, origin="bundled example, one causal head")


def read_json(data: bytes, name: str) -> TinyInput:
    """Read a JSON file: ``x`` with ``heads`` and matrices (seeded where left out), or ``q k v``.

    Raises:
        InputError: not JSON, or fields that make no sense; see :func:`from_json`.
    """
    if len(data) > MAX_BYTES:
        raise InputError(f"{name} is larger than 1 MiB, the most that the numeric walk reads")
    try:
        content = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"{name} must hold a JSON object with x or q, k, v")
    return from_json(content, origin=name)


_FIELDS = {
    *(
        "tokens",
        "x",
        "context",
        "context_tokens",
        "heads",
        "kv_heads",
        "causal",
        "sliding_window",
        "mask",
    ),
    *("q", "k", "v", "w_q", "w_k", "w_v", "w_o", "b_q", "b_k", "b_v", "b_o", "scale", "seed"),
}


def from_json(content: Mapping[str, Any], *, origin: str) -> TinyInput:
    """A tiny input from plain lists.

    Raises:
        InputError: unknown or missing fields, ragged or non-numeric matrices, shapes that do not
            fit together, too many tokens.
        SizeError: head counts that do not fit.
    """
    unknown = sorted(set(content) - _FIELDS)
    if unknown:
        known = ", ".join(sorted(_FIELDS))
        raise InputError(f"{origin}: unknown field {unknown[0]!r}; known: {known}")
    content = {name: value for name, value in content.items() if value is not None}
    if "x" not in content and not {"q", "k", "v"} <= content.keys():
        raise InputError(f"{origin} needs x (token vectors) or q, k and v")
    for name in ("heads", "kv_heads", "sliding_window", "seed"):
        value = content.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise InputError(f"{origin}: {name} must be a whole number, got {value!r}")
    if "x" not in content:
        return _direct(content, origin)
    x = _matrix(content, "x", origin)
    context = _matrix(content, "context", origin) if "context" in content else None
    if context is not None and context.shape[1] != x.shape[1]:
        raise InputError(
            f"{origin}: context is {context.shape[1]} wide, x {x.shape[1]}; they must agree"
        )
    tokens = _names(content, "tokens", len(x), origin)
    keys = tokens
    if context is not None:
        keys = _names(content, "context_tokens", len(context), origin)
    names = [name for name in content if name.startswith(("w_", "b_"))]
    given = {
        name: _matrix(content, name, origin)
        if name.startswith("w_")
        else _matrix({name: [content[name]]}, name, origin)
        for name in names
    }
    return build(
        x,
        tokens,
        heads=content.get("heads", 2),
        kv_heads=content.get("kv_heads"),
        seed=content.get("seed", 0),
        context=context,
        key_tokens=keys,
        matrices=given,
        options=_options(content, origin, len(tokens), len(keys)),
    )


def _direct(content: Mapping[str, Any], origin: str) -> TinyInput:
    """Q, K and V as given: [T, d] for one head, or [H, T, d]."""
    import numpy as np

    parts = []
    for name in ("q", "k", "v"):
        rows = content[name]
        deep = bool(
            isinstance(rows, list)
            and rows
            and isinstance(rows[0], list)
            and rows[0]
            and isinstance(rows[0][0], list)
        )
        every = rows if deep else [rows]
        matrices = [_matrix({name: head}, name, origin) for head in every]
        if len({head.shape for head in matrices}) > 1:
            raise InputError(f"{origin}: the heads of {name} differ in shape")
        parts.append(np.stack(matrices))
    q, k, v = parts
    shapes = f"q {q.shape}, k {k.shape}, v {v.shape}"
    if q.shape[2] != k.shape[2] or k.shape[:2] != v.shape[:2] or len(q) % len(k):
        raise InputError(f"{origin}: q, k and v do not fit together: {shapes}")
    tokens = _names(content, "tokens", q.shape[1], origin)
    keys = tokens
    if k.shape[1] != q.shape[1] or "context_tokens" in content:
        keys = _names(content, "context_tokens", k.shape[1], origin)
    return TinyInput(
        tokens,
        keys,
        heads=len(q),
        kv_heads=len(k),
        direct=(q, k, v),
        **_options(content, origin, q.shape[1], k.shape[1]),
    )


def _options(content: Mapping[str, Any], origin: str, queries: int, keys: int) -> dict[str, Any]:
    """What stands beside the matrices: masks, the scale, where it is from."""
    causal, scale, window = (content.get(name) for name in ("causal", "scale", "sliding_window"))
    if causal is not None and not isinstance(causal, bool):
        raise InputError(f"{origin}: causal must be true or false, got {causal!r}")
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, int | float)):
        raise InputError(f"{origin}: scale must be a number, got {scale!r}")
    if window is not None and window < 1:
        raise InputError(f"{origin}: sliding_window must be at least 1, got {window}")
    mask = None
    if content.get("mask") is not None:
        mask = _matrix(content, "mask", origin) != 0
        if mask.shape != (queries, keys):
            raise InputError(f"{origin}: mask is {mask.shape}, but scores are {(queries, keys)}")
    return {
        "causal": bool(causal),
        "scale": scale,
        "window": window,
        "mask": mask,
        "origin": origin,
    }


def _matrix(content: Mapping[str, Any], name: str, origin: str) -> Matrix:
    import numpy as np

    rows = content[name]
    lists = isinstance(rows, list) and rows and all(isinstance(row, list) and row for row in rows)
    if not lists or len({len(row) for row in rows}) > 1:
        raise InputError(f"{origin}: {name} must be rows of numbers, all of one length")
    if len(rows) > MAX_WIDTH or len(rows[0]) > MAX_WIDTH:
        raise InputError(
            f"{origin}: {name} is {len(rows)} by {len(rows[0])}; the numeric walk takes at most "
            f"{MAX_TOKENS} tokens of width {MAX_WIDTH}"
        )
    if not all(isinstance(value, int | float) for row in rows for value in row):
        raise InputError(f"{origin}: {name} holds something that is not a number")
    try:
        matrix = np.array(rows, dtype=np.float64)
    except OverflowError:
        raise InputError(f"{origin}: {name} holds a number too large for a float") from None
    if not np.isfinite(matrix).all():
        raise InputError(f"{origin}: {name} holds NaN or infinity")
    if name in ("x", "context", "q", "k", "v") and len(rows) > MAX_TOKENS:
        raise InputError(f"{origin}: {name} has {len(rows)} tokens; at most {MAX_TOKENS}")
    return matrix


def _names(content: Mapping[str, Any], name: str, count: int, origin: str) -> tuple[str, ...]:
    given = content.get(name)
    if given is None:
        return tuple(f"t{i}" if name == "tokens" else f"s{i}" for i in range(count))
    if not isinstance(given, list) or not all(isinstance(text, str) for text in given):
        raise InputError(f"{origin}: {name} must be a list of words")
    if len(given) != count:
        raise InputError(f"{origin}: {len(given)} {name} for {count} rows of numbers")
    return tuple(given)
