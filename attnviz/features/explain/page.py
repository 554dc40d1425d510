"""An explanation as one offline page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attnviz.drawing.grid import SCHEMES, minus, signed
from attnviz.drawing.html import still
from attnviz.drawing.labels import closing, percent, visible
from attnviz.drawing.palette import DEFAULT_PALETTE, anchors
from attnviz.drawing.tables import lines
from attnviz.features.explain import description
from attnviz.features.explain.description import rows
from attnviz.features.explain.result import Explain, ExplainedHead
from attnviz.web.page import result_page

_TOKENS = 8  # tokens that are listed by what came through them


def page(result: Explain) -> bytes:
    """Return the whole page, as UTF-8."""
    title = description.title(result)
    effects = [*(head.effect for head in result.shown_heads), *result.groups]
    data = {
        "title": title,
        "said": description.said(result),
        "summary": list(map(minus, description.summary(result))),
        "tokens": [visible(token) for token in result.tokens],
        "texts": _readable(result.tokens),
        "position": result.position,
        "predictions": [
            [visible(word.token), word.probability, percent(word.probability)]
            for word in result.predictions
        ],
        "answer": visible(result.answer),
        "account": [[name, value] for name, value in description.bars(result)],
        "heading": description.heading(result),
        "votes": _votes(result),
        "through": [
            [description.token(result, n), value] for n, value in result.through_tokens()[:_TOKENS]
        ]
        if result.by_token
        else [],
        "sums": [value for _, value in sorted(result.through_tokens())] if result.by_token else [],
        "heads": [_head(result, head) for head in result.shown_heads],
        "methods": result.methods,
        "effects": [
            [effect.name, *(minus(signed(change.change)) for change in effect.by)]
            for effect in effects
        ],
        "measured": description.measured(result),
        "limits": description.LIMITS,
        "closing": closing(result.source),
        "lines": lines(rows(result)),
        "palette": anchors(DEFAULT_PALETTE),
        "signed": SCHEMES,
    }
    headline = minus(description.headline(result))
    return result_page(
        __package__,
        result,
        title=title,
        headline=headline,
        still=still(result, everything=True),
        data=data,
    )


def _readable(tokens: Sequence[str]) -> list[str]:
    """Tokens as running text: their own spaces, else one before each that begins a word."""
    spaced = any(token.startswith(" ") for token in tokens)
    texts = []
    for n, token in enumerate(tokens):
        text = visible(token)
        if token.startswith(" ") and text.startswith("·"):
            text = " " + text[1:]
        elif n and not spaced and not token.startswith("##"):
            text = " " + text
        texts.append(text)
    return texts


def _votes(result: Explain) -> list[dict[str, Any]]:
    """Return the grid of votes: a row for each layer of each kind."""
    values = result.votes()
    rows: dict[str, list[float]] = {}
    for head, value in values.items():
        name = result.layout.name(head).rpartition(".")[0]
        rows.setdefault(name, []).append(value)
    return [{"layer": name, "values": row} for name, row in rows.items()]


def _head(result: Explain, head: ExplainedHead) -> dict[str, Any]:
    return {
        "name": result.layout.name(head.head),
        "vote": None if head.vote is None else minus(signed(head.vote)),
        "raises": [visible(word) for word in head.raises],
        "weights": head.weights,
        "looks": description.most(head),
        "tokens": [visible(token) for token in head.tokens],
        "texts": _readable(head.tokens),
        "query": head.query,
        "here": None if head.head.site.kind == "cross" else head.query,
        "keys": [
            [key.origin.name(result.layout), key.share if key.share is not None else key.value]
            for key in head.keys
        ],
        "shares": all(key.share is not None for key in head.keys),
        "reason": head.reason,
        "map": [[cell / 1000 if cell > 0 else cell for cell in row] for row in head.map],
    }
