"""The plugin of pytest: what it says of a model that changed, and what it costs those without."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module

import pytest

import attnviz as av
from attnviz.errors import SelectionError, UsageError
from attnviz.testing.assertions import assert_role, assert_same_heads
from attnviz.testing.plugin import RUNNING
from tests import ROOT

pytest_plugins = ["pytester"]

TESTS = """
from attnviz.testing import assert_role, assert_same_heads

def test_induction(attnviz_model):
    assert_role(attnviz_model, "2.0", "induction", at_least=0.85)

def test_same(attnviz_model):
    assert_same_heads(attnviz_model, baseline="heads.json", within=0.01)
"""
CHANGED = """
import pytest
import attnviz as av

@pytest.fixture
def attnviz_model():
    model = av.load("demo-gpt2")
    with model.gated({"0.5": 0, "1.4": 0}):
        yield model
"""


@pytest.fixture(scope="module")
def model() -> object:
    return av.load("demo-gpt2")


@pytest.fixture
def project(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> Iterator[pytest.Pytester]:
    """A project with tests of heads, in which no other plugin is loaded."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(TESTS)
    pytester.makeini("[pytest]\nattnviz_model = demo-gpt2\n")
    before = vars(RUNNING).copy()
    yield pytester
    vars(RUNNING).update(before)


def run(project: pytest.Pytester, *options: str) -> pytest.RunResult:
    return project.runpytest_inprocess("-p", "attnviz.testing.plugin", *options)


def test_a_changed_model_fails_and_the_message_names_the_heads(project: pytest.Pytester) -> None:
    missing = run(project)
    missing.assert_outcomes(passed=1, failed=1)
    missing.stdout.fnmatch_lines(["*no baseline*heads.json; pytest --attnviz-update writes it*"])
    written = run(project, "--attnviz-update")
    written.assert_outcomes(passed=2)
    written.stdout.fnmatch_lines(["attnviz: wrote *heads.json"])
    project.makeconftest(CHANGED)
    changed = run(project)
    changed.assert_outcomes(failed=2)
    changed.stdout.fnmatch_lines(
        [
            "*head 2.0 of demo-gpt2 * induction on repeated random tokens:*",
            "*asked for: induction of 0.3 and 3 times chance*; and a score of 0.85*",
            "*heads of demo-gpt2 moved by more than 0.01 from *heads.json:*",
            "*2.0  induction* → * (-0.*; loses induction*",
            "*where that is meant: pytest --attnviz-update*",
        ]
    )
    assert "assertions.py" not in changed.stdout.str()  # the test's own line is shown
    run(project, "--attnviz-update", "-k", "same").assert_outcomes(passed=1, deselected=1)
    run(project, "-k", "same").assert_outcomes(passed=1, deselected=1)


def test_a_model_is_named_by_option_or_configuration(project: pytest.Pytester) -> None:
    project.makeini("[pytest]\n")
    failed = run(project, "-k", "induction")
    failed.assert_outcomes(errors=1, deselected=1)
    failed.stdout.fnmatch_lines(["*attnviz_model has no model; name it by pytest --attnviz-model*"])
    run(project, "-k", "induction", "--attnviz-model", "demo-gpt2").assert_outcomes(
        passed=1, deselected=1
    )


def test_scores_are_those_of_heads_and_of_the_probe(model: object) -> None:
    """The bound is inclusive, and what it is compared with is what ``heads`` measures."""
    text = "The keys to the cabinet are on the table"
    found = av.heads(text, model=model, probe=True)
    previous = next(head for head in found.heads if head.head.name == "1.4").scores["previous"].mean
    assert_role(model, "1.4", "previous", at_least=previous - 1e-7, texts=text)
    with pytest.raises(AssertionError, match=r"1.4 .* shows too little previous on 1 given texts"):
        assert_role(model, "1.4", "previous", at_least=previous + 1e-6, texts=text)
    probed = next(head for head in found.probe if head.head.name == "2.0").scores["induction"].mean
    assert_role(model, "2.0", "induction", at_least=probed)
    with pytest.raises(AssertionError, match=r"heads that show induction: 3\.3 0"):
        assert_role(model, "2.0", "induction", at_least=probed + 1e-6)
    assert_role(model, "1.4", "previous-token head")


def test_wrong_use_is_no_failed_assertion(model: object, tmp_path) -> None:
    with pytest.raises(UsageError, match="unknown role"):
        assert_role(model, "2.0", "nothing")
    with pytest.raises(SelectionError):
        assert_role(model, "9.9", "previous")
    with pytest.raises(UsageError, match="assert the role of one"):
        assert_role(model, "2.*", "previous")
    path = tmp_path / "heads.json"
    av.heads("Another text", model=model).save(path)
    with pytest.raises(AssertionError, match="the text or the tokenizer is another one"):
        assert_same_heads(model, path)
    assert_same_heads(model, path, text="Another text", within=0)


def test_it_loads_nothing_heavy() -> None:
    """pytest loads it in every project where attnviz is installed."""
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    plugin = import_module(entries["pytest11"]["attnviz"])
    assert {"pytest_addoption", "attnviz_model"} <= set(dir(plugin))
    code = (
        "import pytest, sys; before = set(sys.modules); import attnviz.testing.plugin\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        "attnviz", "attnviz.errors", "attnviz.features", "attnviz.features.listed",
        "attnviz.testing", "attnviz.testing.plugin",
    ]  # fmt: skip
