"""Key heads swept: what fewer of them save in parameters, cache and reading, as table and plot."""

from __future__ import annotations

from attnviz.attention.costs import cache_elements
from attnviz.errors import Message
from attnviz.features.shapes.costs.sweep import Sweep
from attnviz.features.shapes.drawing.plot import Curve, plot
from attnviz.features.shapes.drawing.units import count, plural, size
from attnviz.features.shapes.drawing.walk import unset_dtype
from attnviz.features.shapes.table import Column, Paint, Printed, Row, Table, cell

WEIGHTS, CACHE = "weights", "keys and values"


def key_heads_printed(sweep: Sweep) -> Printed:
    """One row a number of key heads: what decoding a token reads, and the FLOPs a byte."""
    first = sweep.points[0]
    run = first.run
    columns = (
        Column("value", "G", "right"),
        Column("kind", "kind"),
        Column("parameters", "params", "right"),
        Column("cache_bytes_token", "cache/token", "right"),
        Column("weights_bytes", "read: weights", "right", optional=1),
        Column("cache_bytes", "read: cache", "right", optional=1),
        Column("read_bytes_token", "read/token", "right"),
        Column("step_flops", "FLOPs", "right", optional=1),
        Column("intensity", "FLOP/byte", "right"),
    )
    rows = []
    for point in sweep.points:
        step, layer = point.decoding, point.spec
        if step is None:
            continue
        token = cache_elements(layer) * run.cache_width
        rows.append(
            Row(
                (
                    cell(point.value, "strong", point.value),
                    cell(layer.kind.upper(), "", layer.kind),
                    cell(f"{point.parameters:,}", "", point.parameters),
                    cell(size(token), "", token),
                    cell(size(step.weights), "", step.weights),
                    cell(size(step.cache), "", step.cache),
                    cell(size(step.bytes_per_token), "", step.bytes_per_token),
                    cell(count(step.flops), "", step.flops),
                    cell(f"{step.intensity:.3g}", "", step.intensity),
                )
            )
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
    kept = f" (cache in {run.cached})" if run.cache_dtype else ""
    notes = [
        Message(
            "One layer decodes a token of {} on a cache of {}, in {}{}; {seq}, {batch} and "
            "{dtype} set them.",
            batch,
            tokens,
            run.number,
            kept,
            seq=...,
            batch=...,
            dtype=...,
        ),
        "Read per token: the weights, shared by the batch, and the sequence's own keys and values. "
        "A machine that computes more FLOPs in the time it reads a byte waits for memory.",
    ]
    notes += [unset_dtype()] if run.chosen is None else []
    title = f"{sweep.subject}: costs along kv-heads"
    return Printed(title, tuple(notes), (Table("", columns, tuple(rows)),), draw)
