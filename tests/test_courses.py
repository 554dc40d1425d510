"""docs/courses.md: what its commands and its Python print is what it says."""

from __future__ import annotations

import io
import re
import shlex
from contextlib import redirect_stdout

import pytest

from attnviz.cli import main
from tests import ROOT

PAGE = (ROOT / "docs" / "courses.md").read_text("utf-8")


def command(section: str) -> list[str]:
    """The command of a section, without the program."""
    text = PAGE.partition(f"## {section}")[2]
    line = re.search(r"```sh\nattnviz (.*?)\n```", text, re.DOTALL)
    assert line is not None
    return shlex.split(line[1])


def printed(monkeypatch, arguments: list[str]) -> str:
    monkeypatch.chdir(ROOT)
    with redirect_stdout(io.StringIO()) as out:
        assert main(arguments) == 0
    return out.getvalue()


def test_raschkas_numbers(monkeypatch) -> None:
    """Those of the book, to its four digits."""
    lines = printed(monkeypatch, command("Raschka")).splitlines()
    journey = [line for line in lines if line.startswith("journey")]
    said = " ".join(PAGE.partition("The scores of *journey* are ")[2].partition("`")[0].split())
    numbers = re.findall(r"\d\.\d{4}", said)
    assert len(numbers) == 15
    for some in (numbers[:6], numbers[6:12], numbers[12:]):
        assert any(" ".join(some) in " ".join(line.split()) for line in journey), some


def test_the_parameters_of_gpt3(monkeypatch) -> None:
    assert f"{4 * 12288**2 * 96:,}" == "57,982,058,496"
    assert " 57,982,058,496 " in printed(monkeypatch, command("3Blue1Brown"))
    assert "\n57,982,058,496, a third" in PAGE
    whole = printed(monkeypatch, ["shapes", "--model", "gpt3"])
    assert re.search(r"attention is 33\.\d % of it +174,600,000,000", whole)


def test_one_head_and_two() -> None:
    block, told = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)[0]
    with redirect_stdout(io.StringIO()) as out:
        exec(block, {})
    assert out.getvalue() == told


@pytest.mark.parametrize("section", ["Dive into Deep Learning", "ARENA"])
def test_the_others_are_commands_that_examples_run(section: str) -> None:
    assert command(section)[0] in ("ablate", "heads")
