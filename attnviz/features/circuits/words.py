"""The words that every picture of circuits shares."""

from __future__ import annotations

from attnviz.core.heads import Head
from attnviz.drawing.labels import model_name
from attnviz.features.circuits.result import ByPosition, Chance, Circuits, Edge, Side

UP = -1
"""What raises the token that is read is blue: the sign that is orange."""

FED: dict[Side, str] = {"Q": "queries", "K": "keys", "V": "values"}
PLACES = {
    "previous": "the position before",
    "first": "the first position",
    "same": "its own position",
    "next": "the position after",
}
_CLEAR = 0.2
"""Least weight on a place that positions are said to send a head to."""
_TIMES = 5
"""And that in uniform attention."""


_ENOUGH = 50
"""Edges from which on their upper tenth means something."""


def title(report: Circuits) -> str:
    """What is shown."""
    return f"What the weights of {model_name(report.source)} say, without any text"


def expected(chance: Chance, digits: int) -> str:
    """``0.072, sd 0.002``."""
    digits += chance.sd < 0.5 * 10**-digits
    mean = round(chance.mean, digits) + 0.0  # no negative zero
    return f"{mean:.{digits}f}, sd {chance.sd:.{digits}f}"


def copying_title(report: Circuits) -> str:
    """What the grid of copying shows."""
    kind = "first" if "first" in report.copying_chance else "plain"
    chance, matched = report.copying_chance[kind], report.copying_matched[kind]
    return (
        "Copying: 1 where a head raises the very tokens that it reads, -1 where it lowers them "
        f"(random heads: {expected(chance, 2)}; with these heads' singular values: "
        f"{expected(matched, 2)})"
    )


def copying_below(report: Circuits) -> str:
    """What the grid's heads read, and how plain embeddings mislead."""
    tokens = f"{report.tokens:,} tokens"
    if not report.first:
        return f"heads read the token embeddings as they are; {tokens}"
    lower = sum(report.plain[head].score < 0 for head in report.first)
    return (
        "layer 0 reads the token embeddings, later layers the embeddings as they leave layer 0 "
        f"(read as they are, {lower} of {len(report.first)} of these heads would score below 0); "
        f"{tokens}"
    )


def sent(report: Circuits) -> list[tuple[Head, str, float, float]]:
    """Heads that positions alone send somewhere: head, place, weight, uniform; largest first."""
    if report.uniform is None:
        return []
    uniform: ByPosition = report.uniform
    heads = []
    for head, means in report.by_position.items():
        place, weight = means.strongest()
        if weight >= max(_CLEAR, _TIMES * (even := getattr(uniform, place))):
            heads.append((head, place, weight, even))
    return sorted(heads, key=lambda row: -row[2])


def edges_title(report: Circuits) -> str:
    """What the excess is over."""
    means = {expected(chance, 3) for chance in report.chance.values()}
    return (
        "Composition: how much of what a head writes a later head reads, above random matrices "
        f"of the same shapes ({'; '.join(sorted(means))})"
    )


def shown(report: Circuits, side: Side, top: int) -> tuple[Edge, ...]:
    """The strongest edges of a side that random heads would hardly have."""
    return report.clear(side)[:top]


def edges_below(report: Circuits) -> str:
    """How many edges there are, and where their upper end begins."""
    sides = list(report.spread.items())
    counts = "; ".join(
        f"{FED[side]} {spread.edges:,}"
        + (f", 90th percentile {spread.top10:+.3f}" if spread.edges >= _ENOUGH else "")
        for side, spread in sides
    )
    measured = (
        "; in brackets what the writer was measured to add to the reader on texts, as a share of "
        "what sets its keys apart"
        if report.measured
        else ""
    )
    return (
        f"edges in total: {counts}; omitted are those no stronger than the strongest of as many "
        f"random heads with the same singular values{measured}"
    )


def measured(report: Circuits, edge: Edge) -> str:
    """What was measured of an edge, `` (58 %)``; empty for nothing."""
    value = report.measured.get((edge.side, edge.writer, edge.reader))
    return "" if value is None else f" ({round(100 * value[0]) + 0:d} %)"
