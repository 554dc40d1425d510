"""A knockout as one offline page: who needs whom; of a pair the layers, the heads and the texts."""

from __future__ import annotations

from typing import Any

from attnviz.drawing.grid import SCHEMES, minus
from attnviz.drawing.html import still
from attnviz.drawing.labels import closing, rounded, visible
from attnviz.features.knockout import words
from attnviz.features.knockout.result import CutChange, CutEffect, Knockout
from attnviz.web.page import result_page


def page(result: Knockout) -> bytes:
    """Return the whole page, as UTF-8."""
    title = words.title(result)
    rows, keys = words.axes(result)
    data = {
        "title": title,
        "measured": words.measure(result),
        "closing": closing(result.source),
        "unit": words.unit(result),
        "metric": words.metric(result),
        "worse": result.worse,
        "window": result.window or 0,
        "draws": result.draws,
        "rows": rows,
        "keys": keys,
        "spans": [
            [span.name, round(span.tokens, 2), words.said(span.shown)] for span in result.spans
        ],
        "effects": [_effect(result, effect) for effect in result.effects],
        "written": [
            [text.rows, text.keys, text.name, visible(text.text), words.said(text.control)]
            for text in result.written
        ],
        "colors": SCHEMES,
        "notes": [minus(note) for note in result.notes],
    }
    return result_page(
        __package__,
        result,
        title=title,
        headline=minus(words.sentence(result, beside=False)),
        still=still(result),
        data=data,
    )


def _effect(result: Knockout, effect: CutEffect) -> dict[str, Any]:
    scale = words.scale(result)
    return {
        "rows": effect.rows,
        "keys": effect.keys,
        "kind": effect.kind,
        "name": effect.name,
        "layer": effect.layer,
        "weight": rounded(effect.lost),
        "value": rounded(effect.change.value * scale),
        "ends": _ends(effect.change, scale),
        "control": None if effect.control is None else rounded(effect.control * scale),
        "matched": words.taken(effect),
        "taken": effect.matched,
        "sure": effect.judged.sure,
        "does": minus(words.does(result, effect)),
    }


def _ends(change: CutChange, scale: float) -> list[float] | None:
    if change.joint_low is None or change.joint_high is None:
        return None
    return [rounded(change.joint_low * scale), rounded(change.joint_high * scale)]
