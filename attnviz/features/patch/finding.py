"""What patching says of every head, to stand beside it elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.core.findings import Finding, Measure
from attnviz.core.heads import Head
from attnviz.features.patch import words
from attnviz.features.patch.result import Direction, Patch, PatchEffect

_NAMED = 3
"""Cells or groups that a head is told of."""

_VERBS: dict[Direction, str] = {"denoise": "restores", "noise": "removes"}


def finding(found: Patch, name: str) -> Finding:
    """What each head carries of the answer.

    Args:
        found: the result.
        name: of its file.
    """
    said = {found.layout.name(head): tuple(_lines(found, head)) for head in found.layout}
    alone = {
        found.layout.name(effect.heads[0]): effect
        for effect in found.effects
        if len(effect.heads) == 1 and effect.position is None
    }
    measures = []
    for direction in found.directions if alone else ():
        values = {
            head: (one.share, one.low, one.high)
            for head, effect in alone.items()
            if (one := effect.of(direction)) is not None
        }
        title = f"share of the {words.metric(found)} that it {_VERBS[direction]}"
        measures.append(Measure(direction, title, "", 1, values))
    return Finding(
        "patch",
        name,
        "What it carries of the answer",
        _how(found),
        {head: lines for head, lines in said.items() if lines},
        tuple(measures),
    )


def _lines(found: Patch, head: Head) -> Iterator[str]:
    member = next((m for m in found.circuit.members if m.head == head), None) if (
        found.circuit is not None
    ) else None  # fmt: skip
    if found.circuit is not None and member is not None:
        yield (
            f"one of the {len(found.circuit.members)} heads of a circuit that keeps "
            f"{words.score(found.circuit.faithful)} of the effect; without it "
            f"{words.score(member.minimal)} less; in {words.percent(member.often)} of the resamples"
        )
        linked = [link.edge for link in found.circuit.links]
        for edge in [e for e in linked if head in (e.sender, *e.receivers)][:_NAMED]:
            yield f"{edge.name(found.layout)} restores {words.share(edge.denoise)}"
    through = [one for one in found.strongest() if head in (one.sender, *one.receivers)]
    for edge in through[:_NAMED]:
        shares = [
            f"{_VERBS[direction]} {words.share(one)}"
            for direction in found.directions
            if (one := edge.of(direction)) is not None
        ]
        yield f"{edge.name(found.layout)} {', '.join(shares)}"
    mine = [effect for effect in found.ranked() if head in effect.heads]
    for effect in mine[:_NAMED]:
        shares = [
            f"{_VERBS[direction]} {words.share(one)}{_ends(effect, direction)}"
            for direction in found.directions
            if (one := effect.of(direction)) is not None
        ]
        with_others = f"with others ({effect.name}): " if len(effect.heads) > 1 else ""
        where = "" if effect.position is None else f" at {words.place(found, effect.position)}"
        yield f"{with_others}{words.COMPONENTS[found.component]}{where} {', '.join(shares)}"


def _ends(effect: PatchEffect, direction: Direction) -> str:
    known = words.interval(effect.of(direction), joint=False)
    return f" [{known.replace(' to ', ', ')}]" if known else ""


def _how(found: Patch) -> str:
    """How it was measured, in sentences."""
    values = " and ".join(words.TOWARDS[one] for one in found.directions)
    interval = "95 % intervals over pairs" if found.clean.low is not None else "no interval"
    what = f"Activation patching of the {words.COMPONENTS[found.component]}"
    if found.edges:
        what = f"Path patching (MLPs between {found.mlps})"
    partial = " It was interrupted: only the pairs that were done are in it." * found.partial
    return (
        f"{what}: {values}, as a share of "
        f"the {words.metric(found)} between clean and corrupted runs. "
        f"{words.model_does(found)}; {interval}.{partial}"
    )
