"""Profiles as JSON and CSV. The JSON's schema is docs/profile.schema.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from attnviz.estimates import HeadProfile, Profile, Share
from attnviz.findings import findings_json
from attnviz.render.published import matching_json, sink_json
from attnviz.render.tables import Row, as_csv, head_cells, role_json

PROFILE_SCHEMA = "attnviz.profile/1"
_PARTS = ("mean", "low", "high", "chance", "lift", "rows", "texts")
_QUARTILES = ("q1", "median", "q3")
_FARTHEST = 32


def profile_json(profile: Profile) -> str:
    """A profile as JSON text."""
    info = profile.source
    document = {
        "schema": PROFILE_SCHEMA,
        "model": info.model,
        "backend": info.backend,
        "exactness": info.exactness,
        "reason": info.reason,
        "device": info.device,
        "dtype": info.dtype,
        "versions": dict(info.versions),
        "layout": {kind: list(heads) for kind, heads in profile.layout.heads.items()},
        "identity": dict(profile.identity),
        "quantity": profile.quantity,
        "files": list(profile.files),
        "texts": profile.texts,
        "windows": profile.windows,
        "tokens": profile.tokens,
        "clusters": {"unit": "group" if profile.grouped else "text", "count": profile.clusters},
        "interval": {
            "level": 0.95,
            "simultaneous": profile.simultaneous,
            "width": profile.width,
        },
        "bad": {
            "count": profile.bad_count,
            "first": [{"place": place, "reason": reason} for place, reason in profile.bad],
        },
        "empty_rows": profile.empty_rows,
        "seed": profile.seed,
        "notes": list(profile.notes),
        "published": {
            "sink_rate": sink_json(profile.sink_rate, profile.layout),
            "prefix_matching": matching_json(profile.matching, profile.layout),
        },
        **findings_json(profile.findings),
        "heads": [_head(profile, head) for head in profile.heads],
        "likeness": {
            "texts": profile.compared,
            "distances": {
                kind: [[_rounded(value) for value in row] for row in matrix.tolist()]
                for kind, matrix in profile.likeness.items()
                if profile.compared
            },
        },
    }
    return json.dumps(document, ensure_ascii=False, allow_nan=False)


def profile_csv(profile: Profile) -> str:
    """The estimates as CSV text, a line for each head and score."""
    return as_csv(profile_rows(profile))


def profile_rows(profile: Profile) -> list[Row]:
    """A row for each head and score; None for what is not known."""
    return [
        {
            **head_cells(found.scores),
            "score": name,
            **{part: getattr(estimate, part) for part in _PARTS},
            **dict(zip(_QUARTILES, estimate.quartiles or (None,) * 3, strict=True)),
        }
        for found in profile.heads
        for name, estimate in found.estimates.items()
    ]


def _head(profile: Profile, found: HeadProfile) -> dict[str, Any]:
    head = found.head
    return {
        "name": profile.layout.name(head),
        "site": head.site.kind,
        "layer": head.layer,
        "head": head.index,
        "does": role_json(found.scores.does),
        "rests": role_json(found.scores.rests),
        "roles": [role_json(role) for role in found.scores.roles],
        "scores": {name: asdict(estimate) for name, estimate in found.estimates.items()},
        "distances": [
            {"distance": place, **_share(share)}
            for place, share in enumerate(found.distances, start=-_FARTHEST - 1)
        ],
        "kinds": _shares(found.kinds),
        "tenths": [_share(share) for share in found.tenths],
        "tokens": [{"text": text, **_share(share)} for text, share in found.tokens],
        "examples": {
            role: [asdict(example) for example in examples]
            for role, examples in found.examples.items()
        },
        "nearest": [
            {"name": profile.layout.name(other), "distance": _rounded(apart)}
            for other, apart in found.nearest
        ],
        "plane": None if found.place is None else [_rounded(x) for x in found.place],
    }


def _shares(shares: Mapping[str, Share]) -> dict[str, dict[str, float]]:
    return {name: _share(share) for name, share in shares.items()}


def _share(share: Share) -> dict[str, float]:
    return {"weight": _rounded(share.weight), "uniform": _rounded(share.uniform)}


def _rounded(value: float) -> float:
    """To eight decimals: weights are float32."""
    return round(value, 8)
