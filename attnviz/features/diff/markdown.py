"""Differences as Markdown, for the comment on a pull request."""

from __future__ import annotations

from attnviz import __version__
from attnviz.drawing.html import plain, table
from attnviz.drawing.labels import number
from attnviz.features.diff import words
from attnviz.features.diff.result import Diff

_TOP = 10


def markdown(result: Diff, top: int = _TOP, limit: float | None = None) -> str:
    """Which heads differ most, in a heading, a sentence, a table and a line of origin."""
    lines = [
        f"### Attention heads: {plain(result.before)} → {plain(result.after)}",
        "",
        _sentence(result, limit),
        "",
    ]
    listed = words.differing(result, top)
    if listed:
        lines += [_table(result, top), ""]
        left = len(result.heads) - len(listed)
        if left:
            lines += [f"{left} heads differ less or not at all.", ""]
    lines += [f"> {plain(note)}" for note in result.notes]
    lines += [""] * bool(result.notes)
    about = words.below(result).replace(" ·", ";")
    lines.append(f"<sub>{plain(about)}; attnviz {__version__}</sub>")
    return "\n".join(lines) + "\n"


def _sentence(result: Diff, limit: float | None) -> str:
    """How far the heads are apart, and whether that is too far."""
    if result.largest is None:
        return "**No head has anything to compare in both runs.**"
    what = "mean distance" if result.kind == "maps" else "change of a share or effect"
    first = result.heads[0]
    largest = f"the largest {what} is {number(result.largest)} ({first.name})"
    if limit is None:
        some = sum(head.largest() > 0 for head in result.heads)
        return f"**{some} of {len(result.heads)} heads differ**; {largest}."
    over = sum(head.largest() > limit for head in result.heads)
    lacking = len(result.uncompared)
    unknown = f" {lacking} heads cannot be compared." if lacking else ""
    said = f"{over} of {len(result.heads)} heads differ" if over else "No head differs"
    return f"{'❌' if over else '✅'} **{said} by more than {limit:g}**; {largest}.{unknown}"


def _table(result: Diff, top: int) -> str:
    heads = words.differing(result, top)
    rows = []
    for head in heads:
        *cells, change, roles = words.cells(result, head, plain)
        rows.append([*cells, plain(change) if change else "", plain(roles) if roles else ""])
    return table(words.columns(result), rows)
