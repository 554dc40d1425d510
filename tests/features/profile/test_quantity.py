"""Profiles of what heads write: the numbers of single texts, the same bits, state files."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema_rs
import pytest

import attnviz as av
from attnviz.errors import UsageError
from attnviz.features.profile.result import Profile
from tests.features.profile.corpus import lines, sentences

TEXTS = sentences(6)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return lines(tmp_path / "texts.txt", TEXTS)


@pytest.mark.parametrize("quantity", ["norm", "norm-residual"])
def test_means_are_those_of_the_texts(corpus: Path, quantity: str) -> None:
    found = av.profile(corpus, model="demo-gpt2", quantity=quantity)
    assert (found.quantity, found.layout.whole) == (quantity, quantity != "norm")
    reports = [av.heads(text, model="demo-gpt2", quantity=quantity) for text in TEXTS]
    for number, head in enumerate(found.heads):
        for name in ("previous", "self", "entropy"):
            scores = [report.heads[number].scores[name] for report in reports]
            rows = sum(score.rows for score in scores)
            total = sum((score.mean or 0) * score.rows for score in scores)
            assert head.estimates[name].rows == rows
            assert head.estimates[name].mean == pytest.approx(total / rows, rel=1e-5, abs=1e-7)


def test_processes_and_files_give_the_same_bits(corpus: Path, tmp_path: Path) -> None:
    state = tmp_path / "a.profile"
    settings = {"model": "demo-bert", "quantity": "norm-residual-ln"}
    alone = av.profile(corpus, state=state, **settings)
    document = json.loads(alone.to_json())
    jsonschema_rs.validate(Profile.json_schema(), document)
    assert document["quantity"] == "norm-residual-ln"
    assert document["heads"][0]["scores"]["head"] == "0.*"
    assert av.profile(corpus, jobs=2, **settings).to_json() == alone.to_json()
    assert av.read(state).to_json() == alone.to_json()
    with pytest.raises(UsageError, match=r"quantity norm-residual-ln, not weights"):
        av.profile(corpus, state=state, model="demo-bert")
