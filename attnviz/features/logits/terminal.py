"""A logit on the terminal: predictions, the grid of heads, the waterfall, who voted for what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.style import Style
from rich.text import Text

from attnviz.drawing.labels import closing, counted, percent, signs, visible
from attnviz.drawing.renderable import coloured, renderable, table_of
from attnviz.drawing.signed import BLUE, ORANGE, SignedGrid, on_terminal, signed
from attnviz.drawing.terminal import Line
from attnviz.features.logits.result import Logits, Prediction
from attnviz.features.logits.words import UP, checked, place, steps
from attnviz.features.logits.words import by_token as sums_by_token

_BAR = 32
_THROUGH = 4
"""Heads that are named for a token."""
_LISTED = 12
"""Tokens that are listed by what came through them."""


def parts(result: Logits, *, by_token: bool = False) -> Iterator[RenderableType]:
    """Predictions, the parts of the logit, and the heads that add most; or also by token."""
    yield top_words(result)
    if result.parts:
        yield ""
        yield Line(checked(result), "bold")
        yield ""
        yield waterfall(result)
        yield ""
        yield head_attributions(result)
        yield votes(result)
        if by_token:
            yield ""
            yield token_sums(result)
    yield ""
    yield Line(closing(result.source, counted(len(result.tokens), "token")), "dim")


@renderable
def top_words(console: Console, options: ConsoleOptions, report: Logits) -> RenderResult:
    """The top words, a line each at one position, a line a position at several."""
    plain = options.ascii_only
    by_place: dict[int, list[Prediction]] = {}
    for prediction in report.predictions:
        by_place.setdefault(prediction.position, []).append(prediction)
    if len(by_place) == 1:
        ((position, words),) = by_place.items()
        yield Text(f"Predictions {place(report, position, ascii_only=plain)}", "bold")
        table = table_of(">rank", "word", ">probability", ">logit", "")
        for word in words:
            table.add_row(
                f"{word.rank:,}", visible(word.token, ascii_only=plain),
                percent(word.probability), f"{word.logit:.2f}", _MARKS[word.mark],
            )  # fmt: skip
        yield table
        return
    table = table_of(">position", "token", "most probable", "")
    for position, words in by_place.items():
        top = ", ".join(_short(word, plain) for word in words if word.rank <= _SHOWN)
        marked = ", ".join(
            f"{_MARKS[word.mark]}: {_short(word, plain)} (rank {word.rank:,})"
            for word in words
            if word.mark
        )
        token = visible(report.tokens[position], ascii_only=plain)
        table.add_row(str(position), token, top, marked)
    yield table


_MARKS = {"": "", "next": "does follow", "asked": "asked for"}
_SHOWN = 3
"""Words a position, where there are several positions."""


@renderable
def head_attributions(console: Console, options: ConsoleOptions, report: Logits) -> RenderResult:
    """The grid of heads by what they add."""
    values = report.heads()
    most = max(map(abs, values.values()), default=0.0)
    yield SignedGrid(report.layout, values, most, UP)
    end = f", full colour at ±{most:.2g}" if coloured(console) else ""
    yield Line(f"logits that each head adds; blue: raises, orange: lowers{end}", "dim")
    yield Text("")


@renderable
def waterfall(console: Console, options: ConsoleOptions, report: Logits) -> RenderResult:
    """From nothing to the logit, part by part."""
    bars = steps(report)
    ends = [0.0, *(step.after for step in bars)]
    low, high = min(ends), max(ends)
    unit = (high - low) / _BAR or 1.0
    table = table_of("part", ">adds", ">sum", "")
    for step in bars:
        start, stop = sorted((step.before, step.after))
        first = min(round((start - low) / unit), _BAR - 1)
        length = max(round((stop - low) / unit) - first, 1)
        color = BLUE if step.value > 0 else ORANGE
        bar = ("#" if options.ascii_only else "█") * length
        style = Style(color=color) if coloured(console) else Style()
        drawn = Text(" " * first).append(bar, style)
        table.add_row(
            signs(step.label, options.ascii_only), signed(step.value, 3), f"{step.after:.2f}", drawn
        )
    yield table


@renderable
def votes(console: Console, options: ConsoleOptions, report: Logits) -> RenderResult:
    """The strongest heads, through what they vote, and the words that they move."""
    plain, layout = options.ascii_only, report.layout
    table = table_of("head", ">adds", "mostly through, weight", "raises most", "lowers most")
    for vote in report.votes:
        strongest = vote.seen[0]
        token = visible(strongest.token, ascii_only=plain)
        seen = f"{token} ({strongest.position}), {percent(strongest.weight)}"
        table.add_row(
            layout.name(vote.head), signed(vote.value, 3), seen,
            _listed(vote.raises, plain), _listed(vote.lowers, plain),
        )  # fmt: skip
    yield table


@renderable
def token_sums(console: Console, options: ConsoleOptions, report: Logits) -> RenderResult:
    """The text tinted by what came through each token, and the heads it took."""
    sums, plain = list(sums_by_token(report)), options.ascii_only
    if coloured(console):
        most = max((abs(value) for _, value, _ in sums), default=0.0)
        line = Text()
        for position, value, _ in sorted(sums, key=lambda row: row[0]):
            text = visible(report.tokens[position], ascii_only=plain)
            line.append(text, on_terminal(value, most, UP))
        yield line
    table = table_of("token", ">all heads", "of it")
    for position, value, heads in sums[:_LISTED]:
        token = f"{visible(report.tokens[position], ascii_only=plain)} ({position})"
        named = (f"{report.layout.name(h)} {signed(v)}" for h, v in heads[:_THROUGH])
        table.add_row(token, signed(value, 3), ", ".join(named))
    yield table
    yield Line("heads only: embeddings, MLPs and biases belong to no other token", "dim")
    yield Text("")


def _short(word: Prediction, plain: bool) -> str:
    return f"{visible(word.token, ascii_only=plain)} {percent(word.probability)}"


def _listed(words: Iterable[str], plain: bool) -> str:
    return " ".join(_shown(words, plain))


def _shown(words: Iterable[str], plain: bool) -> Iterator[str]:
    for word in words:
        yield visible(word, ascii_only=plain)
