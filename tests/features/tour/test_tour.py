"""The tour shows what its sentences say, and ends at a page."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from attnviz.cli import COMMANDS, console, main, output
from attnviz.features.tour.command import typed
from attnviz.features.tour.stops import INDUCTION, PREVIOUS, STOPS, Measured
from tests.cli.calling import ok


@pytest.fixture(scope="module")
def measured() -> Measured:
    return Measured()


@pytest.fixture(autouse=True)
def opened(monkeypatch) -> list[Path]:
    """Pages that a browser was asked to open."""
    pages: list[Path] = []
    monkeypatch.setattr(output, "open_page", lambda page: bool(pages.append(page)) or True)
    return pages


def drawn(stop: int, measured: Measured) -> str:
    screen = console.stdout()
    with screen.capture() as shown:
        screen.print(*STOPS[stop].show(measured), sep="\n")
    return shown.get()


def test_every_stop_names_a_command_of_attnviz() -> None:
    assert len(STOPS) == 5
    assert {stop.command for stop in STOPS} <= set(COMMANDS)
    assert typed(STOPS[1]).endswith('stone" --select 1.4')


def test_the_maps_show_what_is_said_of_them(measured: Measured) -> None:
    weights = measured.repeated[PREVIOUS]
    assert all(weights[row, row - 1] > 0.9 for row in range(1, len(weights)))
    weights = measured.repeated[INDUCTION]
    again = range(8, 12)  # of the, cat, river, moon, stone, bread the first time, and again
    assert all(weights[row, row - 5] > 0.75 for row in again)
    assert weights[1:7, 0].mean() > 0.7, "its sink, where nothing repeats"
    assert f"head {PREVIOUS}: does previous" in drawn(1, measured)
    assert f"head {INDUCTION}: perhaps does induction" in drawn(2, measured)


def test_a_vote_is_not_a_need(measured: Measured) -> None:
    names = measured.reason.layout.name
    voters = [measured.reason.find(names(head)) for head in measured.reason.voters]
    votes = [head.vote for head in voters]
    lead = measured.reason.lead
    *others, most = sorted(-head.effect.change for head in voters)
    assert len(votes) == 3
    assert max(votes) < 1.2 * min(votes)
    assert 0.9 * lead < most < lead
    assert 0 < max(others) < lead / 3
    votes_of_all = {measured.reason.layout.name(h): v for h, v in measured.reason.votes().items()}
    assert votes_of_all[PREVIOUS] < 0
    assert measured.reason.feeder.name == PREVIOUS
    assert -measured.reason.feeder.change > lead
    assert max(dict(measured.reason.account()).items(), key=lambda item: item[1])[0] == "MLP 3"
    first, second, _ = measured.reason.heads
    assert {names(first.head), names(second.head)} == {"0.5", PREVIOUS}
    assert max(abs(first.vote), abs(second.vote)) < 0.02 * lead
    assert "bread" in drawn(3, measured)
    assert PREVIOUS in drawn(4, measured)


@pytest.fixture
def once(measured, monkeypatch) -> None:
    monkeypatch.setattr("attnviz.features.tour.stops.Measured", lambda: measured)


@pytest.mark.usefixtures("once")
def test_in_a_pipe_it_runs_to_the_end_and_says_where_the_page_is(capsys, tmp_path, opened):
    page = tmp_path / "page.html"
    out = ok(capsys, "demo", "--out", str(page))
    assert [f"{n}/5  {stop.asks}" in out for n, stop in enumerate(STOPS, 1)] == [True] * 5
    assert f"wrote {page}" in out
    assert page.read_text("utf-8").startswith("<!doctype html>")
    assert opened == []


@pytest.mark.usefixtures("once")
@pytest.mark.parametrize(("keys", "stops", "pages"), [("\n\nq\n", 3, 0), ("\n" * 5, 5, 1)])
def test_at_a_terminal_enter_goes_on_and_q_quits(
    capsys, monkeypatch, opened, keys: str, stops: int, pages: int
) -> None:
    keyboard = io.StringIO(keys)
    monkeypatch.setattr(sys, "stdin", keyboard)
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    assert main(["demo", "-q"]) == 0
    out = capsys.readouterr().out
    assert sum(f"{n}/5 " in out for n in range(1, 6)) == stops
    assert len(opened) == pages
    for page in opened:
        page.unlink()
