"""Why each step of the walk is there, from ``why.toml``, and examples.

The steps that positions take part in come with numbers small enough to check by hand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache

from attnviz.attention.spec import AttentionSpec, Buckets


@cache
def reasons() -> Mapping[str, str]:
    """Why each step is there, by its key."""
    import tomllib
    from importlib.resources import files

    return tomllib.loads(files(__package__).joinpath("why.toml").read_text(encoding="utf-8"))


NORMED = (3.0, 4.0)
DISTANCES = (0, 1, 2, 8, 20, 127, 128)


def example(key: str, spec: AttentionSpec) -> str:
    """One sentence with the numbers of a step of this layer; empty for steps that need none."""
    if key == "norm_q" and spec.qk_norm is not None:
        centred = spec.qk_norm.kind == "LayerNorm"
        return f"{vector(NORMED)} becomes {vector(normalized(NORMED, centred=centred))}."
    if key == "rotate_q" and spec.rotary is not None:
        return _rotated(spec)
    if key == "position_bias" and spec.buckets is not None:
        distances = [d for d in DISTANCES if d < spec.buckets.reach] + [spec.buckets.reach]
        numbers = [bucket(-d, spec.buckets, causal=spec.causal) for d in distances]
        text = f"Keys {listed(distances)} back have buckets {listed(numbers)} of {{:,}}"
        text = text.format(spec.buckets.count)
        ahead = "" if spec.causal else f", a key 1 ahead {bucket(1, spec.buckets, causal=False)}"
        return f"{text}{ahead}."
    if key == "window" and spec.window is not None:
        query = spec.window + 2
        first, last = visible(query, spec)
        until = f"{last:,}" if spec.causal else f"{last:,} in a text that long"
        return f"Query {query:,} (from 0) sees keys {first:,} to {until}."
    return ""


def normalized(values: Sequence[float], *, centred: bool) -> tuple[float, ...]:
    """Values over their root mean square, less their mean before where ``centred``.

    RMSNorm: Zhang and Sennrich 2019 (arXiv:1910.07467); LayerNorm: Ba et al. 2016
    (arXiv:1607.06450). No learned weight, and nothing added under the root.
    """
    mean = sum(values) / len(values) if centred else 0.0
    root = math.sqrt(sum((x - mean) ** 2 for x in values) / len(values))
    return tuple((x - mean) / root for x in values)


def turned(pair: tuple[float, float], position: int, frequency: float) -> tuple[float, float]:
    """A pair of numbers turned by ``position`` times ``frequency`` radians."""
    x, y = pair
    cos, sin = math.cos(position * frequency), math.sin(position * frequency)
    return x * cos - y * sin, x * sin + y * cos


def bucket(offset: int, table: Buckets, *, causal: bool) -> int:
    """The row of T5's table for a key ``offset`` positions after the query (before: negative).

    Half of the rows are single distances, the others grow as the logarithm up to ``reach``; where
    attention is not causal, later keys have the second half of the table. Raffel et al. 2020
    (arXiv:1910.10683), section 2.1.
    """
    rows = table.count if causal else table.count // 2
    first = rows if not causal and offset > 0 else 0
    distance = max(-offset, 0) if causal else abs(offset)
    exact = rows // 2
    if distance < exact:
        return first + distance
    grown = math.log(distance / exact) / math.log(table.reach / exact) * (rows - exact)
    return first + min(exact + int(grown), rows - 1)


def visible(query: int, spec: AttentionSpec) -> tuple[int, int]:
    """The first and the last key that a query sees through its window, in a text without end."""
    window = spec.window or 0
    if spec.chunked:
        return query // window * window, query
    first = max(query - window + 1, 0)
    return first, query if spec.causal else query + window - 1


def vector(values: Sequence[float]) -> str:
    """``(0.5403, 0.8415)``."""
    return "(" + ", ".join(f"{round(x, 4) + 0.0:.5g}" for x in values) + ")"


def listed(values: Sequence[int]) -> str:
    """``0, 1 and 8``."""
    *some, last = map(str, values)
    return f"{', '.join(some)} and {last}" if some else last


def _rotated(spec: AttentionSpec) -> str:
    rotary = spec.rotary
    if rotary is None:
        return ""
    half = rotary.width // 2
    other = 1 if rotary.adjacent else half
    text = f"Numbers 0 and {other} are pair 0, which turns by 1 radian a position"
    if rotary.base is not None and half > 1:
        slowest = rotary.base ** (-2 * (half - 1) / rotary.width)
        text += f", the last pair by {slowest:.3g}"
    if rotary.scaling:
        text += f" (before {rotary.scaling} scaling)"
    once, twice = turned((1, 0), 1, 1), turned((1, 0), 2, 1)
    return f"{text}: (1, 0) becomes {vector(once)} at position 1 and {vector(twice)} at position 2."
