"""Comparisons, sweeps and the effect of 1/√d as tables and plots.

Curves on logarithmic axes in the terminal, drawn with braille dots.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from attnviz.drawing.console import dot_bit, dots_sign
from attnviz.features.shapes.costs import DECODED
from attnviz.features.shapes.result import (
    CompareAnswer,
    ScalingAnswer,
    SweepAnswer,
    SweepCosts,
    VariantCosts,
)
from attnviz.features.shapes.table import (
    CellColumn,
    Column,
    Draw,
    Paint,
    Table,
    TableCell,
    amount,
    cell,
    cells_wide,
    count,
    numbers,
    percent,
    plural,
    say,
    size,
    table_of,
)

_ASCII_MARKS = "*o+x"
HEIGHT = 16


class Curve(NamedTuple):
    """A named line through points with positive coordinates; ``tone`` colours it."""

    name: str
    tone: str
    points: Sequence[tuple[float, float]]


class Mark(NamedTuple):
    """A point worth seeing, with what to write about it below the plot."""

    x: float
    y: float
    text: str


def _label(value: float) -> str:
    return count(value) if value >= 100 else f"{value:.3g}"


def plot(
    curves: Sequence[Curve],
    width: int,
    paint: Paint,
    *,
    x_name: str,
    y_name: str,
    mark: Mark | None = None,
    y_log: bool = True,
) -> list[str]:
    """Plot curves over a logarithmic axis in ``width`` columns: legend, axes, mark's sentence."""
    points = [p for curve in curves for p in curve.points if p[0] > 0 and (p[1] > 0 or not y_log)]
    if not points:
        return []
    scale = math.log10 if y_log else float
    xs, ys = [math.log10(x) for x, _ in points], [scale(y) for _, y in points]
    low_x, span_x = min(xs), max(xs) - min(xs) or 1.0
    low_y, span_y = min(ys), max(ys) - min(ys) or 1.0
    gutter = 10
    columns, rows = max(20, min(width - gutter - 2, 100)), HEIGHT
    cells: Cells = {}

    def place(x: float, y: float) -> tuple[float, float]:
        """Dots from the left and from the top; a cell on each side stays free."""
        across = 2 + (math.log10(x) - low_x) / span_x * (2 * columns - 5)
        return across, 4 + (1 - (scale(y) - low_y) / span_y) * (4 * rows - 9)

    for number, curve in enumerate(curves):
        dots = [place(x, y) for x, y in curve.points if x > 0 and (y > 0 or not y_log)]
        for first, second in zip(dots, dots[1:] or dots, strict=False):
            _draw_line(cells, first, second, number)
    marked = None
    if mark is not None and low_x <= math.log10(mark.x) <= low_x + span_x:
        x, y = place(mark.x, mark.y)
        marked = round(y) // 4, round(x) // 2

    def sign(cell: tuple[int, int]) -> str:
        if cell == marked:
            return paint("◆", "strong")
        if cell not in cells:
            return " "
        bits, owner = cells[cell]
        dots = _ASCII_MARKS[owner % 4] if paint.ascii_only else dots_sign(bits)
        return paint(dots, curves[owner].tone)

    legend = "   ".join(
        paint(f"{_ASCII_MARKS[i % 4] if paint.ascii_only else '━━'} {c.name}", c.tone)
        for i, c in enumerate(curves)
    )
    lines = [f"{' ' * gutter}  {legend}"]
    top, bottom = (10 ** (low_y + span_y), 10**low_y) if y_log else (low_y + span_y, low_y)
    for row in range(rows):
        text = "".join(sign((row, column)) for column in range(columns)).rstrip(" ")
        side = {0: y_name, 1: _label(top), rows - 2: _label(bottom)}.get(row, "")
        lines.append(f"{side[:gutter]:>{gutter}} {paint('│', 'dim')}{text}")
    lines.append(" " * (gutter + 1) + paint("└" + "─" * columns, "dim"))
    start, end = f"{10**low_x:,.0f}", f"{10 ** (low_x + span_x):,.0f}"
    middle = x_name.center(columns - 2 - cells_wide(start) - cells_wide(end))
    lines.append(" " * (gutter + 3) + start + paint(middle, "dim") + end)
    if mark is not None:
        lines += ["", paint("◆ ", "strong") + paint(mark.text)]
    return lines


Cells = dict[tuple[int, int], tuple[int, int]]
"""By row and column the bits of 2 by 4 dots, and the curve that drew there last."""


def _draw_line(
    cells: Cells, first: tuple[float, float], second: tuple[float, float], owner: int
) -> None:
    """Set the dots from one place to another, both as dots from the left and from the top."""
    (x, y), (right, low) = first, second
    steps = int(max(abs(right - x), abs(low - y), 1))
    for i in range(steps + 1):
        part = i / steps
        column, row = round(x + (right - x) * part), round(y + (low - y) * part)
        bits, _ = cells.get((row // 4, column // 2), (0, owner))
        cells[row // 4, column // 2] = bits | dot_bit(row, column), owner


def compare_printed(comparison: CompareAnswer) -> CompareAnswer:
    """Lay out one row a kind of attention."""
    run, batch = comparison.sizes, comparison.sizes.batch or 1
    names = [variant.name for variant in comparison.variants]
    totals = dict(zip(names, comparison.totals, strict=True))
    columns: list[CellColumn] = [
        (Column("kind", "kind", wrap=14), _kind),
        numbers("parameters", "params/layer", "parameters", optional=3),
        (
            Column("flops", "FLOPs/layer", "right", optional=4),
            lambda variant: cell(amount(totals[variant.name]), "", variant.flops.formula),
        ),
        numbers("cache_elements", "numbers", "cache_elements_per_token"),
        numbers("cache_bytes_token", "per token", "cache_bytes_per_token", size),
        numbers("cache_bytes_sequence", "sequence", "cache_bytes_per_sequence", size),
    ]
    if batch > 1:
        title = f"batch {batch:,}"
        columns.append(numbers("cache_bytes_batch", title, "cache_bytes_per_batch", size, "", 1))
    columns += [
        numbers("ratio", "of MHA", "ratio_to_mha", _ratio),
        numbers("read_bytes_token", "read/token", "read_bytes_per_decoded_token", size, optional=1),
        numbers("step_flops", "FLOPs/token", "decoding_flops", count, optional=3),
        numbers("intensity", "FLOP/byte", "flops_per_byte", "{:.3g}".format, optional=1),
    ]
    if comparison.memory_bytes is not None:
        columns += [
            numbers("fits_tokens", "tokens fit", "fits_tokens", _fits),
            numbers("fits_sequences", "seqs fit", "fits_sequences"),
        ]
    used_by = Column("used_by", "used by", wrap=17, optional=2)
    columns.append((used_by, lambda variant: cell(", ".join(variant.used_by), "dim")))
    memory = ""
    if comparison.memory_bytes is not None:
        memory = (
            f", memory {comparison.memory_bytes / 1e9:,.4g} GB ({size(comparison.memory_bytes)})"
        )
    cached = f", cache in {run.cached}" if run.cache_dtype else ""
    title = (
        f"{comparison.subject}: kinds of attention, {plural(comparison.layers, 'layer')}, "
        f"{run.number}{cached}{memory}"
    )
    notes = tuple(_compare_notes(comparison))
    table = table_of(comparison.variants, *columns)
    return replace(comparison, title=title, notes=notes, tables=(table,))


def _kind(variant: VariantCosts) -> TableCell:
    tone = "strong" if variant.own else ""
    return cell(("▶ " if variant.own else "  ") + variant.name, tone, variant.name)


def _fits(tokens: int) -> str:
    return "any" if tokens == -1 else f"{tokens:,}"


def _ratio(ratio: float) -> str:
    return percent(ratio) if ratio < 1 else "1"


def _compare_notes(comparison: CompareAnswer) -> list[str]:
    run = comparison.sizes
    tokens, layers = plural(comparison.tokens, "token"), plural(comparison.layers, "layer")
    notes: list[str] = [
        say("compare.numbers", tokens, layers, run.cache_width, cache=..., seq=...),
        say("compare.read", run.batch or 1),
        say("every.counting"),
    ]
    latent = next((variant for variant in comparison.variants if variant.layer.kind == "mla"), None)
    if latent is not None:
        steps = latent.decoding_flops, latent.decoding_flops_rebuilt
        notes.append(say("compare.latent", *map(count, steps)))
    if comparison.spec.window is not None or any(
        variant.layer.sliding_window for variant in comparison.variants
    ):
        notes.append(say("compare.window"))
    row = next((variant for variant in comparison.variants if variant.own), None)
    if row is not None and row.ratio_to_mha < 1:
        spec, elements = comparison.spec, comparison.variants[0].cache_elements_per_token
        ratio = 1 / row.ratio_to_mha, percent(row.ratio_to_mha)
        sizes = row.name, row.cache_elements_per_token, spec.heads, spec.head_dim
        notes.insert(0, say("compare.own", *sizes, elements, *ratio))
    if comparison.spec.kind == "mla":
        notes.insert(1, say("compare.systems"))
    if comparison.memory_bytes is not None:
        notes.append(_memory_note(comparison, tokens))
    if any(variant.used_by for variant in comparison.variants):
        notes.append(say("compare.used_by"))
    if run.chosen is None:
        notes.append(say("every.unset_dtype", dtype="bf16"))
    if run.cached == "int8":
        notes.append(say("compare.int8"))
    return notes


def _memory_note(comparison: CompareAnswer, tokens: str) -> str:
    """Return what has to fit, and whether it does."""
    row = next((variant for variant in comparison.variants if variant.own), comparison.variants[0])
    owner = (
        "the model's weights" if comparison.whole else "attention's weights, all that is known here"
    )
    weights = size(row.weights_bytes)
    text = say("compare.fits", owner, weights, comparison.sizes.number, row.name, tokens)
    short = row.weights_bytes - (comparison.memory_bytes or 0)
    return text + (f" The weights alone lack {size(short)}." if short > 0 else "")


def sweep_printed(sweep: SweepAnswer) -> SweepAnswer:
    """Lay out one row a size, and two costs as curves."""
    lay_out = _lay_out_decoding if sweep.variable in DECODED else _lay_out_run
    table, notes, draw = lay_out(sweep)
    if sweep.sizes.chosen is None:
        notes.append(say("every.unset_dtype", dtype="bf16"))
    title = f"{sweep.subject}: costs along {sweep.variable}"
    return replace(sweep, title=title, notes=tuple(notes), tables=(table,), draw=draw)


def _lay_out_run(sweep: SweepAnswer) -> tuple[Table, list[str], Draw]:
    """Lay out what a run costs at each size."""
    table = table_of(
        sweep.points,
        numbers("value", sweep.variable, "value", tone="strong"),
        numbers("parameters", "params", "parameters", optional=1),
        numbers("projection_flops", "projections", "projection_flops", count),
        numbers("attention_flops", "attention", "attention_flops", count),
        numbers("attention_share", "share", "attention_share", percent),
        numbers("weights_bytes", "weights, kept", "weights_bytes", size),
        numbers("streamed_bytes", "in blocks", "streamed_bytes", size),
    )
    notes: list[str] = [say("every.counting"), say("sweep.kept")]
    crossed = crossing_mark(sweep)
    if crossed is not None and len(sweep.points) < 2:
        notes.insert(0, crossed.text)
    names = {"projection_flops": "projections, O(T·D²)", "attention_flops": "attention, O(T²·D)"}
    return table, notes, _plot_costs(sweep, names, sweep.variable, "FLOPs", crossed)


def _plot_costs(
    sweep: SweepAnswer, names: Mapping[str, str], x: str, y: str, mark: Mark | None = None
) -> Draw:
    """Plot two costs of several sizes, by the fields that they are."""

    def draw(width: int, paint: Paint) -> list[str]:
        if len(sweep.points) < 2:
            return []
        curves = [
            Curve(name, tone, [(point.value, getattr(point, cost) or 0) for point in sweep.points])
            for tone, (cost, name) in zip("TH", names.items(), strict=True)
        ]
        return plot(curves, width, paint, x_name=x, y_name=y, mark=mark)

    return draw


def crossing_mark(sweep: SweepAnswer) -> Mark | None:
    """Where attention itself becomes dearer than the projections."""
    if sweep.crossing_length is None:
        return None
    first = sweep.points[0]
    per_token = (first.projection_flops or 0) / first.value
    inside = sweep.points[0].value <= sweep.crossing_length <= sweep.points[-1].value
    text = f"equal at T = {sweep.crossing_length:,.0f}: beyond it attention dominates, O(T²·D)"
    if not inside:
        text += " (outside of this range)"
    return Mark(sweep.crossing_length, per_token * sweep.crossing_length, text)


_SOFTENED = {"entropy": "entropy_bits", "top": "top_weight", "gradient": "gradient_norm"}


def scaling_printed(result: ScalingAnswer) -> ScalingAnswer:
    """Lay out softmax with and without 1/√d, one row a width."""
    table = table_of(
        result.rows,
        numbers("d", "d", "d", str, "strong"),
        *(
            numbers(f"{which}_{name}", title, f"{which}.{field}", "{:.3f}".format, tone)
            for name, field in _SOFTENED.items()
            for which, title, tone in (("raw", f"{name}, raw", "bad"), ("scaled", "scaled", "good"))
        ),
    )

    def draw(width: int, paint: Paint) -> list[str]:
        curves = [
            Curve("raw scores", "bad", [(r.d, r.raw.entropy_bits) for r in result.rows]),
            Curve("scores · 1/√d", "good", [(r.d, r.scaled.entropy_bits) for r in result.rows]),
        ]
        return plot(curves, width, paint, x_name="d", y_name="bits", y_log=False)

    return replace(
        result,
        title=f"What 1/√d is for: softmax over {result.keys} keys, queries and keys standard "
        "normal",
        notes=(say("scaling.means", result.samples, result.seed), say("scaling.gradient")),
        tables=(table,),
        draw=draw,
    )


def _lay_out_decoding(sweep: SweepAnswer) -> tuple[Table, list[str], Draw]:
    """Lay out what decoding a token reads and takes at each number of key heads, or of GPUs."""
    run, gpus = sweep.sizes, sweep.variable == "tp"
    specs = {point.value: spec for point, spec in zip(sweep.points, sweep.specs, strict=True)}

    def of_spec(key: str, title: str) -> CellColumn:
        def shown(point: SweepCosts) -> TableCell:
            figure = getattr(specs[point.value], key)
            return cell(figure.upper() if isinstance(figure, str) else figure, "", figure)

        return Column(key, title, "left" if key == "kind" else "right"), shown

    described = {"heads": "heads", "kv_heads": "key heads"} if gpus else {"kind": "kind"}
    table = table_of(
        sweep.points,
        numbers("value", "GPUs" if gpus else "G", "value", str, "strong"),
        *(of_spec(key, heading) for key, heading in described.items()),
        numbers("parameters", "params", "parameters"),
        numbers("cache_bytes_token", "cache/token", "cache_bytes_per_token", size),
        numbers("weights_bytes", "read: weights", "weights_bytes", size, optional=1),
        numbers("cache_bytes", "read: cache", "cache_bytes", size, optional=1),
        numbers("read_bytes_token", "read/token", "read_bytes_per_decoded_token", size),
        numbers("step_flops", "FLOPs", "decoding_flops", count, optional=1),
        numbers("intensity", "FLOP/byte", "flops_per_byte", "{:.3g}".format),
    )
    names = {"weights_bytes": "weights", "cache_bytes": "keys and values"}
    draw = _plot_costs(sweep, names, "GPUs" if gpus else "key heads G", "bytes read")
    tokens, batch = plural(run.seq or 0, "token"), plural(run.batch or 1, "sequence")
    cached = f" (cache in {run.cached})" if run.cache_dtype else ""
    decoded = batch, tokens, run.number, cached
    notes = list(_gpu_notes(sweep)) if gpus else []
    notes.append(say("sweep.decodes", *decoded, seq=..., batch=..., dtype=...))
    notes.append(say("sweep.read"))
    return table, notes, draw


def _gpu_notes(sweep: SweepAnswer) -> Iterator[str]:
    """Say what a row counts, and from how many GPUs on key heads are kept more than once."""
    yield say("sweep.gpus")
    spec, gpus = sweep.subject_spec, sweep.points[-1].value
    if spec.kind == "mla":
        yield say("sweep.latent")
    elif gpus > spec.kv_heads:
        shared = plural(spec.kv_heads, "GPU"), gpus, plural(spec.kv_heads, "key head")
        yield say("sweep.repeated", *shared, gpus // spec.kv_heads)
