"""Roles: what a head can be called, the evidence that takes, and how it is shown. One table.

A head has places where it rests (``first``, ``self``, ``separator``, ``punctuation``, or everywhere
alike: ``diffuse``) and things that it does. A role is judged on its own rows, those on which it
could show: there its score must reach a mean and a lift over chance, and no other role's targets
may get as much of the weight. So means over different rows never compete.

The thresholds are conventions with a reason, not tests of significance; docs/roles.md says what
they cannot prove. The colours start from Okabe & Ito's set for colour-blind readers (Color
Universal Design, 2008), extended to twelve and spread so that every pair keeps an OKLab distance of
at least 0.085 under normal vision and under simulated protanopia, deuteranopia and tritanopia
(Machado et al. 2009, severity 1). Each role also has a letter code, so colour never carries meaning
alone.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from attnviz.core.scores import SINK_SHARE, HeadScores, Rival, Role, Score

CLARK = "Clark et al. 2019, arXiv:1906.04341"
VOITA = "Voita et al. 2019, arXiv:1905.09418"
OLSSON = "Olsson et al. 2022, arXiv:2209.11895"
XIAO = "Xiao et al. 2023, arXiv:2309.17453"
WANG = "Wang et al. 2022, arXiv:2211.00593"
DARCET = "Darcet et al. 2023, arXiv:2309.16588"
GU = "Gu et al. 2024, arXiv:2410.10781"
KENDALL = "Kendall 1938"
QIU = "Qiu et al. 2025, arXiv:2505.06708"
RAFFEL = "Raffel et al. 2017, arXiv:1704.00784"
RADFORD = "Radford et al. 2022, arXiv:2212.04356"


MIN_ROWS = 3
"""Fewer rows than this are an anecdote, and give no role."""

FEW_ROWS = 8
"""Below so many rows a role is marked ``few rows``."""

Shares = Mapping[str, Mapping[str, float]]
"""By score, the mean weight on the targets of every role, over the rows of that score."""


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
    """A role's row in the table."""

    name: str  # as in tables and JSON; where its targets are those of a score, that score's name
    color: str  # of its tiles and chips; ``code`` of up to four letters, ``short`` of two
    code: str
    short: str
    evidence: tuple[Evidence, ...]  # any one of these is enough; the first that holds is shown
    reason: str  # why these thresholds
    source: str  # where the role is described
    rests: bool = False  # whether it is a place where attention rests, not a thing that a head does
    # roles that already say as much, so that this one is left out. Their targets are among its own,
    # so neither is the other's rival
    unless: tuple[str, ...] = ()
    # what must hold beside the evidence, of the head's scores
    condition: Callable[[Mapping[str, Score]], bool] | None = None
    user: str = ""  # the qualified name of a user's function; empty for attnviz's own


_MOST = "more than half of the weight: no other target can have as much"

_PREVIOUS = RoleDef(
    "previous", "#0f4bdb", "prev", "pr", (Evidence("previous", 0.5, 2.0),), _MOST,
    f"{CLARK}; {VOITA}",
)  # fmt: skip
_NEXT = RoleDef(
    "next", "#3db2ff", "next", "nx", (Evidence("next", 0.5, 2.0),), _MOST, f"{CLARK}; {VOITA}"
)
_SELF = RoleDef(
    "self", "#0b9174", "self", "sf", (Evidence("self", 0.5, 2.0),), _MOST, CLARK, rests=True
)
_FIRST = RoleDef(
    "first", "#5e4478", "1st", "1s", (Evidence("first", 0.5, 2.0),), _MOST, f"{CLARK}; {XIAO}",
    rests=True,
)  # fmt: skip
_SEPARATOR = RoleDef(
    "separator", "#f964ac", "sep", "sp", (Evidence("separator", 0.5, 2.0),), _MOST, CLARK,
    rests=True,
)  # fmt: skip
_PUNCTUATION = RoleDef(
    "punctuation", "#660e24", "punc", "pu", (Evidence("punctuation", 0.5, 2.0),), _MOST, CLARK,
    rests=True,
)  # fmt: skip
_LOCAL = RoleDef(
    "local", "#f2f032", "loc", "lo", (Evidence("local", 0.6, 2.0),),
    "most of the weight within two tokens, and not on a single one of them", f"{CLARK}; {VOITA}",
    unless=("previous", "next", "self"),
)  # fmt: skip
_DUPLICATE = RoleDef(
    "duplicate", "#daa60a", "dup", "du",
    (Evidence("duplicate", 0.3, 3.0), Evidence("duplicate_no_sink", 0.5, 3.0)),
    "the weight is shared with the sink and with the token itself, which is its own copy; "
    "three times chance, since repeated tokens are often frequent ones", WANG,
)  # fmt: skip
_INDUCTION = RoleDef(
    "induction", "#b53600", "ind", "in",
    (Evidence("induction", 0.3, 3.0), Evidence("induction_no_sink", 0.5, 3.0)),
    "the weight is shared with the sink, where such heads attend between matches; three times "
    "chance, since with several earlier copies there are several targets", OLSSON,
)  # fmt: skip
_MONOTONIC = RoleDef(
    "monotonic", "#aaffaa", "mono", "mo", (Evidence("diagonal", 0.85, 1.7),),
    "of pairs of rows, seven tenths more walk forward than back (Kendall's τ ≥ 0.7); chance is one "
    "half, so that no lift can be larger than 2", f"{RAFFEL}; {RADFORD}",
)  # fmt: skip
_REGISTERS = RoleDef(
    "registers", "#4411aa", "reg", "rg", (Evidence("registers", 0.5, 2.0),), _MOST, DARCET,
    rests=True,
)  # fmt: skip
_SPECIFIC = (
    _PREVIOUS, _NEXT, _SELF, _FIRST, _SEPARATOR, _PUNCTUATION, _LOCAL, _DUPLICATE, _INDUCTION,
    _MONOTONIC, _REGISTERS,
)  # fmt: skip
_DIFFUSE = RoleDef(
    "diffuse", "#c6d3d2", "diff", "di", (Evidence("entropy_share", 0.9, 0.0),),
    "entropy within a tenth of its maximum, and no other role", CLARK, rests=True,
    unless=tuple(role.name for role in _SPECIFIC),
)  # fmt: skip

_REGISTERED = {role.name: role for role in (*_SPECIFIC, _DIFFUSE)}

ROLES: Mapping[str, RoleDef] = MappingProxyType(_REGISTERED)
"""Every role that a text can show by its name, in the order of legends; users' own last."""

_SYNTACTIC = RoleDef(
    "syntactic", "#00e682", "syn", "sy", (),
    "on annotated text, the head of a dependency is found ten points or more above the best fixed "
    "offset, and significantly above it, on documents that it was not chosen on",
    f"{CLARK}; {VOITA}",
)  # fmt: skip
_COREFERENCE = RoleDef(
    "coreference", "#9c6cf0", "cref", "co", (),
    "on annotated text, the antecedent is found ten points or more above the best rule without "
    "attention, and significantly above it, on documents that it was not chosen on",
    f"{CLARK}; {VOITA}",
)  # fmt: skip
ANNOTATED: Mapping[str, RoleDef] = MappingProxyType(
    {role.name: role for role in (_SYNTACTIC, _COREFERENCE)}
)
"""Roles that no text shows by itself: they come from ``attnviz syntax`` and ``attnviz coref``."""

SHOWN: Mapping[str, RoleDef] = MappingProxyType(ChainMap(dict(ANNOTATED), _REGISTERED))
"""Every role that a head can be shown with, in the order of legends."""

UNKNOWN = "#8d8d8d"
"""The colour of a user's role in a result that is read where the role is not registered."""


def register(role: RoleDef) -> None:
    """Add a role, or put it in the place of one of the same name."""
    _REGISTERED[role.name] = role


def drawn(name: str) -> RoleDef:
    """How a role is drawn; grey and by its first letters where nobody here knows it."""
    role = SHOWN.get(name)
    return role or RoleDef(name, UNKNOWN, name[:4], name[:2], (), "not registered here", "")


def in_order(names: Iterable[str]) -> list[str]:
    """Names of roles in the order of legends, those that are not registered last."""
    order = list(SHOWN)
    return sorted(
        dict.fromkeys(names), key=lambda name: order.index(name) if name in SHOWN else len(order)
    )


_ALSO = {"sink": "first", "attentionsink": "first", "coref": "coreference", "syntax": "syntactic"}
"""Other names of roles, without spaces and hyphens; the first token is the sink of most models."""


def role_name(text: str) -> str:
    """Return a role by whichever name it was asked for: ``previous-token head`` is ``previous``.

    What is no name of a role comes back as it is, for whoever refuses it.
    """
    plain = re.sub(r"[\s_-]", "", text.lower())
    plain = re.sub(r"(?<=.)(tokens?)?(heads?)?$", "", plain) if plain not in SHOWN else plain
    role = _ALSO.get(plain, plain)
    return role if role in SHOWN else text


def is_called(role: Role, name: str) -> bool:
    """Whether a role is asked for by its name, what it is about, or both."""
    titles = (role.name, role.of, role.title)
    return name.replace(" ", "") in [title.replace(" ", "") for title in titles if title]


_NOTHING: Shares = MappingProxyType({})


def assign(
    scores: Mapping[str, Score], shares: Shares = _NOTHING, rows: int = 0
) -> tuple[Role, ...]:
    """Return the roles that some scores support."""
    roles: dict[str, Role] = {}
    for role in ROLES.values():
        if any(name in roles for name in role.unless):
            continue
        for evidence in role.evidence:
            score = scores.get(evidence.score)
            if score is None or score.mean is None or not evidence.holds(score):
                continue
            rival = _rival(role, evidence.score, shares.get(evidence.score, {}))
            if (rival is None or rival.mean < score.mean) and (
                role.condition is None or role.condition(scores)
            ):
                possible = score.rows / rows if rows else None
                few = score.rows < FEW_ROWS
                roles[role.name] = Role(
                    role.name, evidence.score, score, few, role.rests, possible, rival
                )
                break
    return tuple(sorted(roles.values(), key=_order))


def does_something(scores: HeadScores) -> bool:
    """Whether a head has a role beyond a place to rest."""
    return any(not role.rests for role in scores.roles)


def _order(role: Role) -> tuple[bool, bool, int]:
    rows = role.evidence.rows
    return role.rests, role.few_rows, -rows if role.rests else rows


def _rival(role: RoleDef, score: str, shares: Mapping[str, float]) -> Rival | None:
    """Return the other role whose targets got the most weight on the same rows of a score.

    A user's role is never the rival of one of attnviz's own: registering it changes none of these.
    """
    rivals = (
        Rival(name, mean)
        for name, mean in shares.items()
        if name in ROLES  # a score need not have a role
        and name not in (role.name, score, *role.unless)
        and (role.user or not ROLES[name].user)
        and not {role.name, score} & {*ROLES[name].unless}
    )
    return max(rivals, key=lambda rival: rival.mean, default=None)


SINK_LENGTH, SINK_THRESHOLD = 64, SINK_SHARE
"""Gu et al. (2024, arXiv:2410.10781, section 3): sequences of 64 tokens; a head is a sink where the
mean weight of its rows on the first token is more than this."""
