"""Patching described: whether the model does the task, grids, tables, rows, findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from attnviz.core.heads import Head
from attnviz.core.result import Figures, Finding, Measure
from attnviz.drawing.console import coloured, table_of
from attnviz.drawing.grid import on_terminal, signed, signed_grid
from attnviz.drawing.labels import signs, visible
from attnviz.drawing.tables import HEAD, Row, which_head
from attnviz.drawing.terminal import Line, user_defined_line
from attnviz.features.patch import words
from attnviz.features.patch.result import (
    DIRECTIONS,
    Circuit,
    Direction,
    Patch,
    PatchEffect,
    PathEffect,
)
from attnviz.interventions.judge import SMALLEST

_ROWS = 24  # rows of a grid by position on the terminal
_CELL = 5
_LEAST = 0.005  # a smaller share is left blank in such a grid
_VERBS: Mapping[Direction, str] = {"denoise": "restored", "noise": "removed"}


def parts(result: Patch, top: int | None = None) -> Iterator[RenderableType]:
    """Show the model on the task, a grid a direction, the table, a sentence, the origin."""
    yield Line(_hyphens(words.model_does(result)), "bold")
    yield ""
    for direction in result.directions if result.effects else ():
        yield PatchGrid(result, direction)
    if result.circuit is not None:
        yield members_table(result, result.circuit)
        yield ""
        if result.circuit.links:
            yield links_table(result, result.circuit, top)
            yield ""
        yield curve_table(result, result.circuit)
    elif result.edges:
        yield edges_table(result, result.strongest()[: top or len(result.edges)])
    else:
        most = 20 if result.by == "position" else len(result.effects)
        yield table(result, result.ranked()[: top or most])
    yield ""
    yield Text(_hyphens(words.quote(result)))
    yield ""
    if result.user_defined:
        yield Line(user_defined_line(result.user_defined), "dim")
    yield Line(_hyphens(closing(result)), "dim")


def _hyphens(text: str) -> str:
    """Minus signs as all grids and tables of the terminal have them."""
    return text.replace(words.MINUS, "-")


class PatchGrid:
    """A renderable: heads or layers, or these by position, each with its share."""

    def __init__(self, result: Patch, direction: Direction) -> None:
        self.result, self.direction = result, direction

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Draw for this console; nothing where there is no grid of single heads."""
        result, direction = self.result, self.direction
        end = words.most(result, direction)
        if result.by == "position":
            yield from self._by_position(console, options, end)
        else:
            alone: dict[Head, float] = {
                effect.heads[0]: share.share
                for effect in result.effects
                if len(effect.heads) == 1 and (share := effect.of(direction)) is not None
            }
            if len(alone) < 2:
                return
            yield signed_grid(result.layout, alone, end, 1)
        scale = f"; full colour at {end:.2g}" if coloured(console) else ""
        said = f"share {_VERBS[direction]} ({words.TOWARDS[direction]}){scale}"
        yield Text(signs(said, options.ascii_only), "dim")
        yield Text("")

    def _by_position(
        self, console: Console, options: ConsoleOptions, end: float
    ) -> Iterator[RenderableType]:
        """Components downwards, positions across, in bands; the largest components only."""
        result, direction = self.result, self.direction
        tokens = [visible(text.strip(), ascii_only=options.ascii_only) for text in
                  words.tokens(result, direction)]  # fmt: skip
        names, values = cells(result, direction)
        large = {name for (name, _), value in values.items() if abs(value) >= _LEAST}
        shown = [name for name in strongest(names, values, _ROWS) if name in large]
        if not shown:
            return
        wide = max(map(cell_len, shown))
        fitting = max((options.max_width - wide - 1) // (_CELL + 1), 1)
        for first in range(0, len(tokens), fitting):
            columns = range(first, min(first + fitting, len(tokens)))
            for label in ([str(n) for n in columns], [tokens[n][:_CELL] for n in columns]):
                yield Text(" " * (wide + 1) + " ".join(f"{text:^{_CELL}}" for text in label), "dim")
            for name in shown:
                line = Text(f"{name:<{wide}} ", no_wrap=True)
                for place in columns:
                    value = values[name, place]
                    style = Style()
                    if coloured(console):
                        style = on_terminal(value, end, 1)
                    figure = "" if abs(value) < _LEAST else signed(value, 2, 2)
                    line.append(f"{figure.replace('0.', '.', 1):^{_CELL}}", style)
                    line.append(" ")
                yield line
            yield Text("")
        if len(shown) < len(names):
            said = (
                f"{len(shown)} of {len(names)} {words.nouns(result)}: those with the largest "
                f"shares, from {_LEAST} on"
            )
            yield Text(said, "dim")


def cells(result: Patch, direction: Direction) -> tuple[list[str], dict[tuple[str, int], float]]:
    """Names of the rows of a grid by position, and its values."""
    values = {
        (effect.name, effect.position): share.share
        for effect in result.effects
        if effect.position is not None and (share := effect.of(direction)) is not None
    }
    return list(dict.fromkeys(name for name, _ in values)), values


def strongest(
    names: Sequence[str], values: Mapping[tuple[str, int], float], count: int
) -> list[str]:
    """Those names with the largest values, in their order."""
    size = dict.fromkeys(names, 0.0)
    for (name, _), value in values.items():
        size[name] = max(size[name], abs(value))
    largest = set(sorted(names, key=lambda name: -size[name])[:count])
    return [name for name in names if name in largest]


def table(result: Patch, effects: Sequence[PatchEffect]) -> RenderableType:
    """One line for each effect: its shares, their intervals, and the raw change."""
    made, tail = _table(result, effects, "patched", ["position"] * (result.by == "position"))
    for effect in effects:
        row = [visible(effect.name)]
        if result.by == "position":
            row.append(words.place(result, effect.position or 0).removeprefix("position "))
        made.add_row(*map(Text, map(_hyphens, row + tail(effect))), style=_style(effect))
    return made


def edges_table(result: Patch, edges: Sequence[PathEffect]) -> RenderableType:
    """One line for each path."""
    made, tail = _table(result, edges, "path", [])
    for edge in edges:
        row = [edge.name(result.layout), *tail(edge)]
        made.add_row(*map(Text, map(_hyphens, row)), style=_style(edge))
    return made


def members_table(result: Patch, circuit: Circuit) -> RenderableType:
    """One line for each head of a circuit."""
    made = table_of("head", "does", ">restored", ">removed", ">minimality", ">95 %",
                    ">in resamples", no_wrap=True)  # fmt: skip
    for member in circuit.members:
        row = [
            result.layout.name(member.head), member.role, signed(member.denoise, 3, 3),
            signed(member.noise, 3, 3), words.share(member.minimal),
            words.interval(member.minimal, joint=False), words.percent(member.often),
        ]  # fmt: skip
        made.add_row(*map(_hyphens, row))
    return made


def links_table(result: Patch, circuit: Circuit, top: int | None) -> RenderableType:
    """One line for each edge of a circuit."""
    joint = any(link.edge.first.joint_low is not None for link in circuit.links)
    known = ">typical, joint 95 %" if joint else ">95 %"
    made = table_of("edge", "", ">restored", known, ">removed", known, ">in resamples",
                    no_wrap=True)  # fmt: skip
    for link in circuit.links[:top]:
        edge = link.edge
        row = [edge.name(result.layout), ""]
        for share in (edge.denoise, edge.noise):
            row += [words.share(share), words.interval(share, joint=joint)]
        made.add_row(*map(_hyphens, row), words.percent(link.often))
    return made


def curve_table(result: Patch, circuit: Circuit) -> RenderableType:
    """Faithfulness by size; random circuits beside the circuit's own."""
    made = table_of("heads", "last", ">faithful", ">95 %", ">where found", ">random circuits",
                    no_wrap=True)  # fmt: skip
    size = len(circuit.members)
    for point in circuit.curve[: size + 4]:
        beside = ""
        if point.heads == size:
            beside = f"{words.mean(circuit.random):.2f}, at most {max(circuit.random):.2f}"
        last = "" if point.head is None else result.layout.name(point.head)
        known = words.interval(point.faithful, joint=False) if point.heads else ""
        made.add_row(str(point.heads), last, f"{point.faithful.share:.3f}", _hyphens(known),
                     f"{point.found:.3f}", beside,
                     style="bold" if point.heads == size else "")  # fmt: skip
    return made


def _table(
    result: Patch, shown: Sequence[PatchEffect | PathEffect], title: str, more: Sequence[str]
) -> tuple[Table, Callable[[PatchEffect | PathEffect], list[str]]]:
    """Return an empty table with its columns, and what stands in those of figures."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    made.add_column(title, overflow="fold")
    for name in more:
        made.add_column(name, no_wrap=True)
    joint = any(effect.first.joint_low is not None for effect in shown)
    known = any(effect.first.low is not None for effect in shown)
    guessed = any(effect.estimate is not None for effect in shown)
    counts = any(words.often(effect.first) for effect in shown)
    for direction in result.directions:
        made.add_column(_VERBS[direction], justify="right", no_wrap=True)
        if known:
            made.add_column(
                "typical, joint 95 %" if joint else "95 %", justify="right", no_wrap=True
            )
    if counts:
        made.add_column(f"pairs, by {100 * SMALLEST:.0f} % or more")
    if guessed:
        made.add_column("estimate", justify="right")
    made.add_column(f"in {result.unit or words.metric(result)}", justify="right")

    def tail(effect: PatchEffect | PathEffect) -> list[str]:
        row = []
        for direction in result.directions:
            share = effect.of(direction)
            row += [words.share(share), words.interval(share, joint=joint)][: 1 + known]
        row += [words.often(effect.first)] * counts
        if guessed:
            row.append("" if effect.estimate is None else signed(effect.estimate, 3, 4))
        return [*row, signed(effect.first.raw, 3)]

    return made, tail


def _style(effect: PatchEffect | PathEffect) -> str:
    """Faint for what does not differ from 0, where that can be said."""
    joint = effect.first.joint_low is not None
    return "dim" if joint and not effect.first.sure else ""


def closing(result: Patch) -> str:
    """Return what was measured, on which model, in one line."""
    info = result.source
    measured = words.circuit_measure(result) if result.circuit else words.measure(result)
    return " · ".join(
        [measured, f"{info.model}, {info.backend} backend",
         f"{info.device} {info.dtype}"]
    )  # fmt: skip


_OFTEN = ("often_above", "often_above_least", "often_below", "often_below_least")
_SHARE = ("share", "low", "high", "typical", "joint_low", "joint_high", "raw")
COLUMNS = (
    "name", "heads", *HEAD, "position",
    *(f"{direction}_{name}" for direction in DIRECTIONS for name in (*_SHARE, *_OFTEN)), "estimate",
)  # fmt: skip


def rows(result: Patch) -> list[Row]:
    """Return a row for each thing that was patched; None for what is not known."""
    made = [_edge(result, edge) for edge in result.edges]
    for effect in result.effects:
        heads = " ".join(result.layout.name(head) for head in effect.heads)
        row: Row = {"name": effect.name, "heads": heads} | which_head(result.layout, *effect.heads)
        row["layer"] = effect.layer if row["layer"] is None else row["layer"]
        row["position"] = effect.position
        made.append(row | _shares(effect) | {"estimate": effect.estimate})
    return made


def _edge(result: Patch, edge: PathEffect) -> Row:
    """Return a row of a path: its heads are the sender and the receivers."""
    heads = " ".join(result.layout.name(head) for head in (edge.sender, *edge.receivers))
    row: Row = {"name": edge.name(result.layout), "heads": heads} | which_head(result.layout)
    row["layer"] = edge.sender.layer
    return row | {"position": None} | _shares(edge) | {"estimate": edge.estimate}


def _shares(effect: PatchEffect | PathEffect) -> Row:
    row: Row = {}
    for direction in DIRECTIONS:
        share = effect.of(direction)
        row |= {f"{direction}_{name}": share and getattr(share, name) for name in _SHARE}
        for way in ("above", "below"):
            found = share and getattr(share, f"often_{way}")
            row[f"{direction}_often_{way}"] = found and found.texts
            row[f"{direction}_often_{way}_least"] = found and found.least
    return row


_NAMED = 3  # cells or groups that a head is told of

_DOES: dict[Direction, str] = {"denoise": "restores", "noise": "removes"}


def finding(result: Patch, name: str) -> Finding:
    """Return what each head carries of the answer."""
    said = {result.layout.name(head): _lines(result, head) for head in result.layout}
    alone = {
        result.layout.name(effect.heads[0]): effect
        for effect in result.effects
        if len(effect.heads) == 1 and effect.position is None
    }
    measures = []
    for direction in result.directions if alone else ():
        values = {
            head: (share.share, share.low, share.high)
            for head, effect in alone.items()
            if (share := effect.of(direction)) is not None
        }
        title = f"share of the {words.metric(result)} that it {_DOES[direction]}"
        measures.append(Measure(direction, title, "", 1, values))
    title = "What it carries of the answer"
    return Finding.of("patch", name, title, _how(result), said, measures)


def _lines(result: Patch, head: Head) -> Iterator[str]:
    member = next((m for m in result.circuit.members if m.head == head), None) if (
        result.circuit is not None
    ) else None  # fmt: skip
    if result.circuit is not None and member is not None:
        yield (
            f"one of the {len(result.circuit.members)} heads of a circuit that keeps "
            f"{words.score(result.circuit.faithful)} of the gap; without it "
            f"{words.score(member.minimal)} less; in {words.percent(member.often)} of the resamples"
        )
        linked = [link.edge for link in result.circuit.links]
        for edge in [e for e in linked if head in (e.sender, *e.receivers)][:_NAMED]:
            yield f"{edge.name(result.layout)} restores {words.share(edge.denoise)}"
    through = [edge for edge in result.strongest() if head in (edge.sender, *edge.receivers)]
    for edge in through[:_NAMED]:
        shares = [
            f"{_DOES[direction]} {words.share(share)}"
            for direction in result.directions
            if (share := edge.of(direction)) is not None
        ]
        yield f"{edge.name(result.layout)} {', '.join(shares)}"
    mine = [effect for effect in result.ranked() if head in effect.heads]
    for effect in mine[:_NAMED]:
        shares = [
            f"{_DOES[direction]} {words.share(share)}{_ends(effect, direction)}"
            for direction in result.directions
            if (share := effect.of(direction)) is not None
        ]
        with_others = f"with others ({effect.name}): " if len(effect.heads) > 1 else ""
        where = "" if effect.position is None else f" at {words.place(result, effect.position)}"
        yield f"{with_others}{words.COMPONENTS[result.component]}{where} {', '.join(shares)}"


def _ends(effect: PatchEffect, direction: Direction) -> str:
    known = words.interval(effect.of(direction), joint=False)
    return f" [{known.replace(' to ', ', ')}]" if known else ""


def _how(result: Patch) -> str:
    """How it was measured, in sentences."""
    values = " and ".join(words.TOWARDS[direction] for direction in result.directions)
    interval = "95 % intervals over pairs" if result.clean.low is not None else "no interval"
    what = f"Activation patching of the {words.COMPONENTS[result.component]}"
    if result.edges:
        what = f"Path patching (MLPs between {result.mlps})"
    partial = " It was interrupted: only the pairs that were done are in it." * result.partial
    return (
        f"{what}: {values}, as a share of "
        f"the {words.metric(result)} between clean and corrupted runs. "
        f"{words.model_does(result)}; {interval}.{partial}"
    )


def figures(result: Patch) -> Figures:
    """Return the share that each head, or group, restores or removes."""
    values: dict[str, dict[str, float | None]] = {}
    for effect in result.effects:
        name = effect.name if effect.position is None else f"{effect.name} at {effect.position}"
        values[name] = _both_ways(result, effect)
    values |= {edge.name(result.layout): _both_ways(result, edge) for edge in result.edges}
    settings = {"task": result.task, "metric": result.metric, "component": result.component}
    return Figures(values, {}, settings | {"by": result.by})


def _both_ways(result: Patch, effect: PatchEffect | PathEffect) -> dict[str, float | None]:
    """By direction."""
    return {
        direction: share.share
        for direction in result.directions
        if (share := effect.of(direction)) is not None
    }
