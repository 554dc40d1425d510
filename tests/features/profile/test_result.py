"""A profile as JSON: the same value again, by its schema; what is damaged is named."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import jsonschema_rs
import pytest

import attnviz as av
from attnviz.errors import InputError
from attnviz.features import registry
from attnviz.features.profile.result import Profile
from tests.features.profile.corpus import grouped, lines, sentences


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Profile]:
    folder = tmp_path_factory.mktemp("real")
    few = lines(folder / "few.txt", sentences(3))
    groups = grouped(folder / "groups.jsonl", sentences(60), 3)
    long = lines(folder / "long.txt", [" ".join(sentences(24))])
    with open(few, "ab") as file:
        file.write(b"caf\xe9 is not UTF-8\n")
    return {
        "few": av.profile(few, model="demo-bert", quantity="norm-residual-ln"),
        "groups": av.profile(groups, group="doc", interval="simultaneous", stability=True),
        "long": av.profile(long, whole=True),
    }


@pytest.mark.parametrize("name", ["few", "groups", "long"])
def test_json_gives_the_same_value_again_and_follows_its_schema(
    real: dict[str, Profile], tmp_path: Path, name: str
) -> None:
    found = real[name]
    assert Profile.from_dict(found.to_dict()) == found
    assert Profile.from_json(found.to_json()) == found
    assert registry.read(found.save(tmp_path / "p.json")) == found
    jsonschema_rs.validate(Profile.json_schema(), found.to_dict())
    rows = list(csv.DictReader(io.StringIO(found.save(tmp_path / "p.csv").read_text())))
    assert len(rows) == sum(len(head.estimates) for head in found.heads)
    assert str(registry.read(tmp_path / "p.json")) == str(found)


def test_they_are_as_different_as_they_can_be(real: dict[str, Profile]) -> None:
    """Or what comes back equal would say little."""
    few, groups, long = real["few"], real["groups"], real["long"]
    assert few.bad
    assert few.layout.whole
    assert groups.grouped
    assert groups.width
    assert all(head.stability for head in groups.heads)
    assert any(head.scores.roles for head in groups.heads)
    assert groups.matching
    assert long.sink_rate
    assert long.sink_rate.half is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema": "attnviz.profile/2"}, "reads version 1; make it again with attnviz profile"),
        ({"schema": "attnviz.coref/1"}, "is attnviz.coref/1, not attnviz.profile/1"),
        ({"tokens": "many"}, r"Expected `int`, got `str` - at `\$.tokens`; make it again"),
        ({"likeness": {"middle": []}}, r"Invalid enum value 'middle' - at `key` in `\$.likeness`"),
        ({"heads": [{"place": None}]}, r"missing required field `scores` - at `\$.heads"),
        ({"layout": {"heads": {"encoder": [1]}}}, "'0.[0-9]' is not a head of this model"),
    ],
)
def test_what_is_damaged_is_named(
    real: dict[str, Profile], change: dict[str, object], says: str, tmp_path: Path
) -> None:
    path = tmp_path / "p.json"
    path.write_text(json.dumps({**real["groups"].to_dict(), **change}))
    with pytest.raises(InputError, match=says) as caught:
        Profile.from_json(path.read_text(), path.name)
    assert str(caught.value).startswith("p.json")
