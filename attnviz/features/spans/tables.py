"""Heads and spans as rows."""

from __future__ import annotations

from attnviz.drawing.tables import HEAD, Row, which_head
from attnviz.features.spans.result import Spans

COLUMNS = (
    *HEAD, "span", "share", "low", "high", "joint_low", "joint_high", "sure", "chance", "lift",
    "per_token", "rows", "accuracy",
    "accuracy_low", "accuracy_high", "margin", "margin_low", "margin_high",
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
                "low": share.low,
                "high": share.high,
                "joint_low": share.joint_low,
                "joint_high": share.joint_high,
                "sure": share.sure,
                "chance": share.chance,
                "lift": share.lift,
                "per_token": share.per_token,
                "rows": share.rows,
                "accuracy": None if choice is None else choice.accuracy.value,
                "accuracy_low": None if choice is None else choice.accuracy.low,
                "accuracy_high": None if choice is None else choice.accuracy.high,
                "margin": None if choice is None else choice.margin.value,
                "margin_low": None if choice is None else choice.margin.low,
                "margin_high": None if choice is None else choice.margin.high,
            }
        )
    return listed
