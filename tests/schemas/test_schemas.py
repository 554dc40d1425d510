"""The schemas that are shipped are those of the types."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema_rs
import pytest

import attnviz as av
from attnviz import schemas
from attnviz.core.result import Result
from attnviz.features.registry import RESULTS, result_class

ANEW = "python -m attnviz.schemas writes it anew"


@pytest.mark.parametrize("name", schemas.NAMES)
def test_a_file_is_what_its_type_says(name: str) -> None:
    assert schemas.schema_path(name).read_text("utf-8") == schemas.schema_text(name), ANEW


@pytest.mark.parametrize("name", RESULTS)
def test_every_schema_is_valid_and_complete(name: str) -> None:
    """Each reference leads to a part, each part is used, and versions are those of the class."""
    text = schemas.schema_path(name).read_text("utf-8")
    schema = json.loads(text)
    jsonschema_rs.meta.validate(schema)
    found = result_class(name)
    assert found is not None
    assert schema["$id"] == schema["properties"]["schema"]["const"] == found.schema
    assert found.schema.partition("/")[0] == name
    header = (
        {"source", "layout"}
        if issubclass(found, Result)
        else {
            "attnviz.shapes": {"view"},
            "attnviz.check": {"file", "format"},
            "attnviz.model": {"name", "family"},
            "attnviz.models": {"models"},
        }[name]
    )
    assert {"schema", *header} <= set(schema["required"])
    for part in schema["$defs"]:
        assert f'"#/$defs/{part}"' in text
    assert text.count('"$ref": "#/$defs/') == text.count('"$ref": ')


def test_there_is_a_file_for_every_result_and_no_other() -> None:
    wanted = {schemas.schema_path(name).name for name in schemas.NAMES}
    assert {path.name for path in schemas.FOLDER.glob("*.json")} == wanted


def test_writing_replaces_what_is_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "FOLDER", tmp_path)
    (tmp_path / "gone.schema.json").write_text("{}")
    (tmp_path / "heads.schema.json").write_text("{}")
    written = schemas.write()
    assert set(tmp_path.iterdir()) == set(written)
    assert json.loads((tmp_path / "heads.schema.json").read_text()) == av.Heads.json_schema()


def test_a_real_result_fits_the_file_and_a_damaged_one_does_not() -> None:
    schema = json.loads(schemas.schema_path("attnviz.heads").read_text("utf-8"))
    found = av.heads("the cat and the cat").to_dict()
    jsonschema_rs.validate(schema, found)
    for key in ("schema", "source", "layout", "tokens", "heads"):
        with pytest.raises(jsonschema_rs.ValidationError):
            jsonschema_rs.validate(schema, {k: v for k, v in found.items() if k != key})
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(schema, {**found, "schema": "attnviz.heads/1"})
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(schema, {**found, "empty_rows": "none"})
