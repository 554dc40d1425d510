"""Models described: those on this machine, one of them, families."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from attnviz.core.provenance import CacheEntry, ModelEntry
from attnviz.drawing.console import table_of
from attnviz.drawing.description import Column, Listing
from attnviz.drawing.labels import counted, ranges, visible
from attnviz.drawing.terminal import Line
from attnviz.features.models.result import AlikeLayers, Families, ModelCard, Models
from attnviz.files import human_bytes


def listing(result: Models | ModelCard | Families) -> Listing:
    """List the models, or families, or of one model the kinds of its layers; sizes in bytes."""
    if isinstance(result, Models):
        return Listing(_MODELS, result.models, dim=lambda model: not model.usable)
    if isinstance(result, Families):
        return Listing(_FAMILIES, result.families, dim=lambda family: not family.heads)
    return Listing(_LAYERS, result.groups)


def parts(result: Models | ModelCard | Families) -> Iterator[RenderableType]:
    """Yield the models on this machine, one of them, or families of models."""
    if isinstance(result, Families):
        yield listing(result).table()
        yield Line(
            f"tiny random models of transformers {result.transformers}; maps: largest difference "
            "from eager attention; logits: of the sum of all parts from the logit; ablation: from "
            "the model without the head's columns of W_O; linear: of a layer's coefficients times "
            "its values from its output",
            "dim",
        )
    elif isinstance(result, Models):
        yield listing(result).table()
        if result.cached:
            yield ""
            yield cached_table(result.cached)
            yield Line(f"in {result.cache_folder}", "dim")
    else:
        yield from card_parts(result)


def cached_table(entries: Sequence[CacheEntry]) -> RenderableType:
    """Return what is cached of earlier measurements, by what it is."""
    table = table_of("cached", "of", ">entries", ">size")
    sizes: dict[tuple[str, str], list[int]] = {}
    for entry in entries:
        sizes.setdefault((entry.what or "damaged files", entry.model), []).append(entry.size)
    for (name, model), counts in sizes.items():
        cells = visible(name), model and visible(model), str(len(counts)), human_bytes(sum(counts))
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
    yield listing(card).table(fold=False)
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


def _sees(group: AlikeLayers) -> str:
    """Say which keys a query sees."""
    sees = {True: "earlier keys", False: "all keys", None: "?"}[group.causal]
    if group.sliding_window is not None:
        sees += f", window {group.sliding_window:,}"
    return f"{sees}, learned sink" if group.sink else sees


def _size(size: int) -> str:
    return f"{size / 1e9:,.2f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"


def _shown(text: str) -> str:
    return visible(text) if text else ""


def _note(model: ModelEntry) -> str:
    return _shown(model.note if model.usable else f"not usable: {model.note}")


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB" if size else ""


_MODELS = (
    Column("name", "name", "model", _shown, left=True),
    Column("place", "place", "where", left=True),
    Column("family", "family", "family", _shown, left=True),
    Column("shape", "shape", "layers×heads", left=True),
    Column("size", "size", "size", _megabytes),
    Column("usable", "usable"),
    Column("note", "note"),
    Column("", _note, "note", left=True),
)
_FAMILIES = (
    Column("family", "family", "family", left=True),
    Column("maps", "maps", "maps", left=True),
    Column("heads", "heads"),
    Column("logits", "logits", "logits", left=True),
    Column("ablation", "ablation", "ablation"),
    Column("linear", "linear", "linear"),
)
_LAYERS = (
    Column("", "layers", "layers", ranges, left=True),
    Column("label", "label", "of", left=True),
    Column("layers", lambda group: ", ".join(map(str, group.layers))),
    Column("heads", "heads", "heads"),
    Column("kv_heads", "kv_heads", "key/value heads"),
    Column("head_dim", "head_dim", "head width"),
    Column("causal", "causal"),
    Column("sliding_window", "sliding_window"),
    Column("sink", "sink"),
    Column("", _sees, "sees", left=True),
)
