"""What an atlas says of every head: beside others, and to compare two runs by."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.core.findings import COPYING, WITHOUT_IT, Figures, Finding, Measure, bare, known
from attnviz.drawing.description import estimate, plain_share
from attnviz.features.atlas import words
from attnviz.features.atlas.result import Atlas, AtlasHead


def finding(atlas: Atlas, name: str) -> Finding:
    """What every part of it says of each head, in short."""
    said = {atlas.layout.name(head.head): _lines(atlas, head) for head in atlas.heads}
    how = "; ".join(f"{part}: {method}" for part, method in words.methods(atlas))
    how = f"{how[:1].upper()}{how[1:]}."
    return Finding.of("atlas", name, "All that was measured of it", how, said, _measures(atlas))


def _measures(atlas: Atlas) -> Iterator[Measure]:
    heads = {atlas.layout.name(head.head): head for head in atlas.heads}
    part = atlas.ablation
    if part is not None:
        effects = {name: head.effect for name, head in heads.items() if head.effect is not None}
        values = {
            name: (effect.change, effect.first.joint_low, effect.first.joint_high)
            for name, effect in effects.items()
        }
        title = f"change of the {part.metric} without it"
        sign, ends = (0, ("", "")) if part.distance else (-part.worse, WITHOUT_IT)
        yield Measure("effect", title, part.unit, sign, values, ends)
    scores = bare({name: head.copying.score for name, head in heads.items() if head.copying})
    yield Measure("copying", "copying score", "", -1, scores, COPYING)
    names = known(
        {name: head.antecedents.accuracy for name, head in heads.items() if head.antecedents}
    )
    yield Measure("accuracy", "how often it finds what is referred to", "", 0, names)


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


def figures(atlas: Atlas) -> Figures:
    """The mean of every score, what ablating costs, shares of antecedents, copying; and roles."""
    heads = {atlas.layout.name(head.head): head for head in atlas.heads}
    part = atlas.ablation
    return Figures(
        {name: _of(head) for name, head in heads.items()},
        {name: _roles(head) for name, head in heads.items()},
        {} if part is None else {"metric": part.metric},
    )


def _of(head: AtlasHead) -> dict[str, float | None]:
    values = {score: estimate.mean for score, estimate in head.profile.estimates.items()}
    if head.effect is not None:
        values["effect"] = head.effect.change
    if head.antecedents is not None:
        values["antecedents"] = head.antecedents.accuracy.value
    for name, copying in (("copying plain", head.plain), ("copying first", head.first)):
        if copying is not None:
            values[name] = copying.score
    return values


def _roles(head: AtlasHead) -> frozenset[str]:
    given = [role.title for role, _ in head.annotated]
    return frozenset([*given, *(role.name for role in head.profile.scores.roles)])
