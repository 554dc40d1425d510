"""The walk as a table, with what the layer costs below it."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.attention.costs import (
    blocked,
    cache_elements,
    cached_tokens,
    crossing,
    parameters,
    weights_elements,
)
from attnviz.attention.spec import Amount, AttentionSpec, LayerAxes, RunSizes
from attnviz.attention.walkthrough import Step, Walk
from attnviz.features.shapes.table import (
    Column,
    Printed,
    Row,
    Table,
    TableCell,
    amount,
    cell,
    percent,
    say,
    shape_cell,
    size,
    stacked,
)

WIDE = 108


def walk_printed(walk: Walk, *, explain: bool = False, layers: int = 1) -> Printed:
    """Return the table of steps, the costs, and what to know about them."""
    numbers = (
        Column("parameters", "params", "right"),
        Column("flops", "FLOPs", "right"),
        Column("bytes", "bytes", "right"),
    )
    operation = Column("operation", "operation", wrap=12)
    step = Column("step", "step", wrap=9)
    narrow = Table(
        "",
        (step, Column("shape", "size and shape"), operation, *numbers),
        tuple(_row(item, explain, stack=True) for item in walk.steps),
    )
    steps = Table(
        "",
        (step, Column("shape", "shape"), Column("size", "size"), operation, *numbers),
        tuple(_row(item, explain, stack=False) for item in walk.steps),
        narrow,
        WIDE,
    )
    title = f"{walk.spec.title}, {_run_title(walk)}"
    return Printed(title, tuple(_notes(walk)), (steps, cost_table(walk, layers)))


def _run_title(walk: Walk) -> str:
    run = walk.run
    parts = [] if run.batch is None else [f"batch {run.batch:,}"]
    if run.cache is not None:
        new = "one token" if (run.seq or 1) == 1 else f"{run.seq:,} tokens"
        parts.append(f"decoding {new} on a cache of {run.cache:,}")
    parts += [] if run.seq is None or run.cache is not None else [f"T = {run.seq:,}"]
    parts += [] if run.context_length is None else [f"S = {run.context_length:,}"]
    parts += [] if run.cache_dtype is None else [f"cache in {run.cached}"]
    return ", ".join([*parts, run.number])


def _row(step: Step, explain: bool, *, stack: bool) -> Row:
    letters = [dim.symbol for dim in step.shape]
    symbols = shape_cell(letters, letters, "[]")
    concrete = shape_cell(letters, [str(dim) for dim in step.shape], "()")
    shapes: tuple[TableCell, ...] = (symbols, concrete)
    if stack:
        shapes = (stacked(concrete, symbols),)
    memory = cell("view", "dim", "view")
    if step.bytes is not None:
        unset = step.bytes.value is None  # a formula; the heading says bytes
        text = amount(step.bytes, "" if unset else "B")
        memory = cell(text, "", _plain(step.bytes))
    return Row(
        (
            cell(step.name, "strong"),
            *shapes,
            cell(step.operation),
            cell(f"{step.parameters:,}" if step.parameters else "", "", step.parameters),
            cell(amount(step.flops) if step.flops.terms else "", "", _plain(step.flops)),
            memory,
        ),
        step.why if explain else "",
    )


def _plain(value: Amount) -> str:
    return value.written("d")


def cost_table(walk: Walk, layers: int) -> Table:
    """Parameters, FLOPs, memory and cache, each with its formula."""
    spec, run = walk.spec, walk.run
    axes, total = LayerAxes(spec, run), walk.parameters.total
    projected = "2·B·tokens·inputs·outputs, summed"
    if spec.kind not in ("mla", "cross"):
        projected = "2·B·T·(matrix parameters)"
    attended = f"2·B·H·T·{axes.seen.symbol}·(d_QK + d_V)"
    if spec.indexer is not None:
        attended += " + 2·B·T·S·Hᵢ·(dᵢ + 1)"
    weights, formula = weights_elements(axes) * run.width, f"B·H·T·S · {run.width} bytes"
    rows = [
        _cost("parameters", f"{total:,}", _parameter_formula(spec, walk), total),
        _cost_of("FLOPs, projections", walk.flops.projections, projected),
        _cost_of("FLOPs, attention", walk.flops.attention, attended),
        _cost_of("attention weights", weights, formula, "B"),
    ]
    numbers, token = cache_elements(spec), cache_elements(spec) * run.cache_width
    latent = "r + dᵣ + dᵢ" if spec.indexer else "r + dᵣ"
    shared = "G" if spec.kv_heads < spec.heads else "H"
    widths = f"2·{shared}·d" if spec.value_dim == spec.head_dim else f"{shared}·(d + dᵥ)"
    elements = latent if spec.kind == "mla" else widths
    name = "KV cache per token" if spec.causal or run.cache is not None else "K and V per token"
    if spec.kind == "cross":
        name = "K and V per context token"
    rows.append(_cost(name, f"{numbers:,} numbers, {size(token)}", elements, token))
    short, length = name.split(" per", maxsplit=1)[0], axes.s.size
    if length is not None:
        length = cached_tokens(spec, length) if spec.causal else length
        cache = (run.batch or 1) * length * token
        rows.append(_cost(f"{short}, whole", size(cache), f"B·{length:,}·({elements})", cache))
    if layers > 1:
        stack, number = f"{layers:,} layers", layers * total
        rows += [
            _cost(f"{stack}: parameters", f"{number:,}", f"{layers:,} × the above", number),
            _cost_of(f"{stack}: FLOPs", walk.flops.total * layers, ""),
            _cost(f"{stack}: cache per token", size(layers * token), "", layers * token),
        ]
        if length is not None:
            rows.append(_cost(f"{stack}: {short}, whole", size(layers * cache), "", layers * cache))
    return Table(
        "Costs of one layer",
        (Column("cost", ""), Column("value", "", "right"), Column("formula", "", wrap=12)),
        tuple(rows),
    )


def _cost_of(name: str, value: Amount, formula: str, unit: str = "") -> Row:
    return _cost(name, amount(value, unit), formula, _plain(value))


def _cost(name: str, value: str, formula: str, raw: object) -> Row:
    return Row((cell(name, "strong"), cell(value, "", raw), cell(formula, "dim")))


def _parameter_formula(spec: AttentionSpec, walk: Walk) -> str:
    p = walk.parameters
    square = spec.heads * spec.head_dim == spec.d_model and spec.kv_heads == spec.heads
    if spec.kind == "mla":
        formula = f"matrices {p.weights:,}"
    elif spec.value_dim != spec.head_dim:
        formula = f"D·(H + G)·(d + dᵥ) = {p.weights:,}"
    elif square:
        formula = f"4·D² = {p.weights:,}"
    else:
        times = 3 if spec.gated else 2
        formula = f"{times}·D·H·d + 2·D·G·d = {p.weights:,}"
    if p.biases:
        formula += f"; biases {p.biases:,}" + (
            " = 4·D" if square and p.biases == 4 * spec.d_model else ""
        )
    for name, number in spec.extras:
        formula += f"; {name} {number:,}"
    return formula


def _notes(walk: Walk) -> Iterator[str]:
    spec, run = walk.spec, walk.run
    yield say("every.counting")
    if run.cache is None and spec.kind != "cross":
        equal = crossing(spec)
        text = f"Attention itself costs as much as the projections at T = {equal or 0:,.0f}"
        if equal is None:
            text = "With this window attention itself costs less than the projections at any T"
        if run.seq is not None:
            part = (walk.flops.attention.value or 0) / (walk.flops.total.value or 1)
            text += f"; here, at T = {run.seq:,}, it is {percent(part)} of the FLOPs"
        yield text + "."
    yield from _largest(spec, run)
    if run.seq is None and run.cache is None and spec.kind != "cross":
        yield say("walk.letters", seq=..., explain=...)
    if run.cache is None and (spec.causal or spec.window is not None):
        yield _blocked(spec, run)
    yield say("walk.masks")
    if run.cache is not None and (run.seq or 1) > 1 and spec.causal:
        yield _aligned(spec, run.cache, run.seq or 1)
    if run.chosen is None:
        yield say("every.unset_dtype", dtype="bf16")
    if run.width == 2:
        yield say("walk.half", run.number)
    if spec.window is not None and run.cache is not None:
        yield say("walk.cached_window", spec.window)


def _aligned(spec: AttentionSpec, cached: int, tokens: int) -> str:
    """Say which keys the first new query sees, and which PyTorch's is_causal would leave it."""
    first = max(0, cached - (spec.window or cached + 1) + 1)
    keys = f"key {cached:,}" if first == cached else f"keys {first:,} to {cached:,}"
    return say("walk.aligned", keys, tokens, cached + tokens, cached)


def _blocked(spec: AttentionSpec, run: RunSizes) -> str:
    """Return what the masks block, and what of it is counted."""
    if spec.indexer is not None:
        keep = spec.indexer.keep
        text = say("walk.indexed", keep, keep)
        if run.seq is None or run.seq <= keep:
            return text
        return f"{text} Of the T·T scores {percent(blocked(spec, run.seq))} are blocked."
    if spec.window is None or (run.seq is not None and run.seq <= spec.window):
        return say("walk.causal") if spec.causal else say("walk.long_window", spec.window)
    reach = LayerAxes(spec, run).seen.size or 0
    word = "chunk" if spec.chunked else "window"
    if run.seq is None:
        near = "the mask blocks nearly half of the scores" if spec.causal else "nothing is blocked"
        return say("walk.window", spec.window, near, reach, word)
    return say("walk.window_at", percent(blocked(spec, run.seq)), reach, word)


def _largest(spec: AttentionSpec, run: RunSizes) -> Iterator[str]:
    """Say which memory is the largest."""
    axes = LayerAxes(spec, run)
    weights, tokens = (weights_elements(axes) * run.width).value, axes.s.size
    if weights is None or tokens is None:
        return
    kinds = {
        "the parameters": parameters(spec).total * run.width,
        "the attention weights": weights,
        "the keys and values": (run.batch or 1) * tokens * cache_elements(spec) * run.cache_width,
    }
    first, second, _ = sorted(kinds, key=lambda name: -kinds[name])
    yield say("walk.memory", first, size(kinds[first]), second, size(kinds[second]))
