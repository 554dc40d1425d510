"""The words and figures that every form of sinks shares."""

from __future__ import annotations

from attnviz.drawing.labels import counted, model_name, visible
from attnviz.features.sinks.result import HeadSink, LayerActivation, SinkMean, Sinks


def tile_text(found: Sinks, one: HeadSink) -> str:
    """A head's sink in few letters."""
    return "learned" if found.rests_on_learned(one) else visible(one.token).strip() or "·"


def share(mean: SinkMean) -> str:
    """A share from 0 to 1."""
    return "–" if mean.value is None else f"{mean.value:.2f}"


def ends(mean: SinkMean) -> str:
    """Its 95 % interval."""
    if mean.low is None or mean.high is None:
        return "–"
    return f"{mean.low:z.2f} to {mean.high:z.2f}"


def times(mean: SinkMean) -> str:
    """How many times as large."""
    return "–" if mean.value is None else f"×{mean.value:.2f}"


def signed(mean: SinkMean | None) -> str:
    """A cost with its sign."""
    return "–" if mean is None or mean.value is None else f"{mean.value:+.3f}"


def sink_name(found: Sinks, one: HeadSink) -> str:
    """The token and place of a head's sink."""
    if found.rests_on_learned(one):
        return "learned, no key"
    token = visible(one.token)
    if found.texts == 1:
        return f"{token} ({one.position})"
    where = f"at {one.position} in {one.at}" if 2 * one.at > found.texts else "at many places"
    return f"{token} in {one.token_texts}, {where}"


def activation_line(found: Sinks) -> str:
    """What the states have, in one line; empty where they were not seen."""
    if not found.layers:
        return ""
    some = found.massive
    if not some:
        most = max(found.layers, key=lambda one: abs(one.value))
        return f"no massive activation; the largest is {activation(most)}"
    layers = f"after {counted(len(some), 'layer')} of {len(found.layers) - 1}"
    most = max(some, key=lambda one: abs(one.value))
    return f"massive activations {layers}; the largest is {activation(most)}"


def activation(one: LayerActivation) -> str:
    """A value and where it is."""
    after = "in the embeddings" if one.layer < 0 else f"after layer {one.layer}"
    ratio = "" if one.times is None else f", {one.times:,.0f} times the median"
    return (
        f"{one.value:,.1f} {after} at {visible(one.token)} ({one.position}), "
        f"dimension {one.dimension}{ratio}"
    )


def norms(found: Sinks) -> str:
    """What norms are of."""
    return "‖v W_O‖" if found.norm_of == "output" else "‖v‖"


def summary(found: Sinks) -> str:
    """How many heads have sinks, and how many are dormant."""
    heads = f"{len(found.found)} of {counted(len(found.heads), 'head')}"
    mostly = " in most texts" if found.texts > 1 else ""
    dormant = f"{len(found.dormant)} dormant (output below {found.dormant_below:g} of the layer's)"
    return f"{heads} with more than {found.threshold:g} on one key{mostly}; {dormant}"


def measured(found: Sinks) -> str:
    """What was measured on what, in one line."""
    info = found.source
    base = "" if found.base is None else f"loss {found.base:.3f} nats"
    parts = [
        counted(found.texts, "text"),
        counted(found.tokens, "token"),
        f"norms: {norms(found)}",
        base,
        f"{model_name(info)}, {info.backend} backend, {info.device} {info.dtype}",
    ]
    return " · ".join(filter(None, parts))
