"""One weight of a capture taken apart: its row of products and softmax, printed and tabled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attnviz.captures.terms import unknown
from attnviz.core.capture import Capture
from attnviz.core.heads import Head
from attnviz.core.reasons import Reason
from attnviz.drawing.forms import printed
from attnviz.drawing.tables import frame
from attnviz.errors import UsageError


class Why(Reason):
    """One weight taken apart, as :meth:`~attnviz.captures.captured.Captured.why` returns it."""

    def to_records(self) -> list[dict[str, Any]]:
        """A row a dimension, the largest product first."""
        return Reason.to_records(self)

    def to_pandas(self) -> Any:
        """The same as a ``pandas.DataFrame``; UsageError where pandas is not installed."""
        return frame(self.to_records())

    def __str__(self) -> str:
        """The steps from query and key to the weight and what is written with it."""
        from attnviz.drawing import reasons

        return printed(*reasons.parts(self))

    def __repr__(self) -> str:
        return f"<Why {self.head}, {self.query} to {self.key}: {self.weight:.4f}>"


def reason(capture: Capture, head: Head, query: int, key: int) -> Reason:
    """One weight of a capture, taken apart."""
    if head not in capture.terms:
        raise unknown(capture, head)
    sides = capture.sides(head)
    queries, keys = sides.queries.texts, sides.keys.texts
    row, column = _position("query", query, queries), _position("key", key, keys)
    reach = capture.reach[head.site].allowed(len(queries), len(keys))
    allowed = reach[capture.place(head) if len(reach) > 1 else 0][row]
    shown = float(capture[head][row, column])
    name = capture.layout.name(head)
    few = capture.reach[head.site].unselected
    left_out = few is not None and bool(few[0, row, column])
    return Reason(name, row, column, queries, keys, capture.terms[head], allowed, shown, left_out)


def _position(what: str, place: int, texts: Sequence[str]) -> int:
    """A position from 0 on."""
    if type(place) is not int or not -len(texts) <= place < len(texts):
        raise UsageError("a {} is a position from 0 to {}, not {!r}", what, len(texts) - 1, place)
    return place % len(texts)
