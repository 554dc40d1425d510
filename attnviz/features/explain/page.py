"""An explanation as one offline page.

The page holds its style, its script and its data; a content security policy lets nothing else in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attnviz.drawing.labels import percent, visible
from attnviz.drawing.palette import DEFAULT_PALETTE, anchors
from attnviz.drawing.signed import SCHEMES, signed
from attnviz.features.ablation.result import Effect
from attnviz.features.explain import words
from attnviz.features.explain.result import Explain, ExplainedHead
from attnviz.features.explain.tables import rows
from attnviz.web.page import html_page, parts, safe_json

_TOKENS = 8
"""Tokens that are listed by what came through them."""


def page(found: Explain) -> bytes:
    """The whole page, as UTF-8."""
    title = words.title(found)
    effects = [*(one.effect for one in found.heads), found.together]
    effects += [found.feeder] if found.feeder is not None else []
    data = {
        "title": title,
        "said": words.said(found),
        "summary": list(words.summary(found)),
        "tokens": [visible(one) for one in found.tokens],
        "texts": _readable(found.tokens),
        "position": found.position,
        "predictions": [
            [visible(one.token), one.probability, percent(one.probability)]
            for one in found.predictions
        ],
        "answer": visible(found.answer),
        "votes": _votes(found),
        "through": [[words.token(found, n), value] for n, value in found.through_tokens()[:_TOKENS]]
        if found.by_token
        else [],
        "sums": [value for _, value in sorted(found.through_tokens())] if found.by_token else [],
        "heads": [_head(found, one) for one in found.heads],
        "methods": found.methods,
        "effects": [_effect(one) for one in effects],
        "measured": words.measured(found),
        "limits": words.LIMITS,
        "closing": words.closing(found),
        "lines": _lines(found),
        "palette": anchors(DEFAULT_PALETTE),
        "causal": not found.masked,
        "signed": SCHEMES,
    }
    template, style, script = parts(__package__, "main")
    return html_page(
        template, command="explain", title=title, style=style, script=script, data=safe_json(data)
    )


def _readable(tokens: Sequence[str]) -> list[str]:
    """Tokens as running text: spaces that they begin with, else one before each that begins a word.

    Args:
        tokens: of the text.
    """
    spaced = any(token.startswith(" ") for token in tokens)
    found = []
    for n, token in enumerate(tokens):
        shown = visible(token)
        if token.startswith(" ") and shown.startswith("·"):
            shown = " " + shown[1:]
        elif n and not spaced and not token.startswith("##"):
            shown = " " + shown
        found.append(shown)
    return found


def _lines(found: Explain) -> list[list[str]]:
    """What the page saves as CSV."""
    listed = rows(found)
    told = [["" if value is None else str(value) for value in row.values()] for row in listed]
    return [[*listed[0]], *told]


def _votes(found: Explain) -> list[dict[str, Any]]:
    """The grid of votes: a row for each layer of each kind."""
    values = found.votes()
    rows: dict[str, list[float]] = {}
    for head, value in values.items():
        name = found.layout.name(head).rpartition(".")[0]
        rows.setdefault(name, []).append(value)
    return [{"layer": name, "values": some} for name, some in rows.items()]


def _head(found: Explain, one: ExplainedHead) -> dict[str, Any]:
    return {
        "name": found.layout.name(one.head),
        "vote": None if one.vote is None else signed(one.vote),
        "raises": [visible(word) for word in one.raises],
        "weights": one.weights,
        "looks": f"{words.token(found, one.position)} {percent(one.weights[one.position])}",
        "keys": [
            [key.origin.name(found.layout), key.share if key.share is not None else key.value]
            for key in one.keys
        ],
        "shares": all(key.share is not None for key in one.keys),
        "reason": one.reason,
        "map": [[weight / 1000 for weight in row] for row in one.map],
    }


def _effect(effect: Effect) -> list[Any]:
    return [effect.name, *(signed(one.change) for one in effect.by)]
