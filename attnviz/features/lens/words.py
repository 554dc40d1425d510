"""The words that every form of a lens shares."""

from __future__ import annotations

from attnviz.drawing.labels import counted, model_name, percent, shorten, visible
from attnviz.features.lens.result import HeadWrites, Lens, LensCell, RowShare

EMBEDDINGS = "embed"
"""What stands for the state that enters the first layer."""

UP = -1
"""What raises a logit is blue, what lowers it orange: the sign that is orange."""


def label(layer: int | None) -> str:
    """The name of a state: of the layer that it stands behind."""
    return EMBEDDINGS if layer is None else str(layer)


def title(found: Lens) -> str:
    """What is shown."""
    if found.heads:
        where = (
            f"at {visible(found.tokens[found.positions[0]])} ({found.positions[0]})"
            if found.rows == 1
            else f"over {counted(found.rows, 'row')} of {counted(found.texts, 'text')}"
        )
        return f"{model_name(found.source)}: what each head writes {where}"
    return f"{model_name(found.source)}: what each layer already knows"


def at(found: Lens, position: int, *, ascii_only: bool = False) -> str:
    """A position in words: ``after ·the (18)``, or at the token in a masked model."""
    token = visible(found.tokens[position], ascii_only=ascii_only)
    return f"{'at' if found.masked else 'after'} {token} ({position})"


def token_of(found: Lens, position: int) -> str:
    """The token that is followed at a position."""
    return found.followed[found.positions.index(position)]


def checked(found: Lens) -> str:
    """That the last state reads as the model's own logits."""
    assert found.difference is not None
    apart = f"{found.difference:.0e}" if found.difference else "0"
    return f"the last state reads as the model's own logits (largest difference {apart})"


def sentence(found: Lens, position: int) -> str:
    """From which layer on the token that is followed stays the most probable, in one line."""
    cells = found.along(position)
    token = visible(token_of(found, position))
    last = cells[-1]
    if last.rank > 1:
        best = min(cells, key=lambda cell: cell.rank)
        return (
            f"{token} {at(found, position)} ends at rank {last.rank:,} with "
            f"{percent(last.probability)}; its best rank is {best.rank:,}, {behind(best)}"
        )
    first = next(n for n in range(len(cells)) if all(cell.rank == 1 for cell in cells[n:]))
    if cells[first] is last:
        return (
            f"{token} {at(found, position)} becomes the most probable word in the last layer, "
            f"with {percent(last.probability)}"
        )
    return (
        f"{token} {at(found, position)} is the most probable word {behind(cells[first])} and from "
        f"there on, with {percent(cells[first].probability)} there and "
        f"{percent(last.probability)} in the end"
    )


def behind(cell: LensCell) -> str:
    """Which state it is, in words."""
    return "in the embeddings" if cell.layer is None else f"after layer {cell.layer}"


def share(one: RowShare) -> str:
    """A share of rows with its interval, in percent."""
    ends = ""
    if one.low is not None and one.high is not None:
        ends = f" [{100 * one.low:.0f}, {100 * one.high:.0f}]"
    return f"{100 * one.share:.0f} %{ends}"


def chance(found: Lens) -> str:
    """What a word drawn at random would give for the share of words in the text."""
    return "" if found.chance is None else f"a word drawn at random: {percent(found.chance)}"


def said(one: HeadWrites, *, count: int = 4) -> str:
    """What a head writes, in one line."""
    raised, lowered = (
        " ".join(shorten(visible(word.token), 16) for word in words[:count])
        for words in (one.raises, one.lowers)
    )
    return f"raises {raised}; lowers {lowered}"


def closing(found: Lens) -> str:
    """The model and how it ran, in one line."""
    info = found.source
    return f"{model_name(info)} · {info.backend} backend · {info.device} {info.dtype}"
