"""The schemas of results follow from their types."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema_rs
import pytest

import attnviz as av
from attnviz import schemas
from attnviz.core.result import Result
from attnviz.features.registry import RESULTS, result_class


@pytest.mark.parametrize("name", RESULTS)
def test_every_schema_is_valid_and_complete(name: str) -> None:
    """Each reference leads to a part, each part is used, and versions are those of the class."""
    schema = schemas.schema(name)
    text = json.dumps(schema)
    jsonschema_rs.meta.validate(schema)
    found = result_class(name)
    assert found is not None
    assert schema["$id"] == schema["properties"]["schema"]["const"] == found.schema
    assert found.schema.partition("/")[0] == name
    header = (
        {"source", "layout"}
        if issubclass(found, Result)
        else {
            "attnviz.shapes": {"view"}, "attnviz.check": {"file", "format"},
            "attnviz.module-check": {"module", "verdict"}, "attnviz.model": {"name", "family"},
            "attnviz.families": {"transformers", "families"}, "attnviz.models": {"models"},
        }[name]
    )  # fmt: skip
    assert {"schema", *header} <= set(schema["required"])
    for part in schema["$defs"]:
        assert f'"#/$defs/{part}"' in text
    assert text.count('"$ref": "#/$defs/') == text.count('"$ref": ')


def test_every_schema_is_written(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "attnviz.schemas", str(tmp_path / "new")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    written = sorted((tmp_path / "new").iterdir())
    assert sorted(map(Path, ran.stdout.split())) == written
    assert len(written) == len(RESULTS) + 1
    assert json.loads((tmp_path / "new/heads.schema.json").read_text()) == av.Heads.json_schema()
    for wrong in ([], ["--help"]):
        line = [*command[:-1], *wrong]
        ran = subprocess.run(line, capture_output=True, check=False, cwd=tmp_path, text=True)
        assert (ran.returncode, ran.stdout) == (1, "")


def test_a_real_result_fits_its_schema_and_a_damaged_one_does_not() -> None:
    schema = schemas.schema("attnviz.heads")
    found = av.heads("the cat and the cat").to_dict()
    jsonschema_rs.validate(schema, found)
    for key in ("schema", "source", "layout", "tokens", "heads"):
        with pytest.raises(jsonschema_rs.ValidationError):
            jsonschema_rs.validate(schema, {k: v for k, v in found.items() if k != key})
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(schema, {**found, "schema": "attnviz.heads/2"})
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(schema, {**found, "empty_rows": "none"})
