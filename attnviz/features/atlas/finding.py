"""What an atlas says of every head, to stand beside it elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.core.findings import COPYING, WITHOUT_IT, Finding, Measure, Value
from attnviz.drawing.shares import estimate, plain_share
from attnviz.features.atlas import words
from attnviz.features.atlas.result import Atlas, AtlasHead


def finding(atlas: Atlas, name: str) -> Finding:
    """What every part of it says of each head, in short.

    Args:
        atlas: the result.
        name: of its file.
    """
    said = {atlas.layout.name(head.head): tuple(_lines(atlas, head)) for head in atlas.heads}
    how = "; ".join(f"{part}: {method}" for part, method in words.methods(atlas))
    return Finding(
        "atlas",
        name,
        "All that was measured of it",
        f"{how[:1].upper()}{how[1:]}.",
        {head: lines for head, lines in said.items() if lines},
        tuple(measure for measure in _measures(atlas) if measure.values),
    )


def _measures(atlas: Atlas) -> Iterator[Measure]:
    part = atlas.ablation
    if part is not None:
        values = {name: e.effect for name, e in _named(atlas) if e.effect is not None}
        yield Measure(
            "effect",
            f"change of the {part.metric} without it",
            part.unit,
            0 if part.distance else -part.worse,
            {
                name: (effect.change, effect.first.joint_low, effect.first.joint_high)
                for name, effect in values.items()
            },
            ("", "") if part.distance else WITHOUT_IT,
        )
    scores: dict[str, Value] = {
        name: (head.copying.score, None, None) for name, head in _named(atlas) if head.copying
    }
    yield Measure("copying", "copying score", "", -1, scores, COPYING)
    names: dict[str, Value] = {
        name: (share.value, share.low, share.high)
        for name, head in _named(atlas)
        if head.antecedents and (share := head.antecedents.accuracy).value is not None
    }
    yield Measure("accuracy", "how often it finds what is referred to", "", 0, names)


def _named(atlas: Atlas) -> Iterator[tuple[str, AtlasHead]]:
    for head in atlas.heads:
        yield atlas.layout.name(head.head), head


def _lines(atlas: Atlas, head: AtlasHead) -> Iterator[str]:
    scores, name = head.profile.scores, atlas.layout.name
    for verb, role in (("does", scores.does), ("sink:", scores.rests)):
        if role is not None and role.evidence.mean is not None:
            kind = f"is {role.title}" if role.name == "diffuse" else f"{verb} {role.title}"
            yield f"{kind} {role.evidence.mean:.2f} over many texts"
    if head.effect is not None and atlas.ablation is not None:
        needed = ": needed" * bool(head.needed)
        yield f"ablated {words.change(head.effect)} {atlas.ablation.unit}{needed}"
    for relation in head.relations:
        yield (
            f"{relation.relation} {estimate(relation.accuracy)} of {relation.count:,}, best offset "
            f"{plain_share(relation.offset_accuracy)}"
        )
    names = head.antecedents
    if names is not None:
        yield (
            f"antecedents {estimate(names.accuracy)} of {names.count:,}, {names.baseline} "
            f"{plain_share(names.baseline_accuracy)}"
        )
    if head.copying is not None:
        yield f"copying score {head.copying.score:+.2f}"
    for edge in head.feeds[:1]:
        yield f"feeds {edge.side} of {name(edge.reader)} ({edge.excess:+.3f} above random)"
