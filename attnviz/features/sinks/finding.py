"""What sinks say of every head: beside others, and to compare two runs by."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.core.findings import WITHOUT_IT, Figures, Finding, Measure, known
from attnviz.drawing.labels import counted
from attnviz.features.sinks.result import HeadSink, Sinks
from attnviz.features.sinks.words import norms, share, signed, sink_name, times


def finding(result: Sinks, name: str) -> Finding:
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
    how = (
        f"The key with the most weight in all, over {result.tokens:,} tokens of "
        f"{counted(result.texts, 'text')}; more than {result.threshold:g} of a row's weight makes "
        f"it a sink. Norms are {norms(result)} of the sink against the other keys. Dormant: an "
        f"output below {result.dormant_below:g} of the mean of the layer's heads."
    )
    said = {name: _lines(result, head) for name, head in heads.items()}
    return Finding.of("sinks", name, "Attention sink", how, said, measures)


def _lines(result: Sinks, head: HeadSink) -> Iterator[str]:
    if 2 * head.texts > result.texts:
        yield (
            f"sink {sink_name(result, head)}: {share(head.share)} of a row, its value "
            f"{times(head.norm)} the others', {share(head.written)} of what is written"
        )
    if head.learned.value:
        yield f"{share(head.learned)} of its weight on a learned sink"
    if result.is_dormant(head):
        yield f"dormant: output {times(head.output)} its layer's mean"
    if head.without is not None:
        yield (
            f"without it {signed(head.without)} {result.unit}, without its sink "
            f"{signed(head.without_sink)}"
        )


def figures(result: Sinks) -> Figures:
    """Weight on the sink, the norm of its value and of the head's output."""
    values: dict[str, dict[str, float | None]] = {
        result.layout.name(head.head): {
            "share": head.share.value,
            "norm": head.norm.value,
            "output": head.output.value,
        }
        for head in result.heads
    }
    return Figures(values, settings={"norms": result.norm_of})
