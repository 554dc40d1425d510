"""What patching says of every head: beside others, and to compare two runs by."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.core.findings import Figures, Finding, Measure
from attnviz.core.heads import Head
from attnviz.features.patch import words
from attnviz.features.patch.result import Direction, Patch, PatchEffect, PathEffect

_NAMED = 3
"""Cells or groups that a head is told of."""

_VERBS: dict[Direction, str] = {"denoise": "restores", "noise": "removes"}


def finding(result: Patch, name: str) -> Finding:
    """What each head carries of the answer."""
    said = {result.layout.name(head): _lines(result, head) for head in result.layout}
    alone = {
        result.layout.name(effect.heads[0]): effect
        for effect in result.effects
        if len(effect.heads) == 1 and effect.position is None
    }
    measures = []
    for direction in result.directions if alone else ():
        values = {
            head: (share.share, share.low, share.high)
            for head, effect in alone.items()
            if (share := effect.of(direction)) is not None
        }
        title = f"share of the {words.metric(result)} that it {_VERBS[direction]}"
        measures.append(Measure(direction, title, "", 1, values))
    title = "What it carries of the answer"
    return Finding.of("patch", name, title, _how(result), said, measures)


def _lines(result: Patch, head: Head) -> Iterator[str]:
    member = next((m for m in result.circuit.members if m.head == head), None) if (
        result.circuit is not None
    ) else None  # fmt: skip
    if result.circuit is not None and member is not None:
        yield (
            f"one of the {len(result.circuit.members)} heads of a circuit that keeps "
            f"{words.score(result.circuit.faithful)} of the gap; without it "
            f"{words.score(member.minimal)} less; in {words.percent(member.often)} of the resamples"
        )
        linked = [link.edge for link in result.circuit.links]
        for edge in [e for e in linked if head in (e.sender, *e.receivers)][:_NAMED]:
            yield f"{edge.name(result.layout)} restores {words.share(edge.denoise)}"
    through = [edge for edge in result.strongest() if head in (edge.sender, *edge.receivers)]
    for edge in through[:_NAMED]:
        shares = [
            f"{_VERBS[direction]} {words.share(share)}"
            for direction in result.directions
            if (share := edge.of(direction)) is not None
        ]
        yield f"{edge.name(result.layout)} {', '.join(shares)}"
    mine = [effect for effect in result.ranked() if head in effect.heads]
    for effect in mine[:_NAMED]:
        shares = [
            f"{_VERBS[direction]} {words.share(share)}{_ends(effect, direction)}"
            for direction in result.directions
            if (share := effect.of(direction)) is not None
        ]
        with_others = f"with others ({effect.name}): " if len(effect.heads) > 1 else ""
        where = "" if effect.position is None else f" at {words.place(result, effect.position)}"
        yield f"{with_others}{words.COMPONENTS[result.component]}{where} {', '.join(shares)}"


def _ends(effect: PatchEffect, direction: Direction) -> str:
    known = words.interval(effect.of(direction), joint=False)
    return f" [{known.replace(' to ', ', ')}]" if known else ""


def _how(result: Patch) -> str:
    """How it was measured, in sentences."""
    values = " and ".join(words.TOWARDS[direction] for direction in result.directions)
    interval = "95 % intervals over pairs" if result.clean.low is not None else "no interval"
    what = f"Activation patching of the {words.COMPONENTS[result.component]}"
    if result.edges:
        what = f"Path patching (MLPs between {result.mlps})"
    partial = " It was interrupted: only the pairs that were done are in it." * result.partial
    return (
        f"{what}: {values}, as a share of "
        f"the {words.metric(result)} between clean and corrupted runs. "
        f"{words.model_does(result)}; {interval}.{partial}"
    )


def figures(result: Patch) -> Figures:
    """The share that each head, or group, restores or removes."""
    values: dict[str, dict[str, float | None]] = {}
    for effect in result.effects:
        name = effect.name if effect.position is None else f"{effect.name} at {effect.position}"
        values[name] = _shares(result, effect)
    values |= {edge.name(result.layout): _shares(result, edge) for edge in result.edges}
    settings = {"task": result.task, "metric": result.metric, "component": result.component}
    return Figures(values, {}, settings | {"by": result.by})


def _shares(result: Patch, effect: PatchEffect | PathEffect) -> dict[str, float | None]:
    """By direction."""
    return {
        direction: share.share
        for direction in result.directions
        if (share := effect.of(direction)) is not None
    }
