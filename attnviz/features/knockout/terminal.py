"""A knockout on the terminal: who needs whom, the cuts with their controls, layers, texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from attnviz.drawing.labels import shorten, visible
from attnviz.drawing.renderable import table_of
from attnviz.drawing.signed import SignedGrid
from attnviz.drawing.terminal import Line
from attnviz.features.knockout import words
from attnviz.features.knockout.result import CutEffect, Knockout

_NAME, _TEXT = 24, 60


def parts(result: Knockout, top: int | None = None) -> Iterator[RenderableType]:
    """The sentence, what the parts are, the matrix, the cuts, curves over layers, the origin."""
    yield Line(words.sentence(result), "bold")
    yield ""
    yield _spans(result)
    yield ""
    rows, keys = words.axes(result)
    if len(rows) > 1 and len(keys) > 1:
        yield _matrix(result, rows, keys)
        yield ""
    yield from _grid(result)
    cuts = [effect for effect in result.ranked() if effect.kind != "window"]
    yield _cuts(result, cuts[: top or len(cuts)])
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
        shown = shorten(words.said(span.shown), _TEXT)
        table.add_row(visible(span.name), f"{span.tokens:.3g}", shown)
    return table


def _matrix(result: Knockout, rows: Sequence[str], keys: Sequence[str]) -> Table:
    """The change with all heads cut, from the parts of the lines to those of the columns."""
    scale = 100 if result.metric == "prob" else 1
    unit = "points" if result.metric == "prob" else result.unit
    table = table_of(f"{unit}: from, to", *(f">{shorten(visible(k), _NAME)}" for k in keys))
    for row in rows:
        cells = []
        for key in keys:
            effects = result.of(row, key, "all")
            number = effects[0].change.value * scale if effects else None
            mark = words.MARK * bool(effects and effects[0].judged.sure)
            cells.append("" if number is None else f"{number:+.2f}{mark}")
        table.add_row(shorten(visible(row), _NAME), *cells)
    return table


def _grid(result: Knockout) -> Iterator[RenderableType]:
    """The change by head for the pair that matters most, where single heads were cut."""
    alone = [e for e in result.effects if e.kind == "heads" and len(e.heads) == 1]
    whole = [e for e in result.ranked() if e.kind == "all"]
    for pair in whole:
        values = {
            e.heads[0]: e.change.value for e in alone if (e.rows, e.keys) == (pair.rows, pair.keys)
        }
        if len(values) > 1:
            yield Line(f"{words.pair(pair)}, cut in single heads", "bold")
            most = max(map(abs, values.values()))
            yield SignedGrid(result.layout, values, most, -result.worse or 1)
            return


def _cuts(result: Knockout, cuts: Sequence[CutEffect]) -> Table:
    several = any(words.ends(result, effect.change) for effect in cuts)
    base = result.metric != "kl"  # which is 0 in the model as it is
    controls = bool(result.draws)
    table = table_of(
        "from", "to", "heads", ">weight", *([">as it is"] if base else []), ">change",
        *([">95 %"] if several else []), *([">control", ">matched"] if controls else []),
        *([">change − control"] if several and controls else []), fold=False,
    )  # fmt: skip
    for effect in cuts:
        cells = [shorten(visible(name), _NAME) for name in (effect.rows, effect.keys, effect.name)]
        cells += [f"{100 * effect.lost:.0f} %"]
        cells += [words.level(result, effect.base)] if base else []
        cells += [words.value(result, effect.change.value) + words.MARK * bool(effect.judged.sure)]
        cells += [words.ends(result, effect.change)] if several else []
        cells += [words.value(result, effect.control), words.taken(effect)] if controls else []
        cells += [words.ends(result, effect.excess)] if several and controls else []
        table.add_row(*cells)
    return table


def _windows(result: Knockout) -> Table:
    """The change by the layer around which all heads are cut, a column for each pair."""
    table = table_of("layer", *(f">{row} to {key}" for row, key in result.pairs), fold=False)
    layers = sorted({e.layer for e in result.effects if e.layer is not None})
    for layer in layers:
        cells = []
        for row, key in result.pairs:
            effects = [e for e in result.of(row, key, "window") if e.layer == layer]
            cells.append(words.value(result, effects[0].change.value) if effects else "")
        table.add_row(str(layer), *cells)
    return table


def _texts(result: Knockout) -> Table:
    table = table_of("cut", "what it writes", *(["control"] if result.draws else []))
    for text in result.written:
        name = f"{text.rows} to {text.keys}, {text.name}" if text.rows else "nothing"
        cells = [
            visible(name),
            visible(text.text),
            *([words.said(text.control)] * bool(result.draws)),
        ]
        table.add_row(*map(Text, cells))
    return table
