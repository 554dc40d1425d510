"""An atlas described: the sentences at the top of its page, rows, findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from attnviz.core.provenance import called
from attnviz.core.result import COPYING, WITHOUT_IT, Figures, Finding, Measure, bare, known
from attnviz.drawing.description import estimate, plain_share
from attnviz.drawing.labels import counted, listing
from attnviz.drawing.tables import Row, head_cells
from attnviz.drawing.terminal import Line
from attnviz.features.ablation.result import Effect
from attnviz.features.atlas.result import Atlas, AtlasHead
from attnviz.features.circuits.result import Edge
from attnviz.features.coref.result import COREFERENCE
from attnviz.statistics.coverage import holds

_LISTED = 6  # heads that a sentence names


def summary(atlas: Atlas) -> Iterator[str]:
    """Yield what one would quote, each sentence with its figures."""
    name = atlas.layout.name
    by_role: dict[str, list[str]] = {}
    for head in atlas.heads:
        if role := head.profile.scores.does:
            by_role.setdefault(role.title, []).append(name(head.head))
    named = sum(map(len, by_role.values()))
    scores = [head.profile.scores for head in atlas.heads]
    resting = sum(head.does is None and head.rests is not None for head in scores)
    listed = "; ".join(
        f"{role} {len(names)} ({', '.join(names[:_LISTED])}{', …' if len(names) > _LISTED else ''})"
        for role, names in sorted(by_role.items(), key=lambda item: -len(item[1]))
    )
    yield (
        f"Over {counted(atlas.texts, 'text')} ({counted(atlas.tokens, 'token')}), {named} of "
        f"{len(atlas.heads)} heads have a role{': ' + listed if listed else ''}. {resting} attend "
        "only to sinks or have no clear target."
    )
    yield from _ablated(atlas)
    relations = [
        f"{relation.relation} by {name(head.head)} ({100 * (relation.accuracy.value or 0):.0f} % "
        f"of {relation.count:,}, best offset {100 * (relation.offset_accuracy or 0):.0f} %)"
        for head in atlas.heads
        for relation in head.relations
        if head.has_role(relation.title)
    ]
    if relations:
        yield f"Grammar, on documents that no head was chosen on: {', '.join(relations)}."
    yield from _names(atlas)
    edges = sorted((e for head in atlas.heads for e in head.feeds), key=lambda edge: -edge.excess)
    if edges:
        listed_edges = ", ".join(_edge(atlas, edge) for edge in edges[:3])
        yield f"Strongest connections by weights alone: {listed_edges}."
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
            f"figures by {how.methods[0]}, of the typical text"
            + ", with 95 % intervals for all heads and methods at once; needed: by two methods, "
            "all heads judged together" * _together(atlas),
        )
    for part, gold, cases in (("syntax", atlas.syntax, "words"), ("coref", atlas.coref, "cases")):
        if gold is not None:
            yield (
                part,
                f"{gold.cases:,} {cases} in {gold.texts:,} {gold.unit}; heads chosen on "
                f"{gold.chosen_on}, figures from {gold.measured_on}",
            )
    if atlas.circuits:
        yield (
            "circuits",
            "from weights alone; composition less the mean of random matrices of the same shapes, "
            "copying by eigenvalues over a sample of the vocabulary",
        )
    shared = [head.shares for head in atlas.heads if head.shares is not None]
    if shared:
        texts = counted(max(shares.texts for shares in shared), "text")
        yield (
            "sources",
            f"shares of earlier heads in queries and keys of {counted(len(shared), 'head')} that "
            f"others feed by the weights, on up to {texts}; "
            "of the contrast between keys that the head's role counts (or that it looks at most) "
            "and all others",
        )
    for finding in atlas.findings:
        yield finding.part, f"{finding.how} ({finding.name})"
    for part, reason in atlas.absent.items():
        yield part, f"not there: {reason}"


def _together(atlas: Atlas) -> bool:
    """Whether intervals of effects hold for all heads at once."""
    effects = [head.effect for head in atlas.heads if head.effect is not None]
    joint = any(effect.first.joint_low is not None for effect in effects)
    part = atlas.ablation
    return part is not None and joint and holds("ablate: all at once", part.texts)


def change(effect: Effect) -> str:
    """Give a change with its interval, which holds for all heads at once: ``+2.1 [+1.2, +3.0]``."""
    low, high = effect.first.joint_low, effect.first.joint_high
    ends = "" if low is None or high is None else f" [{low:+.2g}, {high:+.2g}]"
    return f"{effect.change:+.2g}{ends}"


def _measured(atlas: Atlas) -> Iterator[str]:
    """Yield the earlier heads that were measured to add most to keys."""
    shares = [
        (source.share, source, head)
        for head in atlas.heads
        if head.shares is not None
        for source in head.shares.by_key
        if source.origin.head is not None and source.low is not None and source.low > 0
    ]
    shares.sort(key=lambda row: -row[0])
    if shares:
        listed = ", ".join(
            f"{source.origin.name(atlas.layout)} for {_name(atlas, head)} ({100 * share:.0f} %)"
            for share, source, head in shares[:3]
        )
        yield f"Largest shares, measured on texts, of what sets a head's keys apart: {listed}."


def _edge(atlas: Atlas, edge: Edge) -> str:
    """Who feeds whom by the weights, and what was measured of it."""
    name, share = atlas.layout.name, atlas.share_of(edge)
    beside = "" if share is None else f", on texts {round(100 * share.share)} %"
    return f"{name(edge.writer)} into {edge.side} of {name(edge.reader)} ({edge.ratio:.2f}{beside})"


def _ablated(atlas: Atlas) -> Iterator[str]:
    part, ranked = atlas.ablation, atlas.ranked()
    if part is None or not ranked:
        return
    costs = ", ".join(
        f"{atlas.layout.name(head.head)} {change(head.effect)}"
        for head in ranked[:3]
        if head.effect
    )
    how = f"{counted(part.texts, 'text')}, {' and '.join(part.methods)} ablation"
    if part.distance:
        changed = "the last hidden states" if part.metric == "hidden" else "predictions"
        yield (
            f"Ablated one at a time ({how}), these change {changed} most ({part.metric}, "
            f"{part.unit}): {costs}."
        )
        return
    claim = (
        f"Ablated one at a time ({how}, {part.metric} in {part.unit}, base {part.base:.3g}), the "
        f"costliest are {costs}"
    )
    judged = [head for head in ranked if head.needed is not None]
    if costly(atlas) == ():
        start = claim.partition(", the costliest")[0]
        yield f"{start}, no head surely costs anything{unseen(atlas)}."
        return
    if not judged:
        yield f"{claim}; whether heads are needed takes two methods and several texts."
        return
    needed = [atlas.layout.name(head.head) for head in judged if head.needed]
    test = "by two methods, all heads judged together, and by at least {:.2g}"
    how = test.format(part.smallest or 0)
    if not needed:
        yield f"{claim}. No head of {len(judged)} was shown to be needed: {how}."
        return
    yield (
        f"{claim}. {_named(needed)} needed: without {'it' if len(needed) == 1 else 'any of them'} "
        f"the {part.metric} is significantly worse, {how}."
    )


def costly(atlas: Atlas) -> tuple[AtlasHead, ...] | None:
    """List heads whose ablation surely costs something, by the first method; None unjudged."""
    part, ranked = atlas.ablation, atlas.ranked()
    judged = [head.effect for head in ranked if head.effect and head.effect.first.sure is not None]
    if part is None or not judged:
        return None
    return tuple(
        head for head in ranked if head.effect and head.effect.sure
        and head.effect.change * part.worse > 0
    )  # fmt: skip


def unseen(atlas: Atlas) -> str:
    """Return what an effect would have had to be to be seen, as the end of a sentence."""
    sizes = [
        head.effect.first.detectable
        for head in atlas.heads
        if head.effect is not None and head.effect.first.detectable is not None
    ]
    if not sizes or atlas.ablation is None:
        return ""
    return (
        f"; {median(sizes):.2g} {atlas.ablation.unit} without the median head would have been seen "
        "in four of five such samples"
    )


def headline(atlas: Atlas) -> dict[str, str] | None:
    """Give the largest sure effect: number, what, head and ends; None where nothing was ablated."""
    part, ranked = atlas.ablation, atlas.ranked()
    if part is None or not ranked:
        return None
    sure = costly(atlas)
    if sure == ():
        of = f"of {counted(len(ranked), 'head')} surely cost anything when ablated alone"
        return {"number": "None", "said": of, "head": "", "ends": unseen(atlas)}
    best = (sure or ranked)[0]
    assert best.effect is not None
    number, _, ends = change(best.effect).partition(" ")
    text = f"{part.unit} of {part.metric} without head "
    doubt = f" {ends}" if ends else ", which is not judged: nothing is known of other texts"
    return {"number": number, "said": text, "head": _name(atlas, best), "ends": doubt}


def _named(heads: Sequence[str]) -> str:
    """``Head 0.5 is``, ``Heads 0.5 and 1.4 are``, of many the first and how many there are."""
    if len(heads) == 1:
        return f"Head {heads[0]} is"
    if len(heads) > _LISTED:
        return f"{len(heads)} heads ({', '.join(heads[:_LISTED])}, …) are"
    return f"Heads {listing(heads)} are"


def _names(atlas: Atlas) -> Iterator[str]:
    finders = [
        (head.antecedents.accuracy.value or 0.0, head)
        for head in atlas.heads
        if head.antecedents is not None and head.has_role(COREFERENCE)
    ]
    finders.sort(key=lambda item: -item[0])
    for _, best in finders[:1]:
        rates = ", ".join(f"{_name(atlas, head)} {100 * share:.0f} %" for share, head in finders)
        entry = best.antecedents
        if entry is not None:
            yield (
                f"Names, on documents that no head was chosen on: {rates} right of "
                f"{entry.count:,} cases; {entry.baseline} "
                f"{100 * (entry.baseline_accuracy or 0):.0f} %."
            )


def _name(atlas: Atlas, head: AtlasHead) -> str:
    return atlas.layout.name(head.head)


_GOLD = ("accuracy", "low", "high", "count")


def rows(atlas: Atlas) -> list[Row]:
    """Return a row for each head; None for what is not known, edges as ``K of 2.0``."""
    return [_row(atlas, head) for head in atlas.heads]


def _row(atlas: Atlas, head: AtlasHead) -> Row:
    effect, relation = head.effect, head.relations[0] if head.relations else None
    row = head_cells(head.profile.scores, atlas.layout)
    row |= {"effect": None, "effect_low": None, "effect_high": None, "verdict": None}
    if effect is not None:
        first = effect.first
        row |= {"effect": effect.change, "effect_low": first.low, "effect_high": first.high}
        row["verdict"] = effect.verdict
    row["relation"] = None if relation is None else relation.relation
    for kind, gold in (("relation", relation), ("antecedent", head.antecedents)):
        figures = dict.fromkeys(_GOLD)
        if gold is not None:
            accuracy = gold.accuracy
            figures = dict(
                zip(_GOLD, (accuracy.value, accuracy.low, accuracy.high, gold.count), strict=True)
            )
        row |= {f"{kind}_{name}": value for name, value in figures.items()}
    row["copying"] = None if head.copying is None else head.copying.score
    row["copies"] = head.copies
    name = atlas.layout.name
    row["feeds"] = ", ".join(f"{edge.side} of {name(edge.reader)}" for edge in head.feeds)
    row["reads"] = ", ".join(f"{name(edge.writer)} by {edge.side}" for edge in head.reads)
    return row


def parts(atlas: Atlas) -> Iterator[Line]:
    """Return the summary, line by line."""
    return map(Line, summary(atlas))


def finding(atlas: Atlas, name: str) -> Finding:
    """Return what every part of it says of each head, in short."""
    lines = {atlas.layout.name(head.head): _lines(atlas, head) for head in atlas.heads}
    how = "; ".join(f"{part}: {method}" for part, method in methods(atlas))
    how = f"{how[:1].upper()}{how[1:]}."
    return Finding.of("atlas", name, "All that was measured of it", how, lines, _measures(atlas))


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
        yield f"ablated {change(head.effect)} {atlas.ablation.unit}{needed}"
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
    """List every score's mean, what ablating costs, shares of antecedents, copying; and roles."""
    heads = {atlas.layout.name(head.head): head for head in atlas.heads}
    part = atlas.ablation
    return Figures(
        {name: _of(head) for name, head in heads.items()},
        {
            name: frozenset(role.name for role in head.profile.scores.roles)
            | {role.title for role, _ in head.annotated}
            for name, head in heads.items()
        },
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
