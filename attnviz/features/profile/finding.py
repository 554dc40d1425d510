"""What a profile says of every head: beside others, and to compare two runs by."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.core.findings import Figures, Finding, Measure
from attnviz.core.provenance import called
from attnviz.core.scores import Role
from attnviz.drawing.labels import counted, percent, role_name, said_alone, visible
from attnviz.features.profile.parts import Behaviours
from attnviz.features.profile.result import HeadProfile, Profile
from attnviz.features.profile.words import RELATIONS
from attnviz.scoring.scores import SCORES

_STRINGS = 3
"""Token strings that a head is told of."""


def finding(result: Profile, name: str) -> Finding:
    """What every head does over many texts."""
    heads = {result.layout.name(head.head): head for head in result.heads}
    unit = "group" if result.grouped else "text"
    at_once = " for all heads and scores at once" * result.simultaneous
    norms = "" if result.quantity == "weights" else f" Not weights: {result.quantity}."
    how = (
        f"{counted(result.texts, 'text')} ({counted(result.tokens, 'token')}) from "
        f"{', '.join(map(called, result.files))}; "
        f"95 % intervals over {counted(result.clusters, unit)}{at_once}.{norms}"
    )
    said = {head: _habits(profile) for head, profile in heads.items()}
    return Finding.of("profile", name, "Over many texts", how, said, _measures(heads))


def _measures(heads: dict[str, HeadProfile]) -> Iterator[Measure]:
    """Every score."""
    for score, kind in SCORES.items():
        values = {
            head: (estimate.mean, estimate.low, estimate.high)
            for head, profile in heads.items()
            if (estimate := profile.estimates.get(score)) and estimate.mean is not None
        }
        title = f"{score.replace('_', ' ')} over texts"
        yield Measure(score, title, "" if kind.unit == "share" else kind.unit, 0, values)


def _explained(behaviours: Behaviours) -> dict[str, float | None]:
    """The share of rows that each rule explains, none of those that no rule was found for."""
    shares = {name: share.value for name, share in behaviours.shares.items()}
    explained = {f"rule {name}": shares.get(name, 0.0) for name in RELATIONS}
    return explained | {"no rule": behaviours.unexplained.value}


def _habits(head: HeadProfile) -> Iterator[str]:
    """What a head does, where it rests, and the strings with most of its weight."""
    scores = head.scores
    for verb, role in (("does", scores.does), ("sink:", scores.rests)):
        if role is not None:
            yield _habit(head, verb, role)
    if scores.does is None and scores.rests is None:
        yield "no role"
    strings = [
        f"{said_alone(visible(text))} {percent(share.weight)} (uniform {percent(share.uniform)})"
        for text, share in head.tokens[:_STRINGS]
    ]
    if strings:
        yield f"most weight on {', '.join(strings)}"


def _habit(head: HeadProfile, verb: str, role: Role) -> str:
    estimate = head.evidence(role)
    kind = f"is {role.title}" if role.name == "diffuse" else f"{verb} {role_name(role)}"
    where = "" if role.possible is None else f" where possible ({percent(role.possible)} of rows)"
    ends = (
        ""
        if estimate.low is None or estimate.high is None
        else f" [{estimate.low:.2f}, {estimate.high:.2f}]"
    )
    chance = "" if estimate.chance is None else f", chance {estimate.chance:.2g}"
    return (
        f"{kind} {estimate.mean or 0:.2f}{ends}{where}: {counted(estimate.rows, 'row')} of "
        f"{counted(estimate.texts, 'text')}{chance}"
    )


def figures(result: Profile) -> Figures:
    """The mean of every score, and the roles; of selected heads the rows by rule."""
    heads = {result.layout.name(head.head): head for head in result.heads}
    ruled = {
        result.layout.name(selected.head): _explained(selected.behaviours)
        for selected in ([] if result.distribution is None else result.distribution.heads)
    }
    return Figures(
        {
            name: {key: e.mean for key, e in head.estimates.items()} | ruled.get(name, {})
            for name, head in heads.items()
        },
        {name: frozenset(role.name for role in head.scores.roles) for name, head in heads.items()},
        {"quantity": result.quantity},
    )
