"""Differences as Markdown, for the comment on a pull request."""

from __future__ import annotations

from attnviz import __version__
from attnviz.drawing.labels import number
from attnviz.drawing.markdown import plain, table
from attnviz.features.diff import words
from attnviz.features.diff.result import Diff

_TOP = 10


def markdown(found: Diff, top: int = _TOP, limit: float | None = None) -> str:
    """Which heads differ most, in a heading, a sentence, a table and a line of origin.

    Args:
        found: the result.
        top: heads to list.
        limit: a difference that is too much; the sentence says whether a head has it.
    """
    lines = [
        f"### Attention heads: {plain(found.before)} → {plain(found.after)}",
        "",
        _sentence(found, limit),
        "",
    ]
    listed = words.differing(found, top)
    if listed:
        lines += [_table(found, top), ""]
        left = len(found.heads) - len(listed)
        if left:
            lines += [f"{left} heads differ less or not at all.", ""]
    lines += [f"> {plain(note)}" for note in found.notes]
    lines += [""] * bool(found.notes)
    about = words.below(found).replace(" ·", ";")
    lines.append(f"<sub>{plain(about)}; attnviz {__version__}</sub>")
    return "\n".join(lines) + "\n"


def _sentence(found: Diff, limit: float | None) -> str:
    """How far the heads are apart, and whether that is too far."""
    if found.largest is None:
        return "**No head has anything to compare in both runs.**"
    what = "mean distance" if found.kind == "maps" else "change of a share or effect"
    first = found.heads[0]
    largest = f"the largest {what} is {number(found.largest)} ({first.name})"
    if limit is None:
        some = sum(head.largest() > 0 for head in found.heads)
        return f"**{some} of {len(found.heads)} heads differ**; {largest}."
    over = sum(head.largest() > limit for head in found.heads)
    lacking = len(found.uncompared)
    unknown = f" {lacking} heads cannot be compared." if lacking else ""
    said = f"{over} of {len(found.heads)} heads differ" if over else "No head differs"
    return f"{'❌' if over else '✅'} **{said} by more than {limit:g}**; {largest}.{unknown}"


def _table(found: Diff, top: int) -> str:
    heads = words.differing(found, top)
    rows = []
    for head in heads:
        *cells, change, roles = words.cells(found, head, plain)
        rows.append([*cells, plain(change) if change else "", plain(roles) if roles else ""])
    return table(words.columns(found), rows)
