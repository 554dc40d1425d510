"""The words that every form of a score's sources shares."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.core.origins import Origin
from attnviz.core.split import EVERYTHING
from attnviz.drawing.labels import visible
from attnviz.drawing.signed import signed
from attnviz.features.sources.result import (
    MEAN,
    REST,
    ScoreSide,
    Sources,
    SourceShare,
    SourceShares,
)

UP = -1
"""What raises the score is blue, what lowers it orange: the sign that is orange."""

LEAST = 0.02
"""Of the largest sum of a side: smaller sources stand together as the others."""

MOST = 24
"""Sources of a side that the matrix has one by one, the largest."""

OTHERS = "others"

SIDES: tuple[ScoreSide, ScoreSide] = ("query", "key")


def subject(result: Sources, *, ascii_only: bool = False) -> str:
    """Whose score it is: ``score of 2.0, ·the (7) to ·cat (2) less that of ·moon (4)``."""

    def named(texts: tuple[str, ...], place: int) -> str:
        return f"{visible(texts[place], ascii_only=ascii_only)} ({place})"

    whole = f"score of {result.name}, {named(result.queries, result.query)} to "
    whole += named(result.keys, result.key)
    if result.other_key == MEAN:
        return f"{whole} less the mean of all other keys"
    if result.other_key == REST:
        return f"{whole} less the mean of all other keys by their weights"
    if isinstance(result.other_key, int):
        return f"{whole} less that to {named(result.keys, result.other_key)}"
    return whole


def checked(result: Sources) -> str:
    """The sum beside the model's own score."""
    beside = f", {signed(result.added, 3)} of it by position" if result.added else ""
    return (
        f"the sources add up to {result.sum:.4f}{beside}, the model says {result.score:.4f} "
        f"(difference {abs(result.sum - result.score):.0e}); weight {result.weight:.3f}"
    )


def label(result: Sources | SourceShares, origin: Origin) -> str:
    """The name of a source; heads say that they are heads."""
    name = origin.name(result.layout)
    return f"head {name}" if origin.head is not None else name


def listed(result: Sources, side: ScoreSide) -> Iterator[tuple[str, float, float | None]]:
    """Name, value and share of a side's sources, the largest first and the small ones together."""
    sums = result.side(side)
    most = max((abs(part.value) for part in sums), default=0.0)
    rest, rest_share, count = 0.0, 0.0, 0
    for part in sums:
        if abs(part.value) >= LEAST * most:
            yield label(result, part.origin), part.value, part.share
        else:
            rest, count = rest + part.value, count + 1
            rest_share += part.share or 0.0
    if count:
        known = sums[0].share is not None
        yield f"{count} {OTHERS}", rest, rest_share if known else None


def grouped(result: Sources) -> tuple[list[str], list[str], list[list[float]]]:
    """The matrix with small sources of either side together: names of rows, of columns, values."""

    def largest(side: ScoreSide) -> tuple[list[str], list[list[int]]]:
        origins = result.query_origins if side == "query" else result.key_origins
        sums = {part.origin: part.value for part in result.side(side)}
        sizes = sorted(map(abs, sums.values()), reverse=True)
        least = max(LEAST * sizes[0], sizes[min(MOST, len(sizes)) - 1]) if sizes else 0.0
        names: list[str] = []
        groups: list[list[int]] = []
        small: list[int] = []
        for number, origin in enumerate(origins):
            if abs(sums[origin]) >= least:
                names.append(label(result, origin))
                groups.append([number])
            else:
                small.append(number)
        if small:
            names.append(f"{len(small)} {OTHERS}")
            groups.append(small)
        return names, groups

    rows, row_groups = largest("query")
    columns, column_groups = largest("key")
    values = [
        [sum(result.matrix[a][b] for a in some for b in others) for others in column_groups]
        for some in row_groups
    ]
    return rows, columns, values


def sentence(result: Sources) -> str:
    """Where the key comes from, and the query, in one line."""
    what = "difference" if result.other_key is not None else "score"
    said = []
    for side in reversed(SIDES):
        sums = result.side(side)
        if not sums:
            continue
        if sums[0].share is None:
            said.append(f"the sources of the {side} cancel")
            continue
        top = [part for part in sums[:3] if abs(part.share or 0.0) >= 0.1] or [sums[0]]
        parts = ", ".join(
            f"{whole(part.share or 0.0)} % {label(result, part.origin)}" for part in top
        )
        said.append(f"on the {side} side {parts}")
    return f"Of the {what}, {'; '.join(said)}."


def whole(share: float) -> str:
    """A share in percent, without decimals and without a negative zero."""
    return f"{round(100 * share) + 0:d}"


def share_of(share: SourceShare) -> str:
    """A share with its interval, in percent."""
    ends = ""
    if share.low is not None and share.high is not None:
        ends = f" [{whole(share.low)}, {whole(share.high)}]"
    return f"{whole(share.share)} %{ends}"


def nothing(share: SourceShare) -> str:
    """``nothing (7 % would show)`` of a share that is not told from 0; empty else."""
    if share.sure or share.detectable is None:
        return ""
    return f"nothing ({100 * share.detectable:.2g} % would show)"


def rows_of(result: SourceShares) -> str:
    """Which rows were looked at."""
    what = (
        f"the targets of {result.score}"
        if result.score
        else "the key with the largest weight of every row"
    )
    by_weights = " by their weights" if result.other_key == REST else ""
    return (
        f"{result.name}, {what} against all other keys{by_weights}: {result.rows:,} of "
        f"{result.of_rows:,} rows of {result.texts:,} texts{held_out(result)}"
    )


def held_out(result: SourceShares) -> str:
    """``, the role chosen on 30 other ones (hash:0.5)``; empty where nothing was held out."""
    if not result.chosen_on or result.split == EVERYTHING:
        return ""
    return f", the role chosen on {result.chosen_on:,} other ones ({result.split})"


def shares_sentence(result: SourceShares) -> str:
    """Through what a head finds its key, and what all sources come to that add and take away.

    ``2.0 finds its key through head 1.4 (63 % [58, 68] of the contrast); sources of its keys that
    add come to +116 %, those that take away to -16 %``.
    """
    through = [share for share in result.by_key if share.origin.kind != "bias"]
    if not through or through[0].share <= 0:
        return f"No source of the keys of {result.name} carries the contrast."
    top = [share for share in through[:3] if share.share >= 0.1] or through[:1]
    first, *more = (f"{label(result, share.origin)} ({share_of(share)}" for share in top)
    parts = " and ".join([f"{first} of the contrast)", *(f"{phrase})" for phrase in more)])
    return f"{result.name} finds its key through {parts}; {both_signs(result)}."


def both_signs(result: SourceShares) -> str:
    """What the sources of the keys come to that add, and that take away."""
    adds, takes = result.both_signs("key")
    return (
        f"sources of its keys that add come to {100 * adds:+.0f} %, those that take away to "
        f"{100 * takes:+.0f} %"
    )
