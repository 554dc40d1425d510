"""The words and choices that every picture of differences shares."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attnviz.core.heads import Head
from attnviz.drawing.labels import number, visible
from attnviz.drawing.signed import signed
from attnviz.features.diff.result import OTHER_UNITS, Diff, FigureChange, HeadChange

UP = -1
"""More weight in the second run is blue, less is orange: the sign that is orange."""
_SHORT = 40
"""Letters of the names of two runs that a headline has room for."""
MEANING = "blue: more in the second run, orange: less"


def title(report: Diff) -> str:
    """Which runs."""
    return f"{visible(report.before)} and then {visible(report.after)}"


def same(report: Diff) -> bool:
    """Whether all that could be compared is equal, and something could."""
    return report.largest is not None and not differing(report, len(report.heads))


def headline(report: Diff) -> str:
    """What was found, in a sentence about heads."""
    before, after = visible(report.before), visible(report.after)
    runs = f"{before} and {after}" if len(before) + len(after) <= _SHORT else "the two runs"
    if same(report):
        return f"Nothing changed: no head differs between {runs}"
    first = report.heads[0] if report.heads else None
    if first is None or first.distance is None:
        return f"What changed: {title(report)}"
    distance = first.distance
    return (
        f"Head {first.name} changed most between {runs}: by {number(distance.mean)} on average, "
        f"and by {number(distance.largest)} at {visible(distance.token)} ({distance.row})"
    )


def below(report: Diff) -> str:
    """What was compared, and how."""
    if report.kind != "maps":
        return f"reports of {report.kind}"
    texts = f"{report.texts:,} text{'s' * (report.texts != 1)}"
    return f"Jensen-Shannon distance of rows, 0 to 1 · {texts} · rows matched by {report.align}"


def strongest(head: HeadChange) -> FigureChange | None:
    """The largest change of a share or an effect; one whose interval leaves out zero first."""
    listed = [change for change in head.changes if change.name not in OTHER_UNITS]
    return max(listed, key=lambda figure: (figure.sure, abs(figure.change)), default=None)


def phrase(change: FigureChange | None) -> str:
    """``induction -0.21 (typical text -0.25 to -0.17)``."""
    if change is None or not change.change:
        return ""
    ends = typical(change)
    return f"{change.name} {signed(change.change)}{f' ({ends})' * bool(ends)}"


def typical(change: FigureChange) -> str:
    """The interval of the typical text that holds with all others; empty where there is none."""
    if change.joint_low is None or change.joint_high is None:
        return ""
    return f"typical text {signed(change.joint_low)} to {signed(change.joint_high)}"


def roles(head: HeadChange) -> str:
    """``+induction -first``."""
    return " ".join([f"+{name}" for name in head.gained] + [f"-{name}" for name in head.lost])


def columns(report: Diff) -> list[str]:
    """What a table of heads has, numbers with a ``>``."""
    far = [">distance", ">largest", "at"] if report.kind == "maps" else []
    return ["head", *far, "largest change", "roles"]


def cells(report: Diff, head: HeadChange, shown: Callable[[str], str]) -> list[str]:
    """A line of that table."""
    row = [head.name]
    if report.kind == "maps":
        distance = head.distance
        if distance is None:
            row += ["", "", ""]
        else:
            text = f", text {distance.text + 1}" if report.texts > 1 else ""
            place = f"{shown(distance.token)} ({distance.row}){text}"
            row += [number(distance.mean), number(distance.largest), place]
    return [*row, phrase(strongest(head)), roles(head)]


def differing(report: Diff, top: int) -> Sequence[HeadChange]:
    """The heads that differ most, those that do not differ at all left out."""
    return [head for head in report.heads[:top] if head.largest() > 0 or head.gained or head.lost]


def mapped(report: Diff, top: int) -> list[tuple[Head, HeadChange]]:
    """The heads that differ most and whose maps are there."""
    by_name = {report.layout.name(head): head for head in report.maps}
    pairs = [(by_name[change.name], change) for change in report.heads if change.name in by_name]
    return [pair for pair in pairs[:top] if pair[1].largest() > 0]
