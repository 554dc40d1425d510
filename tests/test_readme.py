"""Every command that the README and the docs show does run."""

from __future__ import annotations

import io
import re
import shlex
from importlib import import_module
from typing import Any

import pytest
import typer

from attnviz.cli import Commands, main
from attnviz.features.listed import FEATURES
from docs import pictures
from tests import ROOT
from tests.claims import claims
from tests.cli.calling import ok

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ELSEWHERE = re.compile(r"bert-base|google/|gpt2(?!\w|-)|FOLDER|llama|\||my-model|t5-")
"""Commands that need a model from a hub, a file of the reader's own, or another program."""
LONG = re.compile(
    r"ablate .*--(probe|curve|estimate|method)|patch .*--circuit|attnviz (atlas|demo|retrieval)"
    r"|--resample"
)
"""Commands that take longest, which the tests of their features run too."""
CLAIMED = {claim.command for claim in claims()}
"""Commands that tests/test_claims.py runs, and reads what they find and write."""
OUT = re.compile(r" (-o|--out) \S+")
"""Where a command writes: its forms are those of tests/cli/test_saved.py."""


def commands() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for block in re.findall(r"```(?:sh|console)\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            lines = block.replace("\\\n", " ").splitlines()
            found += [(page.name, line.removeprefix("$ ").strip()) for line in lines]
    return [(page, line) for page, line in found if re.match(r"(\$ )?attnviz ", line)]


def examples() -> list[tuple[str, list[str]]]:
    """The examples of the help of every command, in their order."""
    found = []
    for feature in FEATURES:
        command = getattr(import_module(f"{feature.package}.command"), feature.command)
        lines = re.findall(r"^ *(attnviz .+)$", command.__doc__, re.MULTILINE)
        found.append((feature.command, lines))
    return found


def test_the_first_page_is_short_and_has_its_pictures() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) <= 150
    assert re.findall(r"^!\[.+\]\(docs/images/(\w+)\.", text, re.MULTILINE)[0] == "tour"
    asked = text.partition("## What it answers")[2].partition("\n## ")[0]
    assert len(re.findall(r"^\*\*.+\?\*\*", asked, re.MULTILINE)) == 7
    assert asked.count("```sh\nattnviz ") == asked.count("\n![") == 7


def test_pictures_are_drawn_by_the_commands_beside_them() -> None:
    text = (ROOT / "README.md").read_text("utf-8").partition("## What it answers")[2]
    block, picture = r"```sh\n((?:attnviz .*\n)+)```", r"!\[.*\]\(docs/images/(\w+)\.png\)"
    shown = {name: lines for lines, name in re.findall(f"{block}\n\n{picture}", text)}
    assert set(shown) == set(pictures.COMMANDS)
    for name, command in pictures.COMMANDS.items():
        beside = [OUT.sub("", line) for line in shown[name].splitlines()]
        assert f"attnviz {command}" in beside


def test_there_are_examples() -> None:
    assert sum(page == "README.md" for page, _ in commands()) >= 8


def test_no_shell_looks_for_files_in_place_of_heads() -> None:
    """zsh refuses ``--why 3.*`` where no file has such a name."""
    shown = [*PAGES, *sorted((ROOT / "attnviz").rglob("*.py"))]
    bare = re.compile(r"attnviz .* -[-\w]+ [\d.,-]*\*[\d.,*-]*(\s|$)")
    found = [line for page in shown for line in page.read_text("utf-8").splitlines()]
    assert [line for line in found if bare.search(line)] == []


def test_every_benchmark_is_described() -> None:
    tools = {"table", "workloads", "drawn", "peak"}
    known = {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - tools
    described = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    assert {name for name in known if not name.startswith("_")} == set(
        re.findall(r"^\| `(\w+)` \|", described, re.MULTILINE)
    )


def test_every_command_has_the_options_that_it_is_shown_with() -> None:
    """Without running any, so that whoever renames an option is told at once."""
    refused = []
    for page, line in commands():
        name, *arguments = shlex.split(re.split(r" [|>] ", line.partition("  #")[0])[0])[1:]
        try:
            Commands().get_command(None, name).make_context(name, arguments)
        except typer.Exit:  # --version and --help
            continue
        except Exception as error:
            refused.append(f"{page}: {line}: {error}")
    assert refused == []


def test_examples_of_help_are_options_and_files_that_there_are() -> None:
    refused = []
    for command, lines in examples():
        assert len(lines) >= 1, command
        for line in lines:
            assert len(line) <= 77, f"{line}: it is cut in a help of 80 columns"
            name, *arguments = shlex.split(line)[1:]
            try:
                Commands().get_command(None, name).make_context(name, arguments)
            except Exception as error:
                refused.append(f"{line}: {error}")
            named = re.findall(r"sample_inputs/[\w./*-]+", line)
            refused += [f"{line}: no {file}" for file in named if not list(ROOT.glob(file))]
    assert refused == []


@pytest.mark.slow
@pytest.mark.usefixtures("beside_samples")
@pytest.mark.parametrize(
    ("command", "lines"), [pytest.param(*each, id=each[0]) for each in examples()]
)
def test_examples_of_help_run_as_printed(
    command: str, lines: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """One after the other: a later one may read what an earlier one wrote."""
    monkeypatch.setattr("sys.stdin", io.StringIO())
    for line in lines:
        assert main(shlex.split(line)[1:]) == 0, (line, capsys.readouterr().err)


@pytest.mark.usefixtures("beside_samples")
@pytest.mark.parametrize(
    ("page", "line"),
    [
        pytest.param(
            *each,
            marks=[pytest.mark.slow] if each[0] != "README.md" or LONG.search(each[1]) else [],
        )
        for each in commands()
        if OUT.sub("", each[1]) not in CLAIMED
    ],
)
def test_example_runs(page: str, line: str, capsys) -> None:
    line = line.partition("  #")[0]
    if ELSEWHERE.search(line.replace("demo-gpt2", "")):
        pytest.skip("needs what is not here")
    assert ok(capsys, *shlex.split(line)[1:])
