"""Syntactic heads on the terminal: the grid, and the table of a treebank's relations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from attnviz.core.heads import Head
from attnviz.drawing.labels import model_name, visible
from attnviz.drawing.shares import interval, percent, points
from attnviz.drawing.terminal import Line
from attnviz.drawing.tiles import FULL, Tile, TileGrid, colored
from attnviz.features.syntax import arcs, trees_terminal
from attnviz.features.syntax.arcs_terminal import ArcSentence
from attnviz.features.syntax.result import Relation, RelationHead, Syntax, Untrained
from attnviz.features.syntax.words import SHORT, measured


def parts(found: Syntax, *, relation: str | None = None) -> Iterator[RenderableType]:
    """The grid, the table, sentences with arcs, what is found in whole ones, and the legends.

    Args:
        found: the result.
        relation: only these, by name with commas between them; then there is no grid.
    """
    if relation is None:
        yield SyntaxGrid(found)
    yield syntax_table(found, found.named(relation))
    yield ""
    for parse in found.shown:
        yield ArcSentence(parse)
    for line in arcs.lines(found):
        yield Line(line, "dim")
    if found.shown:
        yield ""
    if found.trees or found.combined:
        yield trees_terminal.whole_table(found)
        yield ""
    yield Line(legend(found), "dim")
    for one in found.untrained:
        yield Line(control_line(found, one), "dim")
    for line in trees_terminal.whole_lines(found):
        yield Line(line, "dim")
    yield Line(measured(found), "dim")


def strongest(report: Syntax) -> dict[Head, RelationHead]:
    """Of each head with syntactic roles the one with the largest margin."""
    found: dict[Head, RelationHead] = {}
    for role in report.roles:
        margin = role.margin.value or 0.0
        if role.head not in found or margin > (found[role.head].margin.value or 0.0):
            found[role.head] = role
    return found


class SyntaxGrid:
    """A renderable: layers downwards, heads across, each with the relation that it finds."""

    def __init__(self, report: Syntax) -> None:
        self.report = report

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Draw for this console."""
        tiles = {
            head: Tile(visible(role.relation), (role.margin.value or 0.0) / FULL)
            for head, role in strongest(self.report).items()
        }
        yield TileGrid(self.report.layout, tiles)
        end = f"; full colour at {100 * FULL:.0f} points" if colored(console) else ""
        yield Text(
            "the relation that a head finds ten points or more above the best fixed offset, and "
            f"significantly above it{end}",
            "dim",
        )
        yield Text("")


def syntax_table(report: Syntax, relations: Sequence[Relation]) -> RenderableType:
    """One line for each relation: the chosen head, its accuracy, and the best offset's."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    words = ("relation", "by")
    titles = [
        "relation",
        "count",
        "head",
        "by",
        "%",
        "95 %",
        "offset",
        "baseline %",
        "points",
        "95 %",
    ]
    control = [{r.name: r.best for r in one.relations} for one in report.untrained]
    titles += ["random"] * len(control)
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
        for drawn in (best_of[relation.name] for best_of in control):
            cells.append("–" if drawn is None else percent(drawn.accuracy))
        named = (best.head, relation.name) in sure
        table.add_row(*map(Text, cells), style="" if named or relation.name == "all" else "dim")
    return table


def legend(report: Syntax) -> str:
    """What the columns mean, in one line."""
    meaning = (
        "by row: where the dependent looks; by column: who looks most at it; offset: the best "
        "fixed distance to the head; points: accuracy above it"
    )
    if not report.untrained:
        return meaning
    return (
        f"{meaning}; random: % of the best head of untrained weights, chosen and measured likewise"
    )


def control_line(report: Syntax, untrained: Untrained) -> str:
    """How many heads of random weights get a role, in one line."""
    heads = {role.head for role in untrained.roles}
    line = (
        f"{model_name(report.source)}, untrained (seed {untrained.seed}): {len(heads) or 'none'} "
        f"of {len(report.layout)} heads syntactic"
    )
    found = dict.fromkeys(visible(role.relation) for role in untrained.roles)
    return f"{line} ({', '.join(found)}), which needs no training" if found else line
