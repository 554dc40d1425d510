"""One atlas from the results of a profile, an ablation, of gold annotation and of circuits.

Nothing is computed anew; what a result does not have stays None.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median

from msgspec import convert

from attnviz.core.heads import Head, SiteKind
from attnviz.core.result import Finding
from attnviz.corpus.gold.tally import ALL
from attnviz.features.ablation.result import Ablation, Effect
from attnviz.features.atlas import result as records
from attnviz.features.circuits.result import SIDES, Circuits, Edge
from attnviz.features.coref.result import Coref
from attnviz.features.profile.result import ExampleRow, HeadProfile, Profile, Share
from attnviz.features.sources.result import ScoreSide, SourceShare, SourceShares
from attnviz.features.syntax.result import RelationHead, Syntax

_STRINGS, _NEAREST, _EDGES, _RELATIONS, _SOURCES = 8, 3, 3, 3, 4  # how many of each a head keeps

_OF_PROFILE = (
    "source", "layout", "identity", "texts", "corpus", "seed", "windows", "tokens", "files",
    "clusters", "grouped", "simultaneous", "resamples",
)  # fmt: skip
"""What an atlas has as its profile has it."""


def gather(
    profile: Profile,
    *,
    ablate: Ablation | None = None,
    syntax: Syntax | None = None,
    coref: Coref | None = None,
    circuits: Circuits | None = None,
    shares: Mapping[Head, SourceShares] | None = None,
    absent: Mapping[str, str] | None = None,
    maps: Mapping[Head, records.ExampleMap] | None = None,
    findings: Sequence[Finding] = (),
) -> records.Atlas:
    """All that is known, head by head."""
    shares = shares or {}
    parts = [
        part for part in (ablate, syntax, coref, circuits, *shares.values()) if part is not None
    ]
    for part in parts:
        name = f"the {part.command} result"
        part.check_model(name, profile.source, profile.layout, profile.identity)
    effects = _effects(ablate)
    ranked = {} if coref is None else {entry.head: entry for entry in coref.everything.ranked}
    edges = () if circuits is None else _edges(circuits)
    copies = {} if circuits is None else circuits.copies()
    heads = []
    for measured in profile.heads:
        head = measured.head
        antecedents = ranked.get(head)
        if antecedents is not None and antecedents.accuracy.value is None:
            antecedents = None
        reads = tuple([edge for edge in edges if edge.reader == head][:_EDGES])
        heads.append(
            records.AtlasHead(
                profile=replace(
                    measured, tokens=_telling(measured.tokens), nearest=measured.nearest[:_NEAREST]
                ),
                effect=effects.get(head),
                relations=tuple(_relations(syntax, head)),
                antecedents=antecedents,
                annotated=tuple(
                    role
                    for gold in (syntax, coref)
                    if gold is not None
                    for role in gold.annotated_roles().get(head, ())
                ),
                plain=None if circuits is None else circuits.plain.get(head),
                first=None if circuits is None else circuits.first.get(head),
                copies=copies.get(head),
                feeds=tuple([edge for edge in edges if edge.writer == head][:_EDGES]),
                reads=reads,
                shares=_shares(shares[head], reads) if head in shares else None,
                map=(maps or {}).get(head),
            )
        )
    return records.Atlas(
        **{name: getattr(profile, name) for name in _OF_PROFILE},
        partial=any(part.partial for part in (profile, *parts)),
        notes=tuple(dict.fromkeys(note for part in (profile, *parts) for note in part.notes)),
        heads=tuple(heads),
        usual=_usual(profile),
        ablation=None
        if ablate is None
        else convert(ablate, records.AblationPart, from_attributes=True),
        syntax=None if syntax is None else _gold(syntax, syntax.words),
        coref=None if coref is None else _gold(coref, coref.examples),
        circuits=circuits is not None,
        absent=absent or {},
        findings=tuple(findings),
    )


def examples(head: HeadProfile) -> list[tuple[str, ExampleRow]]:
    """Get the score and row that show each role best; where there is none, the strongest of any."""
    best = {
        score: row
        for score, rows in head.examples.items()
        for row in reversed(rows)
        if row.sort == "best"
    }
    roles = [(role.score, best[role.score]) for role in head.scores.roles if role.score in best]
    return roles or sorted(best.items(), key=lambda item: -item[1].value)[:1]


def _usual(profile: Profile) -> dict[SiteKind, float]:
    """Return the distance of the median pair of heads, by kind: what a pair drawn at random has."""
    medians = {}
    for kind, rows in profile.likeness.items():
        distances = [far for n, row in enumerate(rows) for far in row[n + 1 :]]
        if distances and not any(map(math.isnan, distances)):
            medians[kind] = median(distances)
    return medians


def _effects(ablate: Ablation | None) -> dict[Head, Effect]:
    """Of each head that was ablated alone."""
    return {} if ablate is None else {
        effect.heads[0]: effect
        for effect in ablate.effects
        if [ablate.layout.name(head) for head in effect.heads] == [effect.name]
    }  # fmt: skip


def _edges(circuits: Circuits) -> list[Edge]:
    """Those that random heads would hardly have, the strongest first."""
    return sorted((e for side in SIDES for e in circuits.clear(side)), key=lambda e: -e.excess)


def readers(circuits: Circuits, limit: int) -> list[Head]:
    """Get the heads whose queries or keys others feed by the weights, the strongest edges first."""
    edges_of: dict[Head, int] = {}
    heads: dict[Head, None] = {}
    for edge in _edges(circuits):
        edges_of[edge.reader] = edges_of.get(edge.reader, 0) + 1
        if edges_of[edge.reader] <= _EDGES and edge.side in ("Q", "K"):
            heads[edge.reader] = None
    return list(heads)[:limit]


def _shares(shares: SourceShares, reads: Sequence[Edge]) -> records.ReadShares:
    """Give what is kept of it: the largest sources, and the heads that it reads by its weights."""

    def largest(side: ScoreSide, letter: str) -> tuple[SourceShare, ...]:
        writers = {edge.writer for edge in reads if edge.side == letter}
        return tuple(
            source
            for rank, source in enumerate(shares.side(side))
            if rank < _SOURCES or source.origin.head in writers
        )

    return records.ReadShares(
        shares.score, shares.texts, shares.rows, largest("query", "Q"), largest("key", "K")
    )


def _gold(result: Syntax | Coref, cases: int) -> records.GoldPart:
    return records.GoldPart(cases, result.texts, result.unit, result.split)


def _relations(syntax: Syntax | None, head: Head) -> Iterator[RelationHead]:
    """Give the relations that are roles: sure in the family of all questions, with cases enough."""
    if syntax is None:
        return
    roles = {role.relation for role in syntax.roles if role.head == head}
    heads = [
        relation.best
        for relation in syntax.relations
        if relation.name in roles - {ALL} and relation.best and relation.best.head == head
    ]
    heads.sort(key=lambda entry: -(entry.margin.value or 0.0))
    yield from heads[:_RELATIONS]


def _telling(tokens: Sequence[tuple[str, Share]]) -> tuple[tuple[str, Share], ...]:
    """Give strings that get more weight than their frequency gives them, the most telling first."""
    above = [(text, share) for text, share in tokens if share.weight > share.uniform > 0]
    above.sort(key=lambda item: -item[1].weight * math.log(item[1].weight / item[1].uniform))
    return tuple(above[:_STRINGS])
