"""What a knockout says of every head, to stand beside it elsewhere."""

from __future__ import annotations

from attnviz.core.findings import Figures, Finding, Measure, Value
from attnviz.features.knockout import words
from attnviz.features.knockout.result import CutEffect, Knockout

_TOLD = 4
"""Pairs of a head."""
_ENDS = ("better without these edges", "worse without these edges")


def finding(result: Knockout, name: str) -> Finding:
    """What is lost when a head may not attend from one part to another."""
    said: dict[str, list[str]] = {}
    for effect in result.ranked():
        if effect.kind != "heads":
            continue
        for head in map(result.layout.name, effect.heads):
            lines = said.setdefault(head, [])
            if len(lines) < _TOLD:
                lines.append(_line(result, effect))
    measures = []
    for rows, keys in result.pairs:
        values: dict[str, Value] = {
            effect.name: (effect.change.value, effect.change.joint_low, effect.change.joint_high)
            for effect in result.of(rows, keys, "heads")
            if len(effect.heads) == 1
        }
        title = f"change of the {words.metric(result)} without its edges from {rows} to {keys}"
        ends = _ENDS if result.worse else ("", "")
        measures.append(
            Measure(f"{rows} to {keys}", title, result.unit, -result.worse, values, ends)
        )
    how = (
        f"{words.sentence(result)} Attention knockout: {words.measure(result)}. Beside each change "
        "stands that of random cuts of as much weight of other keys in the same rows, and how much "
        "of it they could take."
    )
    return Finding.of("knockout", name, "What it must attend to", how, said, measures)


def _line(result: Knockout, effect: CutEffect) -> str:
    others = "" if len(effect.heads) == 1 else f"with others ({effect.name}): "
    unit = f" {result.unit}" * bool(result.unit)
    interval = words.ends(result, effect.change)
    control = f", no control ({words.taken(effect)} matched)" if result.draws else ""
    if effect.control is not None:
        control = f", random {words.value(result, effect.control)} ({words.taken(effect)} matched)"
    weight = f"; {100 * effect.lost:.0f} % of its weight"
    return (
        f"{others}without attending from {words.rows(effect.rows)} to {words.keys(effect.keys)} "
        f"{words.value(result, effect.change.value)}{unit}{f' [{interval}]' * bool(interval)}"
        f"{control}{weight}"
    )


def figures(result: Knockout) -> Figures:
    """The change by each cut, under the name of its heads and its pair."""
    values: dict[str, dict[str, float | None]] = {}
    for effect in result.effects:
        pair = f"{effect.rows} to {effect.keys}"
        values.setdefault(effect.name, {})[pair] = effect.change.value
    return Figures(values, settings={"metric": result.metric, "method": result.method})
