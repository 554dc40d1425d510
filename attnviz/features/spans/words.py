"""Words that the tables and the figure share."""

from __future__ import annotations

from collections.abc import Sequence

from attnviz.core.interval import Interval
from attnviz.core.spans import ELSEWHERE, EVERY, LAST
from attnviz.drawing.labels import counted, listing, quoted, ran_on, said_alone
from attnviz.drawing.labels import percent as percent_of
from attnviz.drawing.shares import estimate, interval, percent, plain_percent, plain_share, points
from attnviz.features.spans.result import LEAST_LIFT, WORDS, Spans, SpanShare

MARK = "*"
"""Behind the name of a head that finds the right document surely more often than any rule."""
_TOLD = 3
"""Heads of a span that a sentence names."""
RULE_NAMES = {
    "first": "first document",
    "last": "last document",
    "longest": "longest document",
    "question": "most words of the question",
    "answer": "most words of the answer",
}


def whose(result: Spans) -> str:
    """Whose weight it is, in words."""
    if result.rows == LAST:
        return "the last token's"
    return "all tokens'" if result.rows == EVERY else f"that of the tokens of {result.rows!r}"


def case(share: SpanShare) -> Interval:
    """A share as tables word it."""
    return Interval(share.mean, share.low, share.high)


def joint(share: SpanShare) -> Interval:
    """The same with the interval that holds for all heads and spans at once."""
    return Interval(share.mean, share.joint_low, share.joint_high)


def lift(share: SpanShare) -> str:
    """How many times chance."""
    return times(share.lift)


def times(value: float | None) -> str:
    """A factor, ``×1.7``; a dash for none."""
    if value is None:
        return "–"
    return f"×{value:.{2 if value < 1 else 1 if value < 10 else 0}f}"


def gaze_line(result: Spans) -> str:
    """What gaze is, in one line."""
    what = "weight" if result.quantity == "weights" else said_alone(result.quantity)
    return (
        f"gaze: of the {what} that text gives to the picture, the part on the box; chance: the "
        f"box's share of the picture's tokens; {WORDS}: tokens neither special nor of a picture"
    )


def per_token(share: SpanShare) -> str:
    """The weight of one token, in percent."""
    return "–" if share.per_token is None else f"{100 * share.per_token:.2g}"


def answer(result: Spans, to: str | None = None) -> str:
    """Which heads attend to what, in a sentence; or that none does.

    Args:
        result: the result.
        to: a single span; by default all that were named.
    """
    sheet, name = result.documents, result.layout.name
    if sheet is not None:
        sure = [score for score in sheet.ranked if score.head in sheet.sure]
        told = [f"{name(score.head)} ({estimate(score.accuracy)})" for score in sure]
        beside = f"; chance {plain_share(sheet.chance)}"
        if not told:
            return (
                "No head is surely better than both chance and the best rule at finding the right "
                f"document{beside}"
            )
        finds = "finds" if len(told) == 1 else "find"
        return f"{_few(told)} {finds} the right document{beside}; no other head surely does"
    asked = [span for span in result.names if span != ELSEWHERE and to in (None, span)]
    triples = [triple for triple in result.ranked(to) if triple[2].stands_out]
    clauses = []
    for span in asked:
        told = [
            f"{name(weights.head)} ({lift(share)}, {estimate(joint(share))})"
            for weights, which, share in triples
            if which == span
        ]
        if told:
            attends = "attends" if len(told) == 1 else "attend"
            clauses.append(f"{_few(told)} {attends} to {quoted(span)}")
    if not clauses:
        return _nobody(result, asked)
    return f"{'; '.join(clauses)}; no other head does"


def _nobody(result: Spans, asked: Sequence[str]) -> str:
    """That no head attends to any of some spans more than chance; or that none could."""
    named = " or ".join(map(quoted, asked))
    if result.family:
        return f"No head attends to {named} more than chance"
    chances = [
        share.chance
        for _, span, share in result.ranked()
        if span in asked and share.chance is not None
    ]
    least = f"×{LEAST_LIFT:g} of chance"
    if chances and LEAST_LIFT * min(chances) >= 1:
        return (
            f"No head can attend to {named} as much as {least}: {percent_of(min(chances))} of the "
            "keys are there"
        )
    return f"No head attends to {named} as much as {least}"


def _few(heads: list[str]) -> str:
    """The first heads of a list, and how many more there are."""
    shown, more = heads[:_TOLD], len(heads) - _TOLD
    return listing([*shown, counted(more, "other")] if more > 0 else shown)


def choice_line(result: Spans) -> str:
    """What is known of the chosen head, in one line."""
    sheet = result.documents
    if sheet is None or sheet.best.accuracy.value is None:
        return "no head has a held-out figure"
    best, rival = sheet.best, sheet.rival
    return (
        f"head {result.layout.name(best.head)}{MARK * (best.head in sheet.sure)}: right document "
        f"in {percent(best.accuracy)} % (95 %: {interval(best.accuracy)}) of {sheet.measured_on}; "
        f"chance {plain_percent(sheet.chance)} %, {RULE_NAMES[rival.name]} "
        f"{plain_percent(rival.accuracy.value)} %, {points(best.margin)} points "
        f"(95 %: {interval(best.margin)})"
    )


def measured(result: Spans) -> str:
    """What was measured on what, in one line."""
    sheet = result.documents
    quantity = (
        "" if result.quantity == "weights" else f"{said_alone(result.quantity)}, rows sum to 1"
    )
    parts = [
        counted(result.texts, "example" if sheet else "text"),
        f"{sheet.documents:.3g} documents each" if sheet else "",
        f"weight: {whose(result)}",
        quantity,
        _joint_line(result),
        f"head and rule chosen on {sheet.chosen_on}, measured on {sheet.measured_on}"
        if sheet
        else "",
        ran_on(result.source),
    ]
    return " · ".join(filter(None, parts))


def _joint_line(result: Spans) -> str:
    """What the intervals of shares promise."""
    if not result.family:
        return ""
    sure = "" if result.documents is not None else f"; {MARK} differs from chance in that family"
    return f"95 % intervals hold for all {result.family:,} shares at once{sure}"
