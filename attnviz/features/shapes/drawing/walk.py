"""The walk as a table, with what the layer costs below it."""

from __future__ import annotations

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
from attnviz.errors import Message
from attnviz.features.shapes.table import (
    Column,
    Printed,
    Row,
    Table,
    TableCell,
    amount,
    cell,
    percent,
    shape_cell,
    size,
    stacked,
)

WIDE = 108
COUNTING = (
    "FLOPs: 2 per multiply-add, matrix products only (as torch's FlopCounterMode counts); biases, "
    "scale, mask and softmax are left out."
)


MASKS = (
    "Shape of the mask M: [T, S], [B, 1, 1, S] for padding, or [B·H, T, S] for "
    "nn.MultiheadAttention (True = blocked; in scaled_dot_product_attention True = allowed). "
    "Weights: [B, H, T, S]; averaged over heads, PyTorch's default, [B, T, S]."
)


def _aligned(spec: AttentionSpec, run: RunSizes) -> str:
    """Say which keys the first new query sees, and which PyTorch's is_causal would leave it."""
    cached, tokens = run.cache or 0, run.seq or 1
    first, last = max(0, cached - (spec.window or cached + 1) + 1), cached
    keys = f"key {last:,}" if first == last else f"keys {first:,} to {last:,}"
    return (
        f"The mask is aligned at the bottom right: new query 0 sees {keys}. PyTorch's "
        "is_causal=True aligns it at the top left, where query 0 sees key 0 alone: pass "
        f"torch.ones({tokens}, {cached + tokens}).tril({cached}).bool() as attn_mask, or "
        "torch.nn.attention.bias.causal_lower_right."
    )


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
    axes = LayerAxes(spec, run)
    p = walk.parameters
    rows = [
        _cost("parameters", f"{p.total:,}", _parameter_formula(spec, walk), p.total),
        _cost(
            "FLOPs, projections",
            amount(walk.flops.projections),
            "2·B·T·(matrix parameters)"
            if spec.kind not in ("mla", "cross")
            else "2·B·tokens·inputs·outputs, summed",
            _plain(walk.flops.projections),
        ),
        _cost(
            "FLOPs, attention",
            amount(walk.flops.attention),
            f"2·B·H·T·{axes.seen.symbol}·(d_QK + d_V)"
            + (" + 2·B·T·S·Hᵢ·(dᵢ + 1)" if spec.indexer else ""),
            _plain(walk.flops.attention),
        ),
    ]
    weights = weights_elements(axes) * run.width
    formula = f"B·H·T·S · {run.width} bytes"
    rows.append(_cost("attention weights", amount(weights, "B"), formula, _plain(weights)))
    per_token = cache_elements(spec)
    text = f"{per_token:,} numbers, {size(per_token * run.cache_width)}"
    latent = "r + dᵣ + dᵢ" if spec.indexer else "r + dᵣ"
    shared = "G" if spec.kv_heads < spec.heads else "H"
    widths = f"2·{shared}·d" if spec.value_dim == spec.head_dim else f"{shared}·(d + dᵥ)"
    elements = latent if spec.kind == "mla" else widths
    name = "KV cache per token" if spec.causal or run.cache is not None else "K and V per token"
    if spec.kind == "cross":
        name = "K and V per context token"
    rows.append(_cost(name, text, elements, per_token * run.cache_width))
    length = axes.s.size
    if length is not None:
        length = cached_tokens(spec, length) if spec.causal else length
        total = (run.batch or 1) * length * per_token * run.cache_width
        short = name.split(" per", maxsplit=1)[0]
        rows.append(_cost(f"{short}, whole", size(total), f"B·{length:,}·({elements})", total))
    if layers > 1:
        rows += _all_layers(walk, layers)
        if length is not None:
            short = f"{layers:,} layers: {short}, whole"
            rows.append(_cost(short, size(layers * total), "", layers * total))
    return Table(
        "Costs of one layer",
        (Column("cost", ""), Column("value", "", "right"), Column("formula", "", wrap=12)),
        tuple(rows),
    )


def _all_layers(walk: Walk, layers: int) -> list[Row]:
    flops = walk.flops.total * layers
    total = walk.parameters.total * layers
    token = cache_elements(walk.spec) * walk.run.cache_width * layers
    noun = "cache per token"
    return [
        _cost(f"{layers:,} layers: parameters", f"{total:,}", f"{layers:,} × the above", total),
        _cost(f"{layers:,} layers: FLOPs", amount(flops), "", _plain(flops)),
        _cost(f"{layers:,} layers: {noun}", size(token), "", token),
    ]


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


def _notes(walk: Walk) -> list[str]:
    spec, run = walk.spec, walk.run
    notes = [COUNTING]
    if run.cache is None and spec.kind != "cross":
        equal = crossing(spec)
        text = f"Attention itself costs as much as the projections at T = {equal or 0:,.0f}"
        if equal is None:
            text = "With this window attention itself costs less than the projections at any T"
        if run.seq is not None:
            part = (walk.flops.attention.value or 0) / (walk.flops.total.value or 1)
            text += f"; here, at T = {run.seq:,}, it is {percent(part)} of the FLOPs"
        notes.append(text + ".")
    ruler = _ruler(spec, run)
    if ruler:
        notes.append(ruler)
    if run.seq is None and run.cache is None and spec.kind != "cross":
        notes.append(
            Message(
                "S = T in self-attention. {seq} sets T; {explain} explains every step.",
                seq=...,
                explain=...,
            )
        )
    if run.cache is None and (spec.causal or spec.window is not None):
        notes.append(_blocked(spec, run))
    notes.append(MASKS)
    if run.cache is not None and (run.seq or 1) > 1 and spec.causal:
        notes.append(_aligned(spec, run))
    if run.chosen is None:
        notes.append(unset_dtype())
    if run.width == 2:
        notes.append("Softmax runs in float32; its weights are then stored in " + run.number + ".")
    if spec.window is not None and run.cache is not None:
        notes.append(f"A window of {spec.window:,} needs no more than that many cached tokens.")
    return notes


def unset_dtype() -> str:
    """Return that nobody chose a dtype."""
    return Message(
        "No dtype was chosen, and no config names one: bytes are those of float32; {dtype} sets "
        "another.",
        dtype="bf16",
    )


def _blocked(spec: AttentionSpec, run: RunSizes) -> str:
    """Return what the masks block, and what of it is counted."""
    if spec.indexer is not None:
        keep = spec.indexer.keep
        text = f"A query is compared with the {keep:,} keys that the indexer selects, all of them "
        text += f"up to T = {keep:,}; only these count, and the indexer, which scores every key."
        if run.seq is not None and run.seq > keep:
            text += f" Of the T·T scores {percent(blocked(spec, run.seq))} are blocked."
        return text
    if spec.window is None or (run.seq is not None and run.seq <= spec.window):
        return (
            "The causal mask blocks nearly half of the scores, but they are computed and counted "
            "here; kernels that skip them do about half of attention's FLOPs."
            if spec.causal
            else f"The window of {spec.window:,} is as long as the text: it blocks nothing."
        )
    reach = LayerAxes(spec, run).seen.size or 0
    word = "chunk" if spec.chunked else "window"
    if run.seq is None:
        near = "the mask blocks nearly half of the scores" if spec.causal else "nothing is blocked"
        return (
            f"Up to T = {spec.window:,} {near}; beyond, a query is compared with no more than "
            f"{reach:,} keys of its {word}, which is what is counted here."
        )
    return (
        f"Masks block {percent(blocked(spec, run.seq))} of the T·T scores. Counted are {reach:,} "
        f"keys a query, those of its {word}, which a kernel for windows computes."
    )


def _ruler(spec: AttentionSpec, run: RunSizes) -> str:
    """Which memory is the largest."""
    axes = LayerAxes(spec, run)
    weights, tokens = (weights_elements(axes) * run.width).value, axes.s.size
    if weights is None or tokens is None:
        return ""
    kinds = {
        "the parameters": parameters(spec).total * run.width,
        "the attention weights": weights,
        "the keys and values": (run.batch or 1) * tokens * cache_elements(spec) * run.cache_width,
    }
    first, second, _ = sorted(kinds, key=lambda name: -kinds[name])
    return (
        f"Most of a layer's memory here: {first} ({size(kinds[first])}), then {second} "
        f"({size(kinds[second])})."
    )
