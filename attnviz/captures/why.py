"""One weight of a capture taken apart, as it is printed and tabled."""

from __future__ import annotations

from typing import Any

from attnviz.core.reasons import Reason
from attnviz.drawing.forms import printed
from attnviz.drawing.frames import frame


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
