"""A result on a treebank as a value: its JSON both ways, its roles, what is refused."""

from __future__ import annotations

from dataclasses import replace

import jsonschema_rs
import pytest
from hypothesis import given, settings

import attnviz
from attnviz.core.heads import Head, Layout, Site
from attnviz.errors import InputError
from attnviz.features.syntax.result import Syntax
from tests.corpus.gold import results as gold
from tests.corpus.gold.reference import SAMPLE
from tests.records import record

LAYOUT = Layout({"encoder": (2, 3)})
SCHEMA = jsonschema_rs.validator_for(Syntax.json_schema())


@settings(max_examples=50)
@given(record(Syntax, LAYOUT))
def test_json_gives_the_same_value_again_and_follows_its_schema(found: Syntax) -> None:
    assert Syntax.from_dict(found.to_dict()) == found
    assert Syntax.from_json(found.to_json()) == found
    SCHEMA.validate(found.to_dict())


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


def test_a_head_that_the_model_does_not_have_is_refused() -> None:
    one = gold.relation_head("1.2", "obj", (0.75, 0.7, 0.8), (0.25, 0.2, 0.3), 200)
    document = gold.syntax(roles=[one]).to_dict()
    document["roles"][0]["head"] = "9.9"
    with pytest.raises(InputError, match=r"'9\.9' is not a head of this model"):
        Syntax.from_dict(document)
