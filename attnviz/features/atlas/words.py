"""The sentences that the page of an atlas and the terminal share."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.core.provenance import called
from attnviz.drawing.labels import counted
from attnviz.features.ablation.result import Effect
from attnviz.features.atlas.result import Atlas, AtlasHead, GoldPart
from attnviz.features.circuits.result import Edge
from attnviz.features.coref.result import COREFERENCE


def summary(atlas: Atlas) -> Iterator[str]:
    """What one would quote, each sentence with its figures."""
    name = atlas.layout.name
    does: dict[str, list[str]] = {}
    for head in atlas.heads:
        if role := head.profile.scores.does:
            does.setdefault(role.title, []).append(name(head.head))
    named = sum(map(len, does.values()))
    scores = [head.profile.scores for head in atlas.heads]
    rest = sum(one.does is None and one.rests is not None for one in scores)
    listed = "; ".join(
        f"{role} {len(names)} ({', '.join(names[:6])}{', …' if len(names) > 6 else ''})"
        for role, names in sorted(does.items(), key=lambda item: -len(item[1]))
    )
    yield (
        f"Over {counted(atlas.texts, 'text')} ({counted(atlas.tokens, 'token')}), {named} of "
        f"{len(atlas.heads)} heads have a role{': ' + listed if listed else ''}. {rest} attend "
        "only to sinks or have no clear target."
    )
    yield from _ablated(atlas)
    found = [
        f"{one.relation} by {name(head.head)} ({100 * (one.accuracy.value or 0):.0f} % of "
        f"{one.count:,}, best offset {100 * (one.offset_accuracy or 0):.0f} %)"
        for head in atlas.heads
        for one in head.relations
        if head.has_role(one.title)
    ]
    if found:
        yield f"Grammar, on documents that no head was chosen on: {', '.join(found)}."
    yield from _names(atlas)
    edges = sorted((e for head in atlas.heads for e in head.feeds), key=lambda edge: -edge.excess)
    if edges:
        told = ", ".join(_edge(atlas, edge) for edge in edges[:3])
        yield f"Strongest connections by weights alone: {told}."
        yield from _measured(atlas)


def methods(atlas: Atlas) -> Iterator[tuple[str, str]]:
    """How each part was measured, and why one is missing: its command and a sentence."""
    unit = "group" if atlas.grouped else "text"
    yield (
        "profile",
        f"{counted(atlas.texts, 'text')} in {counted(atlas.windows, 'window')} from "
        f"{', '.join(map(called, atlas.files))}; "
        f"95 % intervals over {counted(atlas.clusters, unit)}"
        + " for all heads and scores at once"
        * atlas.simultaneous,
    )
    how = atlas.ablation
    if how is not None:
        yield (
            "ablate",
            f"ablation of every head alone ({how.method}), change of {how.metric} ({how.unit}) "
            f"over {counted(how.positions, 'position')} of {counted(how.texts, 'text')}; "
            f"figures by {how.methods[0]}, with 95 % intervals over texts that hold for all heads "
            "and methods at once; needed: by two methods, all heads judged together",
        )
    for part, gold, cases in (("syntax", atlas.syntax, "words"), ("coref", atlas.coref, "cases")):
        if gold is not None:
            yield part, _compared(gold, cases)
    if atlas.circuits:
        yield (
            "circuits",
            "from weights alone; composition less the mean of random matrices of the same shapes, "
            "copying by eigenvalues over a sample of the vocabulary",
        )
    shared = [head.shares for head in atlas.heads if head.shares is not None]
    if shared:
        texts = counted(max(one.texts for one in shared), "text")
        yield (
            "sources",
            f"shares of earlier heads in queries and keys of {counted(len(shared), 'head')} that "
            f"others feed by the weights, on up to {texts}; "
            "of the contrast between keys that the head's role counts (or that it looks at most) "
            "and all others",
        )
    for one in atlas.findings:
        yield one.part, f"{one.how} ({one.name})"
    for part, why in atlas.absent.items():
        yield part, f"not there: {why}"


def change(effect: Effect) -> str:
    """A change with its interval, which holds for all heads at once: ``+2.1 [+1.2, +3.0]``."""
    low, high = effect.first.joint_low, effect.first.joint_high
    ends = "" if low is None or high is None else f" [{low:+.2g}, {high:+.2g}]"
    return f"{effect.change:+.2g}{ends}"


def _measured(atlas: Atlas) -> Iterator[str]:
    """The earlier heads that were measured to add most to keys."""
    found = [
        (one.share, one, head)
        for head in atlas.heads
        if head.shares is not None
        for one in head.shares.by_key
        if one.origin.head is not None and one.low is not None and one.low > 0
    ]
    found.sort(key=lambda each: -each[0])
    if found:
        told = ", ".join(
            f"{one.origin.name(atlas.layout)} for {_name(atlas, head)} ({100 * share:.0f} %)"
            for share, one, head in found[:3]
        )
        yield f"Largest shares, measured on texts, of what sets a head's keys apart: {told}."


def _edge(atlas: Atlas, edge: Edge) -> str:
    """Who feeds whom by the weights, and what was measured of it."""
    name, found = atlas.layout.name, atlas.share_of(edge)
    beside = "" if found is None else f", on texts {100 * found.share:.0f} %"
    return f"{name(edge.writer)} into {edge.side} of {name(edge.reader)} ({edge.ratio:.2f}{beside})"


def _ablated(atlas: Atlas) -> Iterator[str]:
    part, ranked = atlas.ablation, atlas.ranked()
    if part is None or not ranked:
        return
    told = ", ".join(
        f"{atlas.layout.name(one.head)} {change(one.effect)}" for one in ranked[:3] if one.effect
    )
    how = f"{counted(part.texts, 'text')}, {' and '.join(part.methods)} ablation"
    if part.distance:
        changed = "the last hidden states" if part.metric == "hidden" else "predictions"
        yield (
            f"Ablated one at a time ({how}), these change {changed} most ({part.metric}, "
            f"{part.unit}): {told}."
        )
        return
    said = (
        f"Ablated one at a time ({how}, {part.metric} in {part.unit}, base {part.base:.3g}), the "
        f"costliest are {told}"
    )
    judged = [one for one in ranked if one.needed is not None]
    if not judged:
        yield f"{said}; whether heads are needed takes two methods and several texts."
        return
    yield (
        f"{said}; {sum(bool(one.needed) for one in judged)} of {len(judged)} are needed: the "
        f"{part.metric} is significantly worse without them by two methods, all heads "
        "judged together, "
        f"and by at least {part.smallest or 0:.2g}."
    )


def _names(atlas: Atlas) -> Iterator[str]:
    found = [
        (one.antecedents.accuracy.value or 0.0, one)
        for one in atlas.heads
        if one.antecedents is not None and one.has_role(COREFERENCE)
    ]
    found.sort(key=lambda one: -one[0])
    for _, best in found[:1]:
        told = ", ".join(f"{_name(atlas, one)} {100 * share:.0f} %" for share, one in found)
        entry = best.antecedents
        if entry is not None:
            yield (
                f"Names, on documents that no head was chosen on: {told} right of "
                f"{entry.count:,} cases; {entry.baseline} "
                f"{100 * (entry.baseline_accuracy or 0):.0f} %."
            )


def _name(atlas: Atlas, one: AtlasHead) -> str:
    return atlas.layout.name(one.head)


def _compared(gold: GoldPart, cases: str) -> str:
    return (
        f"{gold.cases:,} {cases} in {gold.texts:,} {gold.unit}; heads chosen on "
        f"{gold.chosen_on}, figures from {gold.measured_on}"
    )
