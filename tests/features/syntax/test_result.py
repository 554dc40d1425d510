"""A result on a treebank as a value: its JSON both ways, its roles, what is refused."""

from __future__ import annotations

from dataclasses import replace

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnviz
from attnviz.core.heads import Head, Layout, Site
from attnviz.core.provenance import SourceInfo
from attnviz.core.result import Interval
from attnviz.errors import InputError
from attnviz.features.syntax.result import (
    DIRECTIONS,
    Arc,
    Combined,
    CombinedControl,
    CombinedWeight,
    HeadAccuracy,
    Parse,
    Relation,
    RelationHead,
    Syntax,
    TreeChoice,
    TreeHead,
    Trees,
    Untrained,
)
from tests.corpus.gold import results as gold
from tests.corpus.gold.reference import SAMPLE

LAYOUT = Layout({"encoder": (2, 3)})
HEADS = tuple(LAYOUT)

names = st.text(max_size=8)
numbers = st.integers(0, 10**9)
parts = st.floats(-1, 1, allow_nan=False)
maybe = st.none() | parts
shares = st.builds(Interval, maybe, maybe, maybe)
heads = st.sampled_from(HEADS)
found_by = st.builds(
    RelationHead, head=heads, relation=names, direction=st.sampled_from(DIRECTIONS),
    accuracy=shares, count=numbers, offset=st.integers(-99, 99), offset_accuracy=maybe,
    margin=shares,
)  # fmt: skip
relations = st.builds(
    Relation,
    name=names,
    count=numbers,
    offset=st.integers(-99, 99),
    offset_accuracy=parts,
    heads=st.lists(st.builds(HeadAccuracy, heads, parts, parts), max_size=3).map(tuple),
    best=st.none() | found_by,
)
trees = st.none() | st.builds(
    Trees,
    count=numbers,
    chain=parts,
    heads=st.lists(st.builds(TreeHead, heads, parts), max_size=3).map(tuple),
    best=st.none() | st.builds(TreeChoice, heads, shares, numbers, maybe, shares),
)
scales = st.sampled_from(["default", "trained"])
combined = st.none() | st.builds(
    Combined,
    uas=shares,
    controls=st.lists(st.builds(CombinedControl, numbers, scales, shares, shares), max_size=2).map(
        tuple
    ),
    margin=shares,
    offset=st.integers(-99, 99),
    offset_accuracy=maybe,
    count=numbers,
    trained=numbers,
    sentences=numbers,
    left_out=numbers,
    weights=st.lists(st.builds(CombinedWeight, heads, parts, parts), max_size=3).map(tuple),
)
parses = st.builds(
    Parse,
    name=names,
    words=st.lists(names, max_size=3).map(tuple),
    arcs=st.lists(st.builds(Arc, names, names, numbers, numbers, numbers), max_size=3).map(tuple),
)
several = st.lists(relations, max_size=3).map(tuple)
roles = st.lists(found_by, max_size=3).map(tuple)
results = st.builds(
    Syntax,
    source=st.builds(SourceInfo, names, st.just("native"), names),
    layout=st.just(LAYOUT),
    identity=st.dictionaries(names, names, max_size=2),
    texts=numbers,
    seed=st.none() | numbers,
    partial=st.booleans(),
    notes=st.lists(names, max_size=2).map(tuple),
    unit=st.sampled_from(["documents", "sentences"]),
    sentences=numbers,
    words=numbers,
    skipped=st.dictionaries(names, numbers, max_size=2),
    untokenized=numbers,
    split=st.sampled_from(["halves", "all"]),
    subtypes=st.booleans(),
    punct=st.booleans(),
    relations=several,
    roles=roles,
    untrained=st.lists(
        st.builds(Untrained, numbers, scales, several, roles, trees, trees), max_size=2
    ).map(tuple),
    asked=numbers,
    trees=trees,
    rooted=trees,
    combined=combined,
    shown=st.lists(parses, max_size=2).map(tuple),
)


SCHEMA = jsonschema_rs.validator_for(Syntax.json_schema())


@settings(max_examples=50)
@given(results)
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
