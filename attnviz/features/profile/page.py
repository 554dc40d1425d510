"""Heads row by row as one offline page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        "points": [[visible(p.token), p.token_class, p.position] for p in distribution.points],
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
        "rows": [_row(row) for row in head.rows],
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
                "rules": [[name, *_share(share)] for name, share in leaf.rules],
            }
            for leaf in head.behaviours.tree
        ],
        "shares": {name: _share(share) for name, share in head.behaviours.shares.items()},
        "unexplained": _share(head.behaviours.unexplained),
        "halves": [head.behaviours.found_on, head.behaviours.measured_on],
        "calibrations": [
            {
                "role": calibration.role,
                "holds": _share(calibration.holds),
                "possible": calibration.possible,
                "residue": [
                    [group.name, group.share, group.examples] for group in calibration.residue
                ],
            }
            for calibration in head.calibrations
        ],
        "classes": [
            [cell.query, cell.key, _short(cell.weight), _short(cell.uniform), cell.rows]
            for cell in head.classes
        ],
        "pairs": [
            [visible(pair.query), visible(pair.key), pair.rows, pair.expected, pair.lift]
            for pair in head.pairs
        ],
        "pairError": head.pair_error,
        "specific": [[visible(t.text), t.weight, t.uniform] for t in head.specific],
        "unspecific": [[visible(t.text), t.weight, t.uniform] for t in head.unspecific],
        "along": [
            [s.first, s.last, s.rows, s.entropy, s.uniform_entropy, s.sink, s.uniform_sink]
            for s in head.along
        ],
        "planes": {
            name: [list(plane.kept), [[_short(x), _short(y)] for x, y in plane.points]]
            for name, plane in head.planes.items()
        },
        "decile": head.decile,
        "qk": list(map(_singular, head.qk)),
        "ov": list(map(_singular, head.ov)),
    }


def _row(row: records.SampledRow) -> list[Any]:
    """Return a row; what ``types.d.ts`` calls SampledRow, by place."""
    return [
        row.text,
        row.row,
        row.key,
        visible(row.key_token),
        _short(row.weight),
        None if row.norm is None else _short(row.norm),
        None if row.written is None else _short(row.written),
        None if row.effect is None else _short(row.effect),
        row.weights,
        row.relations,
        _texts(row.raises),
        _texts(row.lowers),
        None if row.next is None else visible(row.next),
        None if row.added is None else _short(row.added),
    ]


def _share(share: records.RowShare) -> list[Any]:
    return [share.value, share.rows, share.chance, share.low, share.high]


def _singular(direction: records.Singular) -> list[Any]:
    sides = (direction.first, direction.second, direction.first_other, direction.second_other)
    return [direction.value, direction.share, *map(_texts, sides)]


def _texts(tokens: Sequence[str]) -> list[str]:
    return [visible(token) for token in tokens]


def _short(value: float) -> float:
    """Four digits are more than anyone reads."""
    return rounded(value, 4)
