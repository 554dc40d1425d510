"""What is wrong with attention from outside, all of it and where: one check of files and arrays.

A problem says what was expected and what was found, under its path: ``attentions[2, 0, 5]`` is
layer 2, head 0, query 5. :func:`attnviz.check` lists all problems; a reader raises the first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnviz.core.findings import FileProblem
from attnviz.core.quantities import QUANTITIES, Quantity
from attnviz.core.tokens import Sides
from attnviz.errors import InputError, cut
from attnviz.models.recorded.format import BY_KIND, FLAGS, PLAIN, REAL, Array, meta_of

SUM_TOLERANCE = 1e-3
"""How far the sum of a row may be from 1."""
HALF_TOLERANCE = 2e-2
"""The same in half precision, to which every weight was rounded."""
MOST_ROUNDED = 4e-3
"""A weight of 1 in 8 bits is off by at most this."""
MOST_ROUNDED_SUM = 0.1
"""No row is farther from its sum than this, however many rounded weights it has."""
HALF = "half precision"
"""How a capture names the precision of such weights."""

Report = Callable[[FileProblem], None]
"""Takes one problem; a reader's raises."""


def raising(source: str) -> Report:
    """Make a report that raises InputError for the first problem of a source."""

    def report(problem: FileProblem) -> None:
        where = ": ".join(part for part in (source, problem.path) if part)
        raise InputError(f"{where}: expected {problem.expected}, found {problem.found}")

    return report


def report_all(problems: Iterable[FileProblem], report: Report) -> bool:
    """Report every problem; whether there was none."""
    fine = True
    for problem in problems:
        report(problem)
        fine = False
    return fine


@dataclass(frozen=True)
class Part:
    """Where one layer's maps stand in what was given."""

    name: str  # of the array, or of the layer
    first: tuple[int | str, ...] = ()  # the indices before that of the head; ``:`` for all
    # the positions of its queries, padding left out; None for all; ``keys`` likewise
    rows: NDArray[np.intp] | None = None
    keys: NDArray[np.intp] | None = None

    def at(self, head: int, *place: int) -> str:
        """Name a head's row, or one of its weights, by its indices in the whole array."""
        axes = zip((self.rows, self.keys), place, strict=False)
        ends = [position if axis is None else int(axis[position]) for axis, position in axes]
        return f"{self.name}[{', '.join(map(str, (*self.first, head, *ends)))}]"

    def along(self, axis: str) -> str:
        """Name an axis, ``queries`` or ``keys``."""
        ends = (axis if axis == name else ":" for name in ("queries", "keys"))
        return f"{self.name}[{', '.join((*map(str, self.first), ':', *ends))}]"


def find_problems(fields: Mapping[str, Array]) -> Iterator[FileProblem]:
    """Find what is wrong with the fields of a file before their weights are looked at."""
    names = [name for name in BY_KIND if name in fields] or [n for n in PLAIN if n in fields][:1]
    yield from _token_problems(fields, "")
    if "cross_attentions" in names or "source_tokens" in fields:
        yield from _token_problems(fields, "source_")
    if "meta" in fields:
        yield from _meta_problems(fields["meta"])
    for name in names:
        array = fields[name]
        if array.dtype.kind != "f":
            yield FileProblem(name, "floating-point weights", f"{array.dtype}")
        elif array.ndim not in (4, 5) or 0 in array.shape:
            yield FileProblem(
                name,
                "shape [layers, heads, queries, keys] or [layers, batch, heads, queries, keys]",
                f"shape {list(array.shape)}",
            )


def find_in_weights(fields: Mapping[str, Array]) -> Iterator[FileProblem]:
    """Find what is wrong with the weights of a file of one item, whatever its other fields are."""
    meta = meta_of(dict(fields))
    quantity = str(meta.get("quantity", "weights"))
    for name in (*PLAIN, *BY_KIND):
        array = fields.get(name)
        if array is None or array.ndim != 4 or array.dtype.kind != "f":
            continue
        for layer, weights in enumerate(array):
            part, problem = Part(name, (layer,)), None
            for problem in weight_problems(weights, part, QUANTITIES.get(quantity)):
                yield problem
            if problem is None and quantity == "weights":
                room = tolerance_of(str(array.dtype), meta.get("error"), array.shape[-1])
                yield from sum_problems(weights, part, room, sink="sink" in str(meta.get("reach")))


def _token_problems(fields: Mapping[str, Array], prefix: str) -> Iterator[FileProblem]:
    name = f"{prefix}tokens"
    texts = fields.get(name)
    if texts is None:
        yield FileProblem(name, "the text of each token, [T] or [B, T]", "nothing")
        return
    if texts.dtype.kind != "U":
        yield FileProblem(name, "strings", f"{texts.dtype}")
    if texts.ndim not in (1, 2) or not texts.size:
        yield FileProblem(name, "shape [T] or [B, T], not empty", f"shape {list(texts.shape)}")
    for flag in (*FLAGS, REAL):
        given = fields.get(prefix + flag)
        if given is None:
            continue
        if given.dtype.kind not in "biu":
            yield FileProblem(prefix + flag, "whole numbers or booleans", f"{given.dtype}")
        if given.shape != texts.shape:
            yield FileProblem(
                prefix + flag,
                f"shape {list(texts.shape)}, that of {name}",
                f"shape {list(given.shape)}",
            )


def _meta_problems(given: Array) -> Iterator[FileProblem]:
    try:
        meta = json.loads(str(given))
    except (ValueError, RecursionError) as error:
        yield FileProblem("meta", "a JSON object as one string", f"no JSON ({error})"[:200])
        return
    if not isinstance(meta, dict):
        yield FileProblem("meta", "a JSON object", type(meta).__name__)
        return
    what = meta.get("quantity", "weights")
    if what not in QUANTITIES:
        yield FileProblem("meta.quantity", f"one of {', '.join(QUANTITIES)}", cut(repr(what)))


def length_problems(part: Part, shape: tuple[int, ...], sides: Sides) -> Iterator[FileProblem]:
    """Find axes of maps [..., T, S] that are not as long as the tokens on their sides."""
    for axis, side, tokens in ((-2, "queries", sides.queries), (-1, "keys", sides.keys)):
        if shape[axis] != len(tokens):
            expected = f"{len(tokens)} {side}, one for each token"
            yield FileProblem(part.along(side), expected, f"{shape[axis]}")


def weight_problems(weights: Array, part: Part, of: Quantity | None) -> Iterator[FileProblem]:
    """Find weights [H, T, S] that are not finite, or negative where their quantity has no sign."""
    if not len(weights):
        yield FileProblem(part.name, "at least one head", "none")
    elif not (finite := np.isfinite(weights)).all():
        partly = np.any(finite.any(-1) & ~finite.all(-1))
        remedy = "" if partly else ", 0 where all keys are masked"
        yield _first_of(part, ~finite, f"finite weights{remedy}", weights)
    elif (weights < 0).any() and not (of is not None and of.signed):
        yield _first_of(part, weights < 0, "weights after softmax, 0 or more", weights)


def sum_problems(
    weights: Array, part: Part, tolerance: float, *, sink: bool = False
) -> Iterator[FileProblem]:
    """Find the rows of [H, T, S] that are no distribution.

    Every row sums to 1, or all of its weights are 0 where it is masked; with a learned sink a row
    sums to 1 or less.
    """
    sums = weights.sum(-1, dtype=np.float64)
    wrong = sums > 1 + tolerance
    if not sink:
        wrong |= (sums < 1 - tolerance) & weights.any(-1)
    if wrong.any():
        expected = f"a row that sums to 1 (or 0 where masked) within {tolerance:g}"
        columns = weights.sum(-2, dtype=np.float64)
        swapped = (abs(columns - 1) <= tolerance).all()
        remedy = "as columns do here: swap queries and keys" if swapped else (
            "after softmax, before dropout"
        )  # fmt: skip
        if not sink and not swapped and not (sums > 1 + tolerance).any():
            remedy += ", or with sinks=True where a learned sink takes a part"
        yield _first_of(part, wrong, f"{expected}, {remedy}", sums)


def tolerance_of(dtype: str, error: object = None, keys: int = 0) -> float:
    """Tell how far a row of that many keys may be from its sum.

    More where weights were in half precision (float16, bfloat16), and where a page that saved them
    declares the ``error`` by which each is off at most.
    """
    if dtype.removeprefix("torch.") in (HALF, "float16", "bfloat16"):
        return HALF_TOLERANCE
    if type(error) is not float or not 0 <= error <= MOST_ROUNDED:
        return SUM_TOLERANCE
    return SUM_TOLERANCE + min(error * keys, MOST_ROUNDED_SUM)


def _first_of(part: Part, wrong: Array, expected: str, values: Array) -> FileProblem:
    """Name the first of many places, and say how many there are."""
    place = tuple(int(at) for at in np.argwhere(wrong)[0])
    count = int(wrong.sum())
    more = f", and {count - 1} more" if count > 1 else ""
    return FileProblem(part.at(*place), expected, f"{float(values[place]):.6g}{more}")


def damaged(error: InputError, source: str) -> FileProblem:
    """Tell what stands in the way of reading any field: of JSON, with its path."""
    line = str(error).removeprefix(f"{source} is damaged: ").partition("; make it again")[0]
    what, at, where = line.partition(" - at `")
    if not at:
        return FileProblem("", "a recording", line)
    path = where.rstrip("`").removeprefix("$.")
    expected, _, got = what.partition(", got ")
    return FileProblem(path, expected.removeprefix("Expected ").strip("`"), got.strip("`") or what)
