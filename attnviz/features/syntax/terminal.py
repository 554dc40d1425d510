"""Syntactic heads on the terminal: the grid, and the table of a treebank's relations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from attnviz.core.heads import Head
from attnviz.drawing.labels import counted, model_name, visible
from attnviz.drawing.renderable import coloured, renderable, table_of
from attnviz.drawing.shares import interval, percent, points
from attnviz.drawing.terminal import Line
from attnviz.drawing.tiles import FULL, Tile, TileGrid
from attnviz.features.syntax import arcs, trees_terminal
from attnviz.features.syntax.arcs_terminal import arc_sentence
from attnviz.features.syntax.result import Relation, RelationHead, Syntax
from attnviz.features.syntax.words import SHORT, WITHOUT, measured, scales
from attnviz.models.controls import Scale


def parts(result: Syntax, *, relation: str | None = None) -> Iterator[RenderableType]:
    """The grid, the table, sentences with arcs, what is found in whole ones, and the legends.

    Args:
        result: the result.
        relation: only these, by name with commas between them; then there is no grid.
    """
    if relation is None:
        yield syntax_grid(result)
    yield syntax_table(result, result.named(relation))
    yield ""
    for parse in result.shown:
        yield arc_sentence(parse)
    for line in arcs.lines(result):
        yield Line(line, "dim")
    if result.shown:
        yield ""
    if result.trees or result.rooted or result.combined:
        yield trees_terminal.whole_table(result)
        yield ""
    yield Line(legend(result), "dim")
    for line in control_lines(result):
        yield Line(line, "dim")
    for line in trees_terminal.whole_lines(result):
        yield Line(line, "dim")
    yield Line(measured(result), "dim")


def strongest(report: Syntax) -> dict[Head, RelationHead]:
    """Of each head with syntactic roles the one with the largest margin."""
    best: dict[Head, RelationHead] = {}
    for role in report.roles:
        margin = role.margin.value or 0.0
        if role.head not in best or margin > (best[role.head].margin.value or 0.0):
            best[role.head] = role
    return best


@renderable
def syntax_grid(console: Console, options: ConsoleOptions, report: Syntax) -> RenderResult:
    """Layers downwards, heads across, each with the relation that it finds."""
    tiles = {
        head: Tile(visible(role.relation), (role.margin.value or 0.0) / FULL)
        for head, role in strongest(report).items()
    }
    yield TileGrid(report.layout, tiles)
    end = f"; full colour at {100 * FULL:.0f} points" if coloured(console) else ""
    tested = (
        f"Holm over {counted(report.asked, 'question')}"
        if report.asked
        else "nothing to test: no head came that far, or there are too few documents"
    )
    yield Text(
        "the relation that a head finds in a quarter of the cases or more, ten points or more "
        f"above the best fixed offset, and significantly above it ({tested}){end}",
        "dim",
    )
    yield Text("")


def syntax_table(report: Syntax, relations: Sequence[Relation]) -> RenderableType:
    """One line for each relation: the chosen head, its accuracy, and the best offset's."""
    kinds = scales(report)
    titles = [
        "relation", ">cases", ">head", "by", ">%", ">95 %", ">offset", ">baseline %", ">points",
        ">95 %",
    ]  # fmt: skip
    table = table_of(*titles, *(f">{WITHOUT[scale]}" for scale in kinds), no_wrap=True)
    sure = {(role.head, role.relation) for role in report.roles}
    for relation in relations:
        best = relation.best
        if best is None or best.accuracy.value is None:
            cells = [visible(relation.name), "0"]
            blank = len(titles) + len(kinds) - len(cells)
            table.add_row(*map(Text, cells), *("–",) * blank, style="dim")
            continue
        cells = [visible(relation.name), f"{best.count:,}"]
        offset = "–" if best.offset_accuracy is None else f"{100 * best.offset_accuracy:.0f}"
        cells += [report.layout.name(best.head), SHORT[best.direction], percent(best.accuracy)]
        cells += [interval(best.accuracy), f"{best.offset:+d}", offset]
        cells += [points(best.margin), interval(best.margin)]
        cells += [highest(report, scale, relation.name) for scale in kinds]
        named = (best.head, relation.name) in sure
        table.add_row(*map(Text, cells), style="" if named or relation.name == "all" else "dim")
    return table


def highest(report: Syntax, scale: Scale, name: str) -> str:
    """The accuracy of the best head without training, in %, the highest of all seeds."""
    accuracies = [
        relation.best.accuracy
        for control in report.untrained
        if control.scale == scale
        for relation in control.relations
        if relation.name == name and relation.best and relation.best.accuracy.value is not None
    ]
    return percent(max(accuracies, key=lambda share: share.value or 0.0)) if accuracies else "–"


def legend(report: Syntax) -> str:
    """What the columns mean, in one line."""
    meaning = (
        f"cases: in {report.measured_on}; by row: where the dependent looks; by column: who looks "
        "most at it; offset: the best fixed distance to the head; points: accuracy above it"
    )
    kinds = scales(report)
    if not kinds:
        return meaning
    seeds = sum(control.scale == kinds[0] for control in report.untrained)
    return (
        f"{meaning}; {', '.join(WITHOUT[scale] for scale in kinds)}: % of the best head of weights "
        "as drawn before training, and of the trained ones in random order, chosen and measured "
        f"likewise, the highest of {seeds} seed{'s' * (seeds > 1)}"
    )


def control_lines(report: Syntax) -> Iterator[str]:
    """How many heads get a role without training, a line for each kind of weights."""
    for scale in scales(report):
        runs = [control for control in report.untrained if control.scale == scale]
        heads = [len({role.head for role in run.roles}) for run in runs]
        line = (
            f"{model_name(report.source)}, {WITHOUT[scale]} (seed"
            f"{'s' * (len(runs) > 1)} {', '.join(str(run.seed) for run in runs)}): "
            f"{', '.join(str(count) for count in heads)} of {len(report.layout)} heads syntactic"
        )
        relations = dict.fromkeys(visible(role.relation) for run in runs for role in run.roles)
        yield f"{line} ({', '.join(relations)}), which needs no training" if relations else line
