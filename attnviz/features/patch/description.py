"""Patching described: whether the model does the task, grids, tables, rows, findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.style import Style
from rich.table import Table
from rich.text import Text

from attnviz.core.heads import Head
from attnviz.core.result import Figures, Finding, Measure
from attnviz.drawing.console import coloured, renderable, table_of
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
    PatchShare,
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
        yield patch_grid(result, direction)
    if result.circuit is not None:
        yield members_table(result, result.circuit)
        yield ""
        if result.circuit.links:
            yield links_table(result, result.circuit, top)
            yield ""
        yield curve_table(result, result.circuit)
    elif result.edges:
        yield table(result, result.strongest()[: top or None], "path")
    else:
        limit = 20 if result.by == "position" else len(result.effects)
        yield table(result, result.ranked()[: top or limit], "patched")
    yield ""
    yield Text(_hyphens(words.quote(result)))
    yield ""
    if result.user_defined:
        yield Line(user_defined_line(result.user_defined), "dim")
    yield Line(_hyphens(closing(result)), "dim")


def _hyphens(text: str) -> str:
    """Minus signs as all grids and tables of the terminal have them."""
    return text.replace(words.MINUS, "-")


@renderable
def patch_grid(
    console: Console, options: ConsoleOptions, result: Patch, direction: Direction
) -> RenderResult:
    """Yield heads or layers, or these by position, each with its share; nothing of one head."""
    end = words.most(result, direction)
    if result.by == "position":
        yield from _by_position(console, options, result, direction, end)
    else:
        values = {head: share.share for head, share in result.single(direction).items()}
        if len(values) < 2:
            return
        yield signed_grid(result.layout, values, end, 1)
    scale = f"; full colour at {end:.2g}" if coloured(console) else ""
    caption = f"share {_VERBS[direction]} ({words.TOWARDS[direction]}){scale}"
    yield Text(signs(caption, options.ascii_only), "dim")
    yield Text("")


def _by_position(
    console: Console, options: ConsoleOptions, result: Patch, direction: Direction, end: float
) -> RenderResult:
    """Components downwards, positions across, in bands; the largest components only."""
    tokens = [visible(text.strip(), ascii_only=options.ascii_only) for text in
              words.tokens(result, direction)]  # fmt: skip
    names, values = cells(result, direction)
    large = {name for (name, _), value in values.items() if abs(value) >= _LEAST}
    listed = [name for name in strongest(names, values, _ROWS) if name in large]
    if not listed:
        return
    width = max(map(cell_len, listed))
    fitting = max((options.max_width - width - 1) // (_CELL + 1), 1)
    for first in range(0, len(tokens), fitting):
        columns = range(first, min(first + fitting, len(tokens)))
        for label in ([str(n) for n in columns], [tokens[n][:_CELL] for n in columns]):
            yield Text(" " * (width + 1) + " ".join(f"{text:^{_CELL}}" for text in label), "dim")
        for name in listed:
            line = Text(f"{name:<{width}} ", no_wrap=True)
            for column in columns:
                value = values[name, column]
                style = on_terminal(value, end, 1) if coloured(console) else Style()
                figure = "" if abs(value) < _LEAST else signed(value, 2, 2)
                line.append(f"{figure.replace('0.', '.', 1):^{_CELL}}", style)
                line.append(" ")
            yield line
        yield Text("")
    if len(listed) < len(names):
        caption = (
            f"{len(listed)} of {len(names)} {words.nouns(result)}: those with the largest "
            f"shares, from {_LEAST} on"
        )
        yield Text(caption, "dim")


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


def table(result: Patch, effects: Sequence[PatchEffect | PathEffect], title: str) -> RenderableType:
    """One line for each effect or path: its shares, their intervals, and the raw change."""
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    grid.add_column(title, overflow="fold")
    joint = any(effect.first.joint_low is not None for effect in effects)
    intervals = any(effect.first.low is not None for effect in effects)
    guessed = any(effect.estimate is not None for effect in effects)
    counts = any(words.often(effect.first) for effect in effects)
    places = any(effect.position is not None for effect in effects)
    if places:
        grid.add_column("position", no_wrap=True)
    for direction in result.directions:
        grid.add_column(_VERBS[direction], justify="right", no_wrap=True)
        if intervals:
            grid.add_column(
                "typical, joint 95 %" if joint else "95 %", justify="right", no_wrap=True
            )
    if counts:
        grid.add_column(f"pairs, by {100 * SMALLEST:.0f} % or more")
    if guessed:
        grid.add_column("estimate", justify="right")
    grid.add_column(f"in {result.unit or words.metric(result)}", justify="right")
    for effect in effects:
        row = [visible(_name(result, effect))]
        if places:
            row.append(words.place(result, effect.position or 0).removeprefix("position "))
        for direction in result.directions:
            share = effect.of(direction)
            row += [words.share(share), words.interval(share, joint=joint)][: 1 + intervals]
        row += [words.often(effect.first)] * counts
        if guessed:
            row.append("" if effect.estimate is None else signed(effect.estimate, 3, 4))
        row.append(signed(effect.first.raw, 3))
        faint = effect.first.joint_low is not None and not effect.first.sure
        grid.add_row(*map(Text, map(_hyphens, row)), style="dim" if faint else "")
    return grid


def _name(result: Patch, effect: PatchEffect | PathEffect) -> str:
    """Return what was patched, or the path."""
    return effect.name if isinstance(effect, PatchEffect) else effect.name(result.layout)


def members_table(result: Patch, circuit: Circuit) -> RenderableType:
    """One line for each head of a circuit."""
    grid = table_of("head", "does", ">restored", ">removed", ">minimality", ">95 %",
                    ">in resamples", no_wrap=True)  # fmt: skip
    for member in circuit.members:
        row = [
            result.layout.name(member.head), member.role, signed(member.denoise, 3, 3),
            signed(member.noise, 3, 3), words.share(member.minimal),
            words.interval(member.minimal, joint=False), words.percent(member.often),
        ]  # fmt: skip
        grid.add_row(*map(_hyphens, row))
    return grid


def links_table(result: Patch, circuit: Circuit, top: int | None) -> RenderableType:
    """One line for each edge of a circuit."""
    joint = any(link.edge.first.joint_low is not None for link in circuit.links)
    interval = ">typical, joint 95 %" if joint else ">95 %"
    grid = table_of("edge", "", ">restored", interval, ">removed", interval, ">in resamples",
                    no_wrap=True)  # fmt: skip
    for link in circuit.links[:top]:
        edge = link.edge
        row = [edge.name(result.layout), ""]
        for share in (edge.denoise, edge.noise):
            row += [words.share(share), words.interval(share, joint=joint)]
        grid.add_row(*map(_hyphens, row), words.percent(link.often))
    return grid


def curve_table(result: Patch, circuit: Circuit) -> RenderableType:
    """Faithfulness by size; random circuits beside the circuit's own."""
    grid = table_of("heads", "last", ">faithful", ">95 %", ">where found", ">random circuits",
                    no_wrap=True)  # fmt: skip
    size = len(circuit.members)
    for point in circuit.curve[: size + 4]:
        beside = ""
        if point.heads == size:
            beside = f"{words.mean(circuit.random):.2f}, at most {max(circuit.random):.2f}"
        last = "" if point.head is None else result.layout.name(point.head)
        interval = words.interval(point.faithful, joint=False) if point.heads else ""
        grid.add_row(str(point.heads), last, f"{point.faithful.share:.3f}", _hyphens(interval),
                     f"{point.found:.3f}", beside,
                     style="bold" if point.heads == size else "")  # fmt: skip
    return grid


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
    """Return a row for each path and each thing that was patched; None for what is not known."""
    listed: list[Row] = []
    patched: tuple[PatchEffect | PathEffect, ...] = (*result.edges, *result.effects)
    for effect in patched:
        path = isinstance(effect, PathEffect)
        heads = " ".join(map(result.layout.name, effect.heads))
        row: Row = {"name": _name(result, effect), "heads": heads}
        row |= which_head(result.layout, *(() if path else effect.heads))
        row["layer"] = effect.layer if row["layer"] is None else row["layer"]
        row["position"] = effect.position
        listed.append(row | _shares(effect) | {"estimate": effect.estimate})
    return listed


def _shares(effect: PatchEffect | PathEffect) -> Row:
    row: Row = {}
    for direction in DIRECTIONS:
        share = effect.of(direction)
        row |= {f"{direction}_{name}": share and getattr(share, name) for name in _SHARE}
        for way in ("above", "below"):
            often = share and getattr(share, f"often_{way}")
            row[f"{direction}_often_{way}"] = often and often.texts
            row[f"{direction}_often_{way}_least"] = often and often.least
    return row


_NAMED = 3  # cells or groups that a head is told of

_DOES: dict[Direction, str] = {"denoise": "restores", "noise": "removes"}


def finding(result: Patch, name: str) -> Finding:
    """Return what each head carries of the answer."""
    lines = {result.layout.name(head): _lines(result, head) for head in result.layout}
    measures = []
    for direction in result.directions:
        values = {
            result.layout.name(head): (share.share, share.low, share.high)
            for head, share in result.single(direction).items()
        }
        title = f"share of the {words.metric(result)} that it {_DOES[direction]}"
        measures.append(Measure(direction, title, "", 1, values))
    title = "What it carries of the answer"
    return Finding.of("patch", name, title, _how(result), lines, measures)


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
        for edge in [edge for edge in linked if head in edge.heads][:_NAMED]:
            yield f"{edge.name(result.layout)} restores {words.share(edge.denoise)}"
    through = [edge for edge in result.strongest() if head in edge.heads]
    for edge in through[:_NAMED]:
        shares = [
            f"{_DOES[direction]} {words.share(share)}" for direction, share in edge.shares.items()
        ]
        yield f"{edge.name(result.layout)} {', '.join(shares)}"
    mine = [effect for effect in result.ranked() if head in effect.heads]
    for effect in mine[:_NAMED]:
        shares = [
            f"{_DOES[direction]} {words.share(share)}{_ends(share)}"
            for direction, share in effect.shares.items()
        ]
        with_others = f"with others ({effect.name}): " if len(effect.heads) > 1 else ""
        position = "" if effect.position is None else f" at {words.place(result, effect.position)}"
        yield f"{with_others}{words.COMPONENTS[result.component]}{position} {', '.join(shares)}"


def _ends(share: PatchShare) -> str:
    interval = words.interval(share, joint=False)
    return f" [{interval.replace(' to ', ', ')}]" if interval else ""


def _how(result: Patch) -> str:
    """How it was measured, in sentences."""
    values = " and ".join(words.TOWARDS[direction] for direction in result.directions)
    interval = "95 % intervals over pairs" if result.clean.low is not None else "no interval"
    measured = f"Activation patching of the {words.COMPONENTS[result.component]}"
    if result.edges:
        measured = f"Path patching (MLPs between {result.mlps})"
    partial = " It was interrupted: only the pairs that were done are in it." * result.partial
    return (
        f"{measured}: {values}, as a share of "
        f"the {words.metric(result)} between clean and corrupted runs. "
        f"{words.model_does(result)}; {interval}.{partial}"
    )


def figures(result: Patch) -> Figures:
    """Return the share that each head, or group, restores or removes."""
    values: dict[str, dict[str, float | None]] = {}
    patched: tuple[PatchEffect | PathEffect, ...] = (*result.effects, *result.edges)
    for effect in patched:
        at = "" if effect.position is None else f" at {effect.position}"
        name = _name(result, effect) + at
        values[name] = {direction: share.share for direction, share in effect.shares.items()}
    settings = {"task": result.task, "metric": result.metric, "component": result.component}
    return Figures(values, {}, settings | {"by": result.by})
