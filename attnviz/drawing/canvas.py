"""From a matplotlib figure to bytes, the same on every run: no dates, no random ids, no pyplot."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from attnviz.drawing.fonts import BASE_FAMILY
from attnviz.drawing.shades import check_pixels

_METADATA: Mapping[str, Mapping[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": "attnviz"},
    "pdf": {"CreationDate": None, "Creator": "attnviz", "Producer": "attnviz"},
}
_SETTINGS: dict[Any, Any] = {
    "font.family": [BASE_FAMILY],
    "svg.hashsalt": "attnviz",
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
    "text.parse_math": False,
    "axes.linewidth": 0.5,
}
_LOCK = Lock()


def rendered(build: Callable[[], Figure], format: str, dpi: float) -> bytes:
    """Build a figure under settings of our own, whatever the user's style, and encode it.

    Args:
        build: makes the figure; called once.
        format: ``png``, ``svg`` or ``pdf``.
        dpi: pixels an inch, of a PNG and of images inside the other formats.
    """
    with _LOCK, mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        figure = build()
        if format == "png":
            width, height = figure.get_size_inches() * dpi
            check_pixels(width, height)
        FigureCanvasAgg(figure)
        out = io.BytesIO()
        figure.savefig(
            out, format=format, dpi=dpi, facecolor="white", metadata=dict(_METADATA[format])
        )
    return out.getvalue()
