"""How costs grow with one size: ``seq=128..131072`` and the like."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from attnviz.attention.costs import (
    FLOAT32_BYTES,
    cache_elements,
    crossing,
    flops,
    parameters,
    streamed_elements,
    weights_elements,
)
from attnviz.attention.spec import AttentionSpec, LayerAxes, RunSizes, divisors
from attnviz.errors import UsageError, cut
from attnviz.features.shapes.costs import decoding
from attnviz.features.shapes.records import layer_run, layer_sizes
from attnviz.features.shapes.result import SweepAnswer, SweepCosts

Variable = Literal["seq", "d-model", "heads", "kv-heads", "context-length", "tp"]
VARIABLES: tuple[Variable, ...] = ("seq", "d-model", "heads", "kv-heads", "context-length", "tp")
DECODED = ("kv-heads", "tp")
"""Sizes along which a decoding step is costed: key heads, and the GPUs that share the heads."""
MAX_STEPS = 200
DEFAULT_SEQ = 2048

_SWEEP = re.compile(r"^\s*(?P<name>[a-z_-]+)\s*=\s*(?P<values>.+?)\s*$", re.IGNORECASE)
_NUMBER = r"[0-9][0-9_]{0,20}"
_ONE = re.compile(_NUMBER)
_RANGE = re.compile(
    rf"(?P<low>{_NUMBER})\s*\.\.\s*(?P<high>{_NUMBER})(?:\s*:\s*(?P<op>[x+])(?P<by>{_NUMBER}))?"
)
_UP_TO_H = re.compile(r"(?i)(\.\.\s*)h\s*$")


def parse_sweep(text: str, heads: int = 0) -> tuple[Variable, tuple[int, ...]]:
    """Read ``seq=128..131072`` (doubling), ``seq=0..9:+3``, ``heads=1..64:x4`` or ``seq=1,5,9``.

    Key heads must divide the ``heads`` query heads: ``kv-heads=1..H`` is every number that does.
    UsageError for junk, an unknown name, an empty or endless range.
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
) -> SweepAnswer:
    """Cost a layer along one size (:func:`parse_sweep`), with ``spec_at`` its layer at a value."""
    whole = spec_at("seq", None)
    variable, values = parse_sweep(text, whole.heads)
    specs = [spec_at(variable, value) for value in values]
    runs = [_run_at(spec, run, variable, value) for spec, value in zip(specs, values, strict=True)]
    cost = _decoding if variable in DECODED else _costs
    points = tuple(map(cost, values, specs, runs))
    equal = crossing(specs[0]) if variable == "seq" and specs[0].kind != "cross" else None
    return SweepAnswer(
        title="",
        layer=layer_sizes(specs[0]),
        run=layer_run(runs[0]),
        variable=variable,
        crossing_length=equal,
        points=points,
        specs=tuple(specs),
        subject_spec=whole,
        sizes=runs[0],
    )


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


def _costs(value: int, spec: AttentionSpec, run: RunSizes) -> SweepCosts:
    """Cost a run through one layer."""
    axes = LayerAxes(spec, run)
    cost = flops(spec, axes)
    projected, attended = cost.projections.value or 0, cost.attention.value or 0
    return SweepCosts(
        value=value,
        parameters=parameters(spec).total,
        weights_bytes=(weights_elements(axes).value or 0) * run.width,
        projection_flops=projected,
        attention_flops=attended,
        attention_share=attended / (attended + projected),
        streamed_bytes=(streamed_elements(axes) or 0) * FLOAT32_BYTES,
    )


def _decoding(value: int, spec: AttentionSpec, run: RunSizes) -> SweepCosts:
    """Cost a step that decodes a token in one layer."""
    step = decoding([(spec, 1)], run.seq or DEFAULT_SEQ, run)
    return SweepCosts(
        value=value,
        parameters=parameters(spec).total,
        weights_bytes=step.weights,
        cache_bytes_per_token=cache_elements(spec) * run.cache_width,
        cache_bytes=step.cache,
        read_bytes_per_decoded_token=step.bytes_per_token,
        decoding_flops=step.flops,
        flops_per_byte=step.intensity,
    )
