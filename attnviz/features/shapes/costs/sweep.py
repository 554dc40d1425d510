"""How costs grow with one size: ``seq=128..131072`` and the like."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from attnviz.attention.costs import (
    FLOAT32_BYTES,
    crossing,
    flops,
    parameters,
    streamed_elements,
    weights_elements,
)
from attnviz.attention.sizes import divisors
from attnviz.attention.spec import AttentionSpec, LayerAxes, RunSizes
from attnviz.errors import UsageError, cut
from attnviz.features.shapes.costs.decode import Decoding, decoding

Variable = Literal["seq", "d-model", "heads", "kv-heads", "context-length"]
VARIABLES: tuple[Variable, ...] = ("seq", "d-model", "heads", "kv-heads", "context-length")
MAX_STEPS = 200
DEFAULT_SEQ = 2048

_SWEEP = re.compile(r"^\s*(?P<name>[a-z_-]+)\s*=\s*(?P<values>.+?)\s*$", re.IGNORECASE)
_NUMBER = r"[0-9][0-9_]{0,20}"
_ONE = re.compile(_NUMBER)
_RANGE = re.compile(
    rf"(?P<low>{_NUMBER})\s*\.\.\s*(?P<high>{_NUMBER})(?:\s*:\s*(?P<op>[x+])(?P<by>{_NUMBER}))?"
)
_UP_TO_H = re.compile(r"(?i)(\.\.\s*)h\s*$")


@dataclass(frozen=True, slots=True)
class Point:
    """Costs at one size.

    Attributes:
        value: the size. spec, run: the layer and the run there.
        projection_flops: O(T·D²). attention_flops: O(T·S·D).
        materialized: bytes of the B·H·T·S weights at the run's dtype.
        streamed: bytes of weights held at once when nobody keeps them (float32 blocks of rows).
        decoding: what a step reads on a cache of that length, where key heads are swept.
    """

    value: int
    spec: AttentionSpec
    run: RunSizes
    parameters: int
    projection_flops: int
    attention_flops: int
    materialized: int
    streamed: int
    decoding: Decoding | None = None

    @property
    def attention_share(self) -> float:
        """Attention's share of the FLOPs."""
        return self.attention_flops / (self.attention_flops + self.projection_flops)


@dataclass(frozen=True, slots=True)
class Sweep:
    """Costs along one size.

    ``crossing`` is the length T at which attention costs what the projections cost; None when
    another size is swept, or where a window keeps attention the cheaper part. ``model`` names
    whose layer it is, where it is not a fresh one.
    """

    variable: Variable
    points: tuple[Point, ...]
    crossing: float | None
    model: str | None = None

    @property
    def subject(self) -> str:
        """The layer at the first size, after its model's name: ``Llama 3 8B: GQA, ...``."""
        spec = self.points[0].spec
        text = spec.title
        if self.variable == "kv-heads":
            text = f"D = {spec.d_model:,}, {spec.heads} heads of {spec.head_dim}"
        return f"{self.model}: {text}" if self.model else text


def parse_sweep(text: str, heads: int = 0) -> tuple[Variable, tuple[int, ...]]:
    """Read ``seq=128..131072`` (doubling), ``seq=0..9:+3``, ``heads=1..64:x4`` or ``seq=1,5,9``.

    Key heads must divide the ``heads`` query heads: ``kv-heads=1..H`` is every number that does.

    Raises:
        UsageError: junk, an unknown name, an empty or endless range.
    """
    matched, asked = _SWEEP.match(text), cut(text)
    unread = UsageError(
        "{sweep} is not understood; write NAME=LOW..HIGH, for example seq=128..131072", sweep=asked
    )
    if not matched:
        raise unread
    name = matched["name"].lower().replace("_", "-")
    variable = next((v for v in VARIABLES if v == name), None)
    if variable is None:
        raise UsageError("a sweep cannot vary {!r}; it takes {}", cut(name), ", ".join(VARIABLES))
    values = matched["values"]
    if variable == "kv-heads" and heads:
        values = _UP_TO_H.sub(rf"\g<1>{heads}", values)
    ranged = _RANGE.fullmatch(values)
    if not ranged:
        parts = [part.strip() for part in values.split(",")]
        if not all(map(_ONE.fullmatch, parts)):
            raise unread
        numbers = sorted({_whole(part) for part in parts})
        if len(numbers) > MAX_STEPS:
            raise UsageError("{sweep} has more than {} steps; give fewer", MAX_STEPS, sweep=asked)
    elif variable == "kv-heads" and heads and not ranged["op"]:
        low, high = _ends(asked, ranged)
        numbers = [divisor for divisor in divisors(heads) if low <= divisor <= high]
        if not numbers:
            raise UsageError("{sweep} has no number that divides {} heads", heads, sweep=asked)
    else:
        numbers = _steps(asked, ranged)
    if numbers[0] < 1:
        raise UsageError("{sweep} must start at 1 or above, not {}", numbers[0], sweep=asked)
    return variable, tuple(numbers)


def _whole(digits: str) -> int:
    return int(digits.replace("_", ""))


def _ends(asked: str, ranged: re.Match[str]) -> tuple[int, int]:
    low, high = _whole(ranged["low"]), _whole(ranged["high"])
    if low > high:
        raise UsageError(
            "{sweep} runs from {:,} down to {:,}; swap the two", low, high, sweep=asked
        )
    if low < 1:
        raise UsageError("{sweep} must start at 1 or above, not {}", low, sweep=asked)
    return low, high


def _steps(asked: str, ranged: re.Match[str]) -> list[int]:
    low, high = _ends(asked, ranged)
    by = _whole(ranged["by"] or "2")
    doubling = ranged["op"] != "+"
    if by < (2 if doubling else 1):
        raise UsageError("{sweep} never ends: step {}{}", ranged["op"], by, sweep=asked)
    numbers, value = [], low
    while value <= high:
        numbers.append(value)
        if len(numbers) > MAX_STEPS:
            raise UsageError(
                "{sweep} has more than {} steps; take larger ones", MAX_STEPS, sweep=asked
            )
        value = value * by if doubling else value + by
    if numbers[-1] != high:
        numbers.append(high)
    return numbers


def sweep(
    text: str, run: RunSizes, spec_at: Callable[[Variable, int | None], AttentionSpec]
) -> Sweep:
    """Costs of a layer along one size.

    Args:
        text: see :func:`parse_sweep`.
        run: the other sizes; an unset length is 2,048.
        spec_at: the layer with ``d-model``, ``heads`` or ``kv-heads`` set to a value (for other
            names it ignores the value); raises SizeError where that does not fit.

    Raises:
        UsageError: junk, or ``context-length`` without cross-attention.
        SizeError: a size on the way that does not fit the others.
    """
    variable, values = parse_sweep(text, spec_at("seq", None).heads)
    points = []
    for value in values:
        spec = spec_at(variable, value)
        here = _run_at(spec, run, variable, value)
        axes = LayerAxes(spec, here)
        cost = flops(spec, axes)
        count = weights_elements(axes).value
        points.append(
            Point(
                value=value,
                spec=spec,
                run=here,
                parameters=parameters(spec).total,
                projection_flops=cost.projections.value or 0,
                attention_flops=cost.attention.value or 0,
                materialized=(count or 0) * run.width,
                streamed=(streamed_elements(axes) or 0) * FLOAT32_BYTES,
                decoding=decoding([(spec, 1)], here.seq or DEFAULT_SEQ, here)
                if variable == "kv-heads"
                else None,
            )
        )
    spec = points[0].spec
    equal = crossing(spec) if variable == "seq" and spec.kind != "cross" else None
    return Sweep(variable, tuple(points), equal)


def _run_at(spec: AttentionSpec, run: RunSizes, variable: Variable, value: int) -> RunSizes:
    if run.cache is not None:
        raise UsageError("a sweep and {cache} do not go together; leave one out", cache=run.cache)
    if variable == "context-length" and spec.kind != "cross":
        raise UsageError(
            "{sweep} needs {kind}; for self-attention sweep seq",
            sweep="context-length=...",
            kind="cross",
        )
    seq = value if variable == "seq" else run.seq or DEFAULT_SEQ
    length = run.context_length
    if spec.kind == "cross":
        length = value if variable == "context-length" else length or DEFAULT_SEQ
    return replace(run, seq=seq, context_length=length, batch=run.batch or 1)
