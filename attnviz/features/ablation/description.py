"""An ablation described: the grid of effects, the table, the curve, the text, rows, findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from attnviz.core.result import WITHOUT_IT, Figures, Finding, Measure, bare
from attnviz.drawing.console import coloured, renderable, rows_shown, table_of
from attnviz.drawing.grid import on_terminal, signed, signed_grid
from attnviz.drawing.labels import percent, signs, visible
from attnviz.drawing.tables import Row, which_head
from attnviz.drawing.terminal import Line, user_defined_line
from attnviz.features.ablation import words
from attnviz.features.ablation.result import Ablation, Change, Effect, affordable_share
from attnviz.features.ablation.settings import SOFT
from attnviz.features.ablation.words import (
    interval,
    largest,
    mean,
    measure,
    measured,
    most,
    often,
    role,
    verdict,
    worse,
)


def parts(result: Ablation, top: int | None = None) -> Iterator[RenderableType]:
    """Give the grid, the effects, the text or the curve where asked for, and one line of origin."""
    yield effects_grid(result)
    effects = result.ranked()
    ranked = effects[: rows_shown(len(effects), top)]
    yield effects_table(result, ranked)
    if top is None and len(ranked) < len(effects):
        yield Line(f"the first {len(ranked)} of {len(effects):,}; a table has all of them", "dim")
    yield from kept_table(result, ranked)
    if result.by_position:
        yield text_by_position(result, ranked[:8])
    if result.curve:
        yield curve_table(result)
        share = affordable_share(result.curve, result.tolerance or 0.0, result.worse)
        if share is not None:
            yield (
                f"{percent(share)} of the heads can go, by {result.curve[0].order}, before it "
                f"costs more than {result.tolerance:g} {result.unit}"
            )
    yield ""
    if result.user_defined:
        yield Line(user_defined_line(result.user_defined), "dim")
    yield Line(closing(result), "dim")


@renderable
def effects_grid(console: Console, options: ConsoleOptions, report: Ablation) -> RenderResult:
    """Yield layers downwards, heads across, each with its effect; nothing without single heads."""
    values = {head: effect.change for head, effect in report.single.items()}
    if not values:
        return
    end = most(report)
    yield signed_grid(report.layout, values, end, -report.worse)
    harm = "more" if report.worse > 0 else "less"
    end_text = f", full colour at ±{end:.2g}" if coloured(console) else ""
    caption = (
        f"change of {report.metric} without the head ({report.methods[0]}); "
        f"blue: worse ({harm}), the head helps; orange: better{end_text}"
    )
    yield Text(signs(caption, options.ascii_only), "dim")
    yield Text("")


@renderable
def effects_table(
    console: Console, options: ConsoleOptions, report: Ablation, effects: Sequence[Effect]
) -> RenderResult:
    """Yield a line for each group, without columns that a console has no room for."""

    def width(column: _Column) -> int:
        """Of a column with what is beside it; words may wrap beyond some length."""
        widest = max((cell_len(column.cell(effect)) for effect in effects), default=0)
        room = min(widest, column.words) if column.words else widest
        return max(cell_len(column.title), room) + 3

    columns = _columns(report)
    while sum(map(width, columns)) > options.max_width:
        spare = [column for column in columns if column.spare]
        if not spare:
            break
        columns.remove(max(spare, key=lambda column: column.spare))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    for column in columns:
        table.add_column(
            column.title,
            justify="left" if column.words else "right",
            overflow="fold",
            no_wrap=not column.words,
        )
    for effect in effects:
        faint = effect.first.sure is not None and not (effect.verdict or effect.sure)
        cells = [Text(column.cell(effect)) for column in columns]
        table.add_row(*cells, style="dim" if faint else "")
    yield table


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of the table."""

    title: str  # above it
    cell: Callable[[Effect], str]  # what stands in it for an effect
    words: int = 0  # for words, which wrap: so many characters are enough; 0 for figures
    # where there is no room, the column with the largest goes first; 0 for none that goes
    spare: int = 0


def _columns(report: Ablation) -> list[_Column]:
    """Return the columns that have anything to say."""

    def by(number: int) -> Callable[[Effect], str]:
        return lambda effect: measured(effect.by[number])

    def share(effect: Effect) -> str:
        return "" if effect.mean_share is None else percent(effect.mean_share)

    def slope(effect: Effect) -> str:
        return "" if effect.gradient is None else f"{effect.gradient:.2g}"

    def members(effect: Effect) -> str:
        return "" if effect.members is None else signed(effect.members)

    def at_stake(effect: Effect) -> str:
        return percent(effect.change / report.stake) if report.stake else ""

    def less_one(effect: Effect) -> str:
        change = effect.first.one_less
        return "" if change is None else f"{signed(change.change)} ({change.text})"

    joint = "95 % interval" if report.family == 1 else "joint 95 %"
    columns = [
        _Column("rank", lambda effect: "–" if effect.rank is None else str(effect.rank)),
        _Column("without", lambda effect: visible(effect.name), words=16),
        _Column("does", role, words=18, spare=2),
        _Column(report.methods[0], by(0)),
        _Column(joint, lambda effect: interval(effect.first)),
        *(_Column(name, by(n)) for n, name in enumerate(report.methods) if n),
        _Column("verdict", lambda effect: verdict(report, effect), words=16),
        _Column(
            f"by {signed(report.smallest or 0).lstrip('+')} or more",
            lambda effect: often(report, effect),
            words=16,
            spare=1,
        ),
        _Column("mean", lambda effect: mean(effect.first) if report.texts > 1 else "", spare=4),
        _Column("mean's share", lambda e: share(e) if "zero" in report.methods else "", spare=3),
        _Column("texts worse", lambda e: worse(e) if report.texts > 1 else "", spare=5),
        _Column("largest text", lambda e: largest(e.by) if report.texts > 1 else "", spare=6),
        _Column("of the stake", at_stake, spare=7),
        _Column("less one text", less_one),
        _Column("gradient", slope, spare=1),
        _Column("sum of single", members, spare=4),
    ]
    return [column for column in columns if any(column.cell(effect) for effect in report.effects)]


def kept_table(report: Ablation, effects: Sequence[Effect]) -> Iterator[RenderableType]:
    """Get what rules keep of each effect: the rule, its share with the interval, and its null's."""
    table = table_of(
        "in place of", "rule", f">{report.methods[0]} costs", ">the rule costs", ">it keeps",
        ">at random", fold=False,
    )  # fmt: skip
    small = 0
    for effect, ruled in ((judged, ruled) for judged in effects for ruled in judged.kept):
        if ruled.share is None or ruled.null is None:
            small += 1
            continue
        softly = "softly " if ruled.method.startswith(SOFT) else ""
        table.add_row(
            visible(effect.name),
            f"{softly}{ruled.rule}",
            signed(effect.first.mean or effect.change),
            signed(ruled.change),
            words.kept_share(ruled),
            percent(ruled.null),
            style="dim" if ruled.explains is False else "",
        )
    if table.rows:
        yield table
    if small:
        yield Line(f"{small} more cost too little for a share of it to mean anything", "dim")


def curve_table(report: Ablation, lines: int = 12) -> RenderableType:
    """Return the curve in some steps: the share of heads kept, and the change, for every order."""
    orders = list(dict.fromkeys(point.order for point in report.curve))
    total = max((point.removed for point in report.curve), default=0)
    table = table_of(
        ">heads removed", ">kept", *(f">order: {order}" for order in orders), fold=False
    )
    points = {(point.order, point.removed): point for point in report.curve}
    steps = sorted({round(n * total / lines) for n in range(lines + 1)})
    for removed in steps:
        remaining = percent(1 - removed / total) if total else ""
        changes = [signed(points[order, removed].change) for order in orders]
        table.add_row(str(removed), remaining, *changes)
    return table


@renderable
def text_by_position(
    console: Console, options: ConsoleOptions, report: Ablation, effects: Sequence[Effect]
) -> RenderResult:
    """Yield the text once for each group, every token tinted by what it pays."""
    rows = report.by_position or {}
    values = [rows[effect.name] for effect in effects if effect.name in rows]
    end = max((abs(v) for row in values for v in row if v is not None), default=0.0)
    yield Text(f"change at every token that is predicted, full colour at ±{end:.2g}", "dim")
    for effect in effects:
        line = Text(f"{effect.name}: ", "bold")
        changes = rows.get(effect.name, ())
        if report.metric == "loss" and "encoder" not in report.layout.kinds:
            changes = (None, *changes[:-1])  # a causal model's is that of the next token
        for token, change in zip(report.tokens, changes, strict=True):
            text = visible(token, ascii_only=options.ascii_only)
            if change is None:
                line.append(text, "dim")
            elif coloured(console):
                line.append(text, on_terminal(change, end, -report.worse))
            else:
                line.append(f"{text}({signed(change)})")
        yield line


def closing(report: Ablation) -> str:
    """Return what was measured, on which model, in one line."""
    info = report.source
    parts = [measure(report)]
    if report.correlation is not None:
        parts.append(f"rank correlation of gradient and effect {report.correlation:.2f}")
    parts += [f"{info.model}, {info.backend} backend", f"{info.device} {info.dtype}"]
    return " · ".join(parts)


_CHANGE = ("low", "high", "joint_low", "joint_high", "worse", "sure", "largest", "mean", "mean_low",
           "mean_high")  # fmt: skip
_OFTEN = ("often_worse", "often_better")
_KEPT = ("rule", "change", "share", "low", "high", "null", "null_low", "null_high", "explains")
_EFFECT = ("mean_share", "gradient", "signed", "does", "rests", "members")


def rows(result: Ablation) -> list[Row]:
    """Return a row for each group of heads; None for what is not known."""
    return [_row(result, effect) for effect in result.effects]


def _row(result: Ablation, effect: Effect) -> Row:
    heads = " ".join(result.layout.name(head) for head in effect.heads)
    row: Row = {"name": effect.name, "heads": heads, **which_head(result.layout, *effect.heads)}
    row |= {"rank": effect.rank, "verdict": effect.verdict, "effect": effect.change}
    row |= {name: getattr(effect.first, name) for name in _CHANGE}
    for name in _OFTEN:
        entry = getattr(effect.first, name)
        row |= {name: entry and entry.texts, f"{name}_least": entry and entry.least}
    row |= {name: getattr(effect, name) for name in _EFFECT}
    for change in effect.by:
        row[f"{change.method}_effect"] = change.change
        for name in ("joint_low", "joint_high"):
            row[f"{change.method}_{name}"] = getattr(change, name)
    for method in dict.fromkeys(ruled.method for e in result.effects for ruled in e.kept):
        entry = next((ruled for ruled in effect.kept if ruled.method == method), None)
        row |= {f"{method}_{name}": entry and getattr(entry, name) for name in _KEPT}
    return row


_GROUPS = 3
"""Groups that a head is told of."""
_CHANGED = {
    "loss": "loss",
    "kl": "prediction",
    "logit-diff": "difference of logits",
    "hidden": "last hidden states",
}
"""What a metric is of, in words."""
_VERDICTS = {
    "needed": ": needed",
    "better without": ": better without it",
    "depends": ": methods disagree on whether it is needed",
    "worse": ": worse without it, not surely by the smallest effect of interest",
    "better": ": better without it, not surely by the smallest effect of interest",
    "small": ": below the smallest effect of interest",
}
"""What ablations by several methods say together."""


def finding(result: Ablation, name: str) -> Finding:
    """Return what ablating each head costs."""
    changed = _CHANGED.get(result.metric, result.metric)
    single = [
        effect
        for effect in result.ranked()
        if [result.layout.name(head) for head in effect.heads] == [effect.name]
    ]
    lines = {
        effect.name: list(_lines(result, effect, rank, len(single)))
        for rank, effect in enumerate(single, start=1)
    }
    for group in (effect for effect in result.effects if len(effect.heads) > 1):
        by_itself = ""
        if group.members is not None:
            by_itself = f", the sum of single effects is {signed(group.members)}"
        label = f"{group.name}, {len(group.heads)} heads together"
        for head in map(result.layout.name, group.heads):
            if len(lines.setdefault(head, [])) < 3 + _GROUPS:
                lines[head].append(
                    f"with others ({label}): {_change(group.first)} {result.unit}{by_itself}"
                )
    compares = result.distance
    sign = 0 if compares else -result.worse  # blue: the head helps
    values = {
        effect.name: (effect.change, effect.first.joint_low, effect.first.joint_high)
        for effect in single
    }
    title = f"change of the {changed} without it"
    ends = WITHOUT_IT if sign else ("", "")
    slopes = bare({e.name: e.gradient for e in single if e.gradient is not None})
    measures = (
        Measure("effect", title, result.unit, sign, values, ends),
        Measure("gradient", "gradient of its gate", result.unit, 0, slopes),
    )
    method = _how(result, changed)
    return Finding.of("ablate", name, "Effect of ablating it", method, lines, measures)


def _lines(result: Ablation, effect: Effect, rank: int, heads: int) -> Iterator[str]:
    share = ""
    if result.texts > 1 and effect.first.worse is not None:
        share = f", worse on {percent(effect.first.worse)} of the texts"
    verdict = _VERDICTS.get(effect.verdict or "", "")
    ranked = "" if effect.rank is None else f", rank {rank} of {heads}"
    yield f"{_change(effect.first)} {result.unit}{ranked}{share}{verdict}"
    if often := words.often(result, effect):
        size = signed(result.smallest or 0.0).lstrip("+")
        yield f"by {size} {result.unit} or more {often} of the texts"
    further = ", ".join(f"{signed(change.change)} by {change.method}" for change in effect.by[1:])
    if further:
        yield f"{further}{_constant(result, effect)}"
    for ruled in effect.kept:
        if share := words.kept_share(ruled):
            against = "" if ruled.null is None else f", at random {percent(ruled.null)}"
            doubt = ": no more than that" if ruled.explains is False else ""
            softly = " (softly)" if ruled.method.startswith(SOFT) else ""
            yield f"attending by the rule {ruled.rule}{softly} keeps {share} of it{against}{doubt}"
    if effect.gradient is not None and effect.signed is not None:
        slope = f"mean |∂/∂gate| {effect.gradient:.2g}"
        yield f"{slope}, with its sign {signed(effect.signed)}"


def _how(result: Ablation, changed: str) -> str:
    """How it was measured, in sentences."""
    compares = result.distance
    worse = "" if compares else f"; {'below' if result.worse < 0 else 'above'} 0 is worse"
    base = "" if compares else f"; with all heads it is {result.base:.3g} {result.unit}"
    over = f"{result.texts:,} text{'s' if result.texts > 1 else ''}"
    interval = "a single text has no interval"
    if result.texts > 1:
        interval = "no interval holds for all heads at once"
    if words.together(result):
        interval = "95 % intervals of the typical text, for all heads and methods at once"
    partial = " It was interrupted: only the texts that were done are in it." * result.partial
    return (
        f"Change of the {changed} without it ({result.unit}), by ablation ({result.method}), at "
        f"{result.positions:,} positions of {over}{base}{worse}; {interval}.{partial}"
    )


def _constant(result: Ablation, effect: Effect) -> str:
    """How much of a head's output zero takes that never changes."""
    if effect.mean_share is None or "zero" not in result.methods:
        return ""
    return f"; {percent(effect.mean_share)} of its output is its mean, which zero removes too"


def _change(change: Change) -> str:
    """Return a change with its interval: ``+2.1 [1.2, 3.0]``."""
    low, high = change.joint_low, change.joint_high
    ends = "" if low is None or high is None else f" [{signed(low)}, {signed(high)}]"
    return f"{signed(change.change)}{ends}"


def figures(result: Ablation) -> Figures:
    """Return the change of the metric without each group, by the first method."""
    return Figures(
        {effect.name: {"effect": effect.change} for effect in result.effects},
        {
            effect.name: frozenset(filter(None, (effect.does, effect.rests)))
            for effect in result.effects
        },
        {
            "metric": result.metric,
            "methods": ", ".join(result.methods),
            "average": result.average,
            "position": result.position or "all tokens",
        },
    )
