"""What an atlas takes over from heads against gold annotation."""

from __future__ import annotations

from dataclasses import replace

import pytest

import attnviz as av
from attnviz.features.atlas.gather import gather
from attnviz.features.atlas.page import document
from attnviz.features.profile.result import Profile
from tests import ROOT
from tests.corpus.gold import results as gold


@pytest.fixture(scope="module")
def profile() -> Profile:
    found = av.profile(ROOT / "sample_inputs" / "sentences.txt", model="demo-bert", limit=2)
    return replace(found, identity={})


def test_heads_have_the_relations_that_are_roles(profile: Profile) -> None:
    """A treebank that gives roles, which the sample is too small for."""
    det = gold.relation_head("1.2", "det", (0.95, 0.9, 1.0), (0.6, 0.5, 0.7), 80)
    obj = gold.relation_head("1.2", "obj", (0.75, 0.7, 0.8), (0.4, 0.3, 0.5), 200)
    every = replace(obj, relation="all")
    found = gold.syntax(best=[every, det, obj], roles=[obj])
    drawn = document(gather(profile, syntax=found))
    heads = {head["name"]: head for head in drawn["heads"]}
    assert [one["relation"] for one in heads["1.2"]["relations"]] == ["obj"]
    first = heads["1.2"]["relations"][0]
    assert (first["accuracy"], first["low"], first["high"]) == (0.75, 0.7, 0.8)
    assert (first["count"], first["offset_accuracy"], first["margin"]) == (200, 0.35, 0.4)
    assert heads["0.0"]["relations"] == []
    assert any("obj by 1.2 (75 % of 200, best offset 35 %)" in one for one in drawn["summary"])
    (method,) = (one for one in drawn["methods"] if one["part"] == "syntax")
    assert method["said"] == (
        "3,000 words in 20 documents; heads chosen on even documents, figures from odd documents"
    )


def test_heads_have_their_share_of_antecedents(profile: Profile) -> None:
    one = gold.antecedent_head("3.0", (0.75, 0.7, 0.8), (0.25, 0.2, 0.3))
    other = gold.antecedent_head("0.1", (0.5, 0.4, 0.6), (0.0, -0.1, 0.1))
    drawn = document(gather(profile, coref=gold.coref(ranked=[one, other], roles=[one])))
    heads = {head["name"]: head["coreference"] for head in drawn["heads"]}
    assert heads["0.1"] is heads["0.0"] is None  # of which one finds some, not sure ones
    assert (heads["3.0"]["baseline"], heads["3.0"]["baseline_accuracy"]) == ("nearest", 0.5)
    assert any("3.0 75 % right of 90 cases; nearest 50 %" in one for one in drawn["summary"])
