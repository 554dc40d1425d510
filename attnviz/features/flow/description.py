"""A flow described: its maps, lines across layers, shares of what is followed, findings."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.style import Style as Paint
from rich.text import Text

from attnviz.core.heads import SITE_PREFIX, SiteKind
from attnviz.core.result import Finding, Measure, bare
from attnviz.core.spans import said_places
from attnviz.core.tokens import Sides
from attnviz.drawing import labels
from attnviz.drawing.console import (
    DOTS_HIGH,
    DOTS_WIDE,
    coloured,
    dot_bit,
    dots_sign,
    renderable,
    table_of,
)
from attnviz.drawing.grid import BLUE
from attnviz.drawing.heatmap_terminal import TerminalMap
from attnviz.drawing.labels import fit, model_name, percent, signs, visible
from attnviz.drawing.palette import mix
from attnviz.drawing.style import Style
from attnviz.drawing.tables import Row
from attnviz.drawing.terminal import Line
from attnviz.features.flow.result import Flow, Followed, LayerFlow, Method, Order

LEVELS = (0.5, 0.2, 0.05)  # shares from which a line is three dots thick, two, and one without gaps
PLAIN = "#=-."
"""The same without Braille."""
_GAP = 3


class Dots:
    """A field of characters that lines are drawn into."""

    def __init__(self, rows: int, columns: int, *, braille: bool) -> None:
        self.braille = braille
        self.bits = np.zeros((rows, columns), np.uint8)
        self.shares = np.zeros((rows, columns))

    def line(self, first: tuple[int, int], last: tuple[int, int], share: float) -> None:
        """Draw from one character to another, given as row and column, as thick as its share."""
        level = sum(share < least for least in LEVELS)
        height, width = (DOTS_HIGH, DOTS_WIDE) if self.braille else (1, 1)
        steps = max((last[1] - first[1] + 1) * width, abs(last[0] - first[0]) * height + 1, 2)
        x = np.linspace(first[1] * width, (last[1] + 1) * width - 1, steps).round().astype(int)
        middle = (height - 1) // 2
        y = np.linspace(first[0] * height + middle, last[0] * height + middle, steps)
        for step_number, (column, row) in enumerate(
            zip(x.tolist(), y.round().astype(int).tolist(), strict=True)
        ):
            if self.braille and level == len(LEVELS) and step_number % _GAP:
                continue
            for extra in range(max(3 - level, 1) if self.braille else 1):
                self._dot(row + (0, 1, -1)[extra], column, height, width, level)
            cell = row // height, column // width
            self.shares[cell] = max(self.shares[cell], share)

    def _dot(self, row: int, column: int, height: int, width: int, level: int) -> None:
        if not 0 <= row < len(self.bits) * height:
            return
        cell = row // height, column // width
        if self.braille:
            self.bits[cell] |= dot_bit(row, column)
        else:  # the thickest line wins
            self.bits[cell] = max(int(self.bits[cell]), len(PLAIN) - level)

    def character(self, row: int, column: int) -> str:
        """Return what stands there."""
        bits = int(self.bits[row, column])
        if not bits:
            return " "
        return dots_sign(bits) if self.braille else PLAIN[len(PLAIN) - bits]


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
    """Return the method as the literature writes it."""
    return "ALTI" if report.method == "alti" else report.method


def through(report: Flow) -> str:
    """How and through what: ``rollout through 4 layers``."""
    count = len(report.layers)
    return f"{method(report)} through {count} layer{'s' * (count != 1)}"


def heading(report: Flow) -> str:
    """Return what the picture of all tokens shows."""
    return f"what reaches each position from each token ({through(report)})"


def headline(report: Flow) -> str:
    """Where most of a position comes from, in a sentence: of the followed token, or of the last."""
    traced = report.followed
    name = model_name(report.source)
    if traced is not None and traced.direction == "from":
        return f"{name}: {asked(report, traced)}"
    node = len(report.tokens) - 1 if traced is None else traced.positions[0]
    shares = np.where(report.reach[node], report.total[node], 0.0)
    kept = float(shares[node])
    remaining = shares.copy()
    remaining[node] = 0.0
    largest = int(remaining.argmax())
    if remaining[largest] <= 0:
        return f"{name}: {place(report, node)} takes in no other token"
    return (
        f"{name}: {place(report, node)} keeps {percent(kept)} of itself and takes in most from "
        f"{place(report, largest)}, {percent(float(remaining[largest]))}"
    )


def asked(report: Flow, traced: Followed, *, ascii_only: bool = False) -> str:
    """Return what the picture of a followed token shows."""
    name = place(report, traced.positions[0], ascii_only=ascii_only)
    if len(traced.positions) > 1:
        numbers = [number(report, n) for n in traced.positions]
        places = said_places(str(numbers[0]), numbers)
        name = f"{visible(traced.name, ascii_only=ascii_only)} ({places})"
    if traced.direction == "to":
        return f"what reaches {name} from each token ({through(report)})"
    return f"how much of each position comes from {name} ({through(report)})"


def place(report: Flow, node: int, *, ascii_only: bool = False) -> str:
    """Return a token with its position: ``·table (12)``."""
    return f"{visible(report.tokens.texts[node], ascii_only=ascii_only)} ({number(report, node)})"


def number(report: Flow, node: int) -> int:
    """Return the position of a token in its own text."""
    return node - report.targets if node >= report.targets else node


def maps(report: Flow) -> list[NDArray[Any]]:
    """Return the flow and the mean of the weights; what cannot be reached is masked."""
    reachable = bool(report.reach.all())
    return [
        table if reachable else np.ma.array(table, mask=~report.reach)
        for table in (report.total, report.weights)
    ]


def sides(report: Flow) -> Sides:
    """Return the tokens on the axes of these maps."""
    return Sides(report.tokens, report.tokens)


def beside(report: Flow) -> Iterator[str]:
    """Get what the residual path changes: the flow beside the mean of the weights, in sentences."""
    n = len(report.tokens)
    kept, looked = report.kept, report.weights.diagonal()
    several = report.reach.sum(axis=1) > 1
    if not several.any():
        return
    yield (
        f"Of its own token a position keeps {percent(float(kept[several].mean()))} on average; the "
        f"weights give it {percent(float(looked[several].mean()))}."
    )
    elsewhere = report.reach & ~np.eye(n, dtype=bool)
    choice = elsewhere.sum(axis=1) > 1
    if not choice.any():
        return
    strongest = [
        np.where(elsewhere, table, -1).argmax(axis=1)[choice]
        for table in (report.total, report.weights)
    ]
    disagreeing = int((strongest[0] != strongest[1]).sum())
    total = int(choice.sum())
    gap = report.total - report.weights
    np.abs(gap, out=gap)
    gap *= elsewhere
    i, j = np.unravel_index(gap.argmax(), gap.shape)
    opening = f"At {disagreeing} of {total} positions flow and weights disagree"
    if total == 1:
        opening = f"At the only position with a choice flow and weights {'dis' * disagreeing}agree"
    yield (
        f"{opening} on the top token other than the position's own. They are farthest apart at "
        f"{place(report, int(i))}: "
        f"{place(report, int(j))} gives {percent(float(report.total[i, j]))} and has "
        f"{percent(float(report.weights[i, j]))} of the weight."
    )


@dataclass(frozen=True, slots=True)
class TokenShare:
    """A token beside what it gives or gets."""

    node: int  # its number among all tokens
    flow: float  # its share by flow
    weight: float  # its share of the mean weights


def ranked(report: Flow, traced: Followed) -> list[TokenShare]:
    """Every token by its share, the largest first."""
    flow, looked = report.shares(traced), report.looked(traced)
    order = sorted(range(len(flow)), key=lambda n: -flow[n])
    return [TokenShare(n, float(flow[n]), float(looked[n])) for n in order]


@dataclass(frozen=True, slots=True)
class FlowLine:
    """A line across a layer."""

    column: int  # the layer, or the group of layers, from 0
    before: int  # the token that it comes from; ``after`` the one that it goes to
    after: int
    share: float  # its thickness, see :meth:`~attnviz.features.flow.result.Flow.edges`.


@dataclass(frozen=True, slots=True)
class Drawing:
    """The lines of a picture."""

    lines: list[FlowLine]  # the weakest first
    columns: list[str]  # the name of each: a layer, or the first and last of a group
    nodes: list[int]  # the tokens that have lines, in order
    # [n], what the lines that start (``to``) or end (``from``) at a token carry there
    ends: NDArray[np.float64]


def drawing(
    report: Flow, *, columns: int, least: float, tokens: int = sys.maxsize,
    limit: int = sys.maxsize,
) -> Drawing:  # fmt: skip
    """Return the lines across layers."""
    steps, names = _merged(report, columns)
    merged, followed = replace(report, layers=steps), report.followed
    to = followed is not None and followed.direction == "to"
    nodes = _carriers(merged, tokens)
    listed = np.isin(np.arange(len(report.tokens)), nodes)
    lines, ends = [], np.zeros(len(listed))
    for column, table in enumerate(merged.edges(followed)):  # one after the other: they are large
        if not (to and column):
            ends = table.sum(axis=0 if to else 1)
        visible_edges = (table >= least) & listed[:, None] & listed
        for after, before in np.argwhere(visible_edges).tolist():
            lines.append(FlowLine(column, before, after, float(table[after, before])))
    lines.sort(key=lambda line: line.share)
    return Drawing(lines[-limit:], names, nodes, ends)


def _merged(report: Flow, limit: int) -> tuple[tuple[LayerFlow, ...], list[str]]:
    """Return the layers, or as few groups of neighbours of one stack as needed, and their names."""
    group = -(-len(report.layers) // max(limit, 1))
    several_kinds = len({step.kind for step in report.layers}) > 1
    merged: list[LayerFlow] = []
    first: list[int] = []
    members = 0
    for step in report.layers:
        if members % group and merged and merged[-1].kind == step.kind:
            table = step.shares @ merged[-1].shares
            merged[-1] = LayerFlow(step.kind, step.layer, table)
            members += 1
        else:
            merged.append(step)
            first.append(step.layer)
            members = 1
    names = [
        (f"{SITE_PREFIX[step.kind]} " if several_kinds else "")
        + (f"{start}" if start == step.layer else f"{start}–{step.layer}")
        for start, step in zip(first, merged, strict=True)
    ]
    return tuple(merged), names


def _carriers(report: Flow, limit: int) -> list[int]:
    """All tokens, or those through which most goes and the followed ones, in order."""
    n = len(report.tokens)
    if n <= limit:
        return list(range(n))
    strength = np.zeros(n)
    for table in report.edges(report.followed):
        if not report.followed:
            np.fill_diagonal(table, 0)  # what stays is everywhere
        for side in (0, 1):
            np.maximum(strength, table.max(axis=side), out=strength)
    if report.followed:
        strength[list(report.followed.positions)] = np.inf
    return sorted(np.argsort(-strength, kind="stable")[:limit].tolist())


def closing(report: Flow) -> str:
    """Return the model and how it ran, in one line."""
    n = len(report.tokens)
    count = f"{report.targets} + {n - report.targets}" if report.targets else str(n)
    return labels.closing(report.source, f"{count} token{'s' * (n != 1)}")


_STYLE = Style()
_GROUND = "#808080"
_WEAKEST = 0.02  # a share of a followed position that is still drawn, dotted
_LABEL = 16  # cells of a token
_LEAST_LABEL = 3
_LEAST_STEP, _LARGEST_STEP = 3, 14  # cells of a layer
_MOST = 48  # tokens whose lines are drawn
_LISTED = 12  # tokens whose shares are listed
_BAR = 20
_FIGURES = 36  # cells of what stands beside token and bars


class _FlowMap(TerminalMap):
    """The map of a flow, which has no queries and keys."""

    AXES = "↓ positions after the last layer  → tokens"
    BLANK = "cannot be reached"
    noun = "share of the position"


def parts(report: Flow, style: Style = _STYLE) -> Iterator[RenderableType]:
    """Yield what is printed: the maps or a followed token's shares, lines, how it was measured."""
    if report.followed:
        yield shares_table(report)
    else:
        yield from map_parts(report, style)
        for sentence in beside(report):
            yield Line(sentence)
    yield ""
    yield lines(report)
    yield ""
    yield Line(formula(report), "dim")
    yield Line(closing(report), "dim")


def map_parts(report: Flow, style: Style) -> Iterator[RenderableType]:
    """Yield the flow as a map, and the mean of the weights on the same scale."""
    tables = maps(report)
    kinds = ((_FlowMap, heading(report)), (TerminalMap, f"{WEIGHTS}, over all heads and layers"))
    top = max(float(table.max()) for table in tables)
    for table, (kind, title) in zip(tables, kinds, strict=True):
        yield kind(table, sides(report), title=title, style=style, top=top)
        yield ""


@renderable
def lines(console: Console, options: ConsoleOptions, report: Flow) -> RenderResult:
    """Yield tokens downwards, layers to the right, lines as thick as shares.

    Layers and tokens that do not fit this console are merged or left out.
    """
    plain, traced = options.ascii_only, report.followed
    texts = [visible(text, ascii_only=plain) for text in report.tokens.texts]
    figures = 5 * (traced is not None)
    spare = options.max_width - figures - 2
    label = min(max(map(cell_len, texts)), _LABEL, max(spare // 3, _LEAST_LABEL))
    room = max(spare - 2 * label, _LEAST_STEP)
    to = traced is not None and traced.direction == "to"
    least = _WEAKEST if to else LEVELS[-1]
    picture = drawing(report, columns=room // _LEAST_STEP, tokens=_MOST, least=least)
    step = min(room // len(picture.columns), _LARGEST_STEP)
    rows = {node: row for row, node in enumerate(picture.nodes)}
    dots = Dots(len(rows), step * len(picture.columns), braille=not plain)
    strongest = {(line.column, line.after): line for line in picture.lines
                 if line.before != line.after}  # fmt: skip
    for line in picture.lines if traced else strongest.values():
        first = rows[line.before], line.column * step
        dots.line(first, (rows[line.after], first[1] + step - 1), line.share)
    pad = " " * (label + 1 + figures * to)
    names = "".join(f"{name:^{step}}" for name in picture.columns)
    yield Text(signs(pad + names.rstrip(), plain), "dim", no_wrap=True)
    for row, node in enumerate(picture.nodes):
        chosen = traced is not None and node in traced.positions
        style = "bold" if chosen else ""
        share = percent(float(picture.ends[node])).rjust(figures) if traced else ""
        text = Text(no_wrap=True)
        text.append(fit(texts[node], label, "right", ascii_only=plain), style)
        text.append((share if to else "") + " ", "dim")
        for column in range(dots.bits.shape[1]):
            strength = float(dots.shares[row, column])
            text.append(dots.character(row, column), _paint(console, strength))
        text.append(" " + fit(texts[node], label, ascii_only=plain), style)
        text.append("" if to else share, "dim")
        text.rstrip()
        yield text
    yield Text(signs(_legend(report, len(rows), to, plain), plain), "dim")


def _legend(report: Flow, listed: int, to: bool, plain: bool) -> str:
    marks = [f"{mark} from {percent(least)}" for mark, least in zip(PLAIN if plain else
             ("thick", "two dots", "one"), LEVELS, strict=False)]  # fmt: skip
    if to:
        marks.append(f"{PLAIN[-1] if plain else 'dotted'} from {percent(_WEAKEST)}")
    sentence = f"tokens downwards, layers →; {', '.join(marks)}"
    if not report.followed:
        sentence += "; of each position the strongest other token"
    if listed < len(report.tokens):
        sentence += f"; the {listed} tokens through which most goes"
    return sentence


@renderable
def shares_table(console: Console, options: ConsoleOptions, report: Flow) -> RenderResult:
    """Yield what the followed token gets or gives, by flow and by weights, the largest first."""
    plain = options.ascii_only
    traced = report.followed
    assert traced is not None
    yield Text(signs(asked(report, traced, ascii_only=plain), plain), "bold")
    shares = ranked(report, traced)
    top = max((max(share.flow, share.weight) for share in shares), default=0.0) or 1.0
    texts = [visible(text, ascii_only=plain) for text in report.tokens.texts]
    label = min(max(map(cell_len, texts)), max(options.max_width // 4, _LEAST_LABEL))
    bar = min(max((options.max_width - label - _FIGURES) // 2, 0), _BAR)
    first = "token" if traced.direction == "to" else "position"
    table = table_of(first, ">", f">{report.method}", "", ">weights", "")
    for share in shares[:_LISTED]:
        if not share.flow and not share.weight:
            continue
        table.add_row(
            fit(texts[share.node], label, ascii_only=plain).rstrip(),
            str(number(report, share.node)),
            percent(share.flow), _bar(console, round(share.flow / top * bar), plain),
            percent(share.weight),
            _bar(console, round(share.weight / top * bar), plain, _GROUND),
        )  # fmt: skip
    yield table
    omitted = len([share for share in shares[_LISTED:] if share.flow or share.weight])
    if omitted:
        remainder = sum(share.flow for share in shares[_LISTED:])
        sentence = (
            f"{omitted} more tokens give {percent(remainder)}"
            if first == "token"
            else f"{omitted} more positions"
        )
        yield Text(sentence, "dim")


def _paint(console: Console, share: float) -> Paint:
    """Return the colour of a line, stronger for a larger share."""
    if not coloured(console) or not share:
        return Paint()
    return Paint(color=mix(_GROUND, "#4aa3ff", min(share**0.5, 1.0)))


def _bar(console: Console, cells: int, plain: bool, color: str = BLUE) -> Text:
    bar = ("#" if plain else "█") * cells
    return Text(bar, Paint(color=color) if coloured(console) else Paint())


COLUMNS = ("position_side", "position", "position_token", "key_side", "key", "key_token", "share",
           "weight")  # fmt: skip


def rows(report: Flow) -> list[Row]:
    """Return a row for each token that can reach a position.

    Positions are counted in each of two texts by itself; ``share`` is by flow, ``weight`` of the
    mean weights. Where a token is followed there are only its own rows.
    """
    texts, first = report.tokens.texts, report.targets
    kinds = ("source", "target") if first else ("text", "text")
    names = [(kinds[n >= first], number(report, n), text) for n, text in enumerate(texts)]
    table: list[Row] = []
    traced = report.followed
    for i, to in enumerate(names):
        if traced and traced.direction == "to" and i not in traced.positions:
            continue
        for j, origin in enumerate(names):
            if traced and traced.direction == "from" and j not in traced.positions:
                continue
            if report.reach[i, j]:
                shares = float(report.total[i, j]), float(report.weights[i, j])
                values = (*to, *origin, *map(labels.rounded, shares))
                table.append(dict(zip(COLUMNS, values, strict=True)))
    return table


_NAMED = 3  # moves of a layer that are told


def finding(result: Flow, name: str) -> Finding:
    """Get what each head's layer moved between positions, of a token that is followed or of all."""
    moved: dict[tuple[str, int], float] = {}
    sentences: dict[tuple[str, int], str] = {}
    n = len(result.tokens)
    positions = n if result.followed is None or result.followed.direction == "from" else 1
    for layer, edges in zip(result.layers, result.edges(result.followed), strict=True):
        site = layer.kind, layer.layer
        elsewhere = np.where(np.eye(n, dtype=bool), 0.0, edges)
        moved[site] = float(elsewhere.sum()) / positions
        order = np.argsort(-elsewhere, axis=None, kind="stable")[:_NAMED]
        moves = [divmod(int(flat), n) for flat in order]
        named = ", ".join(
            f"{place(result, j)} to {place(result, i)} ({percent(float(elsewhere[i, j]))})"
            for i, j in moves
            if elsewhere[i, j] > 0
        )
        sentences[site] = (
            f"its layer moves most from {named}" if named else "its layer moves nothing"
        )
    values, lines = {}, {}
    for head in result.layout:
        stack: SiteKind = "encoder" if head.site.kind == "encoder" else "decoder"
        site = stack, head.layer
        if site in moved:
            values[result.layout.name(head)] = moved[site]
            lines[result.layout.name(head)] = (sentences[site],)
    of = "" if result.followed is None else f" of what is followed, {result.followed.name!r},"
    explanation = (
        f"The share{of} that each layer moves from other positions ({through(result)}); a figure "
        "of the layer, the same for all its heads."
    )
    title = "share that its layer moves from other positions"
    measures = (Measure("moved", title, "", 0, bare(values)),)
    return Finding("flow", name, "What its layer moves", explanation, lines, measures)
