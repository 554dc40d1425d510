"""What a command prints fits one screen, notes included; ``--top all`` says the rest."""

from __future__ import annotations

import re
import shlex
from functools import cache

import pytest

from tests import ROOT
from tests.claims import claims
from tests.cli.calling import call

LINES, COLUMNS = 32, 100
FITTING = {"diff", "explain", "heads", "logits", "models", "profile"}
"""Commands that fit: what README and the questions show of them is counted."""
SHORT = {"explain", "logits", "profile"}
"""Those that leave something out."""


@cache
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
def screen(monkeypatch: pytest.MonkeyPatch, beside_samples) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))


def lines_of(capsys, *arguments: str) -> list[str]:
    code, out, err = call(capsys, *arguments)
    assert code == 0, err
    return (out + err).splitlines()


def fits(lines: list[str]) -> None:
    assert len(lines) <= LINES, "\n".join(lines)
    assert max(map(len, lines)) <= COLUMNS


CLAIMED = {claim.command for claim in claims()}
"""What tests/test_claims.py runs; it counts their lines too."""


@pytest.mark.parametrize("line", [line for line in shown() if line not in CLAIMED])
def test_a_result_fits_one_screen(capsys, line: str) -> None:
    fits(lines_of(capsys, *shlex.split(line)[1:]))


def test_every_command_that_leaves_something_out_is_counted() -> None:
    assert {line.split()[1] for line in shown()} >= SHORT


def test_the_notes_are_counted_and_all_of_them_are_said(capsys) -> None:
    text = "the cat river moon stone bread the cat river moon stone"
    short = lines_of(capsys, "explain", text, "-o", "x.json")
    told = lines_of(capsys, "show", "x.json", "--top", "all")
    count = sum(line.startswith("note: ") for line in told)
    assert count > 1
    assert sum(line.startswith("note: ") for line in short) == 1
    assert f"({count - 1} more: --top all)" in " ".join(short).replace("  ", " ")
    assert "What none of it proves" in told
    assert len(told) > len(short)
