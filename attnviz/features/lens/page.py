"""A lens as one offline page: the words of every state, and what made the one pointed at.

Heads have a page of their own, in :mod:`attnviz.features.lens.heads`.
"""

from __future__ import annotations

from typing import Any

from attnviz.drawing.html import still
from attnviz.drawing.labels import closing, rounded, visible
from attnviz.drawing.palette import DEFAULT_PALETTE, anchors
from attnviz.errors import InputError
from attnviz.features.lens import description
from attnviz.features.lens.heads import heads_page
from attnviz.features.lens.result import Added, Lens, LensCell
from attnviz.web.page import result_page

LARGEST = 40_000  # cells of a page; browsers take long to lay out a table of more
_TOP = 10


def page(result: Lens) -> bytes:
    """Return the whole page, as UTF-8."""
    if result.heads:
        return heads_page(result)
    if len(result.cells) > LARGEST:
        raise InputError(
            "the page would have {:,} cells, and {:,} is the limit; shorten the text, or read one "
            "position with {position}",
            len(result.cells),
            LARGEST,
            position=...,
        )
    title = description.title(result)
    sentence = description.sentence(result, result.positions[-1])
    names: dict[str, int] = {}  # of words, each written once
    data = {
        "title": title,
        "said": sentence,
        "masked": result.masked,
        "layers": [description.label(row[0].layer) for row in result.states()],
        "positions": result.positions,
        "tokens": [visible(result.tokens[n]) for n in result.positions],
        "next": [visible(token) if token else "" for token in result.next],
        "followed": [visible(token) for token in result.followed],
        "cells": [_cell(cell, names) for cell in result.cells],
        "palette": anchors(DEFAULT_PALETTE),
        "names": list(map(visible, names)),
        "checked": description.checked(result),
        "reason": f"What a layer added is not shown: {result.reason}." if result.reason else "",
        "closing": closing(result.source),
    }
    return result_page(
        __package__, result, title=title, headline=sentence, still=still(result), data=data
    )


def _cell(cell: LensCell, names: dict[str, int]) -> dict[str, Any]:
    return {
        "top": [
            [names.setdefault(word.token, len(names)), rounded(word.probability)]
            for word in cell.top[:_TOP]
        ],
        "entropy": rounded(cell.entropy),
        "kl": rounded(cell.kl),
        "rank": cell.rank,
        "share": rounded(cell.probability),
        "added": None if cell.added is None else _added(cell.added, names),
    }


def _added(added: Added, names: dict[str, int]) -> dict[str, Any]:
    return {
        "word": names.setdefault(added.token, len(names)),
        "logit": rounded(added.logit),
        "before": rounded(added.before),
        "heads": list(map(rounded, added.heads)),
        "bias": rounded(added.bias),
        "mlp": rounded(added.mlp),
        "mixer": rounded(added.mixer),
        "constant": rounded(added.constant),
    }
