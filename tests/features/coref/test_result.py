"""A result on antecedents as a value: its JSON both ways, its roles, what is refused."""

from __future__ import annotations

import jsonschema_rs
from hypothesis import given, settings
from hypothesis import strategies as st

from attnviz.core.findings import Interval
from attnviz.core.heads import Layout
from attnviz.core.provenance import SourceInfo
from attnviz.features.coref.result import (
    NAME_DIRECTIONS,
    AntecedentHead,
    Baseline,
    Coref,
    MentionKind,
    NameAccuracy,
)
from tests.corpus.gold import results as gold

LAYOUT = Layout({"decoder": (2, 3)})

names = st.text(max_size=8)
numbers = st.integers(0, 10**9)
parts = st.floats(-1, 1, allow_nan=False)
maybe = st.none() | parts
shares = st.builds(Interval, maybe, maybe, maybe)
heads = st.sampled_from(tuple(LAYOUT))
found_by = st.builds(
    AntecedentHead, head=heads, direction=st.sampled_from(NAME_DIRECTIONS), accuracy=shares,
    count=numbers, baseline=names, baseline_accuracy=maybe, margin=shares,
)  # fmt: skip
kinds = st.builds(
    MentionKind,
    name=names,
    count=numbers,
    baselines=st.lists(st.builds(Baseline, names, parts, shares), max_size=2).map(tuple),
    heads=st.lists(st.builds(NameAccuracy, heads, parts, maybe), max_size=3).map(tuple),
    ranked=st.lists(found_by, max_size=3).map(tuple),
)
results = st.builds(
    Coref,
    source=st.builds(SourceInfo, names, st.just("native"), names),
    layout=st.just(LAYOUT),
    identity=st.dictionaries(names, names, max_size=2),
    texts=numbers,
    partial=st.booleans(),
    notes=st.lists(names, max_size=2).map(tuple),
    unit=st.sampled_from(["documents", "windows"]),
    data=st.sampled_from(["names", "mentions"]),
    examples=numbers,
    skipped=st.dictionaries(names, numbers, max_size=2),
    split=st.sampled_from(["halves", "all"]),
    candidates=st.sampled_from(["names", "words", "mentions"]),
    window=st.none() | numbers,
    kinds=st.lists(kinds, min_size=1, max_size=3).map(tuple),
    roles=st.lists(found_by, max_size=3).map(tuple),
)


@settings(max_examples=50)
@given(results)
def test_json_gives_the_same_value_again_and_follows_its_schema(found: Coref) -> None:
    assert Coref.from_dict(found.to_dict()) == found
    assert Coref.from_json(found.to_json()) == found
    jsonschema_rs.validate(Coref.json_schema(), found.to_dict())


def test_roles_are_evidence_beside_the_baseline() -> None:
    one = gold.antecedent_head("1.2", (0.75, 0.7, 0.8), (0.25, 0.2, 0.3))
    ((role, estimate),) = gold.coref(roles=[one]).annotated_roles()[one.head]
    assert (role.title, role.evidence.mean, role.evidence.chance) == ("coreference", 0.75, 0.5)
    assert (estimate.low, estimate.high, estimate.rows) == (0.7, 0.8, 90)
