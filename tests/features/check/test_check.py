"""The validator: every way a recording is wrong, under its path in the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import numpy as np
import pytest

import attnviz as av
from attnviz import schemas
from attnviz.cli import main

SCHEMA = schemas.schema("attnviz.capture")


def good() -> dict[str, Any]:
    row = [[[1.0, 0.0], [0.25, 0.75]], [[1.0, 0.0], [0.5, 0.5]]]
    return {"schema": "attnviz.capture/1", "tokens": ["a", " b"], "attentions": [row, row]}


def stored(path: Path, document: dict[str, Any]) -> Path:
    path.write_text(json.dumps(document))
    return path


def test_json_is_read_and_fits_the_schema(tmp_path: Path) -> None:
    jsonschema_rs.validate(SCHEMA, good())
    path = stored(tmp_path / "a.json", {**good(), "meta": {"model": "mine", "kinds": ["encoder"]}})
    found = av.read(path)
    assert found["1.1"].tolist() == [[1.0, 0.0], [0.5, 0.5]]
    assert found.layout.kinds == ("encoder",)
    assert found.source.model == "mine (a.json)"
    assert main(["heads", "--recorded", str(path), "-q"]) == 0
    checked = av.check(path)
    assert checked.holds
    assert checked.shapes == {"encoder": (2, 2, 2, 2)}
    assert av.check(path).from_json(checked.to_json()) == checked


@pytest.mark.parametrize(
    ("change", "path", "expected", "found"),
    [
        ({"tokens": ["a"]}, "attentions[:, :, queries, :]", "1 queries", "2"),
        ({"tokens": ["a"]}, "attentions[:, :, :, keys]", "1 keys", "2"),
        ({"special": [True]}, "special", "shape [2]", "shape [1]"),
        ({"attentions": [[[[1, 0], [0.5, 0.7]]]]}, "attentions[0, 0, 1]", "sums to 1", "1.2"),
        ({"attentions": [[[[1, 0], [-0.5, 1.5]]]]}, "attentions[0, 0, 1, 0]", "0 or more", "-0.5"),
        ({"meta": {"quantity": "logits"}}, "meta.quantity", "one of weights", "'logits'"),
        ({"attentions": [[[1, 0], [0, 1]]]}, "attentions[0][0][0]", "array", "int"),
        ({"attentions": [[[[1, "x"]]]]}, "attentions[0][0][0][1]", "float", "str"),
        ({"tokens": 3}, "tokens", "array", "int"),
    ],
)  # fmt: skip
def test_what_is_wrong_and_where(
    tmp_path: Path, change: dict[str, Any], path: str, expected: str, found: str
) -> None:
    checked = av.check(stored(tmp_path / "a.json", {**good(), **change}))
    (problem,) = [one for one in checked.problems if one.path == path]
    assert expected in problem.expected
    assert found in problem.found
    with pytest.raises(av.AttnvizError):
        av.read(tmp_path / "a.json")


def test_everything_is_listed_with_how_often(tmp_path: Path) -> None:
    weights = np.full((2, 2, 3, 3), 1 / 3, np.float32)
    weights[1, 0, 2] = 0.5
    weights[1, 1] = 0.5
    np.savez(tmp_path / "a.npz", attentions=weights, tokens=np.array([1, 2, 3]), meta="[]")
    found = av.check(tmp_path / "a.npz")
    assert [(one.path, one.found) for one in found.problems] == [
        ("tokens", "int64"), ("meta", "list"), ("attentions[1, 0, 2]", "1.5, and 3 more"),
    ]  # fmt: skip
    assert found.to_records()[0]["path"] == "tokens"


def test_what_reading_refuses_the_check_refuses(tmp_path: Path) -> None:
    """Whatever else stands in a file is found by reading it."""
    np.savez(
        tmp_path / "a.npz", attentions=np.ones((1, 1, 1, 1), np.float32), tokens=np.array(["a"]),
        places=np.array([["x"]]),
    )  # fmt: skip
    with pytest.raises(av.InputError):
        av.read(tmp_path / "a.npz")
    assert not av.check(tmp_path / "a.npz").holds


def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(stored(tmp_path / "a.json", good()))]) == 0
    assert "2 layers × 2 heads" in capsys.readouterr().out
    bad = stored(tmp_path / "b.json", {**good(), "tokens": ["a"]})
    assert main(["check", str(bad)]) == 4
    assert "attentions[:, :, :, keys]" in capsys.readouterr().out
    assert main(["check", str(bad), "--json"]) == 4
    assert json.loads(capsys.readouterr().out)["schema"] == "attnviz.check/1"
    assert main(["check", str(tmp_path / "none.npz")]) == 1
    (tmp_path / "c.json").write_text("{}")
    assert main(["check", str(tmp_path / "c.json")]) == 1


def test_what_attnviz_writes_is_in_order(tmp_path: Path) -> None:
    for suffix in ("npz", "safetensors"):
        path = av.write_capture(av.capture("The cat sat"), tmp_path / f"a.{suffix}")
        assert av.check(path).holds


def test_a_batch_is_checked_item_by_item(tmp_path: Path) -> None:
    weights = np.full((1, 2, 1, 2, 2), 0.5, np.float32)
    tokens = np.array([["a", "b"], ["c", ""]])
    weights[0, 1] = [[1, 0], [0, 0]]
    np.savez(tmp_path / "a.npz", attentions=weights, tokens=tokens)
    found = av.check(tmp_path / "a.npz")
    assert (found.holds, found.items) == (True, 2)
    weights[0, 1] = 0.5  # on padding
    np.savez(tmp_path / "a.npz", attentions=weights, tokens=tokens)
    assert [one.path for one in av.check(tmp_path / "a.npz").problems] == ["item 1"]
