"""The atlas: everything known about every head of a model, on one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from attnviz import files
from attnviz.core.heads import Head, Layout
from attnviz.core.result import COPYING, WITHOUT_IT, Measure
from attnviz.core.scores import Role
from attnviz.drawing.grid import SCHEMES, minus
from attnviz.drawing.html import still, table
from attnviz.drawing.labels import head_phrase, visible
from attnviz.drawing.palette import DEFAULT_PALETTE, anchors, ink
from attnviz.errors import OutputError, system_errors
from attnviz.features.atlas import description
from attnviz.features.atlas.gather import examples
from attnviz.features.atlas.result import Atlas, AtlasHead
from attnviz.features.circuits.result import Edge
from attnviz.features.coref.result import COREFERENCE, AntecedentHead
from attnviz.features.profile.page import page as head_page
from attnviz.features.profile.parts import Distribution, HeadDistribution
from attnviz.features.profile.result import HeadProfile, Profile
from attnviz.features.syntax.result import RelationHead
from attnviz.scoring.roles import ROLES, drawn
from attnviz.scoring.scores import SCORES
from attnviz.web.page import result_page


def page(atlas: Atlas, *, links: Mapping[str, str] | None = None) -> bytes:
    """Return the whole page, as UTF-8."""
    held = (role.name for head in atlas.heads for role in head.profile.scores.roles)
    data = {
        "atlas": _visible(document(atlas)),
        "roles": {
            role.name: {"color": role.color, "ink": ink(role.color), "code": role.code}
            for role in map(drawn, dict.fromkeys([*ROLES, *held]))
        },
        "scores": {score.name: score.formula for score in SCORES.values()},
        "palette": list(anchors(DEFAULT_PALETTE)),
        "copying": list(COPYING),
        "links": dict(links or {}),
        "signed": {scheme: list(colors) for scheme, colors in SCHEMES.items()},
    }
    return result_page(
        __package__,
        atlas,
        title=visible(atlas.title),
        still=still(atlas) + _heads(atlas),
        data=data,
    )


def _heads(atlas: Atlas) -> str:
    """Every head with its roles and what the loss is without it, where no script runs."""
    return table(
        ("head", "what it does", "loss without it"),
        (
            (
                atlas.layout.name(head.head),
                head_phrase(head.profile.scores.roles),
                "" if head.effect is None else description.change(head.effect),
            )
            for head in atlas.heads
        ),
    )


def document(atlas: Atlas) -> dict[str, Any]:
    """Return what the page's script draws, as js/types.d.ts says."""
    part, source = atlas.ablation, atlas.source
    ranks = {head.head: rank for rank, head in enumerate(atlas.ranked(), start=1)}
    metric = None if part is None else {
        "name": part.metric, "unit": part.unit, "distance": part.distance,
        "orange": 0 if part.distance else -part.worse,
        "ends": [] if part.distance else list(WITHOUT_IT),
    }  # fmt: skip
    return {
        "model": source.model,
        "backend": source.backend,
        "exactness": source.exactness,
        "summary": list(map(minus, description.summary(atlas))),
        "methods": [{"part": name, "said": text} for name, text in description.methods(atlas)],
        "notes": list(atlas.notes),
        "metric": metric,
        "cost": _minus(description.headline(atlas)),
        "findings": [{"title": finding.title, "name": finding.name} for finding in atlas.findings],
        "measures": [
            {
                "title": f"{measure.title}, {measure.unit}" if measure.unit else measure.title,
                "orange": measure.adverse,
                "ends": list(measure.ends),
            }
            for measure in _measures(atlas)
        ],
        "heads": [_head(atlas, head, ranks) for head in atlas.heads],
    }


def _minus(parts: dict[str, str] | None) -> dict[str, str] | None:
    """Return a headline's parts as the page puts them together: without spaces at their ends."""
    return (
        None if parts is None else {key: minus(text).strip() for key, text in parts.items() if text}
    )


def _measures(atlas: Atlas) -> list[Measure]:
    """Return the numbers that other results give of the heads."""
    return [measure for finding in atlas.findings for measure in finding.measures]


def _head(atlas: Atlas, head: AtlasHead, ranks: Mapping[Head, int]) -> dict[str, Any]:
    profile, name = head.profile, atlas.layout.name
    middle = len(profile.distances) // 2
    copying = None if head.copying is None else {
        key: None if figure is None else figure.score
        for key, figure in (("plain", head.plain), ("first", head.first))
    }  # fmt: skip
    return {
        "name": name(head.head),
        "site": head.head.site.kind,
        "layer": head.head.layer,
        "head": head.head.index,
        "does": _role(profile.scores.does),
        "rests": _role(profile.scores.rests),
        "scores": {score: to_builtins(estimate) for score, estimate in profile.estimates.items()},
        "strings": [{"text": text, **to_builtins(share)} for text, share in profile.tokens],
        "distances": [
            {"distance": n - middle, **to_builtins(share)}
            for n, share in enumerate(profile.distances)
        ],
        "nearest": [{"name": name(near), "distance": far} for near, far in profile.nearest],
        "usual": atlas.usual.get(head.head.site.kind),
        "stays": _stays(atlas, profile),
        "examples": [{"score": score, **to_builtins(row)} for score, row in examples(profile)],
        "effect": _effect(head, ranks),
        "relations": [_relation(relation) for relation in head.relations],
        "coreference": _antecedents(head),
        "copying": copying,
        "copies": head.copies,
        "feeds": [_edge(atlas, edge) for edge in head.feeds],
        "reads": [_edge(atlas, edge) for edge in head.reads],
        "told": [
            [*map(minus, finding.said.get(name(head.head), ()))] for finding in atlas.findings
        ],
        "measured": [measure.values.get(name(head.head)) for measure in _measures(atlas)],
        "map": None if head.map is None else to_builtins(head.map),
    }


def _stays(atlas: Atlas, profile: HeadProfile) -> dict[str, Any] | None:
    """In how many draws of the texts its role and its nearest head stay."""
    stability = profile.stability
    if stability is None:
        return None
    role, near = profile.scores.does, dict(stability.nearest)
    return {
        "of": atlas.resamples,
        "does": None if role is None else stability.roles.get(role.title, 0),
        "nearest": near.get(profile.nearest[0][0], 0) if profile.nearest else None,
    }


def _role(role: Role | None) -> dict[str, Any] | None:
    if role is None:
        return None
    evidence = {key: getattr(role.evidence, key) for key in ("mean", "chance", "rows")}
    return {"name": role.name, "score": role.score, "possible": role.possible, **evidence}


def _effect(head: AtlasHead, ranks: Mapping[Head, int]) -> dict[str, Any] | None:
    effect = head.effect
    return None if effect is None else {
        "effect": effect.change,
        "low": effect.first.joint_low,
        "high": effect.first.joint_high,
        "rank": ranks[head.head],
        "needed": head.needed,
    }  # fmt: skip


def _relation(relation: RelationHead) -> dict[str, Any]:
    return {
        "relation": relation.relation,
        "direction": relation.direction,
        **_accuracy(relation),
        "offset_accuracy": relation.offset_accuracy,
        "margin": relation.margin.value,
    }


def _antecedents(head: AtlasHead) -> dict[str, Any] | None:
    """How often it finds them, where that is its role."""
    antecedents = head.antecedents
    if antecedents is None or not head.has_role(COREFERENCE):
        return None
    return {
        **_accuracy(antecedents),
        "baseline": antecedents.baseline,
        "baseline_accuracy": antecedents.baseline_accuracy,
    }


def _accuracy(head: RelationHead | AntecedentHead) -> dict[str, Any]:
    """How often a head is right."""
    share = head.accuracy
    return {"accuracy": share.value, "low": share.low, "high": share.high, "count": head.count}


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
    """Return what the writer was measured to add to the reader's queries or keys."""
    shares, share = atlas[edge.reader].shares, atlas.share_of(edge)
    if shares is None or share is None:
        return None
    ends = {"share": share.share, "low": share.low, "high": share.high}
    return ends | {"score": shares.score or None, "rows": shares.rows, "texts": shares.texts}


def _visible(value: Any) -> Any:
    """Return the same values with every string fit to be shown."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {key: _visible(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_visible(item) for item in value]
    return value


INDEX = "index.html"


def selection(layout: Layout) -> str | None:
    """Give heads that have a page: those of the first stack whose queries and keys are one text."""
    kinds = [kind for kind in layout.kinds if kind != "cross"]
    if not kinds:
        return None
    return ", ".join(layout.name(head) for head in layout if head.site.kind == kinds[0])


def address(layout: Layout, head: Head) -> str:
    """Return the file of a head's page."""
    return f"{layout.name(head).replace(':', '-').replace('*', 'all')}.html"


def write(atlas: Atlas, profile: Profile, folder: Path) -> tuple[Path, ...]:
    """Write every page."""
    with system_errors(OutputError, f"cannot write into {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    distribution, layout = profile.distribution, atlas.layout
    several: Sequence[HeadDistribution] = () if distribution is None else distribution.heads
    links = {layout.name(head.head): address(layout, head.head) for head in several}
    paths = [folder / INDEX]
    files.write(folder / INDEX, page(atlas, links=links))
    for n, head in enumerate(several):
        assert distribution is not None
        name = layout.name(head.head)
        beside = dict(_beside(layout, several, n))
        of_head = replace(profile, distribution=_alone(distribution, head))
        path = folder / links[name]
        files.write(path, head_page(of_head, links={"all heads": f"{INDEX}#{name}", **beside}))
        paths.append(path)
    return tuple(paths)


def _beside(
    layout: Layout, several: Sequence[HeadDistribution], n: int
) -> Iterator[tuple[str, str]]:
    """Yield the pages of the heads before and after one."""
    if n:
        yield f"← {layout.name(several[n - 1].head)}", address(layout, several[n - 1].head)
    if n + 1 < len(several):
        yield f"{layout.name(several[n + 1].head)} →", address(layout, several[n + 1].head)


def _alone(distribution: Distribution, head: HeadDistribution) -> Distribution:
    """One head with the texts that its rows are of."""
    numbers = {text: n for n, text in enumerate(sorted({row.text for row in head.rows}))}
    rows = tuple(replace(row, text=numbers[row.text]) for row in head.rows)
    texts = tuple(distribution.texts[text] for text in numbers)
    return replace(distribution, heads=(replace(head, rows=rows),), texts=texts)
