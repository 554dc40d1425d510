"""One weight of a capture taken apart: its row of products and softmax, printed and tabled."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from attnviz.core.capture import Capture
from attnviz.core.heads import Head, Layout
from attnviz.core.reasons import Reason
from attnviz.drawing.forms import printed
from attnviz.drawing.tables import frame
from attnviz.errors import SelectionError, UsageError
from attnviz.scoring.select import select


def asked(why: str | None, shown: Collection[Head], layout: Layout) -> tuple[Head, ...]:
    """The heads whose queries and keys are to be kept."""
    if why is None:
        return ()
    if layout.whole:
        raise UsageError("{why} explains the weights of single heads, not of layers", why=why)
    chosen = select(why, layout)
    missing = [layout.name(head) for head in chosen if head not in shown]
    if missing:
        raise SelectionError(
            "{why} asks about {}, which {select} leaves out", missing[0], why=why, select=...
        )
    return chosen


def check_terms(capture: Capture, why: str | None) -> None:
    """UsageError where a capture does not hold the queries and keys that are wanted."""
    if why is not None:
        for head in select(why, capture.layout):
            if head not in capture.terms:
                raise unknown(capture, head)


def unknown(capture: Capture, head: Head) -> UsageError:
    """What to say of a head whose queries and keys a capture does not hold."""
    name = capture.layout.name(head)
    if capture.source.backend == "recorded":
        return UsageError(
            "the queries and keys of {} are not known: recorded attention has none; run the "
            "model itself",
            name,
        )
    return UsageError(
        "the queries and keys of {} were not kept; capture the text again with {why}",
        name,
        why=name,
    )


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
