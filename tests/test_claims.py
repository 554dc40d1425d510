"""Every sentence about a model in README and docs holds: its command prints the figure."""

from __future__ import annotations

from itertools import groupby

import pytest

from tests.claims import (
    PAGES,
    SLOW,
    Claim,
    agrees,
    claims,
    missing,
    page,
    paragraph_of,
    paragraphs,
    result,
    same,
    unsaid,
)
from tests.cli.test_one_screen import COLUMNS, fits, shown

pytestmark = pytest.mark.usefixtures("remembering")

BY_COMMAND = [
    pytest.param(
        command, list(some), id=command[:80],
        marks=[pytest.mark.slow] if SLOW.search(command) else [],
    )
    for command, some in groupby(
        sorted(claims(), key=lambda claim: claim.command), lambda claim: claim.command
    )
]  # fmt: skip


def test_there_are_claims_on_the_first_page_and_elsewhere() -> None:
    pages = [claim.page for claim in claims()]
    assert pages.count("README") >= 15
    assert len(set(pages)) >= 5
    assert set(pages) <= set(PAGES)


def test_every_claim_has_its_words_on_its_page() -> None:
    """Without running a command, so that whoever moves a sentence is told at once."""
    lost = [str(c) for c in claims() if c.words not in paragraph_of(c, page(c.page))]
    assert lost == []


def test_no_paragraph_names_heads_without_a_command() -> None:
    assert unsaid() == []


@pytest.mark.parametrize(("command", "some"), BY_COMMAND)
def test_claims_are_what_their_command_prints(
    command: str, some: list[Claim], beside_samples, monkeypatch
) -> None:
    if why := missing(command):
        pytest.skip(why)
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    found, lines = result(command, beside_samples)
    if command in shown():
        fits(lines)
    wrong = {
        str(claim): why
        for claim in some
        if (why := agrees(claim, paragraph_of(claim, page(claim.page)), found))
    }
    assert wrong == {}


@pytest.mark.parametrize(
    ("written", "value", "fits"),
    [
        ("+6.3", 6.3456, True), ("+6.3", 6.3512, False), ("−0.002", -0.0021, True),
        ("26 %", 0.2571, True), ("26 %", 0.2651, False), ("Five", 5, True), ("five", 6, False),
        ("1,055", 1055, True),
    ],
)  # fmt: skip
def test_digits_decide(written: str, value: float, fits: bool) -> None:
    assert same(written, value) == fits


def test_words_that_are_not_there_and_figures_that_differ_are_told() -> None:
    paragraph = "It has one of 4 heads."
    claim = Claim("a", "It has", "attnviz heads x", "of 4 heads", "r")
    assert agrees(claim, paragraph, 4) == ""
    assert agrees(claim, paragraph, 5) == "r is 5"
    other = Claim("a", "It has", "attnviz heads x", "of 5 heads", "r")
    assert "is not in the paragraph" in agrees(other, paragraph, 5)


def test_a_paragraph_is_told_by_how_it_begins() -> None:
    text = "One of\nthem.\n\n```\na  table\n\nb\n```\nOne more.\n\n- a\n- list\n"
    blocks = tuple(paragraphs(text))
    assert blocks == ("One of them.", "a table b", "One more.", "- a - list")
    found = {b: paragraph_of(Claim("", b, "", "", ""), blocks) for b in ("One m", "One", "Two")}
    assert found == {"One m": "One more.", "One": "", "Two": ""}
