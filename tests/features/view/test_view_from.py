"""From where a weight comes: the page's bars of sources, against ``av.sources``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import attnviz as av
from tests.features.view.test_view_why import number
from tests.viewing import Opened, accessible

TEXT = "the cat river moon stone bread the cat river moon stone"


ASKED = "view=map&kind=decoder&on=2.0&head=2.0&why=q11k6"


@pytest.fixture(scope="module")
def page(folder: Path) -> Path:
    return av.view(TEXT, why="2.0,1.4").save(folder / "page.html")


def bars(view: Any) -> list[dict[str, float]]:
    """Of both sides, what every listed source adds, by its name."""
    view.settle()
    rows = view.page.eval_on_selector_all(
        ".why-sources",
        "all => all.map(t => [...t.tBodies[0].rows].map(r => [r.cells[0].innerText, "
        "r.cells[1].textContent]))",
    )
    return [{name: number(value) for name, value in side} for side in rows]


def test_bars_of_both_sides(shared: Opened, page: Path) -> None:
    found = av.sources(TEXT, select="2.0", key=6)
    shared.open(page, ASKED)
    sides = bars(shared)
    assert len(sides) == 2
    for side, name in zip(sides, ("query", "key"), strict=True):
        for one in found.side(name)[:6]:
            label = one.origin.name(found.layout)
            label = f"head {label}" if one.origin.head else label
            assert side[label] == pytest.approx(one.value, abs=0.02)
        assert sum(side.values()) == pytest.approx(found.score, abs=0.05)
    accessible(shared.page)
    shared.click("#why [data-source='1.4'] >> nth=0")
    assert "Head 1.4" in shared.text("#why-body")


def test_other_pages_have_no_such_part(shared: Opened, tmp_path: Path) -> None:
    capture = av.capture(TEXT, why="2.0", select="2.0")
    assert capture.terms[next(iter(capture.terms))].origins is None
    shared.open(av.view(capture).save(tmp_path / "page.html"), ASKED)
    assert "From where" not in shared.text("#why")
