"""A command and its function do the same where nobody says otherwise."""

from __future__ import annotations

import inspect

import click
import pytest
from typer.main import get_command

import attnviz as av
from attnviz.cli import COMMANDS, app

FUNCTIONS = [name for name in COMMANDS if callable(getattr(av, name, None))]
OTHERWISE = {("live", "text"), ("sources", "at"), *((name, "model") for name in FUNCTIONS)}
"""Where nothing given means what the function has: the command can tell that nobody chose it."""
NOTHING = (None, False, "", (), [])


def test_most_commands_are_functions() -> None:
    assert len(FUNCTIONS) > len(COMMANDS) / 2


@pytest.mark.parametrize("name", FUNCTIONS)
def test_defaults_are_those_of_the_function(name: str) -> None:
    root = get_command(app)
    assert isinstance(root, click.Group)
    command = root.get_command(click.Context(root), name)
    assert command is not None
    theirs = inspect.signature(getattr(av, name)).parameters
    shared = [
        (parameter.default, theirs[parameter.name].default, parameter.name)
        for parameter in command.params
        if parameter.name in theirs and (name, parameter.name) not in OTHERWISE
    ]
    assert shared
    for mine, default, said in shared:
        if default is not inspect.Parameter.empty and not (mine in NOTHING and default in NOTHING):
            assert mine == default, said
