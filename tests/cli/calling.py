"""Commands in this process, as a user calls them."""

from __future__ import annotations

import json

import jsonschema_rs

import attnviz as av
from attnviz.cli import main

SCHEMA = av.Heads.json_schema()
SENTENCE = "The keys to the cabinet are on the table"


def call(capsys, *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def ok(capsys, *arguments: str) -> str:
    code, out, err = call(capsys, *arguments)
    assert code == 0, err
    assert "\x1b" not in out, "colour codes in a pipe"
    return out


def refused(capsys, *arguments: str, code: int = 1) -> str:
    """Return the one line of a command that is refused."""
    got, out, err = call(capsys, *arguments)
    assert (got, out) == (code, ""), err
    assert err.startswith("attnviz: ")
    assert err.count("\n") == 1, err
    return err


def heads_of(capsys, *arguments: str) -> dict:
    document = json.loads(ok(capsys, "heads", *arguments, "--json"))
    jsonschema_rs.validate(SCHEMA, document)
    return document
