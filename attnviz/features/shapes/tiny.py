"""Small inputs for the numeric walk: a few words on a tiny seeded layer, or a JSON file."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.attention.spec import check_sizes
from attnviz.errors import InputError, SizeError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

MAX_BYTES = 1 << 20
MAX_TOKENS = 32
MAX_WIDTH = 64

EMBEDDINGS = {
    "cat": (0.21, 0.85, 0.14, 0.62),
    "sat": (0.45, 0.33, 0.71, 0.18),
    "on": (0.05, 0.12, 0.88, 0.09),
    "mat": (0.19, 0.79, 0.22, 0.58),
}
"""Four words as vectors of width 4: cat and mat alike, on and sat apart."""


@dataclass(frozen=True)
class TinyInput:
    """A few tokens and the matrices of one layer."""

    tokens: tuple[str, ...]  # names of the T queries. key_tokens: names of the S keys.
    key_tokens: tuple[str, ...]
    heads: int
    kv_heads: int
    x: Matrix | None = None  # [T, D]. context: [S, D] for cross-attention.
    context: Matrix | None = None
    # w_q, w_k, w_v: [D, H·d], [D, G·d], [D, G·d]. w_o: [H·d, D]. biases: ``b_q`` ... by name.
    w_q: Matrix | None = None
    w_k: Matrix | None = None
    w_v: Matrix | None = None
    w_o: Matrix | None = None
    biases: Mapping[str, Matrix] = field(default_factory=dict)
    # Q [H, T, d], K [G, S, d], V [G, S, d_v] instead of all of those
    direct: tuple[Matrix, Matrix, Matrix] | None = None
    causal: bool = False
    window: int | None = None
    mask: NDArray[np.bool_] | None = None  # bool [T, S], True where a key may be attended to
    scale: float | None = None
    origin: str = ""  # one phrase on where the numbers come from

    def bias(self, name: str) -> Matrix | float:
        """Return a bias vector, or 0 where there is none."""
        return self.biases.get(name, 0.0)


def from_text(
    text: str,
    *,
    d_model: int | None = None,
    heads: int = 2,
    kv_heads: int | None = None,
    causal: bool = False,
    window: int | None = None,
    seed: int = 0,
) -> TinyInput:
    """Put a sentence on a tiny layer; other words have vectors by their letters and the seed."""
    tokens = tuple(text.split())
    if not tokens:
        raise InputError('the text is blank; give a few words, for example "cat sat on mat"')
    if len(tokens) > MAX_TOKENS:
        raise InputError(
            f"{len(tokens)} words are too many for the numeric walk; it takes {MAX_TOKENS}"
        )
    width = d_model or 4
    if width > MAX_WIDTH:
        raise SizeError(f"the numeric walk takes a d-model of at most {MAX_WIDTH}, got {width}")
    import numpy as np

    x = np.array([_vector(token, width, seed) for token in tokens])
    fixed = width == 4 and all(token in EMBEDDINGS for token in tokens)
    origin = "bundled word vectors" if fixed else f"word vectors made from the letters, seed {seed}"
    options = {"causal": causal, "window": window, "origin": origin}
    return build(x, tokens, heads=heads, kv_heads=kv_heads, seed=seed, options=options)


def build(
    x: Matrix,
    tokens: tuple[str, ...],
    *,
    heads: int,
    kv_heads: int | None = None,
    seed: int = 0,
    context: Matrix | None = None,
    key_tokens: tuple[str, ...] | None = None,
    matrices: Mapping[str, Matrix] | None = None,
    options: Mapping[str, Any],
) -> TinyInput:
    """Make a tiny input from token vectors [T, D]; seeded matrices are of one decimal."""
    import numpy as np

    width, arrays = x.shape[1], dict(matrices or {})
    sizes = check_sizes(width, heads, kv_heads=kv_heads)
    inner, shared = heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    shapes = {"w_q": (width, inner), "w_k": (width, shared), "w_v": (width, shared)}
    shapes["w_o"] = inner, width
    for name, shape in shapes.items():
        if name not in arrays:
            draw = random.Random(f"attnviz {seed} {name}")
            numbers = [round(draw.uniform(-2, 2), 1) + 0.0 for _ in range(shape[0] * shape[1])]
            arrays[name] = np.array(numbers).reshape(shape)
    shapes |= {"b_q": (1, inner), "b_k": (1, shared), "b_v": (1, shared), "b_o": (1, width)}
    for name, array in arrays.items():
        if array.shape != shapes[name]:
            raise InputError(
                f"{options['origin']}: {name} is {array.shape}, but {heads} heads on width {width} "
                f"need {shapes[name]} (rows are inputs)"
            )
    biases = {name: array for name, array in arrays.items() if name.startswith("b_")}
    return TinyInput(
        tokens,
        key_tokens or tokens,
        heads=heads,
        kv_heads=sizes.kv_heads,
        x=x,
        context=context,
        w_q=arrays["w_q"],
        w_k=arrays["w_k"],
        w_v=arrays["w_v"],
        w_o=arrays["w_o"],
        biases=biases,
        **options,
    )


def _vector(token: str, width: int, seed: int) -> tuple[float, ...]:
    if width == 4 and token in EMBEDDINGS:
        return EMBEDDINGS[token]
    digest = hashlib.shake_256(f"attnviz {seed} {token}".encode()).digest(2 * width)
    pairs = (int.from_bytes(digest[2 * i : 2 * i + 2], "big") for i in range(width))
    return tuple((pair % 199 - 99) / 100 for pair in pairs)


@dataclass(frozen=True)
class TinyFile:
    """What a JSON file may hold: ``x``, heads and matrices, drawn where left out; or q, k and v.

    Rows are inputs; q, k and v are [T, d] for one head, or [H, T, d].
    """

    tokens: list[str] | None = None
    x: list[list[float]] | None = None
    context: list[list[float]] | None = None
    context_tokens: list[str] | None = None
    heads: int | None = None
    kv_heads: int | None = None
    causal: bool | None = None
    sliding_window: int | None = None
    mask: list[list[bool | float]] | None = None
    scale: float | None = None
    seed: int | None = None
    q: list[list[float | list[float]]] | None = None
    k: list[list[float | list[float]]] | None = None
    v: list[list[float | list[float]]] | None = None
    w_q: list[list[float]] | None = None
    w_k: list[list[float]] | None = None
    w_v: list[list[float]] | None = None
    w_o: list[list[float]] | None = None
    b_q: list[float] | None = None
    b_k: list[float] | None = None
    b_v: list[float] | None = None
    b_o: list[float] | None = None


def bundled(name: str) -> TinyInput:
    """Read an example that comes with attnviz: ``causal``, or ``masked`` with padding."""
    path = Path(__file__).with_name(f"{name}.json")
    title = {"causal": "one causal head", "masked": "one head with padding"}[name]
    return from_json(json.loads(path.read_text("utf-8")), origin=f"bundled example, {title}")


def read_json(data: bytes, name: str) -> TinyInput:
    """Read a JSON file; InputError where it is none, or as for :func:`from_json`."""
    if len(data) > MAX_BYTES:
        raise InputError(f"{name} is larger than 1 MiB, the most that the numeric walk reads")
    try:
        content = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"{name} must hold a JSON object with x or q, k, v")
    return from_json(content, origin=name)


def from_json(content: Mapping[str, Any], *, origin: str) -> TinyInput:
    """Make a tiny input of plain lists, by the types of :class:`TinyFile`."""
    import msgspec

    names = sorted(f.name for f in fields(TinyFile))
    unknown = sorted(set(content) - {*names})
    if unknown:
        raise InputError(f"{origin}: unknown field {unknown[0]!r}; known: {', '.join(names)}")
    try:
        read = msgspec.convert(dict(content), TinyFile)
    except (msgspec.ValidationError, OverflowError, UnicodeError) as error:
        raise InputError(f"{origin}: {error}") from None
    if read.x is None:
        return _direct(read, origin)
    x = _matrix(read.x, "x", origin)
    context = None if read.context is None else _matrix(read.context, "context", origin)
    if context is not None and context.shape[1] != x.shape[1]:
        raise InputError(
            f"{origin}: context is {context.shape[1]} wide, x {x.shape[1]}; they must agree"
        )
    tokens = _names(read.tokens, "tokens", len(x), origin)
    keys = tokens
    if context is not None:
        keys = _names(read.context_tokens, "context_tokens", len(context), origin)
    named = {name: getattr(read, name) for name in names if name[:2] in ("w_", "b_")}
    return build(
        x,
        tokens,
        heads=2 if read.heads is None else read.heads,
        kv_heads=read.kv_heads,
        seed=read.seed or 0,
        context=context,
        key_tokens=keys,
        matrices={
            name: _matrix([rows] if name.startswith("b_") else rows, name, origin)
            for name, rows in named.items()
            if rows is not None
        },
        options=_options(read, origin, len(tokens), len(keys)),
    )


def _direct(content: TinyFile, origin: str) -> TinyInput:
    """Take Q, K and V as given: [T, d] for one head, or [H, T, d]."""
    import numpy as np

    parts = []
    for name in ("q", "k", "v"):
        rows = getattr(content, name)
        if rows is None:
            raise InputError(f"{origin} needs x (token vectors) or q, k and v")
        deep = bool(rows and rows[0] and isinstance(rows[0][0], list))
        matrices = [_matrix(head, name, origin) for head in (rows if deep else [rows])]
        if len({head.shape for head in matrices}) > 1:
            raise InputError(f"{origin}: the heads of {name} differ in shape")
        parts.append(np.stack(matrices))
    q, k, v = parts
    shapes = f"q {q.shape}, k {k.shape}, v {v.shape}"
    if q.shape[2] != k.shape[2] or k.shape[:2] != v.shape[:2] or len(q) % len(k):
        raise InputError(f"{origin}: q, k and v do not fit together: {shapes}")
    tokens = _names(content.tokens, "tokens", q.shape[1], origin)
    keys = tokens
    if k.shape[1] != q.shape[1] or content.context_tokens is not None:
        keys = _names(content.context_tokens, "context_tokens", k.shape[1], origin)
    options = _options(content, origin, q.shape[1], k.shape[1])
    return TinyInput(tokens, keys, heads=len(q), kv_heads=len(k), direct=(q, k, v), **options)


def _options(content: TinyFile, origin: str, queries: int, keys: int) -> dict[str, Any]:
    """Take what stands beside the matrices: masks, the scale, where it is from."""
    window, mask = content.sliding_window, None
    if window is not None and window < 1:
        raise InputError(f"{origin}: sliding_window must be at least 1, got {window}")
    if content.mask is not None:
        mask = _matrix(content.mask, "mask", origin) != 0
        if mask.shape != (queries, keys):
            raise InputError(f"{origin}: mask is {mask.shape}, but scores are {(queries, keys)}")
    options = {"scale": content.scale, "window": window, "mask": mask, "origin": origin}
    return {"causal": bool(content.causal), **options}


def _matrix(rows: Any, name: str, origin: str) -> Matrix:
    """Make an array of rows; InputError where they are ragged, too large or not finite."""
    import numpy as np

    if not rows or len({len(row) for row in rows}) > 1 or not rows[0]:
        raise InputError(f"{origin}: {name} must be rows of numbers, all of one length")
    if len(rows) > MAX_WIDTH or len(rows[0]) > MAX_WIDTH:
        raise InputError(
            f"{origin}: {name} is {len(rows)} by {len(rows[0])}; the numeric walk takes at most "
            f"{MAX_TOKENS} tokens of width {MAX_WIDTH}"
        )
    try:
        matrix = np.array(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{origin}: {name} holds something that is not a number") from None
    if not np.isfinite(matrix).all():
        raise InputError(f"{origin}: {name} holds NaN or infinity")
    if name in ("x", "context", "q", "k", "v") and len(rows) > MAX_TOKENS:
        raise InputError(f"{origin}: {name} has {len(rows)} tokens; at most {MAX_TOKENS}")
    return matrix


def _names(names: list[str] | None, field: str, count: int, origin: str) -> tuple[str, ...]:
    """Take the names of tokens, or number them."""
    if names is None:
        return tuple(f"t{i}" if field == "tokens" else f"s{i}" for i in range(count))
    if len(names) != count:
        raise InputError(f"{origin}: {len(names)} {field} for {count} rows of numbers")
    return tuple(names)
