"""The page of heads row by row: whole, offline, small, usable by keyboard and touch."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.errors import UsageError
from attnviz.features.profile.page import page
from attnviz.features.profile.result import Profile
from tests.features.profile.corpus import lines, sentences
from tests.viewing import accessible
from tests.web.family import SETTLED

HEADS = "1.4, 3.0"


@pytest.fixture(scope="module")
def profile() -> Profile:
    texts = [" ".join(some) for some in zip(*[iter(sentences(90))] * 3, strict=True)]
    return av.profile(texts=texts, model="demo-gpt2", jobs=1, select=HEADS)


@pytest.fixture(scope="module")
def written(profile, tmp_path_factory) -> Path:
    return profile.save(tmp_path_factory.mktemp("page") / "heads.html")


def data_of(html: bytes) -> dict[str, Any]:
    found = re.search(
        r'<script type="application/json" id="data">(.*?)</script>', html.decode(), re.S
    )
    assert found
    return json.loads(found[1])


def test_the_page_has_the_rows_of_the_result(profile) -> None:
    data = data_of(profile.page())
    assert [head["name"] for head in data["heads"]] == ["1.4", "3.0"]
    for shown, head in zip(data["heads"], profile.distribution.heads, strict=True):
        assert {name: [d[4] for d in several] for name, several in shown["deciles"].items()} == {
            name: [list(d.examples) for d in several] for name, several in head.deciles.items()
        }
        for row, own in zip(shown["rows"], head.rows, strict=True):
            assert row[:3] == [own.text, own.row, own.key]
            assert row[8] == list(own.weights)
            assert len(row[8]) == len(data["texts"][row[0]][4])
    assert data["lines"][0][:3] == ["layer", "index", "head"]


def test_the_page_of_one_head_is_small(profile) -> None:
    """5 MB for every tenth and 12 rows of each, by three measures."""
    one = replace(profile.distribution, heads=profile.distribution.heads[:1])
    html = page(replace(profile, distribution=one))
    assert sum(len(decile.examples) for decile in one.heads[0].deciles["weight"]) == 120
    assert len(html) < 5e6
    assert b"http://" not in html.replace(b"http://www.w3.org/", b"")


def test_a_page_of_no_heads_is_refused_before_anything_runs(tmp_path, capsys) -> None:
    path = lines(tmp_path / "a.txt", sentences(4))
    assert main(["profile", str(path), "-o", str(tmp_path / "x.html")]) == 2
    assert "--select" in capsys.readouterr().err
    with pytest.raises(UsageError, match="name a few with select"):
        av.profile(path, jobs=1).page()


def test_a_page_by_keyboard_pointer_and_search(browser: Any, written: Path) -> None:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    shown = context.new_page()
    errors: list[str] = []
    shown.on("pageerror", lambda error: errors.append(str(error)))
    try:
        shown.goto(f"{written.as_uri()}#3.0")
        shown.evaluate(SETTLED)
        assert shown.locator(".decile").count() == 10
        assert shown.locator(".row").count() == 120
        first = shown.locator(".row").first
        first.hover()
        hovered = shown.inner_text(".detail")
        assert "looks at" in hovered
        first.focus()
        shown.keyboard.press("ArrowRight")
        moved = shown.inner_text(".detail")
        assert moved != hovered
        shown.keyboard.press("Enter")
        assert shown.locator(".row[aria-pressed=true]").count() == 1
        first.hover()
        assert shown.inner_text(".detail") == moved  # pinned
        shown.fill("#find", "the")
        assert 0 < shown.locator(".row").count() < 120
        shown.fill("#find", "")
        shown.select_option("#beside", "1.4")
        assert shown.locator(".one").count() == 2
        assert "beside=1.4" in shown.evaluate("location.hash")
        shown.select_option("#by", "effect")
        assert "nats" in shown.inner_text(".detail >> nth=0")
        assert not errors
    finally:
        context.close()


@pytest.mark.parametrize(
    ("width", "scheme"), [pytest.param(1440, "light", marks=pytest.mark.slow), (390, "dark")]
)
def test_nothing_is_wider_than_the_screen(browser: Any, written: Path, width, scheme) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 844}, color_scheme=scheme, has_touch=width < 500
    )
    try:
        shown = context.new_page()
        shown.goto(written.as_uri())
        shown.evaluate(SETTLED)
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
        accessible(shown)
        button = shown.locator(".row").nth(3)
        button.tap() if width < 500 else button.click()
        assert shown.locator(".row[aria-pressed=true]").count() == 1
    finally:
        context.close()
