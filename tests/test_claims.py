"""Every sentence about a model in README and docs holds: its command prints the figure."""

from __future__ import annotations

from itertools import groupby

import pytest

from tests import ROOT
from tests.claims import SLOW, Claim, agrees, claims, missing, result, same, unsaid

BY_COMMAND = [
    pytest.param(
        command,
        list(some),
        id=command[:80],
        marks=[pytest.mark.slow] if SLOW.search(command) else [],
    )
    for command, some in groupby(
        sorted(claims(), key=lambda claim: claim.command), lambda claim: claim.command
    )
]


def test_there_are_claims_on_the_first_page_and_elsewhere() -> None:
    pages = [claim.page for claim in claims()]
    assert pages.count("README.md") >= 10
    assert len(set(pages)) >= 5


def test_no_paragraph_names_heads_without_a_command() -> None:
    assert unsaid() == []


@pytest.mark.parametrize(("command", "some"), BY_COMMAND)
def test_claims_are_what_their_command_prints(
    command: str, some: list[Claim], tmp_path, monkeypatch
) -> None:
    if why := missing(command):
        pytest.skip(why)
    (tmp_path / "sample_inputs").symlink_to(ROOT / "sample_inputs")
    monkeypatch.chdir(tmp_path)
    found = result(command, tmp_path)
    wrong = {str(claim): why for claim in some if (why := agrees(claim, found))}
    assert wrong == {}


@pytest.mark.parametrize(
    ("written", "value", "fits"),
    [
        ("+6.3", 6.3456, True),
        ("+6.3", 6.3512, False),
        ("−0.002", -0.0021, True),
        ("26 %", 0.2571, True),
        ("26 %", 0.2651, False),
        ("Five", 5, True),
        ("five", 6, False),
        ("1,055", 1055, True),
    ],
)
def test_digits_decide(written: str, value: float, fits: bool) -> None:
    assert same(written, value) == fits


def test_words_that_are_not_there_and_figures_that_differ_are_told() -> None:
    claim = Claim("a.md", "attnviz heads x", "of 4 heads", "r", "It has one of 4 heads.")
    assert agrees(claim, 4) == ""
    assert agrees(claim, 5) == "r is 5"
    assert "is not in the paragraph" in agrees(
        Claim("a.md", "attnviz heads x", "of 5 heads", "r", "It has one of 4 heads."), 5
    )
