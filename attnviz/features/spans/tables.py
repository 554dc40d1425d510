"""Heads and spans as rows."""

from __future__ import annotations

from attnviz.drawing.tables import HEAD, Row, spread, which_head
from attnviz.features.spans.result import Spans

_SHARE = ("low", "high", "joint_low", "joint_high", "sure", "chance", "lift", "per_token", "rows")
COLUMNS = (
    *HEAD, "span", "share", *_SHARE, "accuracy", "accuracy_low", "accuracy_high", "margin",
    "margin_low", "margin_high",
)  # fmt: skip


def rows(result: Spans) -> list[Row]:
    """A row for each head and span, the largest lift first; the head's accuracy beside it."""
    sheet = result.documents
    right = {} if sheet is None else {head.head: head for head in sheet.ranked}
    listed = []
    for head, name, share in result.ranked():
        choice = right.get(head.head)
        listed.append(
            {
                **which_head(result.layout, head.head),
                "span": name,
                "share": share.mean,
                **{name: getattr(share, name) for name in _SHARE},
                **spread("accuracy", None if choice is None else choice.accuracy),
                **spread("margin", None if choice is None else choice.margin),
            }
        )
    return listed
