"""The atlas: everything known about every head of a model, on one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import to_builtins

from attnviz.core.findings import Measure
from attnviz.core.heads import Head
from attnviz.core.scores import Role
from attnviz.drawing.labels import visible
from attnviz.drawing.palette import DEFAULT_PALETTE, anchors, ink
from attnviz.drawing.signed import SCHEMES
from attnviz.features.atlas import words
from attnviz.features.atlas.gather import examples
from attnviz.features.atlas.result import Atlas, AtlasHead
from attnviz.features.circuits.result import Edge
from attnviz.features.coref.result import COREFERENCE, AntecedentHead
from attnviz.features.profile.result import HeadProfile
from attnviz.features.syntax.result import RelationHead
from attnviz.scoring.roles import ROLES, drawn
from attnviz.scoring.scores import SCORES
from attnviz.web.page import html_page, parts, safe_json


def page(atlas: Atlas) -> bytes:
    """The whole page, as UTF-8."""
    template, style, script = parts(__package__, "main")
    data = {
        "atlas": _visible(document(atlas)),
        "roles": {
            role.name: {"color": role.color, "ink": ink(role.color), "code": role.code}
            for role in map(drawn, dict.fromkeys([*ROLES, *_roles(atlas)]))
        },
        "scores": {score.name: score.formula for score in SCORES.values()},
        "palette": list(anchors(DEFAULT_PALETTE)),
        "signed": {scheme: list(colors) for scheme, colors in SCHEMES.items()},
    }
    return html_page(
        template,
        title=visible(atlas.title),
        style=style,
        script=script,
        data=safe_json(data),
    )


def _roles(atlas: Atlas) -> Iterator[str]:
    """The names of the roles that its heads have."""
    for one in atlas.heads:
        yield from (role.name for role in one.profile.scores.roles)


def document(atlas: Atlas) -> dict[str, Any]:
    """What the page's script draws, as js/types.d.ts says."""
    part, source = atlas.ablation, atlas.source
    ranks = {one.head: rank for rank, one in enumerate(atlas.ranked(), start=1)}
    metric = None if part is None else {
        "name": part.metric, "unit": part.unit, "distance": part.distance
    }  # fmt: skip
    return {
        "model": source.model,
        "backend": source.backend,
        "exactness": source.exactness,
        "summary": list(words.summary(atlas)),
        "methods": [{"part": name, "said": said} for name, said in words.methods(atlas)],
        "notes": list(atlas.notes),
        "metric": metric,
        "findings": [{"title": one.title, "name": one.name} for one in atlas.findings],
        "measures": [
            {
                "title": f"{measure.title}, {measure.unit}" if measure.unit else measure.title,
                "signed": bool(measure.orange),
            }
            for measure in _measures(atlas)
        ],
        "heads": [_head(atlas, one, ranks) for one in atlas.heads],
    }


def _measures(atlas: Atlas) -> list[Measure]:
    """The numbers that other results give of the heads."""
    return [measure for one in atlas.findings for measure in one.measures]


def _head(atlas: Atlas, one: AtlasHead, ranks: Mapping[Head, int]) -> dict[str, Any]:
    profile, name = one.profile, atlas.layout.name
    middle = len(profile.distances) // 2
    copying = None if one.copying is None else {
        key: None if found is None else found.score
        for key, found in (("plain", one.plain), ("first", one.first))
    }  # fmt: skip
    return {
        "name": name(one.head),
        "site": one.head.site.kind,
        "layer": one.head.layer,
        "head": one.head.index,
        "does": _role(profile.scores.does),
        "rests": _role(profile.scores.rests),
        "scores": {score: to_builtins(estimate) for score, estimate in profile.estimates.items()},
        "strings": [{"text": text, **to_builtins(share)} for text, share in profile.tokens],
        "distances": [
            {"distance": place - middle, **to_builtins(share)}
            for place, share in enumerate(profile.distances)
        ],
        "nearest": [{"name": name(other), "distance": apart} for other, apart in profile.nearest],
        "usual": atlas.usual.get(one.head.site.kind),
        "stays": _stays(atlas, profile),
        "examples": [{"score": score, **to_builtins(row)} for score, row in examples(profile)],
        "effect": _effect(one, ranks),
        "relations": [_relation(found) for found in one.relations],
        "coreference": _antecedents(one),
        "copying": copying,
        "copies": one.copies,
        "feeds": [_edge(atlas, edge) for edge in one.feeds],
        "reads": [_edge(atlas, edge) for edge in one.reads],
        "told": [found.said.get(name(one.head), ()) for found in atlas.findings],
        "measured": [measure.values.get(name(one.head)) for measure in _measures(atlas)],
        "map": None if one.map is None else to_builtins(one.map),
    }


def _stays(atlas: Atlas, profile: HeadProfile) -> dict[str, Any] | None:
    """In how many draws of the texts its role and its nearest head stay."""
    found = profile.stability
    if found is None:
        return None
    does, near = profile.scores.does, dict(found.nearest)
    return {
        "of": atlas.resamples,
        "does": None if does is None else found.roles.get(does.title, 0),
        "nearest": near.get(profile.nearest[0][0], 0) if profile.nearest else None,
    }


def _role(role: Role | None) -> dict[str, Any] | None:
    if role is None:
        return None
    evidence = {key: getattr(role.evidence, key) for key in ("mean", "chance", "rows")}
    return {"name": role.name, "score": role.score, "possible": role.possible, **evidence}


def _effect(one: AtlasHead, ranks: Mapping[Head, int]) -> dict[str, Any] | None:
    found = one.effect
    return None if found is None else {
        "effect": found.change,
        "low": found.first.joint_low,
        "high": found.first.joint_high,
        "gradient": found.gradient,
        "rank": ranks[one.head],
        "needed": one.needed,
    }  # fmt: skip


def _relation(found: RelationHead) -> dict[str, Any]:
    return {
        "relation": found.relation,
        "direction": found.direction,
        **_accuracy(found),
        "offset_accuracy": found.offset_accuracy,
        "margin": found.margin.value,
    }


def _antecedents(one: AtlasHead) -> dict[str, Any] | None:
    """How often it finds them, where that is its role."""
    found = one.antecedents
    if found is None or not one.has_role(COREFERENCE):
        return None
    return {
        **_accuracy(found),
        "baseline": found.baseline,
        "baseline_accuracy": found.baseline_accuracy,
    }


def _accuracy(found: RelationHead | AntecedentHead) -> dict[str, Any]:
    """How often a head is right."""
    share = found.accuracy
    return {"accuracy": share.value, "low": share.low, "high": share.high, "count": found.count}


def _edge(atlas: Atlas, edge: Edge) -> dict[str, Any]:
    name = atlas.layout.name
    return {
        "side": edge.side,
        "writer": name(edge.writer),
        "reader": name(edge.reader),
        "ratio": edge.ratio,
        "excess": edge.excess,
        "measured": _measured(atlas, edge),
    }


def _measured(atlas: Atlas, edge: Edge) -> dict[str, Any] | None:
    """What the writer was measured to add to the reader's queries or keys."""
    shares, found = atlas[edge.reader].shares, atlas.share_of(edge)
    if shares is None or found is None:
        return None
    ends = {"share": found.share, "low": found.low, "high": found.high}
    return ends | {"score": shares.score or None, "rows": shares.rows, "texts": shares.texts}


def _visible(value: Any) -> Any:
    """The same values with every string fit to be shown."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {key: _visible(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_visible(one) for one in value]
    return value
