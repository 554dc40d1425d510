"""What follows from the declarations is written anew whenever they change."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import jsonschema_rs
import pytest

import attnviz as av
from attnviz import schemas
from attnviz.core.result import Result
from attnviz.features.results import RESULTS, result_class
from docs import reference
from tests import ROOT, forking


@pytest.mark.parametrize("path", reference.WRITTEN, ids=lambda path: path.name)
def test_it_is_what_the_declarations_say(path: Path) -> None:
    assert path.read_text("utf-8") == reference.WRITTEN[path](), "run python docs/reference.py"


def test_there_are_no_more_options_than_now() -> None:
    assert len(reference.declared_options()) <= 150


def test_an_option_of_one_name_reads_alike_everywhere() -> None:
    """The same flag letters stand for the same option in all commands."""
    letters: dict[str, list[set[str]]] = {}
    for commands in reference.declared_options().values():
        for parameter in commands.values():
            long = {flag for flag in parameter.opts if flag.startswith("--")}
            for flag in set(parameter.opts) - long:
                letters.setdefault(flag, []).append(long)
    assert all(set.intersection(*names) for names in letters.values()), letters


COMMAND = re.compile(r"(?:attnviz |`)([a-z]+)((?:(?!attnviz )[^`|#\n])*)")
"""A command as documents and docstrings write it, with what follows on its line."""


def test_documents_and_code_name_options_that_there_are() -> None:
    known: dict[str, set[str]] = {}
    for commands in reference.declared_options().values():
        for command, parameter in commands.items():
            known.setdefault(command, {"--help", "--help-all"}).update(
                parameter.opts, parameter.secondary_opts
            )

    def unknown(text: str) -> list[str]:
        return [
            f"{command} {option}"
            for command, rest in COMMAND.findall(text)
            for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest)
            if command in known and option not in known[command]
        ]

    paths = [*ROOT.glob("*.md"), ROOT / "Makefile", *(ROOT / "docs").rglob("*.md")]
    paths += [*(ROOT / "attnviz").rglob("*.py"), *(ROOT / "attnviz").rglob("*.toml")]
    assert {path.name: found for path in paths if (found := unknown(path.read_text("utf-8")))} == {}
    assert unknown("`syntax --random` and `heads --json`") == ["syntax --random"]


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
    ran = forking.run(command, text=True)
    assert ran.returncode == 0, ran.stderr
    written = sorted((tmp_path / "new").iterdir())
    assert sorted(map(Path, ran.stdout.split())) == written
    assert len(written) == len(RESULTS) + 1
    assert json.loads((tmp_path / "new/heads.schema.json").read_text()) == av.Heads.json_schema()
    for wrong in ([], ["--help"]):
        ran = forking.run([*command[:-1], *wrong], cwd=tmp_path, text=True)
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
