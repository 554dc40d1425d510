"""Words that the tables and the figure share."""

from __future__ import annotations

from collections.abc import Mapping

from attnviz.drawing.labels import ran_on
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


def baseline_name(result: Coref, name: str) -> str:
    """A baseline in words: ``nearest name``, ``same head word``."""
    if name == "same_word":
        return "same head word"
    return f"{name} {'name' if result.data == 'names' else 'mention'}"


def choice_line(result: Coref) -> str:
    """What is known of the chosen head, in one line."""
    best = result.best
    if best is None or best.accuracy.value is None:
        return "no head has a held-out figure"
    role = " (coreference)" if any(role.head == best.head for role in result.roles) else ""
    return (
        f"head {result.layout.name(best.head)} by {SHORT[best.direction]}{role}: "
        f"{percent(best.accuracy)} % (95 %: {interval(best.accuracy)}) of {best.count:,} examples "
        f"on {result.measured_on}; the {baseline_name(result, best.baseline)} is right in "
        f"{plain_percent(best.baseline_accuracy)} %, {points(best.margin)} points "
        f"(95 %: {interval(best.margin)})"
    )


def measured(result: Coref) -> str:
    """What was measured on what, in one line."""
    parts = [
        f"{result.examples:,} examples from {result.texts:,} {result.unit}",
        f"in windows of at most {result.window} tokens" if result.window else "",
        f"head and baseline chosen on {result.chosen_on}, measured on {result.measured_on}",
        ran_on(result.source),
    ]
    return " · ".join(filter(None, parts))
