"""An explanation on the terminal: sentences, the text in colours, weights of the heads, limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.style import Style
from rich.text import Text

from attnviz.drawing.labels import percent, visible
from attnviz.drawing.palette import ink, ramp
from attnviz.drawing.signed import coloured, on_terminal
from attnviz.drawing.terminal import Line
from attnviz.features.explain.result import ExplainedHead, Explanation
from attnviz.features.explain.words import (
    PROVES_NOT,
    UP,
    Sentence,
    closing,
    head,
    key,
    prediction,
    split,
    title,
    without,
)

_NAMED = 3
"""Tokens of a row that are named, where there are no colours."""


def parts(found: Explanation, *, how: bool = True) -> Iterator[RenderableType]:
    """What was found, sentence by sentence, with how each was measured."""
    yield Line(title(found), "bold")
    yield ""
    yield from _said(prediction(found), how)
    yield from _said(split(found), how)
    if found.by_token:
        yield Padding(TextByVotes(found), (0, 0, 1, 2))
    for one in found.heads:
        yield from _said(head(found, one), how)
        yield Padding(TextByWeights(found, one), (0, 0, 0, 2))
        told = key(found, one)
        if told is not None:
            yield from _said(told, how)
        yield ""
    yield Line("Without them", "bold")
    shown = [without(found, effect) for effect in found.effects]
    for number, sentence in enumerate(shown):
        yield from _said(sentence, how and number == len(shown) - 1)
    yield ""
    yield Line("What none of this proves", "bold")
    for line in PROVES_NOT:
        yield Padding(Line(line, "dim"), (0, 0, 0, 2))
    yield ""
    yield Line(closing(found), "dim")


def _said(sentence: Sentence, how: bool) -> Iterator[RenderableType]:
    yield Line(sentence.said)
    if how:
        yield Padding(Line(sentence.how, "dim"), (0, 0, 0, 2))


class TextByVotes:
    """A renderable: the text, tinted by what all heads add through each token."""

    def __init__(self, report: Explanation) -> None:
        self.report = report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw for this console; nothing without colours, since the sentence names the largest."""
        if not coloured(console):
            return
        most = max(map(abs, self.report.by_token), default=0.0)
        styles = [on_terminal(value, most, UP) for value in self.report.by_token]
        yield _text(self.report.tokens, styles, options.ascii_only)


class TextByWeights:
    """A renderable: the text, shaded by a head's weights."""

    def __init__(self, report: Explanation, one: ExplainedHead) -> None:
        self.report, self.one = report, one

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw for this console; without colours the tokens with the largest weights."""
        weights, tokens = self.one.weights, self.report.tokens
        if coloured(console):
            paints = [ramp("viridis")[round(min(w, 1.0) ** 0.5 * 255)] for w in weights]
            styles = [Style(color=ink(paint), bgcolor=paint) for paint in paints]
            yield _text(tokens, styles, options.ascii_only)
            return
        best = sorted(range(len(weights)), key=lambda n: -weights[n])[:_NAMED]
        named = ", ".join(
            f"{visible(tokens[n], ascii_only=options.ascii_only)} ({n}) {percent(weights[n])}"
            for n in best
        )
        yield Text(f"weights: {named}")


def _text(tokens: Sequence[str], styles: Sequence[Style], plain: bool) -> Text:
    line = Text()
    for token, style in zip(tokens, styles, strict=False):
        line.append(visible(token, ascii_only=plain), style)
    return line
