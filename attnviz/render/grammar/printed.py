"""What is printed of a report on gold annotation: by the command, and by ``print(report)``."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from attnviz.annotated import SyntaxReport
from attnviz.annotated.coref import CorefReport
from attnviz.render.grammar import arcs, coref_terminal, terminal, whole
from attnviz.render.grammar.arcs_terminal import ArcSentence
from attnviz.render.grammar.words import choice_line, coref_measured, measured
from attnviz.render.terminal import Line


def syntax_parts(report: SyntaxReport, relation: str | None = None) -> Iterator[RenderableType]:
    """The grid, the table, sentences with arcs, what is found in whole ones, and the legends.

    Args:
        report: what was found.
        relation: only these, by name with commas between them; then there is no grid.
    """
    if relation is None:
        yield terminal.SyntaxGrid(report)
    yield terminal.syntax_table(report, report.named(relation))
    yield ""
    for parse in report.shown:
        yield ArcSentence(parse)
    for line in arcs.lines(report):
        yield Line(line, "dim")
    if report.shown:
        yield ""
    if report.trees or report.combined:
        yield whole.whole_table(report)
        yield ""
    yield Line(terminal.legend(report), "dim")
    if report.untrained:
        yield Line(terminal.control_line(report), "dim")
    for line in whole.whole_lines(report):
        yield Line(line, "dim")
    yield Line(measured(report), "dim")


def coref_parts(report: CorefReport, top: int = 10) -> Iterator[RenderableType]:
    """The grid, the kinds of examples, so many heads, and the legends."""
    yield coref_terminal.CorefGrid(report)
    yield coref_terminal.kinds_table(report)
    yield ""
    yield coref_terminal.heads_table(report, top)
    yield ""
    yield Line(choice_line(report))
    yield Line(coref_terminal.legend(report), "dim")
    yield Line(coref_measured(report), "dim")
