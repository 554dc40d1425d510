"""Words and numbers that the table, the figure and the page of arcs share."""

from __future__ import annotations

from attnviz.annotated import FROM_HEAD, TO_HEAD, SyntaxReport
from attnviz.annotated.coref import FROM_NAME, TO_NAME, CorefReport
from attnviz.annotated.share import Share
from attnviz.render.labels import model_name

SHORT = {TO_HEAD: "row", FROM_HEAD: "column", TO_NAME: "row", FROM_NAME: "column"}
"""Directions in a cell of a table."""
MARK = "*"
"""Behind the figure of a head that finds antecedents by the rule for roles."""


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


def baseline_name(report: CorefReport, name: str) -> str:
    """A baseline in words: ``nearest name``, ``same head word``."""
    if name == "same_word":
        return "same head word"
    return f"{name} {'name' if report.data == 'names' else 'mention'}"


def plain_percent(value: float | None) -> str:
    """A share without an interval in percent; a dash for none."""
    return "–" if value is None else f"{100 * value:.0f}"


def choice_line(report: CorefReport) -> str:
    """What is known of the chosen head, in one line."""
    best = report.best
    if best is None or best.accuracy.value is None:
        return "no head has a held-out figure"
    role = " (coreference)" if any(role.head == best.head for role in report.roles) else ""
    return (
        f"head {report.layout.name(best.head)} by {SHORT[best.direction]}{role}: "
        f"{percent(best.accuracy)} % (95 %: {interval(best.accuracy)}) of {best.count:,} examples "
        f"on {report.measured_on}; the {baseline_name(report, best.baseline)} is right in "
        f"{plain_percent(best.baseline_accuracy)} %, {points(best.margin)} points "
        f"(95 %: {interval(best.margin)})"
    )


def coref_measured(report: CorefReport) -> str:
    """What was measured on what, in one line."""
    info = report.source
    parts = [
        f"{report.examples:,} examples from {report.documents:,} {report.unit}",
        f"in windows of at most {report.window} tokens" if report.window else "",
        f"head and baseline chosen on {report.chosen_on}, measured on {report.measured_on}",
        f"{model_name(info)}, {info.backend} backend, {info.device} {info.dtype}",
    ]
    return " · ".join(filter(None, parts))


def _digits(share: Share) -> int:
    if share.low is None or share.high is None:
        return 0
    return 1 if 0 < share.high - share.low < 0.02 else 0
