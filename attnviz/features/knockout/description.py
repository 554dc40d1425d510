"""A knockout described: its cuts beside their controls, the matrix, layers, texts, findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from attnviz.core.result import Figures, Finding, Measure, Value
from attnviz.drawing.console import table_of
from attnviz.drawing.description import Column, Listing
from attnviz.drawing.grid import signed_grid
from attnviz.drawing.labels import shorten, visible
from attnviz.drawing.tables import Row, which_head
from attnviz.drawing.terminal import Line
from attnviz.features.knockout import words
from attnviz.features.knockout.result import CutChange, CutEffect, Knockout
from attnviz.interventions.judge import SMALLEST

_NAME, _TEXT = 24, 60
_TOLD = 4  # pairs of a head
_ENDS = ("better without these edges", "worse without these edges")
_CHANGE = ("low", "high", "joint_low", "joint_high", "sure", "mean", "mean_low", "mean_high")


def listing(result: Knockout) -> Listing:
    """List every cut."""
    return Listing(columns(result, result.effects), result.effects)


def columns(result: Knockout, cuts: Sequence[CutEffect]) -> list[Column]:
    """Describe what there is of a cut: between what, in which heads, its change, its control."""
    several = any(words.ends(result, effect.change) for effect in cuts)
    value, ends, draws = partial(words.value, result), partial(words.ends, result), result.draws > 0
    return [
        Column("rows", "rows", "rows", _short, left=True),
        Column("keys", "keys", "keys", _short, left=True),
        Column("kind", "kind"),
        Column("heads", "name", "heads", _short, left=True),
        Column(
            "", lambda cut: cut.heads if cut.kind == "heads" else (),
            cells=lambda heads: which_head(result.layout, *(heads or ())),
        ),
        Column("window", "layer"),
        Column("weight", "lost", "weight", lambda lost: f"{100 * lost:.0f} %"),
        Column(  # which is 0 in the model as it is
            "base", "base", "as it is", partial(words.level, result), when=result.metric != "kl"
        ),
        Column("", lambda cut: value(cut.change.value) + _mark(cut), "change"),
        Column("", lambda cut: ends(cut.change), "95 %", when=several),
        Column("", "change", cells=_cells("change", "")),
        Column("control", "control", "control", value, when=draws),
        Column("", words.taken, "matched", when=draws),
        Column("matched", "matched"),
        Column("", lambda cut: ends(cut.excess), "change − control", when=several and draws),
        Column("", "excess", cells=_cells("excess", "excess_")),
        Column("", partial(words.often, result), f"by {100 * SMALLEST:.0f} % or more",
               when=any(words.often(result, cut) for cut in cuts)),
        Column("texts", "texts"),
    ]  # fmt: skip


def _cells(name: str, prefix: str) -> Callable[[CutChange | None], Row]:
    """Write a change with all that is known of it."""

    def cells(change: CutChange | None) -> Row:
        values = {f"{prefix}{part}": change and getattr(change, part) for part in _CHANGE}
        for part in ("often_worse", "often_better"):
            share = change and getattr(change, part)
            values[f"{prefix}{part}"] = share and share.texts
            values[f"{prefix}{part}_least"] = share and share.least
        return {name: change and change.value, **values}

    return cells


def _short(name: str) -> str:
    return shorten(visible(name), _NAME)


def _mark(cut: CutEffect) -> str:
    return words.MARK * bool(cut.judged.sure)


def parts(result: Knockout, top: int | None = None) -> Iterator[RenderableType]:
    """Yield a sentence, what the parts are, the matrix, cuts, curves over layers, the origin."""
    yield Line(words.sentence(result), "bold")
    yield ""
    yield _spans(result)
    yield ""
    rows, keys = words.axes(result)
    if len(rows) > 1 and len(keys) > 1:
        yield _matrix(result, rows, keys)
        yield ""
    yield from _grid(result)
    cuts = [effect for effect in result.ranked() if effect.kind != "window"][:top]
    yield Listing(columns(result, cuts), cuts).table(fold=False)
    yield Line(_legend(result), "dim")
    if result.window is not None:
        yield ""
        yield _windows(result)
    if result.written:
        yield ""
        yield _texts(result)
    yield ""
    yield Line(words.measure(result), "dim")


def _legend(result: Knockout) -> str:
    control = ""
    if result.draws:
        control = "; control: the same rows lose as much weight from random other keys, these keep "
        control += "theirs; matched: how much of it, none below half"
    if any(effect.judged.sure for effect in result.effects):
        against = "it, or from 0 where there is none" if result.draws else "0"
        control += f"; {words.MARK} the change surely differs from {against}"
    return f"weight: mean share of the rows' weight that is cut{control}"


def _spans(result: Knockout) -> Table:
    table = table_of("part", ">tokens", "text")
    for span in result.spans:
        text = shorten(words.said(span.shown), _TEXT)
        table.add_row(visible(span.name), f"{span.tokens:.3g}", text)
    return table


def _matrix(result: Knockout, rows: Sequence[str], keys: Sequence[str]) -> Table:
    """Return the change with all heads cut, from the parts of the lines to those of the columns."""
    scale = words.scale(result)
    table = table_of(f"{words.unit(result)}: rows, keys", *(f">{_short(key)}" for key in keys))
    for row in rows:
        effects = [result.of(row, key, "all") for key in keys]
        cells = (f"{e[0].change.value * scale:+.2f}{_mark(e[0])}" if e else "" for e in effects)
        table.add_row(_short(row), *cells)
    return table


def _grid(result: Knockout) -> Iterator[RenderableType]:
    """Yield the change by head for the pair that matters most, where single heads were cut."""
    for pair in (effect for effect in result.ranked() if effect.kind == "all"):
        values = {
            effect.heads[0]: effect.change.value
            for effect in result.of(pair.rows, pair.keys, "heads")
            if len(effect.heads) == 1
        }
        if len(values) > 1:
            name = f"{visible(pair.rows)} to {visible(pair.keys)}"
            yield Line(f"{name}, cut in single heads", "bold")
            largest = max(map(abs, values.values()))
            yield signed_grid(result.layout, values, largest, -result.worse or 1)
            return


def _windows(result: Knockout) -> Table:
    """Return the change by the layer around which all heads are cut, a column for each pair."""
    table = table_of("layer", *(f">{row} to {key}" for row, key in result.pairs), fold=False)
    curves = [{e.layer: e for e in result.of(*pair, "window")} for pair in result.pairs]
    for layer in sorted({layer for curve in curves for layer in curve if layer is not None}):
        cells = [
            words.value(result, curve[layer].change.value) if layer in curve else ""
            for curve in curves
        ]
        table.add_row(str(layer), *cells)
    return table


def _texts(result: Knockout) -> Table:
    table = table_of("cut", "what it writes", *(["control"] if result.draws else []))
    for text in result.written:
        name = f"{text.rows} to {text.keys}, {text.name}" if text.rows else "nothing"
        cells = [visible(name), visible(text.text)]
        cells += [words.said(text.control)] * bool(result.draws)
        table.add_row(*map(Text, cells))
    return table


def finding(result: Knockout, name: str) -> Finding:
    """Return what is lost when a head may not attend from one part to another."""
    by_head: dict[str, list[str]] = {}
    for effect in result.ranked():
        if effect.kind != "heads":
            continue
        for head in map(result.layout.name, effect.heads):
            lines = by_head.setdefault(head, [])
            if len(lines) < _TOLD:
                lines.append(_line(result, effect))
    measures = []
    for rows, keys in result.pairs:
        values: dict[str, Value] = {
            effect.name: (effect.change.value, effect.change.joint_low, effect.change.joint_high)
            for effect in result.of(rows, keys, "heads")
            if len(effect.heads) == 1
        }
        title = f"change of the {words.metric(result)} without its edges from {rows} to {keys}"
        ends = _ENDS if result.worse else ("", "")
        measures.append(
            Measure(f"{rows} to {keys}", title, result.unit, -result.worse, values, ends)
        )
    method = (
        f"{words.sentence(result)} Attention knockout: {words.measure(result)}. Beside each change "
        "stands that of random cuts of as much weight of other keys in the same rows, and how much "
        "of it they could take."
    )
    return Finding.of("knockout", name, "What it must attend to", method, by_head, measures)


def _line(result: Knockout, effect: CutEffect) -> str:
    context = "" if len(effect.heads) == 1 else f"with others ({effect.name}): "
    unit = f" {result.unit}" * bool(result.unit)
    interval = words.ends(result, effect.change)
    control = f", no control ({words.taken(effect)} matched)" if result.draws else ""
    if effect.control is not None:
        control = f", random {words.value(result, effect.control)} ({words.taken(effect)} matched)"
    weight = f"; {100 * effect.lost:.0f} % of its weight"
    return (
        f"{context}without attending from {words.rows(effect.rows)} to {words.keys(effect.keys)} "
        f"{words.value(result, effect.change.value)}{unit}{f' [{interval}]' * bool(interval)}"
        f"{control}{weight}"
    )


def figures(result: Knockout) -> Figures:
    """Return the change by each cut, under the name of its heads and its pair."""
    values: dict[str, dict[str, float | None]] = {}
    for effect in result.effects:
        pair = f"{effect.rows} to {effect.keys}"
        values.setdefault(effect.name, {})[pair] = effect.change.value
    return Figures(values, settings={"metric": result.metric, "cut": result.cut})
