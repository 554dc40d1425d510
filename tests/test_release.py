"""What a release says of itself is so: extras, classifiers, versions, files, workflows."""

from __future__ import annotations

import re
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import attnviz
from tests import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
FOR_USERS = set(PROJECT["optional-dependencies"]) - {"test", "test-tools", "site", "dev"}


def packages(extra: str) -> set[str]:
    return {re.split(r"[<>=\[]", one)[0] for one in PROJECT["optional-dependencies"][extra]}


def test_every_extra_is_tested_and_named_on_the_first_page() -> None:
    page = (ROOT / "README.md").read_text("utf-8")
    for extra in FOR_USERS:
        assert packages(extra) <= packages("test"), extra
        assert f"`{extra}`" in page, extra


def test_classifiers_are_known_and_begin_with_the_lowest_python() -> None:
    known = pytest.importorskip("trove_classifiers").classifiers
    assert set(PROJECT["classifiers"]) <= known
    assert PROJECT["classifiers"] == sorted(PROJECT["classifiers"])
    named = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert PROJECT["requires-python"] == f">={named[0]}"


def test_the_citation_names_this_version() -> None:
    assert f"\nversion: {attnviz.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")


def test_workflows_and_templates_are_yaml_and_run_what_is_there() -> None:
    yaml = pytest.importorskip("yaml")
    read: dict[str, Any] = {
        path.stem: yaml.safe_load(path.read_text("utf-8"))
        for path in (ROOT / ".github").rglob("*.yml")
    }
    assert {"tests", "site", "bug"} <= set(read)
    commands = [
        step["run"]
        for name in ("tests", "site")
        for job in read[name]["jobs"].values()
        for step in job["steps"]
        if "run" in step
    ]
    for path in re.findall(r"(?:\.ci|tests)/[\w./]+", " ".join(commands)):
        assert (ROOT / path).exists(), path
    assert "make site" in commands
    assert "\nsite:" in (ROOT / "Makefile").read_text("utf-8")


@pytest.mark.slow
def test_the_same_files_give_the_same_bytes(tmp_path: Path, monkeypatch) -> None:
    from docs import release

    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    first, again = release.build(tmp_path / "first"), release.build(tmp_path / "again")
    assert [path.name for path in first] == [path.name for path in again]
    for one, other in zip(first, again, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name
    source, wheel = first
    assert {info.date_time for info in zipfile.ZipFile(wheel).infolist()} == {(2020, 2, 2, 0, 0, 0)}
    with tarfile.open(source) as archive:
        assert {member.mtime for member in archive} == {int(release.EPOCH)}
        names = {Path(member.name).name for member in archive}
    assert names >= {"SECURITY.md", "CITATION.cff", "README.md", "tour.svg", "README.toml"}
    assert wheel.stat().st_size < 15e6
