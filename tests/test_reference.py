"""What follows from the declarations is written anew whenever they change."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import reference
from tests import ROOT


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


COMMAND = re.compile(r"attnviz ([a-z]+)((?:(?!attnviz )[^`|#\n])*)")
"""A command as documents and docstrings write it, with what follows on its line."""


def test_documents_and_code_name_options_that_there_are() -> None:
    known: dict[str, set[str]] = {}
    for commands in reference.declared_options().values():
        for command, parameter in commands.items():
            known.setdefault(command, {"--help", "--help-all"}).update(
                parameter.opts, parameter.secondary_opts
            )
    paths = [ROOT / "README.md", ROOT / "Makefile", *(ROOT / "docs").rglob("*.md")]
    paths += [*(ROOT / "attnviz").rglob("*.py"), *(ROOT / "attnviz").rglob("*.toml")]
    assert [
        f"{path.name}: {command} {option}"
        for path in paths
        for command, rest in COMMAND.findall(path.read_text("utf-8"))
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest)
        if command in known and option not in known[command]
    ] == []
