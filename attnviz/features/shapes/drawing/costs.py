"""Comparisons, sweeps and the effect of 1/√d as tables and plots."""

from __future__ import annotations

from attnviz.errors import Message
from attnviz.features.shapes.costs.compare import Comparison
from attnviz.features.shapes.costs.sweep import Sweep
from attnviz.features.shapes.drawing.key_heads import key_heads_printed
from attnviz.features.shapes.drawing.plot import Curve, Mark, plot
from attnviz.features.shapes.drawing.units import amount, count, percent, plural, size
from attnviz.features.shapes.drawing.walk import COUNTING, unset_dtype
from attnviz.features.shapes.table import Column, Paint, Printed, Row, Table, cell
from attnviz.features.shapes.worked.softmax_scale import Scaling

PROJECTIONS, ATTENTION = "projections, O(T·D²)", "attention, O(T²·D)"


def compare_printed(found: Comparison) -> Printed:
    """One row a kind of attention."""
    run, batch = found.run, found.run.batch or 1
    columns = [
        Column("kind", "kind", wrap=14),
        Column("parameters", "params/layer", "right", optional=3),
        Column("flops", "FLOPs/layer", "right", optional=4),
        Column("cache_elements", "numbers", "right"),
        Column("cache_bytes_token", "per token", "right"),
        Column("cache_bytes_sequence", "sequence", "right"),
    ]
    if batch > 1:
        columns.append(Column("cache_bytes_batch", f"batch {batch:,}", "right", optional=1))
    columns.append(Column("ratio", "of MHA", "right"))
    columns.append(Column("read_bytes_token", "read/token", "right", optional=1))
    columns.append(Column("step_flops", "FLOPs/token", "right", optional=3))
    columns.append(Column("intensity", "FLOP/byte", "right", optional=1))
    if found.memory is not None:
        columns.append(Column("fits_tokens", "tokens fit", "right"))
        columns.append(Column("fits_sequences", "seqs fit", "right"))
    columns.append(Column("used_by", "used by", wrap=17, optional=2))
    rows = []
    for one in found.variants:
        cells = [
            cell(("▶ " if one.own else "  ") + one.name, "strong" if one.own else "", one.name),
            cell(f"{one.parameters:,}", "", one.parameters),
            cell(amount(one.flops), "", one.flops.written("d")),
            cell(f"{one.elements:,}", "", one.elements),
            cell(size(one.token_bytes), "", one.token_bytes),
            cell(size(one.sequence_bytes), "", one.sequence_bytes),
        ]
        if batch > 1:
            cells.append(cell(size(one.batch_bytes), "", one.batch_bytes))
        cells.append(cell(_ratio(one.ratio), "", one.ratio))
        cells.append(cell(size(one.read_bytes), "", one.read_bytes))
        cells.append(cell(count(one.step_flops), "", one.step_flops))
        cells.append(cell(f"{one.intensity:.3g}", "", one.intensity))
        if found.memory is not None:
            tokens = "any" if one.fits_tokens == -1 else f"{one.fits_tokens:,}"
            cells.append(cell(tokens, "", one.fits_tokens))
            cells.append(cell(f"{one.fits_sequences:,}", "", one.fits_sequences))
        cells.append(cell(", ".join(one.used_by), "dim"))
        rows.append(Row(tuple(cells)))
    memory = ""
    if found.memory is not None:
        memory = f", memory {found.memory / 1e9:,.4g} GB ({size(found.memory)})"
    kept = f", cache in {run.cached}" if run.cache_dtype else ""
    title = (
        f"{found.subject}: kinds of attention, {plural(found.layers, 'layer')}, "
        f"{run.number}{kept}{memory}"
    )
    return Printed(title, tuple(_compare_notes(found)), (Table("", tuple(columns), tuple(rows)),))


def _ratio(ratio: float) -> str:
    return percent(ratio) if ratio < 1 else "1"


def _compare_notes(found: Comparison) -> list[str]:
    run = found.run
    tokens, layers = plural(found.tokens, "token"), plural(found.layers, "layer")
    notes = [
        Message(
            "Numbers: kept per token and layer. Cache of {} a sequence ({cache} or {seq} sets "
            "them), in {}, at {} bytes a number; all kinds keep the same D, H and d.",
            tokens,
            layers,
            run.cache_width,
            cache=...,
            seq=...,
        ),
        f"Read per token: what decoding one token reads, the weights of these attention layers "
        f"(shared by a batch of {run.batch or 1:,}) and its own sequence's cache; FLOP/byte: what "
        "it computes with that, FLOPs/token. A machine that does more in the time it reads a byte "
        "waits.",
        COUNTING,
    ]
    latent = next((one for one in found.variants if one.spec.kind == "mla"), None)
    if latent is not None:
        notes.append(
            f"MLA decodes a token in {count(latent.step_flops)} FLOPs with W_K and W_V absorbed "
            "into queries and outputs, as it is served (arXiv:2405.04434, section 2.1.2), which "
            "its FLOP/byte is of, and in "
            f"{count(latent.rebuilt_flops)} where the keys and values of all tokens are made of "
            "their latents at every step, as the walk and FLOPs/layer have it."
        )
    if found.spec.window is not None or any(one.spec.window for one in found.variants):
        notes.append("A window keeps, reads and scores no more keys than it is long.")
    own = next((one for one in found.variants if one.own), None)
    if own is not None and own.ratio < 1:
        mha = found.variants[0]
        notes.insert(
            0,
            f"{own.name} keeps {own.elements:,} numbers per token and layer where MHA with the "
            f"same {found.spec.heads} heads of {found.spec.head_dim} keeps {mha.elements:,}: "
            f"{1 / own.ratio:,.4g} times less ({percent(own.ratio)}).",
        )
    if found.spec.kind == "mla":
        notes.insert(
            1,
            "This compares one layer with MHA of the same heads. DeepSeek-V2's published 93.3 % "
            "reduction compares whole systems: DeepSeek-V2 against DeepSeek 67B, which has other "
            "sizes and grouped queries (arXiv:2405.04434).",
        )
    if found.memory is not None:
        notes.append(_memory_note(found, tokens))
    if any(one.used_by for one in found.variants):
        notes.append("Used by: published models with as many key heads, each with its own H/G.")
    if run.dtype is None:
        notes.append(unset_dtype())
    if run.cached == "int8":
        notes.append("The scales that an int8 cache needs beside its numbers are not counted.")
    return notes


def _memory_note(found: Comparison, tokens: str) -> str:
    """What has to fit, and whether it does."""
    own = next((one for one in found.variants if one.own), found.variants[0])
    whose = "the model's weights" if found.whole else "attention's weights, all that is known here"
    text = (
        f"What fits is the cache beside {whose} ({size(own.weights_bytes)} in {found.run.number} "
        f"for {own.name}); activations need room too. Tokens: one sequence as long as possible; "
        f"sequences: of {tokens} each."
    )
    short = own.weights_bytes - (found.memory or 0)
    return text + (f" The weights alone lack {size(short)}." if short > 0 else "")


def sweep_printed(found: Sweep) -> Printed:
    """One row a size, and the two costs as curves."""
    first = found.points[0]
    if first.decoding is not None:
        return key_heads_printed(found)
    columns = (
        Column("value", found.variable, "right"),
        Column("parameters", "params", "right", optional=1),
        Column("projection_flops", "projections", "right"),
        Column("attention_flops", "attention", "right"),
        Column("attention_share", "share", "right"),
        Column("weights_bytes", "weights, kept", "right"),
        Column("streamed_bytes", "in blocks", "right"),
    )
    rows = tuple(
        Row(
            (
                cell(f"{p.value:,}", "strong", p.value),
                cell(f"{p.parameters:,}", "", p.parameters),
                cell(count(p.projection_flops), "", p.projection_flops),
                cell(count(p.attention_flops), "", p.attention_flops),
                cell(percent(p.attention_share), "", p.attention_share),
                cell(size(p.materialized), "", p.materialized),
                cell(size(p.streamed), "", p.streamed),
            )
        )
        for p in found.points
    )
    notes = [
        COUNTING,
        "Weights kept: all B·H·T·S of them at the run's dtype. In blocks: what attnviz holds at "
        "once when it hands them out in blocks of rows (float32), linear in S.",
    ]
    notes += [unset_dtype()] if first.run.dtype is None else []
    crossed = crossing_mark(found)

    def draw(width: int, paint: Paint) -> list[str]:
        if len(found.points) < 2:
            return []
        curves = [
            Curve(PROJECTIONS, "T", [(p.value, p.projection_flops) for p in found.points]),
            Curve(ATTENTION, "H", [(p.value, p.attention_flops) for p in found.points]),
        ]
        return plot(curves, width, paint, x_name=found.variable, y_name="FLOPs", mark=crossed)

    if crossed is not None and len(found.points) < 2:
        notes.insert(0, crossed.text)
    sweeping = f"{found.subject}: costs along {found.variable}"
    return Printed(sweeping, tuple(notes), (Table("", columns, rows),), draw)


def crossing_mark(found: Sweep) -> Mark | None:
    """Where attention itself becomes dearer than the projections."""
    if found.crossing is None:
        return None
    first = found.points[0]
    per_token = first.projection_flops / first.value
    inside = found.points[0].value <= found.crossing <= found.points[-1].value
    text = f"equal at T = {found.crossing:,.0f}: beyond it attention dominates, O(T²·D)"
    if not inside:
        text += " (outside of this range)"
    return Mark(found.crossing, per_token * found.crossing, text)


def scaling_printed(found: Scaling) -> Printed:
    """Softmax with and without 1/√d, one row a width."""
    columns = (
        Column("d", "d", "right"),
        Column("raw_entropy", "entropy, raw", "right"),
        Column("scaled_entropy", "scaled", "right"),
        Column("raw_top", "top, raw", "right"),
        Column("scaled_top", "scaled", "right"),
        Column("raw_gradient", "gradient, raw", "right"),
        Column("scaled_gradient", "scaled", "right"),
    )
    rows = []
    for row in found.rows:
        pairs = (
            (row.raw.entropy_bits, row.scaled.entropy_bits),
            (row.raw.top_weight, row.scaled.top_weight),
            (row.raw.gradient_norm, row.scaled.gradient_norm),
        )
        cells = [cell(row.d, "strong", row.d)]
        for raw, scaled in pairs:
            cells += [cell(f"{raw:.3f}", "bad", raw), cell(f"{scaled:.3f}", "good", scaled)]
        rows.append(Row(tuple(cells)))

    def draw(width: int, paint: Paint) -> list[str]:
        curves = [
            Curve("raw scores", "bad", [(r.d, r.raw.entropy_bits) for r in found.rows]),
            Curve("scores · 1/√d", "good", [(r.d, r.scaled.entropy_bits) for r in found.rows]),
        ]
        return plot(curves, width, paint, x_name="d", y_name="bits", y_log=False)

    return Printed(
        f"What 1/√d is for: softmax over {found.keys} keys, queries and keys standard normal",
        (
            f"Means over {found.samples:,} rows, seed {found.seed}, float64. Entropy in bits: "
            "6 is uniform over 64 keys, 0 is a single key.",
            "Gradient: Frobenius norm of diag(a) - a aᵀ, the Jacobian of the weights by the scores "
            "that enter softmax. Without the scale it dies as d grows, and learning with it.",
        ),
        (Table("", columns, tuple(rows)),),
        draw,
    )
