"""Words and numbers that the table, the figure and the page of arcs share."""

from __future__ import annotations

from attnviz.annotated import FROM_HEAD, TO_HEAD, Share, SyntaxReport
from attnviz.render.labels import model_name

SHORT = {TO_HEAD: "row", FROM_HEAD: "column"}
"""Directions in a cell of a table."""


def percent(share: Share) -> str:
    """A share in percent, with a decimal where the interval knows it; a dash for none."""
    if share.value is None:
        return "–"
    return f"{100 * share.value:.{_digits(share)}f}"


def points(share: Share) -> str:
    """A difference of shares in points, with its sign."""
    if share.value is None:
        return "–"
    return f"{100 * share.value:+.{_digits(share)}f}"


def interval(share: Share) -> str:
    """Its 95 % interval in percent."""
    if share.low is None or share.high is None:
        return "–"
    digits = _digits(share)
    return f"{100 * share.low:.{digits}f} to {100 * share.high:.{digits}f}"


def measured(report: SyntaxReport) -> str:
    """What was measured on what, in one line."""
    info = report.source
    if report.chosen_on == report.measured_on:
        chosen = f"head and offset chosen and measured on {report.measured_on}"
    else:
        chosen = f"head and offset chosen on {report.chosen_on}, measured on {report.measured_on}"
    parts = [
        f"{report.sentences:,} sentences, {report.words:,} words",
        f"{report.documents:,} {report.unit} as clusters",
        chosen,
        "95 % intervals",
        f"{model_name(info)}, {info.backend} backend, {info.device} {info.dtype}",
    ]
    return " · ".join(parts)


def _digits(share: Share) -> int:
    if share.low is None or share.high is None:
        return 0
    return 1 if share.high - share.low < 0.02 else 0
