"""Results of other commands, attached to what heads do on a text.

``attnviz syntax`` and ``attnviz coref`` name heads that follow a dependency relation or find
antecedents. Such roles need gold annotation, so no text gives them; they come from a result. What
any result says of a head stands beside it (``description.py`` of its feature).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from attnviz.core.heads import Head, Layout
from attnviz.core.provenance import SourceInfo
from attnviz.core.result import Finding, Result
from attnviz.core.scores import Estimate, HeadScores, Role
from attnviz.drawing.renderable import Renderable
from attnviz.errors import InputError, UsageError
from attnviz.features.registry import read
from attnviz.files import name_of
from attnviz.scoring.roles import ANNOTATED

Roles = Mapping[Head, tuple[tuple[Role, Estimate], ...]]


@dataclass(frozen=True)
class Attached:
    """A result that stands beside others, and the name of its file."""

    name: str
    result: Result

    def finding(self) -> Finding | None:
        """Return what it says of every head; None where it says nothing of heads."""
        return self.result.finding(self.name) if isinstance(self.result, Renderable) else None


Evidence = str | Path | Result | Attached
"""A file with a result, the result itself, or what was read of either."""


def read_evidence(evidence: Evidence | Sequence[Evidence] | None) -> tuple[Attached, ...]:
    """Every result that is to be attached."""
    if evidence is None:
        return ()
    several = isinstance(evidence, Iterable) and not isinstance(evidence, str)
    return tuple(map(_attached, evidence if several else [evidence]))  # type: ignore[arg-type]


def attach(
    evidence: Evidence | Sequence[Evidence] | None,
    scores: Sequence[HeadScores],
    source: SourceInfo,
    layout: Layout,
    identity: Mapping[str, Any],
) -> tuple[tuple[HeadScores, ...], tuple[str, ...], tuple[Finding, ...]]:
    """Scores with the roles of results before their own, what to say of those, and all findings."""
    several = read_evidence(evidence)
    scored = tuple(scores)
    for attached in several:
        attached.result.check_model(attached.name, source, layout, identity)
        scored = with_roles(scored, attached.result.annotated_roles())
    findings = tuple(finding for source in several if (finding := source.finding()) is not None)
    return scored, tuple(notes(several, identity)), findings


def beside(result: Any, evidence: Evidence | Sequence[Evidence]) -> Any:
    """Put the roles and findings of other results beside what heads do on a text."""
    heads, more, findings = attach(
        evidence, result.heads, result.source, result.layout, result.identity
    )
    return replace(result, heads=heads, findings=findings, notes=(*result.notes, *more))


def given_roles(several: Sequence[Attached]) -> Roles:
    """Return the roles that results give to heads, of all of them together."""
    by_head: dict[Head, tuple[tuple[Role, Estimate], ...]] = {}
    for source in several:
        for head, roles in source.result.annotated_roles().items():
            by_head[head] = (*by_head.get(head, ()), *roles)
    return by_head


def with_roles(scores: Sequence[HeadScores], roles: Roles) -> tuple[HeadScores, ...]:
    """Scores of heads with these roles before their own, those first that have most margin."""
    annotated = []
    for given in scores:
        mine = [role for role, _ in roles.get(given.head, ())]
        mine += [role for role in given.roles if role.name in ANNOTATED]
        rest = [role for role in given.roles if role.name not in ANNOTATED]
        annotated.append(replace(given, roles=(*sorted(mine, key=_margin, reverse=True), *rest)))
    return tuple(annotated)


def notes(several: Sequence[Attached], identity: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a reader must know beside these roles, as full sentences."""
    some = [source for source in several if source.result.annotated_roles()]
    if some:
        names = " and ".join(source.name for source in some)
        halves = " and ".join(dict.fromkeys(source.result.measured_on for source in some))
        yield (
            f"Roles from {names} are from annotated text ({halves}), not from this one: their "
            "score is how often the head is right, their chance that of the best rule without "
            "attention."
        )
    for source in several:
        if source.result.measured_on and not source.result.annotated_roles():
            yield f"{source.name} gives no head a role."
        if not (source.result.identity and identity):
            yield f"Only the number of heads shows that {source.name} is of this model."


def _attached(evidence: Evidence) -> Attached:
    if isinstance(evidence, Attached):
        return evidence
    if isinstance(evidence, Result):
        return Attached(f"the {evidence.command} result", evidence)
    if not isinstance(evidence, str | Path):
        raise UsageError("{evidence} takes a file or a result, not {!r}", evidence, evidence=...)
    result = read(evidence)
    if not isinstance(result, Result):
        raise InputError(
            f"{evidence} holds no result about heads; give the JSON of a command that measures them"
        )
    return Attached(name_of(evidence), result)


def _margin(role: Role) -> float:
    """How far the score of a role is above what needs no attention."""
    return (role.evidence.mean or 0.0) - (role.evidence.chance or 0.0)
