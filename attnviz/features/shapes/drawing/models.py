"""A whole model's attention, the list of presets, and the result of a verification."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from attnviz.attention.costs import cache_elements, parameters
from attnviz.attention.spec import AttentionSpec, RunSizes
from attnviz.drawing.labels import ranges
from attnviz.features.shapes.costs import model_cache, stack_of
from attnviz.features.shapes.result import PresetSizes, VerifyAnswer
from attnviz.features.shapes.table import (
    Column,
    Printed,
    Row,
    Table,
    TableCell,
    cell,
    numbers,
    percent,
    plural,
    say,
    size,
    table_of,
)
from attnviz.models.configs.families import StateGroup
from attnviz.models.configs.model import ModelSpec, group_parameters


def model_table(model: ModelSpec) -> Table:
    """Like layers in one row, then all of them, then their share of the model."""
    columns = (
        Column("layers", "layers"),
        Column("what", "what", wrap=12),
        Column("heads", "heads", "right"),
        Column("head_dim", "d", "right"),
        Column("parameters_layer", "params/layer", "right"),
        Column("parameters", "params", "right"),
        Column("cache_elements", "cache/token", "right", optional=1),
    )
    blank = cell("", "", "")

    def row(layers: tuple[int, ...], *cells: TableCell) -> Row:
        return Row((cell(_counted(layers), "strong", ranges(layers)), *cells))

    def number(value: int, tone: str = "") -> TableCell:
        return cell(f"{value:,}", tone, value)

    rows = []
    for group in model.groups:
        spec = group.spec
        heads = str(spec.heads)
        if spec.kv_heads != spec.heads:
            heads += f" on {spec.kv_heads}"
        kind = "" if spec.kind == "cross" else f"{spec.kind.upper()}, "
        extras = "".join(f", with {name}" for name, _ in spec.extras)
        counts = number(parameters(spec).total), number(group_parameters(group))
        label, dim = cell(f"{kind}{group.label}{extras}"), cell(spec.head_dim, "d", spec.head_dim)
        rows.append(row(group.layers, label, cell(heads, "H"), dim, *counts, cell(*_cache(spec))))
    for stack in model.states:
        state, label = stack.state, cell(f"linear, {stack.state.rule}")
        dim = cell(state.value_dim, "d", state.value_dim)
        states = cell(str(state.heads), "H")
        rows.append(row(stack.layers, label, states, dim, blank, blank, cell("0", "", 0)))
    total = number(model.attention_parameters, "strong")
    attention = cell("all", "strong"), cell("attention", "strong")
    rows.append(Row((*attention, *(blank,) * 3, total, blank)))
    if model.whole and model.share is not None:
        share = cell(f"the whole model; attention is {percent(model.share)} of it")
        rows.append(Row((blank, share, *(blank,) * 3, number(model.whole), blank)))
    return Table("", columns, tuple(rows))


def model_printed(model: ModelSpec, run: RunSizes, walked: Printed) -> Printed:
    """Return a model's layers, its cache, and the walk through its main kind of layer."""
    main = model.main
    notes = [] if not model.partial else [model.partial[0].upper() + model.partial[1:] + "."]
    notes += [_cache_note(model, run), *_state_notes(model, run)]
    if model.whole is None:
        notes.append(say("model.uncounted", verify=...))
    notes += model.notes
    notes += [f"Sizes: {model.source}"] if model.source else []
    layers = sum(len(group.layers) for group in model.groups)
    label = f"{main.label}, layer {main.layers[0]}"
    walk_table = walked.tables[0]._replace(title=f"One layer: {label} ({main.spec.title})")
    return Printed(
        f"{model.name}: {plural(layers, 'attention layer')}"
        + (f" of {layers + model.idle}" if model.idle else ""),
        (*notes, *walked.notes),
        (model_table(model), *map(_state_table, model.states), walk_table, *walked.tables[1:]),
    )


STATE_WIDTH = 4
"""Bytes of a number of a linear layer's state, which stays in float32 whatever the model is in."""


def _state_notes(model: ModelSpec, run: RunSizes) -> list[str]:
    """Return what linear layers keep beside the KV cache."""
    states = sum(len(g.layers) * g.state.elements for g in model.states) * STATE_WIDTH
    inputs = sum(len(g.layers) * g.state.inputs for g in model.states) * run.width
    if not states:
        return []
    layers = sum(len(group.layers) for group in model.states)
    return [say("model.states", plural(layers, "layer"), size(states), size(inputs))]


def _state_table(group: StateGroup) -> Table:
    """Give the state of one linear layer and how it is updated, with what its convolution keeps."""
    state = group.state
    read = f"S ← S {state.decay} (I - β k kᵀ) + β v kᵀ, read as S q"
    rows = (
        ("state S", "[B, H, dᵥ, dₖ]", (state.heads, state.value_dim, state.key_dim), read),
        ("inputs", "[B, C, w]", (state.channels, state.kernel),
         "the last w tokens' q, k and v before their convolution"),
    )  # fmt: skip
    table = table_of(
        rows,
        (Column("step", "kept"), lambda row: cell(row[0], "strong")),
        (Column("shape", "shape"), lambda row: cell(row[1])),
        (Column("size", "size"), lambda row: cell(f"(B, {', '.join(map(str, row[2]))})")),
        (Column("operation", "operation", wrap=12), lambda row: cell(row[3])),
        (
            Column("elements", "numbers", "right"),
            lambda row: cell(f"{math.prod(row[2]):,}", "", math.prod(row[2])),
        ),
    )
    return table._replace(title=f"One linear layer: layer {group.layers[0]} ({state.rule})")


def _cache(spec: AttentionSpec) -> tuple[str, str, int | str]:
    """Get the cell of what a layer keeps: nothing in an encoder, K and V of the source in cross."""
    elements = cache_elements(spec)
    if spec.kind == "cross":
        return f"{elements:,} a source token", "", elements
    return (f"{elements:,}", "", elements) if spec.causal else ("none", "dim", "")


def _cache_note(model: ModelSpec, run: RunSizes) -> str:
    """Return what all layers keep together, per token and at a length."""
    cache = model_cache(model, run)
    named = f"{run.cached}, its config's dtype" if run.cached == model.dtype else run.cached
    if cache is None:
        return f"An encoder keeps no cache; its numbers are in {named}."
    text = f"KV cache in {named}: {size(cache.bytes_per_token)} per token in all layers"
    text += f", {size(cache.bytes_per_sequence)} at {plural(cache.tokens, 'token')}"
    if cache.sequences > 1:
        text += f", {size(cache.bytes_per_batch)} for all {cache.sequences:,} sequences"
    if any(spec.window and spec.window < cache.tokens for spec, _ in stack_of(model)):
        text += (
            "; layers with a window need no more than that, a lower bound: many engines reserve "
            "the whole length for every layer"
        )
    if cache.cross_bytes_per_token:
        text += f"; cross-attention {size(cache.cross_bytes_per_token)} per source token, once"
    return text + "."


def _counted(numbers: tuple[int, ...]) -> str:
    """``0-11``, ``0, 2``, or how many where a list would be long: ``52 layers``."""
    text = ranges(numbers)
    return text if text.count(",") < 2 else plural(len(numbers), "layer")


def presets_printed(listed: Sequence[PresetSizes]) -> Printed:
    """Typical sizes, one row a model."""
    kind, source = Column("kind", "kind", optional=1), Column("source", "source", "left", 16, 1)
    table = table_of(
        listed,
        (Column("preset", "preset"), lambda preset: cell(preset.name, "strong")),
        numbers("year", "year", "year", str, "dim", 1),
        (kind, lambda preset: cell(preset.layer.kind.upper(), "", preset.layer.kind)),
        numbers("layers", "layers", "layers", str),
        numbers("d_model", "D", "layer.d_model", tone="D"),
        numbers("heads", "H", "layer.heads", str, "H"),
        numbers("kv_heads", "G", "layer.kv_heads", str, "G"),
        numbers("head_dim", "d", "layer.head_dim", str, "d"),
        numbers("attention_parameters", "attention", "attention_parameters"),
        numbers("share", "of model", "share", lambda share: percent(share or 0)),
        (source, lambda preset: cell(_shown_source(preset.source), "dim", preset.source)),
    )
    return Printed(
        f"{len(listed)} published models: typical sizes of attention",
        (say("model.presets"), say("model.trace", model="NAME", compare=...)),
        (table,),
    )


def _shown_source(source: str) -> str:
    """``arXiv:1706.03762 (table 3)``, or the host of another address."""
    bare = source.removeprefix("https://")
    if bare.startswith("arxiv.org/abs/"):
        return bare.replace("arxiv.org/abs/", "arXiv:")
    return bare.split("/", maxsplit=1)[0]


def verify_printed(verification: VerifyAnswer) -> VerifyAnswer:
    """Lay out every comparison, the failed ones in red, and the verdict."""
    result, equal = Column("found", "found", "right"), Column("equal", "")
    table = table_of(
        verification.checks,
        (Column("step", "step"), lambda check: cell(check.step, "strong")),
        (Column("what", "what"), lambda check: cell(check.what)),
        (Column("said", "said", "right"), lambda check: cell(check.said)),
        (result, lambda check: cell(check.found, "" if check.equal else "bad")),
        (
            equal,
            lambda check: cell("✓", "good", True) if check.equal else cell("DIFFERS", "bad", False),
        ),
    )
    failed = len(verification.failures)
    verdict = f"All {len(table.rows)} comparisons are equal."
    if failed:
        verdict = f"{failed} of {len(table.rows)} comparisons differ."
    return replace(
        verification,
        title=f"Verified against {verification.subject}",
        notes=(verdict, *verification.notes),
        tables=(table,),
    )
