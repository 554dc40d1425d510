"""Reports as JSON and CSV, for other programs. The JSON's schema is docs/heads.schema.json."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from attnviz.findings import findings_json
from attnviz.records import HeadScores, HeadsReport, Mixing, ModelEntry, Role, Score, Tokens
from attnviz.render.published import matching_json

HEADS_SCHEMA = "attnviz.heads/1"
MODELS_SCHEMA = "attnviz.models/1"

_NAMES = ("site", "layer", "head", "does", "rests", "roles")

Row = dict[str, Any]
"""A line of a table: values by the names of their columns."""


def heads_json(report: HeadsReport, heads: Sequence[HeadScores]) -> str:
    """A report as JSON text; ``heads`` are the ones to list, in that order."""
    info = report.source
    probed = {scores.head: scores for scores in report.probe}
    document = {
        "schema": HEADS_SCHEMA,
        "model": info.model,
        "backend": info.backend,
        "exactness": info.exactness,
        "reason": info.reason,
        "device": info.device,
        "dtype": info.dtype,
        "versions": dict(info.versions),
        "quantity": report.quantity,
        "tokens": {
            kind: {"queries": _tokens(sides.queries), "keys": _tokens(sides.keys)}
            for kind, sides in report.inputs.sides.items()
        },
        "empty_rows": report.empty_rows,
        "notes": list(report.notes),
        **({"mixing": [_mixing(one) for one in report.mixing]} if report.mixing else {}),
        **(
            {"prefix_matching": matching_json(report.matching, report.layout)}
            if report.matching
            else {}
        ),
        **findings_json(report.findings),
        "heads": [
            {
                "name": report.layout.name(scores.head),
                "site": scores.head.site.kind,
                "layer": scores.head.layer,
                "head": scores.head.index,
                **_scores(scores),
                **({"probe": _scores(probed[scores.head])} if scores.head in probed else {}),
            }
            for scores in heads
        ],
    }
    return json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False)


def heads_csv(report: HeadsReport, heads: Sequence[HeadScores]) -> str:
    """A report as CSV text, a line a head: four columns for each score, empty where undefined."""
    return as_csv(head_rows(heads), _NAMES)


def head_rows(heads: Sequence[HeadScores]) -> list[Row]:
    """A row a head: four columns for each score, None where undefined."""
    return [
        {
            **head_cells(scores),
            "roles": " ".join(role.title.replace(" ", "") for role in scores.roles),
            **{
                f"{name}.{part}": getattr(score, part)
                for name, score in scores.scores.items()
                for part in ("mean", "chance", "lift", "rows")
            },
        }
        for scores in heads
    ]


def head_cells(scores: HeadScores) -> Row:
    """Which head it is, what it does and where it rests."""
    head = scores.head
    return {
        "site": head.site.kind,
        "layer": head.layer,
        "head": head.index,
        "does": scores.does.title if scores.does else None,
        "rests": scores.rests.name if scores.rests else None,
    }


def as_csv(rows: Sequence[Row], columns: Sequence[str] = ()) -> str:
    """Rows as CSV text under a line of their names; empty cells for what is not known.

    Args:
        rows: with the same names all.
        columns: the names, where there may be no row.
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]) if rows else columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def models_json(models: Sequence[ModelEntry]) -> str:
    """The models on this machine as JSON text; sizes in bytes."""
    document = {"schema": MODELS_SCHEMA, "models": [asdict(model) for model in models]}
    return json.dumps(document, ensure_ascii=False, indent=2)


def _scores(scores: HeadScores) -> dict[str, Any]:
    return {
        "does": role_json(scores.does),
        "rests": role_json(scores.rests),
        "roles": [role_json(role) for role in scores.roles],
        "scores": {name: _score(score) for name, score in scores.scores.items()},
    }


def role_json(role: Role | None) -> dict[str, Any] | None:
    """A role and its evidence as JSON values."""
    if role is None:
        return None
    return {
        "name": role.title,
        "score": role.score,
        **_score(role.evidence),
        "possible": role.possible,
        "few_rows": role.few_rows,
        "rival": None if role.rival is None else asdict(role.rival),
    }


def _mixing(mixing: Mixing) -> dict[str, Any]:
    return {
        "site": mixing.site.kind,
        "layer": mixing.site.layer,
        "rows": mixing.rows,
        "weights": mixing.layer_weights,
        "written": mixing.layer,
        "heads": {"weights": list(mixing.weights), "written": list(mixing.norms)},
    }


def _score(score: Score) -> dict[str, float | int | None]:
    return asdict(score)


def _tokens(tokens: Tokens) -> list[dict[str, Any]]:
    ids: Sequence[int | None] = tokens.ids or (None,) * len(tokens)
    return [
        {"text": text, "id": number, "special": special}
        for text, number, special in zip(tokens.texts, ids, tokens.special, strict=True)
    ]
