"""A lens described: words by layer and position, one position in detail, heads, findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.style import Style
from rich.text import Text

from attnviz.core.result import Figures, Finding, Measure
from attnviz.drawing.console import coloured, every_few, renderable, rows_shown, table_of
from attnviz.drawing.description import Column, Listing, head_column, plain
from attnviz.drawing.grid import signed, signed_grid
from attnviz.drawing.labels import (
    closing,
    counted,
    fit,
    model_name,
    percent,
    quoted,
    shorten,
    signs,
    visible,
)
from attnviz.drawing.palette import DEFAULT_PALETTE, ink, ramp
from attnviz.drawing.terminal import Line
from attnviz.features.lens.result import (
    HeadWrites,
    Lens,
    LensCell,
    LensToken,
    RowShare,
    TokenEffect,
)

EMBEDDINGS = "embed"  # what stands for the state that enters the first layer

UP = -1  # what raises a logit is blue, what lowers it orange: the sign that is orange


def label(layer: int | None) -> str:
    """Return the name of a state: of the layer that it stands behind."""
    return EMBEDDINGS if layer is None else str(layer)


def title(result: Lens) -> str:
    """Return what is shown."""
    if result.heads:
        position = (
            f"at {visible(result.tokens[result.positions[0]])} ({result.positions[0]})"
            if result.rows == 1
            else f"over {counted(result.rows, 'row')} of {counted(result.texts, 'text')}"
        )
        return f"{model_name(result.source)}: what each head writes {position}"
    return f"{model_name(result.source)}: what each layer already knows"


def clearest(result: Lens) -> HeadWrites:
    """Of heads the one that raises the logit of one word most."""
    return max(result.heads, key=lambda writes: max((w.value for w in writes.raises), default=0.0))


def headline(result: Lens) -> str:
    """Return what the clearest head raises, in a sentence."""
    writes = clearest(result)
    name = result.layout.name(writes.head)
    if not writes.raises:
        return f"No head raises a word, {title(result)}"
    first = writes.raises[0]
    position = (
        at(result, result.positions[0])
        if result.rows == 1
        else f"on average over {counted(result.rows, 'row')}"
    )
    sentence = (
        f"Of all heads {name} raises one word most {position}: {quoted(first.token)}, by "
        f"{signed(first.value)} logits"
    )
    if writes.in_text is not None:
        sentence += f"; the word that it raises most stands in the text in {share(writes.in_text)}"
    return sentence


def at(result: Lens, position: int, *, ascii_only: bool = False) -> str:
    """Return a position in words: ``after ·the (18)``, or at the token in a masked model."""
    token = visible(result.tokens[position], ascii_only=ascii_only)
    return f"{'at' if result.masked else 'after'} {token} ({position})"


def token_of(result: Lens, position: int) -> str:
    """Return the token that is followed at a position."""
    return result.followed[result.positions.index(position)]


def checked(result: Lens) -> str:
    """Return that the last state reads as the model's own logits."""
    assert result.difference is not None
    difference = f"{result.difference:.0e}" if result.difference else "0"
    return f"the last state reads as the model's own logits (largest difference {difference})"


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
    """Return a share of rows with its interval, in percent."""
    ends = ""
    if shares.low is not None and shares.high is not None:
        ends = f" [{100 * shares.low:.0f}, {100 * shares.high:.0f}]"
    return f"{100 * shares.share:.0f} %{ends}"


def chance(result: Lens) -> str:
    """Return what a word drawn at random would give for the share of words in the text."""
    return "" if result.chance is None else f"a word drawn at random: {percent(result.chance)}"


def said(writes: HeadWrites, *, count: int = 4) -> str:
    """Return what a head writes, in one line."""
    raised, lowered = (
        " ".join(shorten(visible(word.token), 16) for word in words[:count])
        for words in (writes.raises, writes.lowers)
    )
    return f"raises {raised}; lowers {lowered}"


def listing(result: Lens) -> Listing:
    """List each word of each state; of heads each word that one raises or lowers."""
    return _of_heads(result) if result.heads else _of_states(result)


def _of_states(result: Lens) -> Listing:
    targets = dict(zip(result.positions, result.followed, strict=True))
    cell, word = itemgetter(0), itemgetter(2)
    return Listing(
        [
            *plain("layer", "position", of=cell),
            Column("token", lambda row: result.tokens[row[0].position]),
            Column("place", itemgetter(1)),
            Column("word", "token").under(word),
            *plain("id", "logit", "probability", of=word),
            *plain("entropy", "kl", of=cell),
            Column("followed", lambda row: targets[row[0].position]),
            Column("followed_rank", "rank").under(cell),
            Column("followed_probability", "probability").under(cell),
        ],
        [(cell, n, word) for cell in result.cells for n, word in enumerate(cell.top, start=1)],
    )


def _of_heads(result: Lens) -> Listing:
    writes, word = itemgetter(0), itemgetter(3)

    def in_text(end: str) -> Callable[[Any], Any]:
        return lambda row: getattr(row[0].in_text, end, None)

    return Listing(
        [
            head_column(result.layout).under(writes),
            *plain("norm", of=writes),
            Column("in_text", in_text("share")),
            *(Column(f"in_text_{end}", in_text(end)) for end in ("low", "high")),
            Column("does", itemgetter(1)),
            Column("place", itemgetter(2)),
            Column("word", "token").under(word),
            *plain("id", "value", of=word),
        ],
        [
            (writes, effect, n, word)
            for writes in result.heads
            for effect in ("raises", "lowers")
            for n, word in enumerate(getattr(writes, effect), start=1)
        ],
    )


_WORDS = 5  # words of a state or a head that a table has room for
_LEAST, _MOST = 5, 11  # cells of a column
_BANDS = 4  # bands of columns that are drawn; of longer texts the last positions
_LONGEST = 14
_FULL = ramp(DEFAULT_PALETTE)


def parts(result: Lens) -> Iterator[RenderableType]:
    """Yield the table of states and the last position in detail; or what every head writes."""
    if result.heads:
        yield Line(title(result), "bold")
        yield head_table(result)
        if result.chance is not None:
            yield Line(
                "in text: rows in which the word raised most stands in the text up to there; "
                + chance(result), "dim",
            )  # fmt: skip
    else:
        if len(result.positions) > 1:
            yield layers(result)
            yield ""
        yield from _detail(result, result.positions[-1])
        yield ""
        yield Line(checked(result), "dim")
    yield Line(closing(result.source), "dim")


def _detail(result: Lens, position: int) -> Iterator[RenderableType]:
    yield Line(sentence(result, position), "bold")
    yield along(result, position)
    cells = result.along(position)
    if result.token and cells[-1].added is not None:
        yield ""
        heads = result.layout.heads[result.layout.kinds[-1]]
        by_head = {}
        for cell in cells[1:]:
            if cell.added is not None and cell.layer is not None:
                for index, value in enumerate(cell.added.heads[: heads[cell.layer]]):
                    head = next(h for h in result.layout
                                if h.layer == cell.layer and h.index == index)  # fmt: skip
                    by_head[head] = value
        largest = max(map(abs, by_head.values()), default=0.0)
        yield signed_grid(result.layout, by_head, largest, UP)
        yield Line(f"logits of {visible(result.token)} that each head adds to its layer's state; "
                   "blue: raises, orange: lowers", "dim")  # fmt: skip


@renderable
def layers(console: Console, options: ConsoleOptions, result: Lens) -> RenderResult:
    """Show the most probable word of every state, coloured by its probability.

    In bands of as many positions as fit.
    """
    plain, color = options.ascii_only, coloured(console)
    longest = max(
        cell_len(visible(word, ascii_only=plain))
        for word in (*(c.top[0].token for c in result.cells), *result.tokens)
    )
    size = max(min(longest + (0 if color else 3), _MOST), _LEAST)
    states = every_few(result.states())
    names = [label(row[0].layer) for row in states]
    left = max(map(len, names))
    fitting = max((options.max_width - left) // (size + 1), 1)
    count = len(result.positions)
    first = max(0, count - _BANDS * fitting)
    yield Line("layer ↓  token →, the most probable word"
               + ("; brighter: more probable" if color else ", and its probability in %"),
               "dim")  # fmt: skip
    if len(states) < len(result.states()):
        yield Line(f"{len(states)} of {len(result.states())} states, at even steps", "dim")
    if first:
        yield Line(f"the last {count - first} of {count} positions", "dim")

    def words(texts: Sequence[str], name: str = "") -> Text:
        line = Text(f"{name:>{left}}", "dim", no_wrap=True)
        for text in texts:
            word = visible(text, ascii_only=plain) if text else ""
            line.append(" " + fit(word, size, ascii_only=plain))
        line.rstrip()
        return line

    for start in range(first, count, fitting):
        columns = range(start, min(start + fitting, count))
        yield words([result.tokens[result.positions[n]] for n in columns])
        for name, row in zip(names, states, strict=True):
            line = Text(f"{name:>{left}}", "dim", no_wrap=True)
            for n in columns:
                line.append(" ")
                line.append(*_cell(row[n].top[0], size, color, plain))
            yield line
        if result.next and any(result.next[n] for n in columns):
            yield words([result.next[n] for n in columns], "next")
        yield Text("")


def _cell(word: LensToken, size: int, color: bool, plain: bool) -> tuple[str, Style]:
    text = visible(word.token, ascii_only=plain)
    if not color:
        share = f"{100 * word.probability:.0f}"
        return f"{fit(text, size - 3, ascii_only=plain)}{share:>3}", Style()
    paint = _FULL[round(255 * word.probability)]
    return fit(text, size, ascii_only=plain), Style(color=ink(paint), bgcolor=paint)


@renderable
def along(console: Console, options: ConsoleOptions, result: Lens, position: int) -> RenderResult:
    """One position layer by layer, with the token that is followed."""
    plain = options.ascii_only
    cells = every_few(result.along(position))
    token = _short(token_of(result, position), plain)
    count = max(1, min(_WORDS, (options.max_width - 52) // 16))
    table = table_of(
        ">layer", f">rank of {token}", ">probability", ">entropy", ">KL to last", "most probable"
    )
    for cell in cells:
        words = (f"{_short(w.token, plain)} {percent(w.probability)}" for w in cell.top[:count])
        table.add_row(label(cell.layer), f"{cell.rank:,}", percent(cell.probability),
                      f"{cell.entropy:.2f}", f"{cell.kl:.2f}", ", ".join(words))  # fmt: skip
    yield table
    yield Line("entropy and KL in nats", "dim")


@renderable
def head_table(console: Console, options: ConsoleOptions, result: Lens) -> RenderResult:
    """Yield the words that every head raises and lowers."""
    plain = options.ascii_only
    averaged = result.rows > 1
    columns = ["head", ">norm", "raises most", "lowers most"]
    table = table_of(*columns, *(["recurs, % of rows", ">in text"] if averaged else []))
    count = max(1, min(_WORDS, (options.max_width - (40 if averaged else 16)) // 26))
    listed = result.heads
    if rows_shown(len(listed)) < len(listed):
        listed = tuple(sorted(listed, key=lambda writes: -writes.norm)[: rows_shown(len(listed))])
    for writes in listed:
        moved = [_words(tokens[:count], plain) for tokens in (writes.raises, writes.lowers)]
        recurring = _over_rows(writes, plain) if averaged else []
        table.add_row(result.layout.name(writes.head), f"{writes.norm:.2f}", *moved, *recurring)
    yield table
    if len(listed) < len(result.heads):
        caption = f"the {len(listed)} heads with the largest norm of {len(result.heads):,}"
        yield Line(f"{caption}; a table has all of them", "dim")
    scale = "mean over the rows; " if averaged else ""
    yield Line(signs(f"logits against the mean of the vocabulary, {scale}norm: "
                     "‖z W_O‖", plain), "dim")  # fmt: skip


def _over_rows(writes: HeadWrites, plain: bool) -> list[str]:
    recurring = (f"{_short(w.token, plain)} {100 * w.rows:.0f}" for w in writes.recurring[:3])
    return [" ".join(recurring), "" if writes.in_text is None else share(writes.in_text)]


def _words(effects: Sequence[TokenEffect], plain: bool) -> str:
    return " ".join(f"{_short(word.token, plain)} {signed(word.value)}" for word in effects)


def _short(token: str, plain: bool) -> str:
    return shorten(visible(token, ascii_only=plain), _LONGEST, ascii_only=plain)


def finding(result: Lens, name: str) -> Finding | None:
    """Return the words that every head raises and lowers; None where states were read."""
    if not result.heads:
        return None
    lines_of, shares = {}, {}
    for writes in result.heads:
        lines = [said(writes)]
        if writes.in_text is not None:
            lines.append(f"the word that it raises most stands in the text: "
                         f"{share(writes.in_text)} of the rows")  # fmt: skip
            shares[result.layout.name(writes.head)] = (
                writes.in_text.share, writes.in_text.low, writes.in_text.high,
            )  # fmt: skip
        lines_of[result.layout.name(writes.head)] = lines
    explanation = (
        f"{title(result)}: what it adds to the residual stream, through the last "
        "normalization with its scale, and the LM head; against the mean of the vocabulary."
    )
    measure = Measure(
        "in text", "rows in which the word it raises most stands in the text", "", 0, shares
    )
    return Finding.of("lens", name, "What it writes", explanation, lines_of, [measure])


def figures(result: Lens) -> Figures:
    """Return each head's norm, and how often the word it raises stands in the text."""
    return Figures(
        {
            result.layout.name(writes.head): {
                "norm": writes.norm,
                "in text": None if writes.in_text is None else writes.in_text.share,
            }
            for writes in result.heads
        }
    )
