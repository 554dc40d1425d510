"""A logit on the terminal: predictions, the grid of heads, the waterfall, who voted for what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.style import Style
from rich.table import Table
from rich.text import Text

from attnviz.drawing.labels import percent, signs, visible
from attnviz.drawing.signed import BLUE, ORANGE, SignedGrid, coloured, on_terminal, signed
from attnviz.drawing.terminal import Line
from attnviz.features.logits.result import Logits, Prediction
from attnviz.features.logits.words import UP, checked, closing, place, steps
from attnviz.features.logits.words import by_token as sums_by_token

_BAR = 32
_THROUGH = 4
"""Heads that are named for a token."""
_LISTED = 12
"""Tokens that are listed by what came through them."""


def parts(result: Logits, *, by_token: bool = False) -> Iterator[RenderableType]:
    """Predictions, the parts of the logit, and the heads that add most; or also by token."""
    yield TopWords(result)
    if result.parts:
        yield ""
        yield Line(checked(result), "bold")
        yield ""
        yield Waterfall(result)
        yield ""
        yield HeadAttributions(result)
        yield Votes(result)
        if by_token:
            yield ""
            yield ByToken(result)
    yield ""
    yield Line(closing(result), "dim")


class TopWords:
    """A renderable: the top words, a line each at one position, a line a position at several."""

    def __init__(self, report: Logits) -> None:
        self.report = report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw for this console."""
        report, plain = self.report, options.ascii_only
        by_place: dict[int, list[Prediction]] = {}
        for prediction in report.predictions:
            by_place.setdefault(prediction.position, []).append(prediction)
        if len(by_place) == 1:
            ((position, words),) = by_place.items()
            yield Text(f"Predictions {place(report, position, ascii_only=plain)}", "bold")
            table = _table(("rank", ">"), ("word", "<"), ("probability", ">"), ("logit", ">"),
                           ("", "<"))  # fmt: skip
            for word in words:
                table.add_row(
                    f"{word.rank:,}", visible(word.token, ascii_only=plain),
                    percent(word.probability), f"{word.logit:.2f}", _MARKS[word.mark],
                )  # fmt: skip
            yield table
            return
        table = _table(("position", ">"), ("token", "<"), ("most probable", "<"),
                       ("", "<"))  # fmt: skip
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


class HeadAttributions:
    """A renderable: the grid of heads by what they add."""

    def __init__(self, report: Logits) -> None:
        self.report = report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw for this console."""
        values = self.report.heads()
        most = max(map(abs, values.values()), default=0.0)
        yield SignedGrid(self.report.layout, values, most, UP)
        end = f", full colour at ±{most:.2g}" if coloured(console) else ""
        yield Line(f"logits that each head adds; blue: raises, orange: lowers{end}", "dim")
        yield Text("")


class Waterfall:
    """A renderable: from nothing to the logit, part by part."""

    def __init__(self, report: Logits) -> None:
        self.report = report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw for this console; a bar spans what a step adds."""
        bars = steps(self.report)
        ends = [0.0, *(step.after for step in bars)]
        low, high = min(ends), max(ends)
        unit = (high - low) / _BAR or 1.0
        table = _table(("part", "<"), ("adds", ">"), ("sum", ">"), ("", "<"))
        for step in bars:
            start, stop = sorted((step.before, step.after))
            first = min(round((start - low) / unit), _BAR - 1)
            length = max(round((stop - low) / unit) - first, 1)
            color = BLUE if step.value > 0 else ORANGE
            bar = ("#" if options.ascii_only else "█") * length
            style = Style(color=color) if coloured(console) else Style()
            drawn = Text(" " * first).append(bar, style)
            table.add_row(
                signs(step.label, options.ascii_only),
                signed(step.value, 3),
                f"{step.after:.2f}",
                drawn,
            )
        yield table


class Votes:
    """A renderable: the strongest heads, through what they vote, and the words that they move."""

    def __init__(self, report: Logits) -> None:
        self.report = report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw for this console."""
        plain, layout = options.ascii_only, self.report.layout
        table = _table(("head", "<"), ("adds", ">"), ("mostly through, weight", "<"),
                       ("raises most", "<"), ("lowers most", "<"))  # fmt: skip
        for vote in self.report.votes:
            strongest = vote.seen[0]
            token = visible(strongest.token, ascii_only=plain)
            seen = f"{token} ({strongest.position}), {percent(strongest.weight)}"
            table.add_row(
                layout.name(vote.head), signed(vote.value, 3), seen,
                _listed(vote.raises, plain), _listed(vote.lowers, plain),
            )  # fmt: skip
        yield table


class ByToken:
    """A renderable: the text tinted by what came through each token, and the heads it took."""

    def __init__(self, report: Logits) -> None:
        self.report = report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw for this console."""
        sums, plain = list(sums_by_token(self.report)), options.ascii_only
        if coloured(console):
            most = max((abs(value) for _, value, _ in sums), default=0.0)
            line = Text()
            for position, value, _ in sorted(sums, key=lambda row: row[0]):
                text = visible(self.report.tokens[position], ascii_only=plain)
                line.append(text, on_terminal(value, most, UP))
            yield line
        table = _table(("token", "<"), ("all heads", ">"), ("of it", "<"))
        for position, value, heads in sums[:_LISTED]:
            token = f"{visible(self.report.tokens[position], ascii_only=plain)} ({position})"
            named = (f"{self.report.layout.name(h)} {signed(v)}" for h, v in heads[:_THROUGH])
            table.add_row(token, signed(value, 3), ", ".join(named))
        yield table
        yield Line("heads only: embeddings, MLPs and biases belong to no other token", "dim")
        yield Text("")


def _table(*columns: tuple[str, str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    for title, side in columns:
        table.add_column(title, justify="right" if side == ">" else "left", overflow="fold")
    return table


def _short(word: Prediction, plain: bool) -> str:
    return f"{visible(word.token, ascii_only=plain)} {percent(word.probability)}"


def _listed(words: Iterable[str], plain: bool) -> str:
    return " ".join(_shown(words, plain))


def _shown(words: Iterable[str], plain: bool) -> Iterator[str]:
    for word in words:
        yield visible(word, ascii_only=plain)
