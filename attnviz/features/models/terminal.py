"""The models on this machine, as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from attnviz.core.model_entry import ModelEntry
from attnviz.drawing.labels import visible

MODELS_SCHEMA = "attnviz.models/1"


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
