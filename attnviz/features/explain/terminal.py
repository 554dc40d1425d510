"""An explanation on the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from attnviz.drawing.labels import closing, percent, signs, visible
from attnviz.drawing.renderable import coloured, renderable, table_of
from attnviz.drawing.signed import SignedGrid, on_terminal, signed
from attnviz.drawing.terminal import Line
from attnviz.features.explain import words
from attnviz.features.explain.result import Explain, ExplainedHead


def parts(result: Explain) -> Iterator[RenderableType]:
    """The answer in sentences, votes, heads one by one, and what none of it proves."""
    yield Line(words.title(result), "bold")
    yield Line(words.said(result))
    yield ""
    for sentence in words.summary(result):
        yield Line(sentence)
    votes = result.votes()
    if votes:
        yield ""
        yield Line(
            "Votes of heads for the lead, by head and by token, in logits (blue: for the answer)",
            "bold",
        )
        yield SignedGrid(result.layout, votes, max(map(abs, votes.values())), words.UP)
        yield token_votes(result)
    yield ""
    yield Line(words.heading(result), "bold")
    yield HeadsExplained(result)
    yield Line(words.measured(result), "dim")
    yield ""
    yield Line("What none of it proves", "bold")
    for limit in words.LIMITS:
        yield Line(f"· {limit}", "dim")
    yield ""
    yield Line(closing(result.source), "dim")


@renderable
def token_votes(console: Console, options: ConsoleOptions, result: Explain) -> RenderResult:
    """The text, tinted by what all heads add through each token."""
    sums, plain = result.through_tokens(), options.ascii_only
    most = max(abs(value) for _, value in sums)
    if coloured(console):
        line = Text()
        for position, value in sorted(sums):
            text = visible(result.tokens[position], ascii_only=plain)
            line.append(text, on_terminal(value, most, words.UP))
        yield line
    tokens = [visible(token, ascii_only=plain) for token in result.tokens]
    named = (f"{tokens[position]} ({position}) {signed(v)}" for position, v in sums[:6])
    yield Text(f"through {', '.join(named)}")


class HeadsExplained:
    """A renderable: a line a head."""

    def __init__(self, result: Explain) -> None:
        self.result = result

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Draw for this console."""
        result, plain = self.result, options.ascii_only
        table = table_of("head", ">votes", "looks at", "its key is from", "without it")
        for head in result.shown_heads:
            token = f"{visible(result.tokens[head.position], ascii_only=plain)} ({head.position})"
            table.add_row(
                result.layout.name(head.head), "" if head.vote is None else signed(head.vote, 3),
                f"{token} {percent(head.weights[head.position])}", self._keys(head),
                words.changes(head.effect),
            )  # fmt: skip
        for effect in result.groups:
            table.add_row(signs(effect.name, plain), "", "", "", words.changes(effect))
        yield table

    def _keys(self, head: ExplainedHead) -> str:
        return ", ".join(
            f"{key.origin.name(self.result.layout)} {100 * key.share:.0f} %"
            for key in head.keys
            if key.share is not None and abs(key.share) >= 0.1
        ) or ("" if not head.reason else "cannot be told")
