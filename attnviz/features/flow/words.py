"""The words and numbers that every picture of a flow shares."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.heads import SITE_PREFIX
from attnviz.core.tokens import Sides
from attnviz.drawing import labels
from attnviz.drawing.labels import model_name, percent, visible
from attnviz.features.flow.result import Flow, Followed, LayerFlow, Method, Order

WEIGHTS = "mean of the weights"

_METHODS: dict[Method, str] = {
    "alti": "ALTI: each token's contribution in every layer, by reduction in L1 distance, "
    "{order}; multiplied over the layers",
    "rollout": "rollout: in every layer half of the mean over heads and half of the position's "
    "own, multiplied over the layers",
    "max-flow": "max-flow: the most that could pass through the layers, with rollout's shares as "
    "capacities; rows divided by their sums",
}
_ORDERS: dict[Order, str] = {
    "post": "after the normalization that follows it (post-norm)",
    "pre": "as it is added to the residual stream (pre-norm)",
    "mixed": "each layer by its own order of normalization",
}


def formula(report: Flow) -> str:
    """How shares were measured, in a sentence."""
    return _METHODS[report.method].format(order=_ORDERS[report.order] if report.order else "")


def method(report: Flow) -> str:
    """The method as the literature writes it."""
    return "ALTI" if report.method == "alti" else report.method


def through(report: Flow) -> str:
    """How and through what: ``rollout through 4 layers``."""
    count = len(report.layers)
    return f"{method(report)} through {count} layer{'s' * (count != 1)}"


def heading(report: Flow) -> str:
    """What the picture of all tokens shows."""
    return f"what reaches each position from each token ({through(report)})"


def headline(report: Flow) -> str:
    """Where most of a position comes from, in a sentence: of the followed token, or of the last."""
    traced = report.followed
    name = model_name(report.source)
    if traced is not None and traced.direction == "from":
        return f"{name}: {asked(report, traced)}"
    node = len(report.tokens) - 1 if traced is None else traced.positions[0]
    shares = np.where(report.reach[node], report.total[node], 0.0)
    own = float(shares[node])
    rest = shares.copy()
    rest[node] = 0.0
    other = int(rest.argmax())
    if rest[other] <= 0:
        return f"{name}: {place(report, node)} takes in no other token"
    return (
        f"{name}: {place(report, node)} keeps {percent(own)} of itself and takes in most from "
        f"{place(report, other)}, {percent(float(rest[other]))}"
    )


def asked(report: Flow, traced: Followed, *, ascii_only: bool = False) -> str:
    """What the picture of a followed token shows."""
    name = place(report, traced.positions[0], ascii_only=ascii_only)
    if len(traced.positions) > 1:
        places = "–".join(
            str(number(report, n)) for n in traced.positions[:: len(traced.positions) - 1]
        )
        name = f"{visible(traced.name, ascii_only=ascii_only)} ({places})"
    if traced.direction == "to":
        return f"what reaches {name} from each token ({through(report)})"
    return f"how much of each position comes from {name} ({through(report)})"


def place(report: Flow, node: int, *, ascii_only: bool = False) -> str:
    """A token with its position: ``·table (12)``."""
    return f"{visible(report.tokens.texts[node], ascii_only=ascii_only)} ({number(report, node)})"


def number(report: Flow, node: int) -> int:
    """The position of a token in its own text."""
    return node - report.targets if node >= report.targets else node


def maps(report: Flow) -> list[NDArray[Any]]:
    """The flow and the mean of the weights; what cannot be reached is masked."""
    whole = bool(report.reach.all())
    return [
        table if whole else np.ma.array(table, mask=~report.reach)
        for table in (report.total, report.weights)
    ]


def sides(report: Flow) -> Sides:
    """The tokens on the axes of these maps."""
    return Sides(report.tokens, report.tokens)


def beside(report: Flow) -> Iterator[str]:
    """What the residual path changes: the flow beside the mean of the weights, in sentences."""
    n = len(report.tokens)
    own, looked = report.kept, report.weights.diagonal()
    several = report.reach.sum(axis=1) > 1
    if not several.any():
        return
    yield (
        f"Of its own token a position keeps {percent(float(own[several].mean()))} on average; the "
        f"weights give it {percent(float(looked[several].mean()))}."
    )
    others = report.reach & ~np.eye(n, dtype=bool)
    choice = others.sum(axis=1) > 1
    if not choice.any():
        return
    strongest = [
        np.where(others, table, -1).argmax(axis=1)[choice]
        for table in (report.total, report.weights)
    ]
    other = int((strongest[0] != strongest[1]).sum())
    total = int(choice.sum())
    gap = report.total - report.weights
    np.abs(gap, out=gap)
    gap *= others
    i, j = np.unravel_index(gap.argmax(), gap.shape)
    where = f"At {other} of {total} positions flow and weights disagree"
    if total == 1:
        where = f"At the only position with a choice flow and weights {'dis' * other}agree"
    yield (
        f"{where} on the top token other than the position's own. They are farthest apart at "
        f"{place(report, int(i))}: "
        f"{place(report, int(j))} gives {percent(float(report.total[i, j]))} and has "
        f"{percent(float(report.weights[i, j]))} of the weight."
    )


@dataclass(frozen=True, slots=True)
class TokenShare:
    """A token beside what it gives or gets.

    Attributes:
        node: its number among all tokens.
        flow: its share by flow.
        weight: its share of the mean weights.
    """

    node: int
    flow: float
    weight: float


def ranked(report: Flow, traced: Followed) -> list[TokenShare]:
    """Every token by its share, the largest first."""
    flow, looked = report.shares(traced), report.looked(traced)
    order = sorted(range(len(flow)), key=lambda n: -flow[n])
    return [TokenShare(n, float(flow[n]), float(looked[n])) for n in order]


@dataclass(frozen=True, slots=True)
class FlowLine:
    """A line across a layer.

    Attributes:
        column: the layer, or the group of layers, from 0.
        before: the token that it comes from; ``after`` the one that it goes to.
        share: its thickness, see :meth:`~attnviz.features.flow.result.Flow.edges`.
    """

    column: int
    before: int
    after: int
    share: float


@dataclass(frozen=True, slots=True)
class Drawing:
    """The lines of a picture.

    Attributes:
        lines: the weakest first.
        columns: the name of each: a layer, or the first and last of a group.
        nodes: the tokens that have lines, in order.
        ends: [n], what the lines that start (``to``) or end (``from``) at a token carry there.
    """

    lines: list[FlowLine]
    columns: list[str]
    nodes: list[int]
    ends: NDArray[np.float64]


def drawing(
    report: Flow, *, columns: int, least: float, tokens: int = sys.maxsize,
    most: int = sys.maxsize,
) -> Drawing:  # fmt: skip
    """The lines across layers."""
    steps, names = _merged(report, columns)
    merged, followed = replace(report, layers=steps), report.followed
    to = followed is not None and followed.direction == "to"
    nodes = _carriers(merged, tokens)
    shown = np.isin(np.arange(len(report.tokens)), nodes)
    lines, ends = [], np.zeros(len(shown))
    for column, table in enumerate(merged.edges(followed)):  # one after the other: they are large
        if not (to and column):
            ends = table.sum(axis=0 if to else 1)
        drawn = (table >= least) & shown[:, None] & shown
        for after, before in np.argwhere(drawn).tolist():
            lines.append(FlowLine(column, before, after, float(table[after, before])))
    lines.sort(key=lambda line: line.share)
    return Drawing(lines[-most:], names, nodes, ends)


def _merged(report: Flow, most: int) -> tuple[tuple[LayerFlow, ...], list[str]]:
    """The layers, or as few groups of neighbours of one stack as needed, and their names."""
    group = -(-len(report.layers) // max(most, 1))
    both = len({step.kind for step in report.layers}) > 1
    merged: list[LayerFlow] = []
    first: list[int] = []
    taken = 0
    for step in report.layers:
        if taken % group and merged and merged[-1].kind == step.kind:
            table = step.shares @ merged[-1].shares
            merged[-1] = LayerFlow(step.kind, step.layer, table)
            taken += 1
        else:
            merged.append(step)
            first.append(step.layer)
            taken = 1
    names = [
        (f"{SITE_PREFIX[step.kind]} " if both else "")
        + (f"{start}" if start == step.layer else f"{start}–{step.layer}")
        for start, step in zip(first, merged, strict=True)
    ]
    return tuple(merged), names


def _carriers(report: Flow, most: int) -> list[int]:
    """All tokens, or those through which most goes and the followed ones, in order."""
    n = len(report.tokens)
    if n <= most:
        return list(range(n))
    strength = np.zeros(n)
    for table in report.edges(report.followed):
        if not report.followed:
            np.fill_diagonal(table, 0)  # what stays is everywhere
        for side in (0, 1):
            np.maximum(strength, table.max(axis=side), out=strength)
    if report.followed:
        strength[list(report.followed.positions)] = np.inf
    return sorted(np.argsort(-strength, kind="stable")[:most].tolist())


def closing(report: Flow) -> str:
    """The model and how it ran, in one line."""
    n = len(report.tokens)
    count = f"{report.targets} + {n - report.targets}" if report.targets else str(n)
    return labels.closing(report.source, f"{count} token{'s' * (n != 1)}")
