"""Which heads a table on the terminal lists: of very many the clearest, and how to see more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnviz.cli import console
from attnviz.cli.output import Output, SortOptions
from attnviz.core.scores import HeadScores
from attnviz.drawing.console import rows_shown
from attnviz.scoring.scores import SCORES
from attnviz.scoring.select import arrange, leading

if TYPE_CHECKING:
    from attnviz.features.heads.result import Heads
    from attnviz.features.profile.result import Profile

Listed = tuple[tuple[HeadScores, ...], str]
"""Heads in the order of the table, and what stands below it of those that are not listed."""


def check_order(table: SortOptions, evidence: object) -> None:
    """Refuse, before anything runs, a role or an order that there is not."""
    if not evidence:
        arrange((), role=table.role, sort=table.sort)


def listed(
    heads: Sequence[HeadScores],
    *,
    role: str | None,
    sort: str,
    top: int | None,
    everything: bool = False,
    named: Sequence[HeadScores] = (),
) -> Listed:
    """Filter, sort and cut heads as :func:`~attnviz.scoring.select.arrange` does, for people.

    Where neither ``top`` nor ``everything`` says how many, and there are more than anyone reads,
    these are the first ones: by the order that was asked for, else by how clear the evidence is.
    """
    rows = arrange(heads, role=role, sort=sort, top=top, everything=everything, named=named)
    count = len(rows) if everything else rows_shown(len(rows), top)
    if count == len(rows):
        return rows, ""
    first = "clearest evidence"
    if sort == "layer":
        rows = tuple(sorted(rows, key=lambda row: leading(row, role)))
    else:
        first = f"largest {sort}" if sort != "role" else "first roles"
    note = f"the {count} heads with the {first} of {len(rows):,} (--top {len(rows)} lists them)"
    return rows[:count], note


def show_heads(result: Heads, table: SortOptions, output: Output) -> None:
    """Print what heads do with a text, those that the table is to list."""
    order: dict[str, Any] = {
        "role": table.role,
        "sort": table.sort,
        "top": None if table.top == "all" else table.top,
    }
    rows, note = listed(result.heads, **order, everything=table.top == "all" or output.machine)
    if output.machine:
        output.show(replace(result, heads=tuple(rows)))
        return
    probed, note_probed = listed(result.probe, **order, named=result.heads)
    output.show(
        result,
        rows,
        probed,
        score=table.sort if table.sort in SCORES else None,
        more=(note, note_probed),
        resting="" if table.top == "all" or table.role is not None else "(--top all lists them)",
    )
    if not rows and not probed:
        probe = "" if result.probe else ", or attnviz heads --probe, which repeats random tokens"
        console.note([f"try a longer text{probe}"], output.quiet)


def show_profile(result: Profile, table: SortOptions, output: Output) -> None:
    """Print what heads do over many texts, those that the table is to list."""
    scores = [head.scores for head in result.heads]
    everything = table.top == "all"
    top = None if everything else table.first
    rows, note = listed(scores, role=table.role, sort=table.sort, top=top, everything=everything)
    output.show(result, rows, more=note, everything=everything)
    if not rows and not output.machine:
        console.note(["try more texts, or --top all, which lists every head"], output.quiet)
