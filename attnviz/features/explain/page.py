"""An explanation as one offline page: sentences, the text by votes and weights, bars, limits."""

from __future__ import annotations

from typing import Any

from attnviz.drawing.labels import percent, visible
from attnviz.drawing.palette import DEFAULT_PALETTE, anchors
from attnviz.drawing.signed import SCHEMES, signed
from attnviz.features.explain.result import ExplainedHead, Explanation
from attnviz.features.explain.words import (
    PROVES_NOT,
    Sentence,
    closing,
    head,
    key,
    origin_name,
    prediction,
    split,
    title,
    without,
)
from attnviz.web.page import html_page, parts, safe_json

_SOURCES = 6
"""Of each key."""


def page(report: Explanation) -> bytes:
    """The whole page, as UTF-8."""
    name = title(report)
    data = {
        "title": name,
        "closing": closing(report),
        "tokens": [visible(text) for text in report.tokens],
        "position": report.position,
        "prediction": _sentence(prediction(report)),
        "predictions": [
            [visible(one.token), one.probability, percent(one.probability), one.rank]
            for one in sorted(report.predictions, key=lambda one: one.rank)
        ],
        "split": _sentence(split(report)),
        "votes": [_short(value) for value in report.by_token],
        "heads": [_head(report, one) for one in report.heads],
        "difference": _short(report.difference),
        "compared": f"{visible(report.answer)} less {visible(report.against)}",
        "methods": list(report.methods),
        "without": [
            {
                "name": ", ".join(map(report.layout.name, effect.heads)),
                "values": [_short(report.difference + one.change) for one in effect.by],
                **_sentence(without(report, effect)),
            }
            for effect in report.effects
        ],
        "limits": list(PROVES_NOT),
        "notes": [str(note) for note in report.notes],
        "palette": list(anchors(DEFAULT_PALETTE)),
        "signed": SCHEMES,
    }
    template, style, script = parts(__package__, "main")
    return html_page(template, title=name, style=style, script=script, data=safe_json(data))


def _head(report: Explanation, one: ExplainedHead) -> dict[str, Any]:
    told, origins = key(report, one), () if one.found is None else one.found.origins
    return {
        "name": report.layout.name(one.head),
        "adds": "" if one.value is None else signed(one.value, 2),
        "weights": [_short(weight) for weight in one.weights],
        "map": [list(row) for row in one.map],
        "key": one.key,
        "said": _sentence(head(report, one)),
        "found": None if told is None else _sentence(told),
        "sources": [
            [origin_name(side.origin.head, side.origin.name(report.layout)), _short(side.value)]
            for side in origins[:_SOURCES]
        ],
    }


def _sentence(sentence: Sentence) -> dict[str, str]:
    return {"said": sentence.said, "how": sentence.how}


def _short(value: float) -> float:
    return float(f"{value:.5g}")
