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
        assert packages(extra) <= packages("test") | packages("test-tools"), extra
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
    assert {"tests", "site", "release", "bug"} <= set(read)
    commands = [
        step["run"]
        for name in ("tests", "site", "release")
        for job in read[name]["jobs"].values()
        for step in job["steps"]
        if "run" in step
    ]
    for path in re.findall(r"(?:\.ci|tests)/[\w./]+", " ".join(commands)):
        assert (ROOT / path).exists(), path
    assert "make site" in commands
    assert "\nsite:" in (ROOT / "Makefile").read_text("utf-8")


def test_a_tag_is_released_only_where_every_file_agrees(tmp_path: Path) -> None:
    from docs.release import obstacles

    files = (
        "attnviz/__init__.py", "CITATION.cff", "recipe/meta.yaml", "CHANGELOG.md",
        "docs/tour.ipynb",
    )  # fmt: skip
    version = attnviz.__version__
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        text = (ROOT / file).read_text("utf-8")
        dated = text.replace(f"## {version} (unreleased)", f"## {version} (2026-12-24)")
        owned = dated.replace("/github/OWNER/", "/github/somebody/")
        (tmp_path / file).write_text(owned, "utf-8")
    assert obstacles(f"v{version}", tmp_path) == []
    assert len(obstacles("v9.9.9", tmp_path)) == 4  # of all but the notebook
    assert any("OWNER" in line for line in obstacles(f"v{version}"))
    assert any("CHANGELOG.md" in line for line in obstacles(f"v{version}"))  # it is unreleased


def test_the_recipe_asks_for_what_the_package_asks_for() -> None:
    """Under the names that conda-forge has for some of them."""
    text = (ROOT / "recipe" / "meta.yaml").read_text("utf-8")
    run = text.partition("  run:\n")[2].partition("\ntest:")[0]
    names = {"torch": "pytorch", "matplotlib": "matplotlib-base", "isal": "python-isal",
             "huggingface-hub": "huggingface_hub"}  # fmt: skip
    asked = dict(re.findall(r"- (\S+) >=(\S+)", run))
    named = dict(one.split(">=") for one in PROJECT["dependencies"])
    assert {names.get(name, name): least for name, least in named.items()} == {
        name: least for name, least in asked.items() if name != "python"
    }


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
