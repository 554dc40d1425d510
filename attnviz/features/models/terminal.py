"""The models on this machine, as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from attnviz.core.model_entry import ModelEntry
from attnviz.drawing.labels import counted, visible
from attnviz.drawing.tables import as_csv
from attnviz.drawing.terminal import Line
from attnviz.features.models.card import AlikeLayers, ModelCard

MODELS_SCHEMA = "attnviz.models/1"
CARD_SCHEMA = "attnviz.model/1"


def models_table(models: Sequence[ModelEntry]) -> RenderableType:
    """The models on this machine, one line each; those that cannot be used say why."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    for name in ("model", "where", "family", "layers×heads", "size", "note"):
        table.add_column(name, justify="right" if name == "size" else "left", overflow="fold")
    for model in models:
        size = f"{model.size / 1e6:,.1f} MB" if model.size else ""
        note = model.note if model.usable else f"not usable: {model.note}"
        texts = (visible(text) if text else "" for text in (model.name, model.family, note))
        name, family, note = texts
        cells = (name, model.place, family, model.shape, size, note)
        table.add_row(*map(Text, cells), style="" if model.usable else "dim")
    return table


def models_json(models: Sequence[ModelEntry]) -> str:
    """The models on this machine as JSON text; sizes in bytes."""
    document = {"schema": MODELS_SCHEMA, "models": [asdict(model) for model in models]}
    return json.dumps(document, ensure_ascii=False, indent=2)


def models_csv(models: Sequence[ModelEntry]) -> str:
    """The models on this machine as CSV text, a line each; sizes in bytes."""
    return as_csv([asdict(model) for model in models], [f.name for f in fields(ModelEntry)])


def card_json(card: ModelCard) -> str:
    """One model as JSON text; sizes in bytes."""
    return json.dumps({"schema": CARD_SCHEMA, **asdict(card)}, ensure_ascii=False, indent=2)


def card_parts(card: ModelCard) -> Iterator[RenderableType]:
    """One model: what it is, its layers, and what will work."""
    yield Line(visible(card.name), "bold")
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for name, text in _facts(card):
        table.add_row(Text(name, "dim"), Text(visible(text)))
    yield table
    yield ""
    yield _layers_table(card.groups)
    yield ""
    works = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for one in card.abilities:
        sign = {True: "yes", False: "no", None: "?"}[one.works]
        works.add_row(Text(one.name), Text(sign, "bold"), Text(one.why and visible(one.why), "dim"))
    yield works
    for note in card.notes:
        yield Line(f"note: {visible(note)}", "dim")


def _facts(card: ModelCard) -> Iterator[tuple[str, str]]:
    yield "family", ", ".join((card.family, *card.architectures))
    if card.width:
        yield "width", f"{card.width:,}"
    yield "longest text", "not named" if card.max_tokens is None else f"{card.max_tokens:,} tokens"
    if card.files:
        kinds = ", ".join(f"{kind} {_size(size)}" for kind, size in card.stored.items())
        files = counted(len(card.files), "file")
        yield "stored", f"{card.parameters:,} numbers in {card.tensors:,} tensors, {kinds}, {files}"
        runs = ", ".join(f"{_size(size)} in {dtype}" for dtype, size in card.memory.items())
        yield "in memory", runs
    yield "backend", f"{card.backend or 'none'}: {card.reason}"


def _layers_table(groups: Sequence[AlikeLayers]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    for name in ("layers", "of", "heads", "key/value heads", "head width", "sees"):
        table.add_column(name, justify="left" if name in ("of", "sees", "layers") else "right")
    for group in groups:
        sees = "earlier keys" if group.causal else "all keys"
        if group.window is not None:
            sees += f", window {group.window:,}"
        if group.sink:
            sees += ", learned sink"
        cells = (_ranges(group.layers), group.label, group.heads, group.kv_heads, group.head_dim)
        table.add_row(*map(str, cells), sees)
    return table


def _ranges(layers: Sequence[int]) -> str:
    """Numbers as ranges: ``0-3, 5``."""
    found: list[list[int]] = []
    for layer in layers:
        if found and found[-1][1] == layer - 1:
            found[-1][1] = layer
        else:
            found.append([layer, layer])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in found)


def _size(size: int) -> str:
    return f"{size / 1e9:,.2f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
