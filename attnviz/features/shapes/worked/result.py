"""The answers worked out in numbers: a tiny layer, what 1/√d does, and the animation of either."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from attnviz.features.shapes.result import Answer
from attnviz.features.shapes.worked.softmax_scale import Scaling, ScalingRow

if TYPE_CHECKING:
    from attnviz.features.shapes.table import Printed
    from attnviz.features.shapes.worked.by_hand import HeadNumbers, Matrix, NumericWalk

Rows = tuple[tuple[float, ...], ...]
MaskedRows = tuple[tuple[float | None, ...], ...]
"""Rows of a matrix where None is a blocked score, minus infinity."""


@dataclass(frozen=True, kw_only=True)
class HeadMatrices:
    """One head, matrix by matrix.

    Attributes:
        q: [T, d]. k: [S, d]. v: [S, d_v].
        scores: Q Kᵀ [T, S]. scaled: times the scale. masked: None where blocked.
        weights: their softmax. weights_unscaled: that of the scores without the scale.
        output: weights times V, [T, d_v].
        entropy_bits: of each row of weights. entropy_bits_unscaled: without the scale.
    """

    q: Rows
    k: Rows
    v: Rows
    scores: Rows
    scaled: Rows
    masked: MaskedRows
    weights: Rows
    weights_unscaled: Rows
    output: Rows
    entropy_bits: tuple[float, ...]
    entropy_bits_unscaled: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class NumbersAnswer(Answer):
    """A tiny layer in numbers.

    Attributes:
        tokens: names of the T queries. key_tokens: of the S keys.
        scale: of scores. causal: whether a query sees only keys up to its own position.
        blocked_rows: queries that may attend to no key.
        x: [T, D], where heads are projected from it. matrices: ``w_q``, ``w_k``, ``w_v``, ``w_o``.
        heads: every head. concat: [T, H·d_v]. output: [T, D].
    """

    draws_first: ClassVar[bool] = True

    view: Literal["numbers"] = "numbers"
    tokens: tuple[str, ...]
    key_tokens: tuple[str, ...]
    scale: float
    causal: bool
    blocked_rows: int
    x: Rows | None
    matrices: Mapping[str, Rows]
    heads: tuple[HeadMatrices, ...]
    concat: Rows
    output: Rows


@dataclass(frozen=True, kw_only=True)
class ScalingAnswer(Answer):
    """Softmax with and without 1/√d over ``keys`` keys, means over ``samples`` rows."""

    view: Literal["scaling"] = "scaling"
    keys: int
    samples: int
    seed: int
    rows: tuple[ScalingRow, ...]


@dataclass(frozen=True, kw_only=True)
class AnimateAnswer(Answer):
    """The files that hold the animation."""

    view: Literal["animation"] = "animation"
    files: tuple[str, ...]


def numbers_answer(walked: NumericWalk, printed: Printed) -> NumbersAnswer:
    """Every number of a tiny layer, in full."""
    given = walked.given
    named = {name: getattr(given, name) for name in ("w_q", "w_k", "w_v", "w_o")}
    return NumbersAnswer(
        **printed._asdict(),
        tokens=given.tokens,
        key_tokens=given.key_tokens,
        scale=walked.scale,
        causal=given.causal,
        blocked_rows=walked.blocked,
        x=None if given.x is None else _rows(given.x),
        matrices={name: _rows(matrix) for name, matrix in named.items() if matrix is not None},
        heads=tuple(map(_head, walked.heads)),
        concat=_rows(walked.concat),
        output=_rows(walked.output),
    )


def scaling_answer(scaling: Scaling, printed: Printed) -> ScalingAnswer:
    """What 1/√d does."""
    return ScalingAnswer(
        **printed._asdict(),
        keys=scaling.keys,
        samples=scaling.samples,
        seed=scaling.seed,
        rows=scaling.rows,
    )


def _rows(matrix: Matrix) -> Rows:
    return tuple(map(tuple, matrix.tolist()))


def _head(head: HeadNumbers) -> HeadMatrices:
    return HeadMatrices(
        q=_rows(head.q),
        k=_rows(head.k),
        v=_rows(head.v),
        scores=_rows(head.raw),
        scaled=_rows(head.scaled),
        masked=tuple(
            tuple(None if score == float("-inf") else score for score in row)
            for row in head.masked.tolist()
        ),
        weights=_rows(head.weights),
        weights_unscaled=_rows(head.raw_weights),
        output=_rows(head.output),
        entropy_bits=tuple(head.entropy.tolist()),
        entropy_bits_unscaled=tuple(head.raw_entropy.tolist()),
    )
