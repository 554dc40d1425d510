"""What the heads of a model do, as a section of its model card."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz import __version__
from attnviz.core.scores import Estimate, Role
from attnviz.drawing.grid import tally
from attnviz.drawing.labels import counted, number, role_name, times
from attnviz.drawing.markdown import Side, code, plain, table
from attnviz.features.profile.result import HeadProfile, Profile
from attnviz.features.profile.terminal import report
from attnviz.scoring.roles import SHOWN

_LISTED, _BEST = 24, 3
_COLUMNS: tuple[tuple[str, Side], ...] = (
    ("head", "left"),
    ("role", "left"),
    ("score", "right"),
    ("95 %", "left"),
    ("chance", "right"),
    ("lift", "right"),
    ("rows", "right"),
)


def markdown(found: Profile, command: str, picture: str = "") -> str:
    """The section: a sentence, a picture, a table of heads, and how it was measured.

    Args:
        found: what was measured.
        command: that writes it anew.
        picture: where the picture is, as a link beside the card; empty for none.
    """
    return "\n\n".join(_parts(found, command, picture))


def _parts(found: Profile, command: str, picture: str) -> Iterator[str]:
    yield "## What its attention heads do"
    yield _summary(found)
    if picture:
        yield f"![{plain(_alternative(found))}]({picture.replace(' ', '%20')})"
    named = [head for head in found.heads if head.scores.roles]
    named.sort(key=_order)
    if named:
        yield table(_COLUMNS, [_row(found, head) for head in named[:_LISTED]])
    if len(named) > _LISTED:
        yield f"{len(named) - _LISTED} more heads show a role; the command below lists them."
    yield _method(found)
    yield (
        "\n".join(f"- {plain(note)}" for note in found.notes)
        if found.notes
        else ("Where a head looks is not what it does: nothing here says that the model needs it.")
    )
    yield f"Written by {code(command)}."


def _summary(found: Profile) -> str:
    """How many heads there are, and how many show each role."""
    layers = counted(len(found.layout.sites), "layer")
    roles = [(name, count) for name, count in tally(report(found)) if name is not None]
    said = ", ".join(f"{count} {plain(name)}" for name, count in roles)
    start = f"{counted(len(found.layout), 'head')} in {layers}"
    if not roles:
        return f"Of {start}, none shows a significant role on the texts named below."
    silent = len(found.heads) - sum(count for _, count in roles)
    return f"Of {start}: {said}; {silent} without a significant role."


def _alternative(found: Profile) -> str:
    return f"Roles of the {len(found.layout)} heads of {found.source.model}, and where they look"


def _row(found: Profile, head: HeadProfile) -> list[str]:
    role = head.scores.does or head.scores.roles[0]
    estimate = head.evidence(role)
    kind = "sink: " if role.rests and role.name != "diffuse" else ""
    return [
        found.layout.name(head.head),
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


def _matching(found: Profile) -> str:
    """The best induction heads on random tokens, where that is defined."""
    if found.matching is None:
        return ""
    scores = zip(found.layout, found.matching.means, found.matching.halves, strict=True)
    best = sorted(scores, key=lambda one: -one[1])[:_BEST]
    said = ", ".join(f"{found.layout.name(h)} {mean:.2f} ± {half:.2f}" for h, mean, half in best)
    return (
        f" On random tokens that come {found.matching.copies} times, prefix matching (Olsson et "
        f"al. 2022) is highest in {said}; uniform attention has {found.matching.chance:.3f}."
    )


def _method(found: Profile) -> str:
    """What was measured on what."""
    return (
        f"Measured on {counted(found.texts, 'text')} ({counted(found.tokens, 'token')}) with "
        f"attnviz {__version__}: the mean weight on what a role looks at, over the rows on which "
        "it could show, beside that of uniform attention (chance). Intervals are 95 % over texts; "
        f"roles are significant at 5 % among {found.questions:,} questions (Holm)."
        f"{_matching(found)}"
    )
