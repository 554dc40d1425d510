"""Progress in logs."""

from __future__ import annotations

import itertools

from attnviz.cli.console import EVERY, Log, Stages


def test_a_line_every_half_minute_with_rate_and_time_left(capsys) -> None:
    times = itertools.count(0, EVERY / 3)
    log = Log(False, lambda: next(times))
    for done in range(0, 70, 10):
        log.tell("texts", done, 100)
    assert capsys.readouterr().err.splitlines() == [
        "attnviz: 20 of 100 texts, 1.0 a second, 1:20 left",
        "attnviz: 50 of 100 texts, 1.0 a second, 0:50 left",
    ]


def test_slow_work_is_told_by_the_minute_and_an_unknown_end_is_not_guessed(capsys) -> None:
    times = iter([0.0, 0.0, 120.0])
    log = Log(False, lambda: next(times))
    log.tell("inputs", 0, None)
    log.tell("inputs", 1, None)
    assert capsys.readouterr().err == "attnviz: 1 input, 0.5 a minute\n"


def test_very_slow_work_is_told_by_the_hour_and_no_work_by_nothing(capsys) -> None:
    times = iter([0.0, 0.0, 3600.0, 7200.0])
    log = Log(False, lambda: next(times))
    log.tell("inputs", 0, None)
    log.tell("inputs", 0, None)
    log.tell("inputs", 1, None)
    assert capsys.readouterr().err == "attnviz: 0 inputs\nattnviz: 1 input, 0.5 an hour\n"


def test_nothing_is_said_when_quiet_or_soon(capsys) -> None:
    times = itertools.count(0, 100)
    log = Log(True, lambda: next(times))
    log.tell("texts", 5, 10)
    with Stages(quiet=False) as stages:
        stages.show("ablating heads", 3, 10)
    assert capsys.readouterr().err == ""
