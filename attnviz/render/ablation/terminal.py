"""An ablation on the terminal: the grid coloured by effect, the table, the curve, the text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from attnviz.effects import AblationReport, Effect
from attnviz.render.ablation.words import interval, measure, measured, most, role
from attnviz.render.labels import signs, visible
from attnviz.render.signed import SignedGrid, coloured, on_terminal, signed


class EffectsGrid:
    """A renderable: layers downwards, heads across, each with its effect."""

    def __init__(self, report: AblationReport) -> None:
        self.report = report
        self._alone = {e.heads[0]: e for e in report.effects if len(e.heads) == 1}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw for this console; nothing where no head was taken away alone."""
        if not self._alone:
            return
        end = most(self.report)
        values = {head: effect.change for head, effect in self._alone.items()}
        yield SignedGrid(self.report.layout, values, end, self.report.worse)
        harm = "more" if self.report.worse > 0 else "less"
        end_text = f", full colour at ±{end:.2g}" if coloured(console) else ""
        yield Text(
            signs(
                f"change of {self.report.metric} without the head; orange: worse ({harm}), blue: "
                f"better{end_text}",
                options.ascii_only,
            ),
            "dim",
        )
        yield Text("")


def effects_table(report: AblationReport, effects: Sequence[Effect]) -> RenderableType:
    """One line for each group: what was taken away, what that changed, and how sure that is."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    slopes = any(effect.gradient is not None for effect in effects)
    sums = any(effect.members is not None for effect in effects)
    several = report.texts > 1
    titles = ["rank", "without", "does", "effect"]
    titles += ["95 % interval", "worse in"] if several else []
    titles += ["gradient"] if slopes else []
    titles += ["one by one"] if sums else []
    for title in titles:
        words = title in ("without", "does")
        table.add_column(
            title, justify="left" if words else "right", overflow="fold", no_wrap=not words
        )
    ranks = {id(effect): n for n, effect in enumerate(report.ranked(), start=1)}
    for effect in effects:
        cells = [str(ranks[id(effect)]), visible(effect.name), role(effect), measured(effect)]
        cells += [interval(effect), f"{effect.worse:.0%}"] if several else []
        cells += ["" if effect.gradient is None else f"{effect.gradient:.2g}"] if slopes else []
        cells += ["" if effect.members is None else signed(effect.members)] if sums else []
        table.add_row(*map(Text, cells), style="" if effect.sure or not several else "dim")
    return table


def curve_table(report: AblationReport, lines: int = 12) -> RenderableType:
    """The curve in some steps: the share of heads kept, and the change, for every order."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    orders = list(dict.fromkeys(point.order for point in report.curve))
    total = max((point.removed for point in report.curve), default=0)
    table.add_column("heads removed", justify="right")
    table.add_column("kept", justify="right")
    for order in orders:
        table.add_column(f"order: {order}", justify="right")
    found = {(point.order, point.removed): point for point in report.curve}
    steps = sorted({round(n * total / lines) for n in range(lines + 1)})
    for removed in steps:
        kept = f"{1 - removed / total:.0%}" if total else ""
        changes = [signed(found[order, removed].change) for order in orders]
        table.add_row(str(removed), kept, *changes)
    return table


class TextByPosition:
    """A renderable: the text once for each group, every token tinted by what it pays."""

    def __init__(self, report: AblationReport, effects: Sequence[Effect]) -> None:
        self.report, self.effects = report, effects

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Draw for this console; without colours the numbers stand behind the tokens."""
        found = self.report.by_position or {}
        shown = [found[effect.name] for effect in self.effects if effect.name in found]
        end = max((abs(v) for row in shown for v in row if v is not None), default=0.0)
        yield Text(f"change at every token that is predicted, full colour at ±{end:.2g}", "dim")
        for effect in self.effects:
            line = Text(f"{effect.name}: ", "bold")
            changes = _shifted(self.report, found.get(effect.name, ()))
            for token, change in zip(self.report.tokens, changes, strict=True):
                text = visible(token, ascii_only=options.ascii_only)
                if change is None:
                    line.append(text, "dim")
                elif coloured(console):
                    line.append(text, on_terminal(change, end, self.report.worse))
                else:
                    line.append(f"{text}({signed(change)})")
            yield line


def closing(report: AblationReport) -> str:
    """What was measured, on which model, in one line."""
    info = report.source
    found = [measure(report)]
    if report.correlation is not None:
        found.append(f"rank correlation of gradient and effect {report.correlation:.2f}")
    found += [f"{info.model}, {info.backend} backend", f"{info.device} {info.dtype}"]
    return " · ".join(found)


def _shifted(report: AblationReport, changes: Sequence[float | None]) -> Sequence[float | None]:
    """A causal model's loss at a position is that of the next token, which is the one that pays."""
    causal = report.metric == "loss" and "encoder" not in report.layout.kinds
    return (None, *changes[:-1]) if causal else changes
