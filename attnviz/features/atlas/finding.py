"""What an atlas says of every head, to stand beside it elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.core.findings import Finding, Measure, Value
from attnviz.drawing.shares import estimate, plain_share
from attnviz.features.atlas import words
from attnviz.features.atlas.result import Atlas, AtlasHead


def finding(atlas: Atlas, name: str) -> Finding:
    """What every part of it says of each head, in short.

    Args:
        atlas: the result.
        name: of its file.
    """
    said = {atlas.layout.name(one.head): tuple(_lines(atlas, one)) for one in atlas.heads}
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
        values = {one: e.effect for one, e in _named(atlas) if e.effect is not None}
        yield Measure(
            "effect",
            f"change of the {part.metric} without it",
            part.unit,
            0 if part.distance else -part.worse,
            {
                head: (effect.change, effect.first.joint_low, effect.first.joint_high)
                for head, effect in values.items()
            },
        )
    scores: dict[str, Value] = {
        head: (one.copying.score, None, None) for head, one in _named(atlas) if one.copying
    }
    yield Measure("copying", "copying score", "", -1, scores)
    names: dict[str, Value] = {
        head: (share.value, share.low, share.high)
        for head, one in _named(atlas)
        if one.antecedents and (share := one.antecedents.accuracy).value is not None
    }
    yield Measure("accuracy", "how often it finds what is referred to", "", 0, names)


def _named(atlas: Atlas) -> Iterator[tuple[str, AtlasHead]]:
    for one in atlas.heads:
        yield atlas.layout.name(one.head), one


def _lines(atlas: Atlas, one: AtlasHead) -> Iterator[str]:
    scores, name = one.profile.scores, atlas.layout.name
    for verb, role in (("does", scores.does), ("sink:", scores.rests)):
        if role is not None and role.evidence.mean is not None:
            kind = f"is {role.title}" if role.name == "diffuse" else f"{verb} {role.title}"
            yield f"{kind} {role.evidence.mean:.2f} over many texts"
    if one.effect is not None and atlas.ablation is not None:
        needed = ": needed" * bool(one.needed)
        yield f"ablated {words.change(one.effect)} {atlas.ablation.unit}{needed}"
    for found in one.relations:
        yield (
            f"{found.relation} {estimate(found.accuracy)} of {found.count:,}, best offset "
            f"{plain_share(found.offset_accuracy)}"
        )
    names = one.antecedents
    if names is not None:
        yield (
            f"antecedents {estimate(names.accuracy)} of {names.count:,}, {names.baseline} "
            f"{plain_share(names.baseline_accuracy)}"
        )
    if one.copying is not None:
        yield f"copying score {one.copying.score:+.2f}"
    for edge in one.feeds[:1]:
        yield f"feeds {edge.side} of {name(edge.reader)} ({edge.excess:+.3f} above random)"
