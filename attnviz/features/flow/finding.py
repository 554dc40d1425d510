"""What a flow says of every head, to stand beside it elsewhere: what its layer moved."""

from __future__ import annotations

import numpy as np

from attnviz.core.findings import Finding, Measure, bare
from attnviz.core.heads import SiteKind
from attnviz.drawing.labels import percent
from attnviz.features.flow.result import Flow
from attnviz.features.flow.words import place, through

_NAMED = 3
"""Moves of a layer that are told."""


def finding(result: Flow, name: str) -> Finding:
    """What each head's layer moved between positions, of a token that is followed or of all."""
    moved: dict[tuple[str, int], float] = {}
    said: dict[tuple[str, int], str] = {}
    n = len(result.tokens)
    positions = n if result.followed is None or result.followed.direction == "from" else 1
    for layer, edges in zip(result.layers, result.edges(result.followed), strict=True):
        at = layer.kind, layer.layer
        others = np.where(np.eye(n, dtype=bool), 0.0, edges)
        moved[at] = float(others.sum()) / positions
        order = np.argsort(-others, axis=None, kind="stable")[:_NAMED]
        moves = [divmod(int(flat), n) for flat in order]
        named = ", ".join(
            f"{place(result, j)} to {place(result, i)} ({percent(float(others[i, j]))})"
            for i, j in moves
            if others[i, j] > 0
        )
        said[at] = f"its layer moves most from {named}" if named else "its layer moves nothing"
    values, lines = {}, {}
    for head in result.layout:
        stack: SiteKind = "encoder" if head.site.kind == "encoder" else "decoder"
        at = stack, head.layer
        if at in moved:
            values[result.layout.name(head)] = moved[at]
            lines[result.layout.name(head)] = (said[at],)
    of = "" if result.followed is None else f" of what is followed, {result.followed.name!r},"
    how = (
        f"The share{of} that each layer moves from other positions ({through(result)}); a figure "
        "of the layer, the same for all its heads."
    )
    title = "share that its layer moves from other positions"
    measures = (Measure("moved", title, "", 0, bare(values)),)
    return Finding("flow", name, "What its layer moves", how, lines, measures)
