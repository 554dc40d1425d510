"""What differs between two runs, head by head, to stand beside heads elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.core.findings import Finding, Measure, Value
from attnviz.drawing.labels import number, visible
from attnviz.drawing.signed import signed
from attnviz.features.diff import words
from attnviz.features.diff.result import OTHER_UNITS, Diff, HeadChange


def finding(found: Diff, name: str) -> Finding:
    """How far apart each head's rows are, or how its figures differ.

    Args:
        found: the result.
        name: of its file.
    """
    known = {found.layout.name(head) for head in found.layout}
    heads = [head for head in found.heads if head.name in known]
    far: dict[str, Value] = {
        head.name: (head.distance.mean, None, None) for head in heads if head.distance is not None
    }
    measures = [Measure("distance", "mean distance of its rows", "", 0, far)] if far else []
    changes: dict[str, dict[str, Value]] = {}
    for head in heads:
        for one in head.changes:
            if one.name not in OTHER_UNITS:
                value = (one.change, one.low, one.high)
                changes.setdefault(one.name, {})[head.name] = value
    measures += [
        Measure(f"change: {key}", f"change of {key}", "", words.UP, values)
        for key, values in changes.items()
    ]
    lines = {head.name: tuple(_lines(head, found.texts)) for head in heads}
    return Finding(
        "diff",
        name,
        "What changed",
        f"{words.title(found)}: {words.below(found)}.",
        {head: said for head, said in lines.items() if said},
        tuple(measures),
    )


def _lines(head: HeadChange, texts: int) -> Iterator[str]:
    if head.distance is not None:
        one = head.distance
        where = f"{visible(one.token)} ({one.row})" + (
            f", text {one.text + 1}" if texts > 1 else ""
        )
        yield f"its rows are {number(one.mean)} apart, at most {number(one.largest)} at {where}"
    change = words.strongest(head)
    if change is not None and change.change:
        ends = ""
        if change.low is not None and change.high is not None:
            ends = f" [{signed(change.low)}, {signed(change.high)}]"
        yield (
            f"{change.name} from {number(change.before)} to {number(change.after)} "
            f"({signed(change.change)}{ends})"
        )
    if head.gained or head.lost:
        yield f"roles: {words.roles(head)}"
