"""Rows of heads, and rows as CSV, for other programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from attnviz.core.heads import Head, Layout
from attnviz.core.interval import Interval
from attnviz.core.made import Made
from attnviz.core.scores import HeadScores

Row = dict[str, Any]
"""A line of a table: values by the names of their columns."""


HEAD = ("layer", "index", "head")
"""The columns that say which head a row is of, in every table that has heads."""


def which_head(layout: Layout, *heads: Head) -> Row:
    """The columns of :data:`HEAD`, and ``stack`` before them where the model has several.

    Args:
        layout: of the model.
        heads: of the row; where it is not of one head, the columns are None.
    """
    (head,) = heads if len(heads) == 1 else (None,)
    row: Row = {} if len(layout.kinds) == 1 else {"stack": head and head.site.kind}
    layer, index = (None, None) if head is None else (head.layer, head.index)
    if layout.mean:  # which has no layer, or no number in it, of its own
        layer = layer if layout.mean == "heads" else None
        index = index if layout.mean == "layers" else None
    row |= {"layer": layer, "index": index}
    return row | {"head": head and layout.name(head)}


def spread(name: str, estimate: Interval | None) -> Row:
    """An estimate in three columns: its value, and the ends of its interval."""
    return {
        name: estimate and estimate.value,
        f"{name}_low": estimate and estimate.low,
        f"{name}_high": estimate and estimate.high,
    }


def head_rows(heads: Sequence[HeadScores], layout: Layout) -> list[Row]:
    """A row a head: four columns for each score, None where undefined."""
    return [
        {
            **head_cells(scores, layout),
            "roles": " ".join(role.title.replace(" ", "") for role in scores.roles),
            **{
                f"{name}.{part}": getattr(score, part)
                for name, score in scores.scores.items()
                for part in ("mean", "chance", "lift", "rows")
            },
        }
        for scores in heads
    ]


def head_cells(scores: HeadScores, layout: Layout) -> Row:
    """Which head it is, what it does and where it rests."""
    return {
        **which_head(layout, scores.head),
        "does": scores.does.title if scores.does else None,
        "rests": scores.rests.name if scores.rests else None,
    }


def as_csv(rows: Sequence[Row], columns: Sequence[str] = (), made: Made | None = None) -> str:
    """Rows as CSV text under a line of their names; empty cells for what is not known.

    A text that a spreadsheet would run as a formula has an apostrophe before it.

    Args:
        rows: by name; one that lacks a name of others has an empty cell.
        columns: the names, where there may be no row.
        made: what made the file; CSV has no comments, and a column takes it, in its first row.
    """
    if made is not None:
        columns = [*columns, "made"]
        rows = [{**row, "made": "" if n else made.line()} for n, row in enumerate(rows)]
    out = io.StringIO()
    names = dict.fromkeys(name for row in rows for name in row) or columns
    writer = csv.DictWriter(out, list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _inert(value) for name, value in row.items()} for row in rows)
    return out.getvalue()


def _inert(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula."""
    formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if formula else value
