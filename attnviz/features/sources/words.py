"""The words that every form of a score's sources shares."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.core.origins import Origin
from attnviz.drawing.labels import model_name, visible
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


def subject(found: Sources, *, ascii_only: bool = False) -> str:
    """Whose score it is: ``score of 2.0, ·the (7) to ·cat (2) less that of ·moon (4)``."""

    def named(texts: tuple[str, ...], place: int) -> str:
        return f"{visible(texts[place], ascii_only=ascii_only)} ({place})"

    whole = f"score of {found.name}, {named(found.queries, found.query)} to "
    whole += named(found.keys, found.key)
    if found.against == MEAN:
        return f"{whole} less the mean of all other keys"
    if found.against == REST:
        return f"{whole} less the mean of all other keys by their weights"
    if isinstance(found.against, int):
        return f"{whole} less that to {named(found.keys, found.against)}"
    return whole


def checked(found: Sources) -> str:
    """The sum beside the model's own score."""
    beside = f", {signed(found.added, 3)} of it by position" if found.added else ""
    return (
        f"the sources add up to {found.sum:.4f}{beside}, the model says {found.score:.4f} "
        f"(difference {abs(found.sum - found.score):.0e}); weight {found.weight:.3f}"
    )


def label(found: Sources | SourceShares, origin: Origin) -> str:
    """The name of a source; heads say that they are heads."""
    name = origin.name(found.layout)
    return f"head {name}" if origin.head is not None else name


def listed(found: Sources, side: ScoreSide) -> Iterator[tuple[str, float, float | None]]:
    """Name, value and share of a side's sources, the largest first and the small ones together."""
    sums = found.side(side)
    most = max((abs(one.value) for one in sums), default=0.0)
    rest, rest_share, count = 0.0, 0.0, 0
    for one in sums:
        if abs(one.value) >= LEAST * most:
            yield label(found, one.origin), one.value, one.share
        else:
            rest, count = rest + one.value, count + 1
            rest_share += one.share or 0.0
    if count:
        known = sums[0].share is not None
        yield f"{count} {OTHERS}", rest, rest_share if known else None


def grouped(found: Sources) -> tuple[list[str], list[str], list[list[float]]]:
    """The matrix with small sources of either side together: names of rows, of columns, values."""

    def kept(side: ScoreSide) -> tuple[list[str], list[list[int]]]:
        origins = found.query_origins if side == "query" else found.key_origins
        sums = {one.origin: one.value for one in found.side(side)}
        sizes = sorted(map(abs, sums.values()), reverse=True)
        least = max(LEAST * sizes[0], sizes[min(MOST, len(sizes)) - 1]) if sizes else 0.0
        names: list[str] = []
        groups: list[list[int]] = []
        small: list[int] = []
        for number, origin in enumerate(origins):
            if abs(sums[origin]) >= least:
                names.append(label(found, origin))
                groups.append([number])
            else:
                small.append(number)
        if small:
            names.append(f"{len(small)} {OTHERS}")
            groups.append(small)
        return names, groups

    rows, row_groups = kept("query")
    columns, column_groups = kept("key")
    values = [
        [sum(found.matrix[a][b] for a in some for b in others) for others in column_groups]
        for some in row_groups
    ]
    return rows, columns, values


def sentence(found: Sources) -> str:
    """Where the key comes from, and the query, in one line."""
    what = "difference" if found.against is not None else "score"
    said = []
    for side in reversed(SIDES):
        sums = found.side(side)
        if not sums:
            continue
        if sums[0].share is None:
            said.append(f"the sources of the {side} cancel")
            continue
        top = [one for one in sums[:3] if abs(one.share or 0.0) >= 0.1] or [sums[0]]
        parts = ", ".join(f"{whole(one.share or 0.0)} % {label(found, one.origin)}" for one in top)
        said.append(f"on the {side} side {parts}")
    return f"Of the {what}, {'; '.join(said)}."


def whole(share: float) -> str:
    """A share in percent, without decimals and without a negative zero."""
    return f"{round(100 * share) + 0:d}"


def share_of(one: SourceShare) -> str:
    """A share with its interval, in percent."""
    ends = ""
    if one.low is not None and one.high is not None:
        ends = f" [{whole(one.low)}, {whole(one.high)}]"
    return f"{whole(one.share)} %{ends}"


def rows_of(found: SourceShares) -> str:
    """Which rows were looked at."""
    what = (
        f"the targets of {found.score}"
        if found.score
        else "the key with the largest weight of every row"
    )
    weighed = " by their weights" if found.against == REST else ""
    return (
        f"{found.name}, {what} against all other keys{weighed}: {found.rows:,} of "
        f"{found.of_rows:,} rows of {found.texts:,} texts"
    )


def shares_sentence(found: SourceShares) -> str:
    """``2.0 finds its key through head 1.4 (63 % [58, 68] of the contrast)``."""
    through = [one for one in found.by_key if one.origin.kind != "bias"]
    if not through or through[0].share <= 0:
        return f"No source of the keys of {found.name} carries the contrast."
    top = [one for one in through[:3] if one.share >= 0.1] or through[:1]
    first, *more = (f"{label(found, one.origin)} ({share_of(one)}" for one in top)
    parts = " and ".join([f"{first} of the contrast)", *(f"{one})" for one in more)])
    return f"{found.name} finds its key through {parts}."


def closing(found: Sources | SourceShares) -> str:
    """The model and how it ran, in one line."""
    info = found.source
    return f"{model_name(info)} · {info.backend} backend · {info.device} {info.dtype}"
