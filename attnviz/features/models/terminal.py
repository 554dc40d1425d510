"""The models on this machine, one of them, and families, as the terminal shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from attnviz.core.model_entry import CacheEntry, ModelEntry
from attnviz.drawing.labels import counted, visible
from attnviz.drawing.renderable import table_of
from attnviz.drawing.terminal import Line
from attnviz.features.models.card import AlikeLayers, Families, Family, ModelCard, Models
from attnviz.files import human_bytes


def parts(result: Models | ModelCard | Families) -> Iterator[RenderableType]:
    """The models on this machine, one of them, or families of models."""
    if isinstance(result, Families):
        yield families_table(result.families)
        yield Line(
            f"tiny random models of transformers {result.transformers}; maps: largest difference "
            "from eager attention; logits: of the sum of all parts from the logit; ablation: from "
            "the model without the head's columns of W_O; linear: of a layer's coefficients times "
            "its values from its output",
            "dim",
        )
    elif isinstance(result, Models):
        yield models_table(result.models)
        if result.cached:
            yield ""
            yield cached_table(result.cached)
            yield Line(f"in {result.cache_folder}", "dim")
    else:
        yield from card_parts(result)


def models_table(models: Sequence[ModelEntry]) -> RenderableType:
    """The models on this machine, one line each; those that cannot be used say why."""
    table = table_of("model", "where", "family", "layers×heads", ">size", "note")
    for model in models:
        size = f"{model.size / 1e6:,.1f} MB" if model.size else ""
        note = model.note if model.usable else f"not usable: {model.note}"
        texts = (visible(text) if text else "" for text in (model.name, model.family, note))
        name, family, note = texts
        cells = (name, model.place, family, model.shape, size, note)
        table.add_row(*map(Text, cells), style="" if model.usable else "dim")
    return table


def families_table(families: Sequence[Family]) -> RenderableType:
    """What works of each family, one line each."""
    table = table_of("family", "maps", "logits", ">ablation", ">linear")
    for family in families:
        cells = (family.family, family.maps, family.logits, family.ablation, family.linear)
        table.add_row(*map(Text, cells), style="" if family.heads else "dim")
    return table


def cached_table(entries: Sequence[CacheEntry]) -> RenderableType:
    """What is cached of earlier measurements, by what it is."""
    table = table_of("cached", "of", ">entries", ">size")
    sizes: dict[tuple[str, str], list[int]] = {}
    for entry in entries:
        sizes.setdefault((entry.what or "damaged files", entry.model), []).append(entry.size)
    for (what, model), all_ in sizes.items():
        cells = visible(what), model and visible(model), str(len(all_)), human_bytes(sum(all_))
        table.add_row(*map(Text, cells))
    return table


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
    for ability in card.abilities:
        sign = {True: "yes", False: "no", None: "?"}[ability.works]
        works.add_row(
            Text(ability.name),
            Text(sign, "bold"),
            Text(ability.why and visible(ability.why), "dim"),
        )
    yield works


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
    table = table_of("layers", "of", ">heads", ">key/value heads", ">head width", "sees",
                     fold=False)  # fmt: skip
    for group in groups:
        sees = {True: "earlier keys", False: "all keys", None: "?"}[group.causal]
        if group.sliding_window is not None:
            sees += f", window {group.sliding_window:,}"
        if group.sink:
            sees += ", learned sink"
        cells = (_ranges(group.layers), group.label, group.heads, group.kv_heads, group.head_dim)
        table.add_row(*map(str, cells), sees)
    return table


def _ranges(layers: Sequence[int]) -> str:
    """Numbers as ranges: ``0-3, 5``."""
    ranges: list[list[int]] = []
    for layer in layers:
        if ranges and ranges[-1][1] == layer - 1:
            ranges[-1][1] = layer
        else:
            ranges.append([layer, layer])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


def _size(size: int) -> str:
    return f"{size / 1e9:,.2f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"
