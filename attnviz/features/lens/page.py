"""A lens as one offline page: the words of every state, and what made the one pointed at.

Heads have a page of their own, in :mod:`attnviz.features.lens.heads`.

The page holds its style, its script and its data; a content security policy lets nothing else in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attnviz.drawing.labels import visible
from attnviz.drawing.palette import DEFAULT_PALETTE, anchors
from attnviz.errors import InputError
from attnviz.features.lens import words
from attnviz.features.lens.heads import heads_page
from attnviz.features.lens.result import Added, Lens, LensCell
from attnviz.web.page import html_page, parts, safe_json

LARGEST = 40_000
"""Cells of a page; browsers take long to lay out a table of more."""
_TOP = 10


def page(found: Lens) -> bytes:
    """The whole page, as UTF-8.

    Raises:
        InputError: more cells than a browser shows with ease.
    """
    if found.heads:
        return heads_page(found)
    if len(found.cells) > LARGEST:
        raise InputError(
            "the page would have {:,} cells, and {:,} is the limit; shorten the text, or read one "
            "position with {position}",
            len(found.cells),
            LARGEST,
            position=...,
        )
    title = words.title(found)
    names = _Names()
    data = {
        "title": title,
        "said": words.sentence(found, found.positions[-1]),
        "masked": found.masked,
        "layers": [words.label(row[0].layer) for row in found.states()],
        "positions": found.positions,
        "tokens": [visible(found.tokens[n]) for n in found.positions],
        "next": [visible(one) if one else "" for one in found.next],
        "followed": [visible(one) for one in found.followed],
        "cells": [_cell(one, names) for one in found.cells],
        "palette": anchors(DEFAULT_PALETTE),
        "names": names.listed,
        "checked": words.checked(found),
        "reason": f"What a layer added is not shown: {found.reason}." if found.reason else "",
        "closing": words.closing(found),
    }
    template, style, script = parts(__package__, "main")
    return html_page(
        template, command="lens", title=title, style=style, script=script, data=safe_json(data)
    )


class _Names:
    """Words by number, each written once."""

    def __init__(self) -> None:
        self.listed: list[str] = []
        self._places: dict[str, int] = {}

    def number(self, token: str) -> int:
        if token not in self._places:
            self._places[token] = len(self.listed)
            self.listed.append(visible(token))
        return self._places[token]


def _cell(cell: LensCell, names: _Names) -> dict[str, Any]:
    return {
        "top": [[names.number(one.token), _short(one.probability)] for one in cell.top[:_TOP]],
        "entropy": _short(cell.entropy),
        "kl": _short(cell.kl),
        "rank": cell.rank,
        "share": _short(cell.probability),
        "added": None if cell.added is None else _added(cell.added, names),
    }


def _added(added: Added, names: _Names) -> dict[str, Any]:
    return {
        "word": names.number(added.token),
        "logit": _short(added.logit),
        "before": _short(added.before),
        "heads": _all(added.heads),
        "bias": _short(added.bias),
        "mlp": _short(added.mlp),
        "constant": _short(added.constant),
    }


def _all(values: Sequence[float]) -> list[float]:
    return [_short(value) for value in values]


def _short(value: float) -> float:
    """Six significant digits, which is more than the page shows."""
    return float(f"{value:.6g}")
