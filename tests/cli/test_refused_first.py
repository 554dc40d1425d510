"""Where a result cannot go is said at once: before a model is read, whichever command it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from attnviz.cli import COMMANDS, app, main

MODEL = ("--model", "no/such/folder")
SAMPLES = "sample_inputs"
LINES: dict[str, tuple[str, ...]] = {
    "heads": ("a b", *MODEL),
    "explain": ("a b", *MODEL),
    "heatmap": ("a b", *MODEL),
    "view": ("a b", *MODEL),
    "live": MODEL,
    "profile": (f"{SAMPLES}/sentences.txt", *MODEL),
    "ablate": ("a b", *MODEL),
    "patch": ("a b", "a c", *MODEL),
    "syntax": (f"{SAMPLES}/treebank.conllu", *MODEL),
    "coref": (f"{SAMPLES}/pronouns.tsv", *MODEL),
    "spans": ("a b", "--span", "x=a", *MODEL),
    "knockout": ("a b", "--span", "x=a", *MODEL),
    "sinks": ("a b", *MODEL),
    "retrieval": (f"{SAMPLES}/needles.jsonl", *MODEL),
    "logits": ("a b", *MODEL),
    "lens": ("a b", *MODEL),
    "sources": ("a b", "-s", "0.0", *MODEL),
    "flow": ("a b", *MODEL),
    "circuits": MODEL,
    "film": ("no-such-run",),
    "atlas": ("--texts", f"{SAMPLES}/sentences.txt", *MODEL),
    "diff": ("a b", *MODEL),
    "capture": ("a b", *MODEL),
    "check": ("none.npz",),
    "shapes": ("--show", "diagram"),
    "models": (),
    "demo": (),
}
"""What each command that writes with --out would do, if it could."""
OTHERS = {"show", "card", "export"}
"""What can be written depends on the file read or on the card; export writes into a folder."""


def test_every_command_that_writes_a_file_is_here() -> None:
    root: Any = typer.main.get_command(app)
    writing = {
        name
        for name in COMMANDS
        for parameter in root.get_command(None, name).params
        if "--out" in parameter.opts
    }
    assert writing == {*LINES, *OTHERS}


@pytest.mark.parametrize("name", sorted(LINES))
def test_a_form_that_is_not_there_is_refused_first(name: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / "result.qqq"
    assert main([name, *LINES[name], "--out", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("attnviz: cannot write 'result.qqq'; name the file ."), said
    assert not path.exists()
