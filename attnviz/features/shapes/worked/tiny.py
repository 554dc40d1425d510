"""Small inputs for the numeric walk: a few words on a tiny seeded layer."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from attnviz.attention.sizes import check_sizes
from attnviz.errors import InputError, SizeError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

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
    """A few tokens and the matrices of one layer.

    Attributes:
        tokens: names of the T queries. key_tokens: names of the S keys.
        x: [T, D]. context: [S, D] for cross-attention.
        w_q, w_k, w_v: [D, H·d], [D, G·d], [D, G·d]. w_o: [H·d, D]. biases: ``b_q`` ... by name.
        direct: Q [H, T, d], K [G, S, d], V [G, S, d_v] instead of all of those.
        mask: bool [T, S], True where a key may be attended to.
        origin: one phrase on where the numbers come from.
    """

    tokens: tuple[str, ...]
    key_tokens: tuple[str, ...]
    heads: int
    kv_heads: int
    x: Matrix | None = None
    context: Matrix | None = None
    w_q: Matrix | None = None
    w_k: Matrix | None = None
    w_v: Matrix | None = None
    w_o: Matrix | None = None
    biases: Mapping[str, Matrix] = field(default_factory=dict)
    direct: tuple[Matrix, Matrix, Matrix] | None = None
    causal: bool = False
    window: int | None = None
    mask: NDArray[np.bool_] | None = None
    scale: float | None = None
    origin: str = ""

    def bias(self, name: str) -> Matrix | float:
        """A bias vector, or 0 where there is none."""
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
    """A sentence on a tiny seeded layer.

    Known words (cat, sat, on, mat) have their bundled vectors when D is 4; other words' vectors
    follow from their letters and the seed, so equal words are equal vectors everywhere.

    Raises:
        InputError: no words, or more than 32.
        SizeError: sizes that do not fit, or a width above 64.
    """
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
    known = width == 4 and all(token in EMBEDDINGS for token in tokens)
    origin = "bundled word vectors" if known else f"word vectors made from the letters, seed {seed}"
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
    """A tiny input from token vectors [T, D]; matrices not given are seeded, to one decimal.

    Args:
        x: token vectors.
        tokens: their names.
        heads: H.
        kv_heads: G, H by default.
        seed: of the matrices that are not given.
        context: the other sequence's vectors [S, D].
        key_tokens: its names.
        matrices: ``w_q`` ... ``b_o``, as far as they are given.
        options: ``causal``, ``window``, ``mask``, ``scale`` and ``origin`` of the result.

    Raises:
        SizeError: head counts that do not fit.
        InputError: a matrix of the wrong shape.
    """
    import numpy as np

    width, given = x.shape[1], dict(matrices or {})
    sizes = check_sizes(width, heads, kv_heads=kv_heads)
    inner, shared = heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
    shapes = {
        "w_q": (width, inner),
        "w_k": (width, shared),
        "w_v": (width, shared),
        "w_o": (inner, width),
    }
    for name, shape in shapes.items():
        if name not in given:
            draw = random.Random(f"attnviz {seed} {name}")
            rows = [
                [round(draw.uniform(-2, 2), 1) + 0.0 for _ in range(shape[1])]
                for _ in range(shape[0])
            ]
            given[name] = np.array(rows)
    biases = {name: array for name, array in given.items() if name.startswith("b_")}
    shapes |= {"b_q": (1, inner), "b_k": (1, shared), "b_v": (1, shared), "b_o": (1, width)}
    for name, array in given.items():
        if array.shape != shapes[name]:
            raise InputError(
                f"{options['origin']}: {name} is {array.shape}, but {heads} heads on width {width} "
                f"need {shapes[name]} (rows are inputs)"
            )
    return TinyInput(
        tokens,
        key_tokens or tokens,
        heads=heads,
        kv_heads=sizes.kv_heads,
        x=x,
        context=context,
        w_q=given["w_q"],
        w_k=given["w_k"],
        w_v=given["w_v"],
        w_o=given["w_o"],
        biases=biases,
        **options,
    )


def _vector(token: str, width: int, seed: int) -> tuple[float, ...]:
    if width == 4 and token in EMBEDDINGS:
        return EMBEDDINGS[token]
    digest = hashlib.shake_256(f"attnviz {seed} {token}".encode()).digest(2 * width)
    pairs = (int.from_bytes(digest[2 * i : 2 * i + 2], "big") for i in range(width))
    return tuple((pair % 199 - 99) / 100 for pair in pairs)
