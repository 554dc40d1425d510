"""What other commands found out about a model, laid beside what heads do on a text.

The JSON of ``attnviz syntax`` and ``attnviz coref`` names heads that follow a dependency relation
or find antecedents. Such roles need gold annotation, so no text gives them; they come from a file.
That of ``ablate``, ``profile`` and ``logits`` says what heads cost, do elsewhere, and write.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

from attnviz.annotated import SyntaxReport
from attnviz.annotated.coref import CorefReport
from attnviz.corpus import lines
from attnviz.effects import AblationReport
from attnviz.errors import InputError, UsageError
from attnviz.estimates import Estimate, Profile
from attnviz.findings import Finding
from attnviz.found import SCHEMAS, finding
from attnviz.records import HeadScores, Layout, Role, Score, SourceInfo
from attnviz.render.profile_tables import profile_json
from attnviz.scoring.roles import ANNOTATED
from attnviz.votes import LogitsReport

Reported = SyntaxReport | CorefReport | AblationReport | LogitsReport

_GIVES_ROLES = ("syntax", "coref")

_GIVE = "give the JSON of attnviz ablate, coref, logits, profile or syntax"

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
        finding: all that it says, head by head.
    """

    name: str
    model: str
    identity: Mapping[str, Any]
    heads: Mapping[str, Sequence[int]]
    measured_on: str
    roles: Mapping[str, tuple[Role, ...]]
    estimates: Mapping[str, Mapping[str, Estimate]]
    finding: Finding

    def called(self, name: str) -> Given:
        """The same under another name."""
        return replace(self, name=name, finding=replace(self.finding, name=name))

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


Evidence = str | Path | Reported | Profile | Given
"""A file with the JSON of a report, one that ``profile`` keeps, the report itself, or what was read
of either."""


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
        if not one.roles and one.finding.part in _GIVES_ROLES:
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
    single = isinstance(evidence, Evidence)
    return tuple(map(_given, [evidence] if single else evidence))  # type: ignore[arg-type]


def laid(
    evidence: Evidence | Sequence[Evidence] | None,
    scores: tuple[HeadScores, ...],
    source: SourceInfo,
    layout: Layout,
    identity: Mapping[str, Any],
) -> tuple[tuple[HeadScores, ...], tuple[str, ...], tuple[Finding, ...]]:
    """Scores with the roles of other results before their own, what to say of those, and all else.

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
    found = tuple(one.finding for one in several)
    return scores, tuple(_notes(several, identity)), found


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
    found = tuple(one.finding for one in several)
    return replace(profile, heads=heads, findings=found), tuple(_notes(several, identity))


def _given(evidence: Evidence) -> Given:
    if isinstance(evidence, Given):
        return evidence
    if isinstance(evidence, Reported):
        return _read("the report", evidence.to_json())
    if isinstance(evidence, Profile):
        return _read("the profile", json.loads(profile_json(evidence)))
    name = str(evidence)
    if is_zipfile(name):  # what attnviz profile keeps
        from attnviz.profiling import saved
        from attnviz.profiling.summary import summarize

        return _read(name, json.loads(profile_json(summarize(saved.read(Path(name))))))
    try:
        found = json.loads(lines.text(name))
    except ValueError:
        raise InputError(f"{name} is no JSON; {_GIVE}") from None
    try:
        return _read(name, found)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{name} is damaged ({' '.join(str(error).split())[:80]}); measure again"
        ) from None


def _read(name: str, found: Any) -> Given:
    schema = found.get("schema") if isinstance(found, dict) else None
    if schema not in SCHEMAS:
        holds = f"a result of {schema}" if schema else "no result of attnviz"
        raise InputError(f"{name} is {holds}; {_GIVE}")
    short = Path(name).name
    told = finding(short, found)
    roles: dict[str, list[Role]] = {}
    estimates: dict[str, dict[str, Estimate]] = {}
    for one in found["roles"] if told.part in _GIVES_ROLES else ():
        role, estimate = _role(one)
        roles.setdefault(str(one["head"]), []).append(role)
        estimates.setdefault(str(one["head"]), {})[role.title] = estimate
    return Given(
        short,
        str(found["model"]),
        dict(found.get("identity", {})),
        _layout(found),
        str(found.get("measured_on", "")),
        {head: tuple(some) for head, some in roles.items()},
        estimates,
        told,
    )


def _layout(found: Mapping[str, Any]) -> dict[str, list[int]]:
    """How many heads each layer has; profiles of older versions name the heads alone."""
    if "layout" in found:
        return {kind: [int(n) for n in counts] for kind, counts in found["layout"].items()}
    counts: dict[str, list[int]] = {}
    for head in found["heads"]:
        layers = counts.setdefault(head["site"], [])
        layers += [0] * (int(head["layer"]) + 1 - len(layers))
        layers[int(head["layer"])] += 1
    return counts


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
