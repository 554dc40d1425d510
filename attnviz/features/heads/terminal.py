"""What heads do, on the terminal: the grid, the table of evidence, and one line of origin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from attnviz.core.scores import HeadScores
from attnviz.drawing.findings import Findings
from attnviz.drawing.published import matching_line
from attnviz.drawing.terminal import (
    Line,
    closing_line,
    heads_grid,
    heads_table,
    mixing_table,
    resting_line,
    user_defined_line,
)
from attnviz.features.heads.result import Heads


def parts(
    found: Heads,
    rows: Sequence[HeadScores] | None = None,
    probed: Sequence[HeadScores] | None = None,
    *,
    score: str | None = None,
    more: tuple[str, str] = ("", ""),
    resting: str = "",
) -> Iterator[RenderableType]:
    """The grid, the evidence, what other results say, the probe, and where it comes from.

    Args:
        found: the result.
        rows: heads to list, in that order; by default all with a role.
        probed: heads of the probe to list; by default all with a role.
        score: one more score to show.
        more: what to say below each table of heads that are not listed.
        resting: stands behind the line that counts heads without a function; no line where empty.
    """
    yield heads_grid(found)
    yield heads_table(found, rows, score=score)
    if more[0]:
        yield Line(more[0], "dim")
    if resting and (line := resting_line(found)):
        yield Line(f"{line} {resting}", "dim")
        yield ""
    if found.findings:
        listed = [one for one in found.heads if one.roles] if rows is None else rows
        yield Findings(found.findings, [found.layout.name(one.head) for one in listed])
    if found.probe:
        yield "On repeated random tokens:"
        shown = [one for one in found.probe if one.roles] if probed is None else probed
        yield heads_table(found, shown, score=score)
        if more[1]:
            yield Line(more[1], "dim")
        if found.matching is not None:
            heads = {scores.head for scores in found.heads}
            yield Line(matching_line(found.matching, found.layout, heads))
    if found.user_defined:
        yield Line(user_defined_line(found.user_defined), "dim")
    if found.mixing:
        yield mixing_table(found)
    yield closing_line(found)
