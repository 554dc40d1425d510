"""The words and figures that every form of sinks shares."""

from __future__ import annotations

from attnviz.core.interval import Interval
from attnviz.drawing.labels import counted, ran_on, visible
from attnviz.features.sinks.result import HeadSink, LayerActivation, Sinks


def tile_text(result: Sinks, head: HeadSink) -> str:
    """A head's sink in few letters."""
    return "learned" if result.rests_on_learned(head) else visible(head.token).strip() or "·"


def share(mean: Interval) -> str:
    """A share from 0 to 1."""
    return "–" if mean.value is None else f"{mean.value:.2f}"


def ends(mean: Interval) -> str:
    """Its 95 % interval."""
    if mean.low is None or mean.high is None:
        return "–"
    return f"{mean.low:z.2f} to {mean.high:z.2f}"


def times(mean: Interval) -> str:
    """How many times as large."""
    return "–" if mean.value is None else f"×{mean.value:.2f}"


def signed(mean: Interval | None) -> str:
    """A cost with its sign."""
    return "–" if mean is None or mean.value is None else f"{mean.value:+.3f}"


def sink_name(result: Sinks, head: HeadSink) -> str:
    """The token and place of a head's sink."""
    if result.rests_on_learned(head):
        return "learned, no key"
    token = visible(head.token)
    if result.texts == 1:
        return f"{token} ({head.position})"
    where = f"at {head.position} in {head.at}" if 2 * head.at > result.texts else "at many places"
    return f"{token} in {head.token_texts}, {where}"


def activation_line(result: Sinks) -> str:
    """What the states have, in one line; empty where they were not seen."""
    if not result.layers:
        return ""
    some = result.massive
    if not some:
        most = max(result.layers, key=lambda layer: abs(layer.value))
        return f"no massive activation; the largest is {activation(most)}"
    layers = f"after {counted(len(some), 'layer')} of {len(result.layers) - 1}"
    most = max(some, key=lambda layer: abs(layer.value))
    return f"massive activations {layers}; the largest is {activation(most)}"


def activation(layer: LayerActivation) -> str:
    """A value and where it is."""
    after = "in the embeddings" if layer.layer < 0 else f"after layer {layer.layer}"
    ratio = "" if layer.times is None else f", {layer.times:,.0f} times the median"
    return (
        f"{layer.value:,.1f} {after} at {visible(layer.token)} ({layer.position}), "
        f"dimension {layer.dimension}{ratio}"
    )


def norms(result: Sinks) -> str:
    """What norms are of."""
    return "‖v W_O‖" if result.norm_of == "output" else "‖v‖"


def summary(result: Sinks) -> str:
    """How many heads have sinks, and how many are dormant."""
    heads = f"{len(result.sinks)} of {counted(len(result.heads), 'head')}"
    mostly = " in most texts" if result.texts > 1 else ""
    dormant = (
        f"{len(result.dormant)} dormant (output below {result.dormant_below:g} of the layer's)"
    )
    return f"{heads} with more than {result.threshold:g} on one key{mostly}; {dormant}"


def measured(result: Sinks) -> str:
    """What was measured on what, in one line."""
    base = "" if result.base is None else f"loss {result.base:.3f} nats"
    parts = [
        counted(result.texts, "text"),
        counted(result.tokens, "token"),
        f"norms: {norms(result)}",
        base,
        ran_on(result.source),
    ]
    return " · ".join(filter(None, parts))
