"""Heads and spans as rows."""

from __future__ import annotations

from attnviz.drawing.tables import HEAD, Row, spread, which_head
from attnviz.features.spans.result import WORDS, Spans

_SHARE = ("low", "high", "joint_low", "joint_high", "sure", "chance", "lift", "per_token", "rows")
_GAZE = ("gaze", "gaze_low", "gaze_high", "gaze_chance", "gaze_lift", "on_picture")
COLUMNS = (
    *HEAD, "span", "share", *_SHARE, *_GAZE, "accuracy", "accuracy_low", "accuracy_high", "margin",
    "margin_low", "margin_high",
)  # fmt: skip


def rows(result: Spans) -> list[Row]:
    """A row for each head and span, the largest lift first, with the head's accuracy.

    Of a box of a picture with the gaze of all words at it.
    """
    sheet = result.documents
    right = {} if sheet is None else {head.head: head for head in sheet.ranked}
    gazes = {(head, gaze.box): look for head, gaze, look in result.looks() if gaze.rows == WORDS}
    listed = []
    for head, name, share in result.ranked():
        choice, look = right.get(head.head), gazes.get((head.head, name))
        listed.append(
            {
                **which_head(result.layout, head.head),
                "span": name,
                "share": share.mean,
                **{name: getattr(share, name) for name in _SHARE},
                "gaze": None if look is None else look.share,
                "gaze_low": None if look is None else look.low,
                "gaze_high": None if look is None else look.high,
                "gaze_chance": None if look is None else look.chance,
                "gaze_lift": None if look is None else look.lift,
                "on_picture": None if look is None else look.on_picture,
                **spread("accuracy", None if choice is None else choice.accuracy),
                **spread("margin", None if choice is None else choice.margin),
            }
        )
    return listed
