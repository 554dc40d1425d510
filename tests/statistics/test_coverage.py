"""Intervals hold as often as they say, or as the shipped table says."""

from __future__ import annotations

from itertools import pairwise

import pytest

from attnviz.statistics.coverage import CLOSE, MEASURED, holds, word
from proofs.coverage import JOINT_SIZES, SIZES, coverage, made_up, main, path_coverage
from proofs.intervals import PROMISED, promised
from proofs.paths import PATHS
from tests import ROOT

LEVEL = 0.95
SAMPLING = 0.04
"""About two and a half standard errors of a share of 95 % in 200 samples."""


@pytest.fixture(scope="module")
def measured() -> dict[int, dict]:
    population = made_up()
    return {size: coverage(population, size, runs=200) for size in (20, 50, 200, 1000)}


@pytest.mark.slow
@pytest.mark.parametrize("size", [20, 50, 200, 1000])
def test_intervals_hold_on_texts_with_heavy_tails(measured, size: int) -> None:
    """Nominal within three points (and sampling), or a word beside the intervals says otherwise."""
    found = measured[size]
    each = found["pooled, each: common scores"].middle
    assert abs(each - LEVEL) <= CLOSE + SAMPLING or word("each", size) is not None
    for kind in ("common", "rare"):
        name = f"pooled, simultaneous: {kind} scores"
        if name in found:
            assert found[name].joint >= LEVEL - CLOSE - SAMPLING or word("simultaneous", size)
    assert found["pooled, simultaneous: common scores"].joint >= LEVEL - CLOSE - SAMPLING
    assert found["median"].middle >= LEVEL - CLOSE
    assert abs(found["trimmed mean"].middle - LEVEL) <= CLOSE + SAMPLING


@pytest.mark.slow
@pytest.mark.parametrize("size", [50, 200, 1000])
def test_the_shipped_table_promises_no_more_than_holds(measured, size: int) -> None:
    """The table is of a treebank; on other heavy tails it is right to within ten points."""
    found = measured[size]
    for name in ("pooled, each: common scores", "trimmed mean", "median"):
        assert found[name].middle >= MEASURED[name][size].middle - 0.1


def test_a_table_is_printed(capsys) -> None:
    assert main(["--sizes", "10", "20", "--runs", "5"]) == 0
    out = capsys.readouterr().out
    assert "20,000 texts, 24 means; 5 samples of each size" in out
    rows = [line for line in out.splitlines() if line.startswith("| pooled, each: common scores")]
    assert len(rows) == 1
    assert rows[0].count("/") == 4


@pytest.mark.parametrize("size", [size for size in SIZES if size >= 20])
def test_every_size_at_which_intervals_fail_has_its_word(size: int) -> None:
    for kind, part in (("each", "middle"), ("simultaneous", "joint")):
        shares = [
            getattr(MEASURED[name][size], part)
            for name in (f"pooled, {kind}: common scores", f"pooled, {kind}: rare scores")
            if size in MEASURED[name]
        ]
        if min(shares) < LEVEL - CLOSE:
            assert f"{100 * min(shares):.0f} %" in (word(kind, size) or "")


@pytest.mark.slow
@pytest.mark.parametrize("size", JOINT_SIZES)
@pytest.mark.parametrize("name", list(PATHS))
def test_what_commands_print_holds_as_often_as_they_say(name: str, size: int) -> None:
    """Every command's own function on texts with the tails of a treebank's."""
    found = path_coverage(name, PATHS[name].made_up(), size, runs=60)
    rows = [
        promised(kind, getattr(found[kind], part), size, 60)
        for kind, part in PROMISED.items()
        if kind in found
    ]
    assert rows or size == min(JOINT_SIZES)  # too few texts for an interval of all at once
    assert [row for row in rows if row.fails] == []


@pytest.mark.slow
def test_tails_as_heavy_as_a_treebanks_defeat_intervals_of_means() -> None:
    """The population can tell: what the harness is to notice, it does, and blames no other kind."""
    found = path_coverage("ablate", PATHS["ablate"].made_up(), 50, runs=60)
    assert found["ablate, mean: each"].worst < 0.75
    assert found["ablate: each"].worst >= 0.85
    assert found["ablate: all at once"].joint >= 0.9


def test_the_page_of_claims_has_the_tables_that_commands_speak_from() -> None:
    page = (ROOT / "docs" / "claims.md").read_text("utf-8")
    judged = tuple(PATHS)
    kinds = [kind for kind in MEASURED if kind.startswith(judged)]
    assert {kind.partition(":")[0] for kind in kinds} >= set(judged)
    for kind in kinds:
        sizes = (5, 10, 20, 50, 200) if kind.startswith("sources") else JOINT_SIZES
        cells = [MEASURED[kind].get(size) for size in sizes]
        shown = ["–" if c is None else " / ".join(f"{100 * x:.0f}" for x in c[:3]) for c in cells]
        assert f"| {kind} | {' | '.join(shown)} |" in page
        if not kind.startswith("sources"):
            shown = ["–" if c is None else f"{100 * c.found:.0f}" for c in cells]
            assert f"| {kind} | {' | '.join(shown)} |" in page


@pytest.mark.parametrize("kind", [kind for kind in MEASURED if kind.endswith(": all at once")])
def test_no_number_of_texts_is_a_cliff(kind: str) -> None:
    """What more texts find is never much less, and every size holds, or none is said to."""
    rows = MEASURED[kind]
    found = [rows[size].found for size in sorted(rows) if rows[size].found is not None]
    assert all(after >= before - 0.017 for before, after in pairwise(found))
    assert all(holds(kind, size) for size in rows)


def test_intervals_hold_for_all_only_where_the_table_says_so(monkeypatch) -> None:
    assert holds("knockout: all at once", 30)
    assert not holds("knockout: all at once", 5)  # nothing was measured
    assert not holds("ablate, mean: each", 200)
