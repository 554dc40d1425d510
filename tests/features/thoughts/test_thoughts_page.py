"""The page: pointing at a sentence shows where it is read later and what moves without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import attnviz as av
from attnviz.features.thoughts.result import Thoughts
from tests import ROOT
from tests.viewing import opened


@pytest.fixture(scope="module")
def result() -> Thoughts:
    return av.thoughts((ROOT / "sample_inputs" / "trace.txt").read_text("utf-8"), draws=1)


def number(text: str) -> float:
    return float(text.replace("−", "-").replace("+", "").replace("<", "") or "nan")


def cells(page: Any) -> list[list[float]]:
    rows = page.locator(".sentence")
    return [
        [number(text) for text in rows.nth(n).locator(".cell > span:last-child").all_inner_texts()]
        for n in range(rows.count())
    ]


def test_pointing_at_a_sentence_shows_both(result: Thoughts, browser: Any, tmp_path: Path) -> None:
    (trace,) = result.traces
    path = result.save(tmp_path / "t.html")
    with opened(browser) as tab:
        tab.open(path)
        importance = trace.importance(result.apart)
        shown = cells(tab.page)
        assert len(shown) == len(trace.sentences)
        assert shown[5] == pytest.approx([trace.read[5], importance[5]], rel=0.02)
        tab.page.locator(".sentence").nth(5).hover()
        shown = cells(tab.page)
        for later in range(6, len(trace.sentences)):
            weights = [receiver.matrix[later][5] or 0.0 for receiver in result.traces[0].receivers]
            want = [sum(weights) / len(weights), trace.effects[later][5]]
            assert shown[later] == pytest.approx(want, rel=0.05, abs=0.006)
        assert all(value != value for row in shown[:6] for value in row)
        assert "Sentence 6 is read most by" in tab.page.locator("#chosen").inner_text()
        assert "without it 12 moves most" in tab.page.locator("#chosen").inner_text()
        tab.page.locator("#heads button", has_text="mean of all heads").click()
        tab.page.locator(".sentence").nth(5).click()
        assert cells(tab.page)[11][0] == pytest.approx(trace.attention[11][5], rel=0.05)
        assert tab.page.locator("#arcs path").count() >= 3
