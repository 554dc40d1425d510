"""What follows from the declarations is written anew whenever they change."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs import reference


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
