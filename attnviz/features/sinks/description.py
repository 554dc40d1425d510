"""Sinks described: the grid of heads, the heads with sinks, massive activations, findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from rich.console import RenderableType

from attnviz.core.heads import Head
from attnviz.core.result import WITHOUT_IT, Figures, Finding, Interval, Measure, known
from attnviz.drawing.console import Tile, tile_grid
from attnviz.drawing.description import (
    Column,
    Listing,
    by_head,
    estimate_column,
    head_column,
    plain,
    plain_share,
)
from attnviz.drawing.labels import counted, ran_on, shorten, visible
from attnviz.drawing.terminal import Line
from attnviz.features.sinks import result as records

_NAME = 26


def parts(result: records.Sinks, *, top: int = 12) -> Iterator[RenderableType]:
    """Show the grid, so many heads with sinks, the states, the origin."""
    yield tile_grid(result.layout, sink_tiles(result))
    yield Line(
        f"the key with the most weight, where it has more than {result.threshold:g}; full colour "
        "at all of the weight",
        "dim",
    )
    yield ""
    if result.sinks:
        yield Listing(columns(result), result.sinks).table(top, fold=False)
        yield Line(
            f"norm: {norms(result)} of the sink against other keys; written: its share of the "
            "weight times norm; output: of the head, against its layer",
            "dim",
        )
    if result.gated:
        gates = [head_column(result.layout), Column("", "gate", "gate", share), *by_token()]
        yield Listing(gates, result.gated).table(top, fold=False)
        yield Line(
            "how far the gate on a head's output is open, by the token that attends: the first, "
            "punctuation, one that was there before, any other; most shut at the first on top",
            "dim",
        )
    yield Line(summary(result))
    learned = max((head.learned.value or 0.0 for head in result.heads), default=0.0)
    if learned > 0:
        yield Line(f"learned sinks, which are no keys, take up to {learned:.2f} of a head's weight")
    if activation_line(result):
        yield Line(activation_line(result))
    yield ""
    yield Line(measured(result), "dim")


def sink_tiles(result: records.Sinks, spelled: Callable[[str], str] = str) -> dict[Head, Tile]:
    """Draw the sink of every head that has one, in letters that there are."""
    return {
        head.head: Tile(spelled(tile_text(result, head)), result.rests_with(head))
        for head in result.sinks
    }


def listing(result: records.Sinks) -> Listing:
    """List every head for programs."""
    return Listing(columns(result), result.heads)


def columns(result: records.Sinks) -> list[Column]:
    """Describe what there is of a head: its sink, what that writes, and what removal costs."""
    learned = any(head.learned.value for head in result.heads)
    gated = any(head.gate.value is not None for head in result.heads)
    costs = result.unit is not None
    name = partial(sink_name, result)
    return [
        head_column(result.layout),
        Column("", lambda head: shorten(name(head), _NAME), "sink", left=True),
        *plain("position", "token", "texts"),
        estimate_column("share", "share", "share", share, ends if result.texts > 1 else None),
        Column("chance", "chance", "chance", "{:.2f}".format),
        Column("weight", "weight.value"),
        Column("learned", "learned.value", "learned", share, when=learned),
        Column("norm", "norm.value", "norm", times),
        Column("written", "written.value", "written", share),
        Column("output", "output.value", "output", times),
        estimate_column("gate", "gate", "gate", share, when=gated),
        *(column.hidden() for column in by_token()),
        Column("dormant", result.is_dormant),
        estimate_column("without", "without", f"without it, {result.unit}", signed, when=costs),
        estimate_column("without_sink", "without_sink", "without sink", signed, when=costs),
    ]


def by_token() -> list[Column]:
    """Describe how far a gate is open at tokens of every class."""

    def gate(name: str, head: records.HeadSink) -> Interval | None:
        return None if head.gates is None else getattr(head.gates, name)

    return [
        estimate_column(f"gate_{name}", partial(gate, name), name, _with_ends)
        for name in records.GATE_CLASSES
    ]


def _with_ends(gate: Interval) -> str:
    return share(gate) + (f" ({ends(gate)})" if gate.low is not None else "")


def tile_text(result: records.Sinks, head: records.HeadSink) -> str:
    """Return a head's sink in few letters."""
    return "learned" if result.rests_on_learned(head) else visible(head.token).strip() or "·"


def share(mean: Interval | float | None) -> str:
    """Write a share from 0 to 1."""
    return plain_share(mean.value if isinstance(mean, Interval) else mean)


def ends(mean: Interval) -> str:
    """Its 95 % interval."""
    if mean.low is None or mean.high is None:
        return "–"
    return f"{mean.low:z.2f} to {mean.high:z.2f}"


def times(value: float | None) -> str:
    """Write how many times as large."""
    return "–" if value is None else f"×{value:.2f}"


def signed(mean: Interval | None) -> str:
    """Return a cost with its sign."""
    return "–" if mean is None or mean.value is None else f"{mean.value:+.3f}"


def sink_name(result: records.Sinks, head: records.HeadSink) -> str:
    """Return the token and place of a head's sink."""
    if result.rests_on_learned(head):
        return "learned, no key"
    token = visible(head.token)
    if result.texts == 1:
        return f"{token} ({head.position})"
    place = f"at {head.position} in {head.at}" if 2 * head.at > result.texts else "at many places"
    return f"{token} in {head.token_texts}, {place}"


def activation_line(result: records.Sinks) -> str:
    """Return what the states have, in one line; empty where they were not seen."""
    if not result.layers:
        return ""
    massive = result.massive
    if not massive:
        largest = max(result.layers, key=lambda layer: abs(layer.value))
        return f"no massive activation; the largest is {activation(largest)}"
    layers = f"after {counted(len(massive), 'layer')} of {len(result.layers) - 1}"
    largest = max(massive, key=lambda layer: abs(layer.value))
    return f"massive activations {layers}; the largest is {activation(largest)}"


def activation(layer: records.LayerActivation) -> str:
    """Return a value and where it is."""
    place_text = "in the embeddings" if layer.layer < 0 else f"after layer {layer.layer}"
    ratio = "" if layer.times is None else f", {layer.times:,.0f} times the median"
    return (
        f"{layer.value:,.1f} {place_text} at {visible(layer.token)} ({layer.position}), "
        f"dimension {layer.dimension}{ratio}"
    )


def norms(result: records.Sinks) -> str:
    """Return what norms are of."""
    return "‖v W_O‖" if result.norm_of == "output" else "‖v‖"


def summary(result: records.Sinks) -> str:
    """How many heads have sinks, and how many are dormant."""
    heads = f"{len(result.sinks)} of {counted(len(result.heads), 'head')}"
    mostly = " in most texts" if result.texts > 1 else ""
    dormant = (
        f"{len(result.dormant)} dormant (output below {result.dormant_below:g} of the layer's)"
    )
    return f"{heads} with more than {result.threshold:g} on one key{mostly}; {dormant}"


def measured(result: records.Sinks) -> str:
    """Return what was measured on what, in one line."""
    base = "" if result.base is None else f"loss {result.base:.3f} nats"
    parts = [
        counted(result.texts, "text"),
        counted(result.tokens, "token"),
        f"norms: {norms(result)}",
        base,
        ran_on(result.source),
    ]
    return " · ".join(filter(None, parts))


def finding(result: records.Sinks, name: str) -> Finding:
    """Where each head rests, what it hands on, and what removal costs."""
    heads = {result.layout.name(head.head): head for head in result.heads}
    shares = known({name: head.share for name, head in heads.items()})
    outputs = known({name: head.output for name, head in heads.items()})
    costs = known({name: head.without for name, head in heads.items() if head.without})
    unit = "nats" if result.unit == "nats" else ""
    measures = (
        Measure("share", "mean weight on the key with the most", "", 0, shares),
        Measure("output", "norm of its output against its layer's heads", "", 0, outputs),
        Measure("cost", "cost of setting its output to 0", unit, -1, costs, WITHOUT_IT),
    )
    method = (
        f"The key with the most weight in all, over {result.tokens:,} tokens of "
        f"{counted(result.texts, 'text')}; more than {result.threshold:g} of a row's weight makes "
        f"it a sink. Norms are {norms(result)} of the sink against the other keys. Dormant: an "
        f"output below {result.dormant_below:g} of the mean of the layer's heads."
    )
    lines = {name: _lines(result, head) for name, head in heads.items()}
    return Finding.of("sinks", name, "Attention sink", method, lines, measures)


def _lines(result: records.Sinks, head: records.HeadSink) -> Iterator[str]:
    if 2 * head.texts > result.texts:
        yield (
            f"sink {sink_name(result, head)}: {share(head.share)} of a row, its value "
            f"{times(head.norm.value)} the others', {share(head.written)} of what is written"
        )
    if head.learned.value:
        yield f"{share(head.learned)} of its weight on a learned sink"
    if result.is_dormant(head):
        yield f"dormant: output {times(head.output.value)} its layer's mean"
    if head.without is not None:
        yield (
            f"without it {signed(head.without)} {result.unit}, without its sink "
            f"{signed(head.without_sink)}"
        )


def figures(result: records.Sinks) -> Figures:
    """Weight on the sink, the norm of its value and of the head's output."""
    values = by_head(
        result.layout, result.heads, share="share.value", norm="norm.value", output="output.value"
    )
    return Figures(values, settings={"norms": result.norm_of})
