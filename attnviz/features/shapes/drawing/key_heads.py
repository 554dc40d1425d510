"""Key heads swept: what fewer of them save in parameters, cache and reading, as table and plot."""

from __future__ import annotations

from attnviz.attention.costs import cache_elements
from attnviz.errors import Message
from attnviz.features.shapes.costs.sweep import Point, Sweep
from attnviz.features.shapes.drawing.plot import Curve, plot
from attnviz.features.shapes.drawing.units import count, plural, size
from attnviz.features.shapes.drawing.walk import unset_dtype
from attnviz.features.shapes.table import Column, Paint, Printed, cell, numbers, table_of

WEIGHTS, CACHE = "weights", "keys and values"


def key_heads_printed(sweep: Sweep) -> Printed:
    """One row a number of key heads: what decoding a token reads, and the FLOPs a byte."""
    first = sweep.points[0]
    run = first.run
    kind = Column("kind", "kind")
    table = table_of(
        [point for point in sweep.points if point.decoding is not None],
        numbers("value", "G", lambda p: p.value, str, "strong"),
        (kind, lambda point: cell(point.spec.kind.upper(), "", point.spec.kind)),
        numbers("parameters", "params", lambda p: p.parameters),
        numbers("cache_bytes_token", "cache/token", _kept, size),
        numbers("weights_bytes", "read: weights", lambda p: p.decoding.weights, size, optional=1),
        numbers("cache_bytes", "read: cache", lambda p: p.decoding.cache, size, optional=1),
        numbers("read_bytes_token", "read/token", lambda p: p.decoding.bytes_per_token, size),
        numbers("step_flops", "FLOPs", lambda p: p.decoding.flops, count, optional=1),
        numbers("intensity", "FLOP/byte", lambda p: p.decoding.intensity, "{:.3g}".format),
    )
    steps = [(p.value, p.decoding) for p in sweep.points if p.decoding is not None]

    def draw(width: int, paint: Paint) -> list[str]:
        if len(steps) < 2:
            return []
        curves = [
            Curve(WEIGHTS, "T", [(value, step.weights) for value, step in steps]),
            Curve(CACHE, "H", [(value, step.cache) for value, step in steps]),
        ]
        return plot(curves, width, paint, x_name="key heads G", y_name="bytes read")

    tokens, batch = plural(run.seq or 0, "token"), plural(run.batch or 1, "sequence")
    cached = f" (cache in {run.cached})" if run.cache_dtype else ""
    notes = [
        Message(
            "One layer decodes a token of {} on a cache of {}, in {}{}; {seq}, {batch} and "
            "{dtype} set them.",
            batch,
            tokens,
            run.number,
            cached,
            seq=...,
            batch=...,
            dtype=...,
        ),
        "Read per token: the weights, shared by the batch, and the sequence's own keys and values. "
        "A machine that computes more FLOPs in the time it reads a byte waits for memory.",
    ]
    notes += [unset_dtype()] if run.chosen is None else []
    title = f"{sweep.subject}: costs along kv-heads"
    return Printed(title, tuple(notes), (table,), draw)


def _kept(point: Point) -> int:
    """Bytes of the cache for a token."""
    return cache_elements(point.spec) * point.run.cache_width
