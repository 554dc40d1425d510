"""The words that every form of a lens shares."""

from __future__ import annotations

from attnviz.drawing.labels import counted, model_name, percent, quoted, shorten, visible
from attnviz.drawing.signed import signed
from attnviz.features.lens.result import HeadWrites, Lens, LensCell, RowShare

EMBEDDINGS = "embed"
"""What stands for the state that enters the first layer."""

UP = -1
"""What raises a logit is blue, what lowers it orange: the sign that is orange."""


def label(layer: int | None) -> str:
    """The name of a state: of the layer that it stands behind."""
    return EMBEDDINGS if layer is None else str(layer)


def title(result: Lens) -> str:
    """What is shown."""
    if result.heads:
        where = (
            f"at {visible(result.tokens[result.positions[0]])} ({result.positions[0]})"
            if result.rows == 1
            else f"over {counted(result.rows, 'row')} of {counted(result.texts, 'text')}"
        )
        return f"{model_name(result.source)}: what each head writes {where}"
    return f"{model_name(result.source)}: what each layer already knows"


def clearest(result: Lens) -> HeadWrites:
    """Of heads the one that raises the logit of one word most."""
    return max(result.heads, key=lambda writes: max((w.value for w in writes.raises), default=0.0))


def headline(result: Lens) -> str:
    """What the clearest head raises, in a sentence."""
    writes = clearest(result)
    name = result.layout.name(writes.head)
    if not writes.raises:
        return f"No head raises a word, {title(result)}"
    first = writes.raises[0]
    where = (
        at(result, result.positions[0])
        if result.rows == 1
        else f"on average over {counted(result.rows, 'row')}"
    )
    said = (
        f"Of all heads {name} raises one word most {where}: {quoted(first.token)}, by "
        f"{signed(first.value)} logits"
    )
    if writes.in_text is not None:
        said += f"; the word that it raises most stands in the text in {share(writes.in_text)}"
    return said


def at(result: Lens, position: int, *, ascii_only: bool = False) -> str:
    """A position in words: ``after ·the (18)``, or at the token in a masked model."""
    token = visible(result.tokens[position], ascii_only=ascii_only)
    return f"{'at' if result.masked else 'after'} {token} ({position})"


def token_of(result: Lens, position: int) -> str:
    """The token that is followed at a position."""
    return result.followed[result.positions.index(position)]


def checked(result: Lens) -> str:
    """That the last state reads as the model's own logits."""
    assert result.difference is not None
    apart = f"{result.difference:.0e}" if result.difference else "0"
    return f"the last state reads as the model's own logits (largest difference {apart})"


def sentence(result: Lens, position: int) -> str:
    """From which layer on the token that is followed stays the most probable, in one line."""
    cells = result.along(position)
    token = quoted(token_of(result, position))
    last = cells[-1]
    if last.rank > 1:
        best = min(cells, key=lambda cell: cell.rank)
        return (
            f"{token} {at(result, position)} ends at rank {last.rank:,} with "
            f"{percent(last.probability)}; its best rank is {best.rank:,}, {behind(best)}"
        )
    first = next(n for n in range(len(cells)) if all(cell.rank == 1 for cell in cells[n:]))
    if cells[first] is last:
        return (
            f"{token} {at(result, position)} becomes the most probable word in the last layer, "
            f"with {percent(last.probability)}"
        )
    return (
        f"{token} {at(result, position)} is the most probable word {behind(cells[first])} and from "
        f"there on, with {percent(cells[first].probability)} there and "
        f"{percent(last.probability)} in the end"
    )


def behind(cell: LensCell) -> str:
    """Which state it is, in words."""
    return "in the embeddings" if cell.layer is None else f"after layer {cell.layer}"


def share(shares: RowShare) -> str:
    """A share of rows with its interval, in percent."""
    ends = ""
    if shares.low is not None and shares.high is not None:
        ends = f" [{100 * shares.low:.0f}, {100 * shares.high:.0f}]"
    return f"{100 * shares.share:.0f} %{ends}"


def chance(result: Lens) -> str:
    """What a word drawn at random would give for the share of words in the text."""
    return "" if result.chance is None else f"a word drawn at random: {percent(result.chance)}"


def said(writes: HeadWrites, *, count: int = 4) -> str:
    """What a head writes, in one line."""
    raised, lowered = (
        " ".join(shorten(visible(word.token), 16) for word in words[:count])
        for words in (writes.raises, writes.lowers)
    )
    return f"raises {raised}; lowers {lowered}"
