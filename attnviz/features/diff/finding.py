"""What differs between two runs, head by head, to stand beside heads elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.core.findings import Finding, Measure, Value, bare
from attnviz.drawing.labels import number, visible
from attnviz.drawing.signed import signed
from attnviz.features.diff import words
from attnviz.features.diff.result import OTHER_UNITS, Diff, HeadChange


def finding(result: Diff, name: str) -> Finding:
    """How far apart each head's rows are, or how its figures differ."""
    known = {result.layout.name(head) for head in result.layout}
    heads = [head for head in result.heads if head.name in known]
    far = bare({head.name: head.distance.mean for head in heads if head.distance is not None})
    measures = [Measure("distance", "mean distance of its rows", "", 0, far)]
    changes: dict[str, dict[str, Value]] = {}
    for head in heads:
        for figure in head.changes:
            if figure.name not in OTHER_UNITS:
                value = (figure.change, figure.low, figure.high)
                changes.setdefault(figure.name, {})[head.name] = value
    measures += [
        Measure(f"change: {key}", f"change of {key}", "", words.UP, values)
        for key, values in changes.items()
    ]
    how = f"{words.title(result)}: {words.below(result)}."
    said = {head.name: _lines(head, result.texts) for head in heads}
    return Finding.of("diff", name, "What changed", how, said, measures)


def _lines(head: HeadChange, texts: int) -> Iterator[str]:
    if head.distance is not None:
        distance = head.distance
        where = f"{visible(distance.token)} ({distance.row})" + (
            f", text {distance.text + 1}" if texts > 1 else ""
        )
        most = number(distance.largest)
        yield f"its rows are {number(distance.mean)} apart, at most {most} at {where}"
    change = words.strongest(head)
    if change is not None and change.change:
        ends = words.typical(change)
        yield (
            f"{change.name} from {number(change.before)} to {number(change.after)} "
            f"({signed(change.change)}{f', {ends}' * bool(ends)})"
        )
    if head.gained or head.lost:
        yield f"roles: {words.roles(head)}"
