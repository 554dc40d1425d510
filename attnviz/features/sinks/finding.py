"""What sinks say of every head, to stand beside it elsewhere."""

from __future__ import annotations

from attnviz.core.findings import Finding, Measure, Value
from attnviz.drawing.labels import counted
from attnviz.features.sinks.result import HeadSink, SinkMean, Sinks
from attnviz.features.sinks.words import norms, share, signed, sink_name, times


def finding(found: Sinks, name: str) -> Finding:
    """Where each head rests, what it hands on, and what removal costs.

    Args:
        found: the result.
        name: of its file.
    """
    told = {found.layout.name(one.head): _said(found, one) for one in found.heads}
    said = {head: lines for head, lines in told.items() if lines}
    titles = {
        "share": "mean weight on the key with the most",
        "output": "norm of its output against its layer's heads",
    }
    measures = [
        Measure(field, title, "", 0, _values(found, [getattr(one, field) for one in found.heads]))
        for field, title in titles.items()
    ]
    if found.unit is not None:
        unit = found.unit if found.unit == "nats" else ""
        costs = [one.without or SinkMean(None) for one in found.heads]
        measures.append(
            Measure("cost", "cost of setting its output to 0", unit, -1, _values(found, costs))
        )
    how = (
        f"The key with the most weight in all, over {found.tokens:,} tokens of "
        f"{counted(found.texts, 'text')}; more than {found.threshold:g} of a row's weight makes it "
        f"a sink. Norms are {norms(found)} of the sink against the other keys. Dormant: an output "
        f"below {found.dormant_below:g} of the mean of the layer's heads."
    )
    some = tuple(measure for measure in measures if measure.values)
    return Finding("sinks", name, "Attention sink", how, said, some)


def _said(found: Sinks, one: HeadSink) -> tuple[str, ...]:
    told = []
    if 2 * one.texts > found.texts:
        told.append(
            f"sink {sink_name(found, one)}: {share(one.share)} of a row, its value "
            f"{times(one.norm)} the others', {share(one.written)} of what is written"
        )
    if one.learned.value:
        told.append(f"{share(one.learned)} of its weight on a learned sink")
    if found.is_dormant(one):
        told.append(f"dormant: output {times(one.output)} its layer's mean")
    if one.without is not None:
        told.append(
            f"without it {signed(one.without)} {found.unit}, without its sink "
            f"{signed(one.without_sink)}"
        )
    return tuple(told)


def _values(found: Sinks, means: list[SinkMean]) -> dict[str, Value]:
    return {
        found.layout.name(one.head): (mean.value, mean.low, mean.high)
        for one, mean in zip(found.heads, means, strict=True)
        if mean.value is not None
    }
