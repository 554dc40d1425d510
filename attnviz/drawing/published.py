"""Measures as papers define them: a line each, and JSON."""

from __future__ import annotations

from collections.abc import Collection

from attnviz.core.heads import Head, Layout
from attnviz.core.measures import PrefixMatching, SinkRate
from attnviz.drawing.labels import counted, number, percent

SINKS, MATCHING = "Sink rate (Gu et al. 2024)", "Prefix matching (Olsson et al. 2022)"
_BEST = 5
"""Heads that a line names."""


def matching_line(matching: PrefixMatching, layout: Layout, among: Collection[Head]) -> str:
    """The heads that match prefixes best, of some."""
    rows = zip(layout, matching.means, matching.halves, strict=True)
    ranked = sorted((-mean, half, head) for head, mean, half in rows if head in among)
    best = [f"{layout.name(head)} {-mean:.2f} ± {half:.2f}" for mean, half, head in ranked[:_BEST]]
    return (
        f"{MATCHING}, best: {', '.join(best)}; a perfect head has 0.5, "
        f"uniform attention {number(matching.chance)}; {matching.probes} probes of "
        f"{matching.copies}×{matching.length} random tokens, 95 % intervals"
    )


def sink_line(sinks: SinkRate) -> str:
    """The share of heads that are attention sinks."""
    texts = counted(sinks.texts, "text")
    over = "no interval from a single text"
    if sinks.half is not None:
        low, high = max(sinks.rate - sinks.half, 0.0), min(sinks.rate + sinks.half, 1.0)
        over = f"95 % {percent(low)} to {percent(high)}"
    return (
        f"{SINKS}: {percent(sinks.rate)} of the heads, {over}; mean weight on "
        f"the first token above {sinks.threshold:g} over the first {sinks.length} rows, {texts} "
        "long enough"
    )
