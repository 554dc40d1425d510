"""What other commands found out about a model, laid beside what heads do on a text.

The JSON of ``attnviz syntax`` and ``attnviz coref`` names heads that follow a dependency relation
or find antecedents. Such roles need gold annotation, so no text gives them; they come from a file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from attnviz.annotated import SYNTAX_SCHEMA, SyntaxReport
from attnviz.annotated.coref import COREF_SCHEMA, CorefReport
from attnviz.corpus import lines
from attnviz.errors import InputError, UsageError
from attnviz.estimates import Estimate, Profile
from attnviz.records import HeadScores, Layout, Role, Score, SourceInfo
from attnviz.scoring.roles import ANNOTATED

Evidence = str | Path | SyntaxReport | CorefReport
"""A file with the JSON of a report, or the report itself."""

_ROLE = re.compile(r"(syntactic|coreference)(?:: ([\w:.-]{1,40}))?")
SCORE = "accuracy"


@dataclass(frozen=True)
class Given:
    """The roles of one result, and whose they are.

    Attributes:
        name: of the file.
        model: as it was named there; ``identity`` what tells it from others.
        identity: see :mod:`attnviz.models.identity`; empty where that is not known.
        heads: how many each layer has, by kind of layer.
        measured_on: documents that the figures are from, in words.
        roles: of each head, by its name; ``estimates`` the same with intervals, by the role's
            title.
        estimates: see ``roles``.
    """

    name: str
    model: str
    identity: Mapping[str, Any]
    heads: Mapping[str, Sequence[int]]
    measured_on: str
    roles: Mapping[str, tuple[Role, ...]]
    estimates: Mapping[str, Mapping[str, Estimate]]

    def check(self, source: SourceInfo, layout: Layout, identity: Mapping[str, Any]) -> None:
        """Refuse what was measured on another model.

        Raises:
            UsageError: the files of the models differ, or their heads do.
        """
        known = bool(self.identity and identity)
        same = {kind: list(counts) for kind, counts in layout.heads.items()} == dict(self.heads)
        if same and (not known or dict(self.identity) == dict(identity)):
            return
        if self.model == source.model:
            why = f"other {'weights' if same else 'heads'} under the name {self.model}"
        else:
            why = f"{self.model}, and this is {source.model}"
        raise UsageError(f"{self.name} is of {why}; what was measured holds for that model alone")

    def added(self, scores: Sequence[HeadScores], layout: Layout) -> tuple[HeadScores, ...]:
        """Scores of heads with these roles before their own, those first that have most margin."""
        found = []
        for one in scores:
            mine = [*self.roles.get(layout.name(one.head), ())]
            mine += [role for role in one.roles if role.name in ANNOTATED]
            rest = [role for role in one.roles if role.name not in ANNOTATED]
            found.append(replace(one, roles=(*sorted(mine, key=_margin, reverse=True), *rest)))
        return tuple(found)


def _margin(role: Role) -> float:
    """How far the score of a role is above what needs no attention."""
    return (role.evidence.mean or 0.0) - (role.evidence.chance or 0.0)


def _notes(several: Sequence[Given], identity: Mapping[str, Any]) -> Iterator[str]:
    """What a reader must know beside these roles, as full sentences."""
    some = [one for one in several if one.roles]
    if some:
        names = " and ".join(one.name for one in some)
        halves = " and ".join(dict.fromkeys(one.measured_on for one in some))
        yield (
            f"Roles from {names} are from annotated text ({halves}), not from this one: their "
            "score is how often the head is right, their chance that of the best rule without "
            "attention."
        )
    for one in several:
        if not one.roles:
            yield f"{one.name} gives no head a role."
        if not (one.identity and identity):
            yield f"That {one.name} is of this model was checked by its heads alone."


def read_given(evidence: Evidence | Sequence[Evidence] | None) -> tuple[Given, ...]:
    """Every result that was given.

    Raises:
        InputError: a file that cannot be read, or is no such result.
    """
    if evidence is None:
        return ()
    single = isinstance(evidence, str | Path | SyntaxReport | CorefReport)
    return tuple(map(_given, [evidence] if single else evidence))  # type: ignore[arg-type]


def laid(
    evidence: Evidence | Sequence[Evidence] | None,
    scores: tuple[HeadScores, ...],
    source: SourceInfo,
    layout: Layout,
    identity: Mapping[str, Any],
) -> tuple[tuple[HeadScores, ...], tuple[str, ...]]:
    """Scores with the roles of other results before their own, and what to say of those.

    Args:
        evidence: the results.
        scores: of heads.
        source: where the scores come from.
        layout: the heads of the model.
        identity: of the model; empty where it is not known.

    Raises:
        InputError: see :func:`read_given`; UsageError: a result of another model.
    """
    several = read_given(evidence)
    for one in several:
        one.check(source, layout, identity)
        scores = one.added(scores, layout)
    return scores, tuple(_notes(several, identity))


def laid_in(
    evidence: Evidence | Sequence[Evidence] | None, profile: Profile, identity: Mapping[str, Any]
) -> tuple[Profile, tuple[str, ...]]:
    """The same for a profile, whose roles have intervals."""
    several = read_given(evidence)
    heads = profile.heads
    for one in several:
        one.check(profile.source, profile.layout, identity)
        scored = one.added([found.scores for found in heads], profile.layout)
        heads = tuple(
            replace(
                found,
                scores=scores,
                estimates={
                    **found.estimates,
                    **one.estimates.get(profile.layout.name(found.head), {}),
                },
            )
            for found, scores in zip(heads, scored, strict=True)
        )
    return replace(profile, heads=heads), tuple(_notes(several, identity))


def _given(evidence: Evidence) -> Given:
    if isinstance(evidence, SyntaxReport | CorefReport):
        return _read("the report", evidence.to_json())
    name = str(evidence)
    try:
        found = json.loads(lines.text(name))
    except ValueError as error:
        raise InputError(f"{name} is no JSON: {error}") from None
    try:
        return _read(name, found)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{name} is damaged ({' '.join(str(error).split())[:80]}); measure again"
        ) from None


def _read(name: str, found: Any) -> Given:
    schema = found.get("schema") if isinstance(found, dict) else None
    if schema not in (SYNTAX_SCHEMA, COREF_SCHEMA):
        holds = f"a result of {schema}" if schema else "no result of attnviz"
        raise InputError(f"{name} is {holds}; give the JSON of attnviz syntax or attnviz coref")
    roles: dict[str, list[Role]] = {}
    estimates: dict[str, dict[str, Estimate]] = {}
    for one in found["roles"]:
        role, estimate = _role(one)
        roles.setdefault(str(one["head"]), []).append(role)
        estimates.setdefault(str(one["head"]), {})[role.title] = estimate
    return Given(
        Path(name).name,
        str(found["model"]),
        dict(found["identity"]),
        {kind: [int(n) for n in counts] for kind, counts in found["layout"].items()},
        str(found["measured_on"]),
        {head: tuple(some) for head, some in roles.items()},
        estimates,
    )


def _role(one: Mapping[str, Any]) -> tuple[Role, Estimate]:
    match = _ROLE.fullmatch(one["role"])
    if match is None:
        raise ValueError(f"a role {str(one['role'])[:40]!r}")
    accuracy, count = float(one["accuracy"]), int(one["count"])
    base = max(accuracy - float(one["margin"]), 0.0)
    lift = accuracy / base if base else None
    evidence = Score(accuracy, base, lift, count)
    role = Role(match[1], SCORE, evidence, few_rows=False, of=match[2] or "")
    low, high = (one.get(f"accuracy_{end}", one.get(end)) for end in ("low", "high"))
    return role, Estimate(accuracy, base, lift, count, 0, low, high)
