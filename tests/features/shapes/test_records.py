"""Answers as records: equal after JSON, read from files, and damage told in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnviz as av
from attnviz.attention.spec import RunSizes
from attnviz.errors import InputError, UsageError
from attnviz.features.shapes import function as answers
from attnviz.features.shapes.result import VIEWS, Answer, CompareAnswer, ModelAnswer, WalkAnswer
from attnviz.features.shapes.table import Paint, as_csv, as_text

SCHEMA = Answer.json_schema()


def every_view(folder: Path) -> dict[str, Answer]:
    layer, words = answers.Layer(64, 4), answers.Example("cat sat")
    return {
        "walk": answers.walk(layer, RunSizes(seq=1 << 40), explain=True),
        "model": answers.walk(answers.Model("t5-base")),
        "diagram": answers.diagram(answers.Model("gemma2-9b"), out=folder / "layer.svg"),
        "compare": answers.compare(layer, memory="1GB"),
        "sweep": answers.sweep(layer, "kv-heads=1..H"), "presets": answers.presets(),
        "verify": answers.verify(answers.Layer(8, 2)),
        "numbers": answers.numbers(answers.Example("a b", answers.Layer(causal=True))),
        "scaling": answers.scaling(),
        "animation": answers.animate(words, folder / "animation.html"),
    }  # fmt: skip


def test_the_cache_of_a_batch_is_in_the_record() -> None:
    """By hand: 2 · 8 key heads · 128 numbers of 2 bytes in 32 layers; T5 keeps 2 · 768 in 12."""
    run = RunSizes(batch=32, seq=8192)
    document = answers.walk(answers.Model("llama3-8b"), run).to_dict()
    assert document["cache"] == {
        "tokens": 8192, "sequences": 32, "bytes_per_token": 2**17, "bytes_per_sequence": 2**30,
        "bytes_per_batch": 2**35, "cross_bytes_per_token": None,
    }  # fmt: skip
    t5 = answers.walk(answers.Model("t5-base"), RunSizes(dtype="float16")).cache
    assert t5 is not None
    assert t5.bytes_per_token == t5.cross_bytes_per_token == 2 * 768 * 12 * 2
    assert t5.bytes_per_batch == 4096 * t5.bytes_per_token
    assert answers.walk(answers.Model("bert-base")).cache is None


def test_every_view_comes_back_equal(tmp_path: Path) -> None:
    found = every_view(tmp_path)
    assert found.keys() == VIEWS.keys()
    for view, one in found.items():
        assert type(one) is VIEWS[view]
        document = one.to_dict()
        assert document["schema"] == "attnviz.shapes/1"
        assert document["view"] == view
        jsonschema_rs.validate(SCHEMA, document)
        jsonschema_rs.validate(VIEWS[view].json_schema(), document)
        assert Answer.from_dict(document) == type(one).from_json(one.to_json()) == one
        path = tmp_path / f"{view}.json"
        path.write_text(one.to_json(), encoding="utf-8")
        read = av.read(path)
        assert read == one
        assert type(read) is type(one)
        assert as_text(read, 100, Paint(colour=False)).startswith(one.title[:20])


@settings(max_examples=40, deadline=None)
@given(
    heads=st.sampled_from([1, 2, 6, 8]),
    width=st.integers(1, 128),
    kind=st.sampled_from(["mha", "mqa", "mla", "cross"]),
    batch=st.one_of(st.none(), st.integers(1, 1 << 40)),
    seq=st.one_of(st.none(), st.integers(1, 1 << 40)),
    dtype=st.sampled_from([None, "bf16", "float64"]),
    explain=st.booleans(),
)
def test_any_walk_comes_back_equal(
    heads: int, width: int, kind: str, batch: Any, seq: Any, dtype: Any, explain: bool
) -> None:
    layer = answers.Layer(heads * width, heads, head_dim=width, kind=kind)
    found = answers.walk(layer, RunSizes(batch, seq, dtype=dtype), explain=explain)
    assert WalkAnswer.from_json(found.to_json()) == found
    assert found.layer.d_model == heads * width
    assert found.steps[0].shape == (batch, seq, heads * width)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": "attnviz.shapes/2"}, "reads version 1; make it again with attnviz shapes"),
        ({"schema": "attnviz.heads/1"}, "not attnviz.shapes/1"),
        ({"view": "zork"}, r"'zork', not walk or model or .* - at `\$.view`"),
        ({"view": ["walk"]}, r"damaged: its view is"),
        ({"view": "verify"}, "missing required field `subject`"),
        ({"layers": "one"}, r"Expected `int`, got `str` - at `\$.layers`"),
        ({"layer": {"kind": "mha"}}, "missing required field `d_model`"),
        ({"steps": [3]}, r"at `\$.steps\[0\]`"),
    ],
)
def test_damage_is_told_in_one_line(change: dict[str, Any], said: str) -> None:
    document = {**answers.walk(answers.Layer()).to_dict(), **change}
    with pytest.raises(InputError, match=said) as caught:
        Answer.from_dict(document, "f.json")
    assert str(caught.value).startswith("f.json is ")
    assert "\n" not in str(caught.value)


def test_a_view_is_not_another() -> None:
    document = answers.walk(answers.Layer()).to_dict()
    with pytest.raises(InputError, match="its view is 'walk', not compare"):
        CompareAnswer.from_dict(document)
    for wrong in (ModelAnswer.json_schema(), CompareAnswer.json_schema()):
        with pytest.raises(jsonschema_rs.ValidationError):
            jsonschema_rs.validate(wrong, document)
    for key in ("schema", "view", "title", "steps"):
        with pytest.raises(jsonschema_rs.ValidationError):
            jsonschema_rs.validate(SCHEMA, {k: v for k, v in document.items() if k != key})


def test_what_has_no_table_has_no_csv() -> None:
    walked = answers.walk(answers.Layer())
    assert as_csv(walked).startswith("step,shape")
    for bare in (answers.diagram(answers.Layer()), Answer.from_dict(walked.to_dict())):
        with pytest.raises(UsageError, match="has no table"):
            as_csv(bare)
    assert json.loads(walked.to_json())["view"] == "walk"
