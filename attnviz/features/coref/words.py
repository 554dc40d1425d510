"""Words that the tables and the figure share."""

from __future__ import annotations

from collections.abc import Mapping

from attnviz.drawing.labels import model_name
from attnviz.drawing.shares import interval, percent, plain_percent, points
from attnviz.features.coref.result import Candidates, Coref, NameDirection

SHORT: Mapping[NameDirection, str] = {"to_name": "row", "from_name": "column"}
"""Directions in a cell of a table."""
CANDIDATES: Mapping[Candidates, str] = {
    "names": "two names",
    "words": "any other word",
    "mentions": "head words of earlier mentions",
}
MARK = "*"
"""Behind the figure of a head that finds antecedents by the rule for roles."""


def baseline_name(found: Coref, name: str) -> str:
    """A baseline in words: ``nearest name``, ``same head word``."""
    if name == "same_word":
        return "same head word"
    return f"{name} {'name' if found.data == 'names' else 'mention'}"


def choice_line(found: Coref) -> str:
    """What is known of the chosen head, in one line."""
    best = found.best
    if best is None or best.accuracy.value is None:
        return "no head has a held-out figure"
    role = " (coreference)" if any(role.head == best.head for role in found.roles) else ""
    return (
        f"head {found.layout.name(best.head)} by {SHORT[best.direction]}{role}: "
        f"{percent(best.accuracy)} % (95 %: {interval(best.accuracy)}) of {best.count:,} examples "
        f"on {found.measured_on}; the {baseline_name(found, best.baseline)} is right in "
        f"{plain_percent(best.baseline_accuracy)} %, {points(best.margin)} points "
        f"(95 %: {interval(best.margin)})"
    )


def measured(found: Coref) -> str:
    """What was measured on what, in one line."""
    info = found.source
    parts = [
        f"{found.examples:,} examples from {found.texts:,} {found.unit}",
        f"in windows of at most {found.window} tokens" if found.window else "",
        f"head and baseline chosen on {found.chosen_on}, measured on {found.measured_on}",
        f"{model_name(info)}, {info.backend} backend, {info.device} {info.dtype}",
    ]
    return " · ".join(filter(None, parts))
