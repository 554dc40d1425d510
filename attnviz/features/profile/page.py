"""Heads row by row as one offline page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from attnviz.drawing.html import still
from attnviz.drawing.labels import closing, counted, model_name, rounded, visible
from attnviz.drawing.palette import DEFAULT_PALETTE, anchors
from attnviz.drawing.tables import lines
from attnviz.errors import UsageError
from attnviz.features.profile import parts as records
from attnviz.features.profile import words
from attnviz.features.profile.description import rows
from attnviz.features.profile.result import Profile
from attnviz.web.page import result_page

_DIGITS = 4  # more than anyone reads


def page(result: Profile, *, links: Mapping[str, str] | None = None, command: str = "") -> bytes:
    """Return the whole page, as UTF-8."""
    distribution = result.distribution
    if distribution is None:
        raise UsageError(
            "a page shows heads row by row; name a few with {select}, such as {}",
            result.layout.name(result.heads[0].head),
            select=...,
        )
    names = [result.layout.name(head.head) for head in distribution.heads]
    title = f"attnviz profile: {model_name(result.source)}, " + (
        f"head {names[0]}" if len(names) == 1 else counted(len(names), "head")
    )
    data = {
        "title": title,
        "about": _about(result, distribution),
        "model": result.made.model_typed,
        "texts": [
            [
                text.number,
                text.place,
                text.window,
                text.first,
                [visible(token) for token in text.tokens],
            ]
            for text in distribution.texts
        ],
        "heads": [_head(result, head) for head in distribution.heads],
        "points": list(map(_by_place, distribution.points)),
        "said": {
            "relations": dict(words.RELATIONS) | dict(words.CLASSES),
            "criteria": {name: words.CRITERIA[name] for name in distribution.heads[0].deciles},
        },
        "reasons": [
            *(
                [f"No effects on the loss: {distribution.no_effect}."]
                if distribution.no_effect
                else [f"Effects on the loss are of {distribution.whole:,} rows drawn at random."]
            ),
            *(
                [f"Nothing is read out in tokens: {distribution.no_words}."]
                if distribution.no_words
                else []
            ),
            *map(str, result.notes),
        ],
        "palette": anchors(DEFAULT_PALETTE),
        "links": dict(links or {}),
        "closing": closing(result.source),
        "lines": lines(rows(result)),
    }
    headline = words.headline(names[0], distribution.heads[0].behaviours)
    return result_page(
        __package__,
        result,
        title=title,
        headline=headline,
        still=still(result, everything=True),
        data=data,
    )


def _about(result: Profile, distribution: records.Distribution) -> str:
    """Return what the page is of, in a line."""
    return " · ".join(
        [
            model_name(result.source),
            counted(result.texts, "text"),
            f"{counted(distribution.rows, 'row')}, "
            f"{distribution.sampled:,} of them looked at one by one",
            f"{distribution.whole:,} that can be shown",
        ]
    )


def _head(result: Profile, head: records.HeadDistribution) -> dict[str, Any]:
    return {
        "name": result.layout.name(head.head),
        "headline": words.headline(result.layout.name(head.head), head.behaviours),
        "roles": [role.title for role in result[head.head].scores.roles],
        "rows": [_by_place(row, digits=_DIGITS) for row in head.rows],
        "deciles": {
            name: [
                [_short(d.low), _short(d.high), d.rows, d.written and _short(d.written), d.examples]
                for d in several
            ]
            for name, several in head.deciles.items()
        },
        "rules": [
            {
                "where": words.when(leaf.path),
                "share": leaf.share,
                "rules": [[name, *_by_place(share)] for name, share in leaf.rules],
            }
            for leaf in head.behaviours.tree
        ],
        "shares": {name: _by_place(share) for name, share in head.behaviours.shares.items()},
        "unexplained": _by_place(head.behaviours.unexplained),
        "halves": [head.behaviours.found_on, head.behaviours.measured_on],
        "calibrations": [
            {
                "role": calibration.role,
                "holds": _by_place(calibration.holds),
                "possible": calibration.possible,
                "residue": [
                    [group.name, group.share, group.examples] for group in calibration.residue
                ],
            }
            for calibration in head.calibrations
        ],
        "classes": [_by_place(cell, digits=_DIGITS) for cell in head.classes],
        "pairs": list(map(_by_place, head.pairs)),
        "pairError": head.pair_error,
        "specific": list(map(_by_place, head.specific)),
        "unspecific": list(map(_by_place, head.unspecific)),
        "along": list(map(_by_place, head.along)),
        "planes": {
            name: [list(plane.kept), [[_short(x), _short(y)] for x, y in plane.points]]
            for name, plane in head.planes.items()
        },
        "decile": head.decile,
        "qk": list(map(_by_place, head.qk)),
        "ov": list(map(_by_place, head.ov)),
    }


def _by_place(record: Any, *, digits: int | None = None) -> list[Any]:
    """Return a record as ``types.d.ts`` has it: its fields by place, texts fit to be shown."""
    return [_shown(getattr(record, field.name), digits) for field in fields(record)]


def _shown(value: Any, digits: int | None) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, tuple) and value and isinstance(value[0], str):
        return list(map(visible, value))
    return rounded(value, digits) if digits is not None and isinstance(value, float) else value


def _short(value: float) -> float:
    return rounded(value, _DIGITS)
