"""Roles: what a head can be called, and the evidence that takes. One table.

A role rests on the mean of one score and its lift over chance. The thresholds are conventions with
a reason, not tests of significance; docs/roles.md says what they cannot prove.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from attnviz.records import Role, Score
from attnviz.scoring.scores import CLARK, OLSSON, VOITA, WANG, XIAO

MIN_ROWS = 3
"""Fewer rows than this are an anecdote, and give no role."""

FEW_ROWS = 8
"""Below so many rows a role is marked ``few rows``."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a score must reach: a mean, and a lift (mean / chance)."""

    score: str
    mean: float
    lift: float

    def holds(self, score: Score | None) -> bool:
        """Whether a measured score is evidence enough."""
        if score is None or score.mean is None or score.rows < MIN_ROWS:
            return False
        return score.mean >= self.mean and (score.lift or 0.0) >= self.lift


@dataclass(frozen=True, slots=True)
class RoleDef:
    """A role's row in the table.

    Attributes:
        name: as in tables and JSON.
        evidence: any one of these is enough; the first that holds is shown.
        reason: why these thresholds.
        source: where the role is described.
        unless: roles that already say as much, so that this one is left out.
    """

    name: str
    evidence: tuple[Evidence, ...]
    reason: str
    source: str
    unless: tuple[str, ...] = ()


_MOST = "more than half of the weight: no other target can have as much"
_SPECIFIC = (
    "previous",
    "next",
    "self",
    "first",
    "separator",
    "punctuation",
    "local",
    "duplicate",
    "induction",
)

_TABLE = (
    RoleDef("previous", (Evidence("previous", 0.5, 2.0),), _MOST, f"{CLARK}; {VOITA}"),
    RoleDef("next", (Evidence("next", 0.5, 2.0),), _MOST, f"{CLARK}; {VOITA}"),
    RoleDef("self", (Evidence("self", 0.5, 2.0),), _MOST, CLARK),
    RoleDef("first", (Evidence("first", 0.5, 2.0),), _MOST, f"{CLARK}; {XIAO}"),
    RoleDef("separator", (Evidence("separator", 0.5, 2.0),), _MOST, CLARK),
    RoleDef("punctuation", (Evidence("punctuation", 0.5, 2.0),), _MOST, CLARK),
    RoleDef(
        "local",
        (Evidence("local", 0.6, 2.0),),
        "most of the weight within two tokens, and not on a single one of them",
        f"{CLARK}; {VOITA}",
        unless=("previous", "next", "self"),
    ),
    RoleDef(
        "duplicate",
        (Evidence("duplicate", 0.3, 3.0), Evidence("duplicate_no_sink", 0.5, 3.0)),
        "the weight is shared with the sink and with the token itself, which is its own copy; "
        "three times chance, since repeated tokens are often frequent ones",
        WANG,
    ),
    RoleDef(
        "induction",
        (Evidence("induction", 0.3, 3.0), Evidence("induction_no_sink", 0.5, 3.0)),
        "the weight is shared with the sink, where such heads rest between matches; three times "
        "chance, since with several earlier copies there are several targets",
        OLSSON,
    ),
    RoleDef(
        "diffuse",
        (Evidence("entropy_share", 0.9, 0.0),),
        "entropy within a tenth of its maximum, and no other role",
        CLARK,
        unless=_SPECIFIC,
    ),
)

ROLES: Mapping[str, RoleDef] = MappingProxyType({role.name: role for role in _TABLE})
"""Every role by its name, in the order of legends."""


def assign(scores: Mapping[str, Score]) -> tuple[Role, ...]:
    """The roles that some scores support.

    Args:
        scores: measured scores by name; those that are missing support nothing.

    Returns:
        The roles, the one with the highest mean first; empty without evidence.
    """
    found: dict[str, Role] = {}
    for role in ROLES.values():
        if any(name in found for name in role.unless):
            continue
        for evidence in role.evidence:
            score = scores.get(evidence.score)
            if score is not None and evidence.holds(score):
                few = score.rows < FEW_ROWS
                found[role.name] = Role(role.name, evidence.score, score, few)
                break
    return tuple(sorted(found.values(), key=lambda role: -(role.evidence.mean or 0.0)))
