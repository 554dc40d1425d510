"""What the heads of a model do, as a section of its model card."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from attnviz import __version__
from attnviz.core.scores import Estimate, Role
from attnviz.drawing.grid import tally
from attnviz.drawing.html import code, plain, table
from attnviz.drawing.labels import counted, number, role_name, times
from attnviz.features.profile.result import HeadProfile, Profile
from attnviz.features.profile.terminal import report
from attnviz.scoring.roles import SHOWN

_LISTED, _BEST = 24, 3
_COLUMNS = ("head", "role", ">score", "95 %", ">chance", ">lift", ">rows")


def markdown(profile: Profile, command: str, picture: str = "") -> str:
    """The section: a sentence, a picture, a table of heads, and how it was measured."""
    return "\n\n".join(_parts(profile, command, picture))


def _parts(profile: Profile, command: str, picture: str) -> Iterator[str]:
    yield "## What its attention heads do"
    yield _summary(profile)
    if picture:
        yield f"![{plain(_alternative(profile))}]({quote(picture)})"
    named = [head for head in profile.heads if head.scores.roles]
    named.sort(key=_order)
    if named:
        yield table(_COLUMNS, [_row(profile, head) for head in named[:_LISTED]])
    if len(named) > _LISTED:
        yield f"{len(named) - _LISTED} more heads show a role; the command below lists them."
    yield _method(profile)
    yield (
        "\n".join(f"- {plain(note)}" for note in profile.notes)
        if profile.notes
        else ("Where a head looks is not what it does: nothing here says that the model needs it.")
    )
    yield f"Written by {code(command)}."


def _summary(profile: Profile) -> str:
    """How many heads there are, and how many show each role."""
    layers = counted(len(profile.layout.sites), "layer")
    roles = [(name, count) for name, count in tally(report(profile)) if name is not None]
    said = ", ".join(f"{count} {plain(name)}" for name, count in roles)
    start = f"{counted(len(profile.layout), 'head')} in {layers}"
    if not roles:
        return f"Of {start}, none shows a significant role on the texts named below."
    silent = len(profile.heads) - sum(count for _, count in roles)
    return f"Of {start}: {said}; {silent} without a significant role."


def _alternative(profile: Profile) -> str:
    return (
        f"Roles of the {len(profile.layout)} heads of {profile.source.model}, and where they look"
    )


def _row(profile: Profile, head: HeadProfile) -> list[str]:
    role = head.scores.does or head.scores.roles[0]
    estimate = head.evidence(role)
    kind = "sink: " if role.rests and role.name != "diffuse" else ""
    return [
        profile.layout.name(head.head),
        f"{kind}{plain(role_name(role))}",
        *_figures(role, estimate),
        f"{estimate.rows:,}",
    ]


def _figures(role: Role, estimate: Estimate) -> list[str]:
    """Score, interval, chance, lift."""
    known = estimate.low is not None and estimate.high is not None
    ends = f"{estimate.low:.2f}–{estimate.high:.2f}" if known else "–"
    mean = "–" if estimate.mean is None else f"{estimate.mean:.2f}"
    chance = "–" if estimate.chance is None else number(estimate.chance)
    return [mean, ends, chance, times(role.evidence)]


def _order(head: HeadProfile) -> tuple[bool, int, float]:
    """What does something before what rests, role by role, the highest score first."""
    role = head.scores.does or head.scores.roles[0]
    known = list(SHOWN)
    place = known.index(role.name) if role.name in SHOWN else len(known)
    return role.rests, place, -(role.evidence.mean or 0.0)


def _matching(profile: Profile) -> str:
    """The best induction heads on random tokens, where that is defined."""
    if profile.matching is None:
        return ""
    scores = zip(profile.layout, profile.matching.means, profile.matching.halves, strict=True)
    best = sorted(scores, key=lambda item: -item[1])[:_BEST]
    said = ", ".join(f"{profile.layout.name(h)} {mean:.2f} ± {half:.2f}" for h, mean, half in best)
    return (
        f" On random tokens that come {profile.matching.copies} times, prefix matching (Olsson et "
        f"al. 2022) is highest in {said}; uniform attention has {profile.matching.chance:.3f}."
    )


def _method(profile: Profile) -> str:
    """What was measured on what."""
    return (
        f"Measured on {counted(profile.texts, 'text')} ({counted(profile.tokens, 'token')}) with "
        f"attnviz {__version__}: the mean weight on what a role looks at, over the rows on which "
        "it could show, beside that of uniform attention (chance). Intervals are 95 % over texts; "
        f"roles are significant at 5 % among {profile.questions:,} questions (Holm)."
        f"{_matching(profile)}"
    )
