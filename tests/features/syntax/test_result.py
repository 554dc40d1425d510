"""A result on a treebank as a value: its JSON both ways, its roles, what is refused."""

from __future__ import annotations

from dataclasses import replace

import attnviz
from attnviz.core.heads import Head, Site
from tests.corpus.gold import results as gold
from tests.corpus.gold.reference import SAMPLE


def test_without_a_seed_nothing_was_drawn() -> None:
    assert attnviz.syntax(SAMPLE, model="demo-bert").seed is None


def test_roles_are_evidence_beside_the_offset() -> None:
    one = gold.relation_head("1.2", "obj", (0.75, 0.7, 0.8), (0.25, 0.2, 0.3), 200)
    other = gold.relation_head("1.2", "det", (0.9, 0.8, 1.0), (0.5, 0.4, 0.6), 40)
    found = gold.syntax(roles=[one, other]).annotated_roles()
    assert list(found) == [Head(Site("encoder", 1), 2)]
    (first, estimate), (second, _) = found[one.head]
    assert [first.title, second.title] == ["syntactic: obj", "syntactic: det"]
    assert (first.evidence.mean, first.evidence.chance, first.evidence.lift) == (0.75, 0.5, 1.5)
    assert (estimate.low, estimate.high, estimate.rows) == (0.7, 0.8, 200)
    nothing = replace(one, offset_accuracy=0.0)
    ((role, _),) = gold.syntax(roles=[nothing]).annotated_roles()[one.head]
    assert role.evidence.lift is None
