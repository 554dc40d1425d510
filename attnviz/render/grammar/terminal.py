"""Syntactic heads on the terminal: the grid, and the table of a treebank's relations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from attnviz.annotated import Relation, SyntacticRole, SyntaxReport
from attnviz.annotated.coref import CorefReport
from attnviz.records import Head, Site
from attnviz.render.grammar.words import SHORT, interval, percent, points
from attnviz.render.labels import model_name, shorten, signs, visible
from attnviz.render.palette import NO_ROLE, ink, mix

_TILE = 6
_GROUND = "#808080"
"""No margin is mid grey, which reads on light and on dark terminals."""
COLOR = "#2a9d5c"
FULL = 0.4
"""The margin at which the colour is full: forty points."""


def strongest(report: SyntaxReport) -> dict[Head, SyntacticRole]:
    """Of each head with syntactic roles the one with the largest margin."""
    found: dict[Head, SyntacticRole] = {}
    for role in report.roles:
        margin = role.margin.value or 0.0
        if role.head not in found or margin > (found[role.head].margin.value or 0.0):
            found[role.head] = role
    return found


class SyntaxGrid:
    """A renderable: layers downwards, heads across, each with the relation that it finds."""

    def __init__(self, report: SyntaxReport) -> None:
        self.report = report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Draw for this console."""
        colors = console.color_system is not None and not console.no_color
        layout, found = self.report.layout, strongest(self.report)
        kind = layout.kinds[0]
        fitting = max((options.max_width - 3) // (_TILE + 1), 1)
        yield Text(signs("layer ↓  head →", options.ascii_only), "dim")
        widest = max(layout.heads[kind])
        for first in range(0, widest, fitting):
            columns = range(first, min(first + fitting, widest))
            yield Text("   " + " ".join(f"{n:^{_TILE}}" for n in columns).rstrip(), "dim")
            for layer, count in enumerate(layout.heads[kind]):
                line = Text(f"{layer:>2} ", "dim", no_wrap=True)
                for index in columns:
                    role = found.get(Head(Site(kind, layer), index))
                    if role is None:
                        shown = signs(NO_ROLE, options.ascii_only) if index < count else ""
                        line.append(f"{shown:^{_TILE}} ", "dim")
                        continue
                    name = shorten(visible(role.relation), _TILE, ascii_only=options.ascii_only)
                    style = Style()
                    if colors:
                        paint = mix(_GROUND, COLOR, min((role.margin.value or 0.0) / FULL, 1.0))
                        style = Style(color=ink(paint), bgcolor=paint)
                    line.append(f"{name:^{_TILE}}", style)
                    line.append(" ")
                line.rstrip()
                yield line
        end = f"; full colour at {100 * FULL:.0f} points" if colors else ""
        yield Text(
            "the relation that a head finds ten points or more above the best fixed offset, and "
            f"surely above it{end}",
            "dim",
        )
        yield Text("")


def syntax_table(report: SyntaxReport, relations: Sequence[Relation]) -> RenderableType:
    """One line for each relation: the chosen head, its accuracy, and the best offset's."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    words = ("relation", "by")
    titles = ["relation", "count", "head", "by", "%", "95 %", "offset", "its %", "points", "95 %"]
    control = {r.name: r for r in report.untrained.relations} if report.untrained else {}
    titles += ["random"] if control else []
    for title in titles:
        table.add_column(title, justify="left" if title in words else "right", no_wrap=True)
    sure = {(role.head, role.relation) for role in report.roles}
    for relation in relations:
        best = relation.best
        cells = [visible(relation.name), f"{relation.count:,}"]
        if best is None or best.accuracy.value is None:
            table.add_row(*map(Text, cells), *("–",) * (len(titles) - 2), style="dim")
            continue
        offset = "–" if best.offset_accuracy is None else f"{100 * best.offset_accuracy:.0f}"
        cells += [report.layout.name(best.head), SHORT[best.direction], percent(best.accuracy)]
        cells += [interval(best.accuracy), f"{best.offset:+d}", offset]
        cells += [points(best.margin), interval(best.margin)]
        if control:
            drawn = control[relation.name].best
            cells.append("–" if drawn is None else percent(drawn.accuracy))
        named = (best.head, relation.name) in sure
        table.add_row(*map(Text, cells), style="" if named or relation.name == "all" else "dim")
    return table


def legend(report: SyntaxReport) -> str:
    """What the columns mean, in one line."""
    meaning = (
        "by row: where the dependent looks; by column: who looks most at it; offset: the best "
        "fixed distance to the head; points: accuracy above it"
    )
    if report.untrained is None:
        return meaning
    return (
        f"{meaning}; random: % of the best head of untrained weights, chosen and measured likewise"
    )


def control_line(report: SyntaxReport) -> str:
    """How many heads of random weights get a role, in one line; empty where nobody asked."""
    if report.untrained is None:
        return ""
    heads, total = {role.head for role in report.untrained.roles}, len(report.untrained.layout)
    line = (
        f"{model_name(report.untrained.source)}: {len(heads) or 'none'} of {total} heads syntactic"
    )
    found = dict.fromkeys(visible(role.relation) for role in report.untrained.roles)
    return f"{line} ({', '.join(found)}), which needs no training" if found else line


def coref_table(report: CorefReport, top: int) -> RenderableType:
    """The heads that are right most often on all data, one line each, and the baselines."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    table.add_column("head", no_wrap=True)
    for title in ("row %", "column %"):
        table.add_column(title, justify="right", no_wrap=True)
    back = report.from_name
    rows = []
    for place, head in enumerate(report.layout):
        figures = (report.to_name[place], None if back is None else back[place])
        rows.append((max(f for f in figures if f is not None), report.layout.name(head), figures))
    for _, name, figures in sorted(rows, key=lambda row: -row[0])[:top]:
        table.add_row(name, *("–" if f is None else f"{100 * f:.1f}" for f in figures))
    table.add_section()
    for name, accuracy in report.baselines.items():
        table.add_row(f"{name} name", f"{100 * accuracy:.1f}", "", style="dim")
    return table


def coref_legend(report: CorefReport) -> str:
    """What the table shows, in one line."""
    best = f"the best of {2 * len(report.layout)} flatters" if report.from_name else ""
    parts = ["row: which name the pronoun looks at; column: which name looks at it; on all data"]
    return ", where ".join(filter(None, [*parts, best]))
