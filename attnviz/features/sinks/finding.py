"""What sinks say of every head, to stand beside it elsewhere."""

from __future__ import annotations

from attnviz.core.findings import WITHOUT_IT, Finding, Measure, Value
from attnviz.drawing.labels import counted
from attnviz.features.sinks.result import HeadSink, SinkMean, Sinks
from attnviz.features.sinks.words import norms, share, signed, sink_name, times


def finding(result: Sinks, name: str) -> Finding:
    """Where each head rests, what it hands on, and what removal costs.

    Args:
        result: the result.
        name: of its file.
    """
    told = {result.layout.name(head.head): _said(result, head) for head in result.heads}
    said = {head: lines for head, lines in told.items() if lines}
    titles = {
        "share": "mean weight on the key with the most",
        "output": "norm of its output against its layer's heads",
    }
    measures = [
        Measure(
            field, title, "", 0, _values(result, [getattr(head, field) for head in result.heads])
        )
        for field, title in titles.items()
    ]
    if result.unit is not None:
        unit = result.unit if result.unit == "nats" else ""
        costs = [head.without or SinkMean(None) for head in result.heads]
        measures.append(
            Measure(
                "cost",
                "cost of setting its output to 0",
                unit,
                -1,
                _values(result, costs),
                WITHOUT_IT,
            )
        )
    how = (
        f"The key with the most weight in all, over {result.tokens:,} tokens of "
        f"{counted(result.texts, 'text')}; more than {result.threshold:g} of a row's weight makes "
        f"it a sink. Norms are {norms(result)} of the sink against the other keys. Dormant: an "
        f"output below {result.dormant_below:g} of the mean of the layer's heads."
    )
    some = tuple(measure for measure in measures if measure.values)
    return Finding("sinks", name, "Attention sink", how, said, some)


def _said(result: Sinks, head: HeadSink) -> tuple[str, ...]:
    told = []
    if 2 * head.texts > result.texts:
        told.append(
            f"sink {sink_name(result, head)}: {share(head.share)} of a row, its value "
            f"{times(head.norm)} the others', {share(head.written)} of what is written"
        )
    if head.learned.value:
        told.append(f"{share(head.learned)} of its weight on a learned sink")
    if result.is_dormant(head):
        told.append(f"dormant: output {times(head.output)} its layer's mean")
    if head.without is not None:
        told.append(
            f"without it {signed(head.without)} {result.unit}, without its sink "
            f"{signed(head.without_sink)}"
        )
    return tuple(told)


def _values(result: Sinks, means: list[SinkMean]) -> dict[str, Value]:
    return {
        result.layout.name(head.head): (mean.value, mean.low, mean.high)
        for head, mean in zip(result.heads, means, strict=True)
        if mean.value is not None
    }
