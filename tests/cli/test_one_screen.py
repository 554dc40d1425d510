"""What a command prints fits one screen, notes included; ``--top all`` says the rest."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.claims import shared
from tests.cli.calling import call
from tests.samples import Samples

ROOT = Path(__file__).parents[2]
LINES, COLUMNS = 32, 100
FITTING = {"diff", "explain", "heads", "logits", "models", "profile"}
"""Commands that fit: what README and the questions show of them is counted."""
SHORT = {"explain", "logits", "profile"}
"""Those that leave something out."""


def shown() -> list[str]:
    """List the command lines of README and the questions that write nothing."""
    pages = [(ROOT / name).read_text("utf-8") for name in ("README.md", "docs/questions.md")]
    lines = [
        line for page in pages for line in re.findall(r"^\s*(attnviz .*)$", page, re.MULTILINE)
    ]
    words = {line.partition("#")[0].strip(): shlex.split(line, comments=True) for line in lines}
    return sorted(
        line
        for line, (_, command, *options) in words.items()
        if command in FITTING
        and not {"-o", "--out", "--json", "--csv", "reviews"} & set(options)
        and all((ROOT / word).exists() for word in options if word.startswith("sample_inputs"))
    )


@pytest.fixture(autouse=True)
def screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    monkeypatch.chdir(ROOT)


def lines_of(capsys, *arguments: str) -> list[str]:
    code, out, err = call(capsys, *arguments)
    assert code == 0, err
    return (out + err).splitlines()


@pytest.mark.parametrize("line", shown())
def test_a_result_fits_one_screen(
    capsys, line: str, samples: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    if " diff " in line:  # two models in turn take half a minute
        found = shared(line, samples)
        monkeypatch.setattr("attnviz.features.diff.function.diff", lambda *_, **__: found)
    lines = lines_of(capsys, *shlex.split(line)[1:])
    assert len(lines) <= LINES, "\n".join(lines)
    assert max(map(len, lines)) <= COLUMNS


def test_every_command_that_leaves_something_out_is_counted() -> None:
    assert {line.split()[1] for line in shown()} >= SHORT


def test_the_notes_are_counted_and_all_of_them_are_said(capsys) -> None:
    text = "the cat river moon stone bread the cat river moon stone"
    short = lines_of(capsys, "explain", text)
    told = lines_of(capsys, "explain", text, "--top", "all")
    count = sum(line.startswith("note: ") for line in told)
    assert count > 1
    assert sum(line.startswith("note: ") for line in short) == 1
    assert f"({count - 1} more: --top all)" in " ".join(short).replace("  ", " ")
    assert "What none of it proves" in told
    assert len(told) > len(short)
