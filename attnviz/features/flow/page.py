"""A flow as one offline page: lines across the layers, from and to whatever is pointed at."""

from __future__ import annotations

import base64

import numpy as np
from numpy.typing import NDArray

from attnviz.core.heads import SITE_PREFIX
from attnviz.drawing.html import still
from attnviz.drawing.labels import token_labels
from attnviz.errors import UsageError
from attnviz.features.flow.description import closing, formula, headline, method, through
from attnviz.features.flow.result import Flow
from attnviz.web.page import result_page

LARGEST = 100e6  # bytes of a page at most; browsers take minutes to open more

_STEPS = (1 << 16) - 1  # a share is one of so many parts of 1


def page(report: Flow) -> bytes:
    """Return the whole page, as UTF-8."""
    size = 8 / 3 * len(report.tokens) ** 2 * (len(report.layers) + 2)
    if size > LARGEST:
        raise UsageError(
            f"the page would take about {size / 1e6:.0f} MB, and {LARGEST / 1e6:.0f} MB is the "
            "limit; shorten the text, or draw a picture"
        )
    title = headline(report)
    traced = report.followed
    data = {
        "title": title,
        "through": through(report),
        "method": report.method,
        "called": method(report),
        "formula": formula(report),
        "closing": closing(report),
        "tokens": token_labels(report.tokens),
        "targets": report.targets,
        "columns": columns(report),
        "steps": [packed(step.shares) for step in report.layers],
        "total": packed(report.total),
        "weights": packed(report.weights),
        "followed": traced and {"direction": traced.direction, "positions": traced.positions},
    }
    return result_page(__package__, report, title=title, still=still(report), data=data)


def columns(report: Flow) -> list[str]:
    """Return the name of every layer."""
    several_kinds = len({step.kind for step in report.layers}) > 1
    return [
        f"{SITE_PREFIX[step.kind]} {step.layer}" if several_kinds else f"layer {step.layer}"
        for step in report.layers
    ]


def packed(shares: NDArray[np.floating]) -> str:
    """Shares [n, n] as 16-bit numbers, little-endian, in base64."""
    parts = np.rint(np.clip(shares, 0, 1) * _STEPS).astype("<u2")
    return base64.b64encode(parts.tobytes()).decode("ascii")
