"""Likeness of heads from captures, recomputed from whole maps in float64."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.core.capture import Capture
from attnviz.core.heads import Head
from attnviz.errors import UsageError
from attnviz.features.profile import likeness
from attnviz.features.profile.likeness import alike
from attnviz.features.profile.page import page
from attnviz.features.profile.result import Profile
from tests.features.profile.corpus import lines, sentences
from tests.viewing import accessible, data_of, encoder_decoder, made, opened, pair, words
from tests.web.family import SETTLED


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """Mean Jensen-Shannon divergence in bits of rows [r, S]."""

    def entropy(share: np.ndarray) -> np.ndarray:
        return -(share * np.log2(np.where(share > 0, share, 1))).sum(-1)

    middle = entropy((one + other) / 2) - (entropy(one) + entropy(other)) / 2
    return float(middle.mean())


def rows(capture: Capture, head: Head) -> np.ndarray:
    special = np.array(capture.sides(head).queries.special)
    return capture[head].astype(np.float64)[~special]


@pytest.mark.parametrize("captures", [[made()], [pair()], [made(seed=1), made(seed=2)]])
def test_distances_are_those_of_whole_maps(captures: list[Capture]) -> None:
    found = alike(captures, [frozenset(one.layout) for one in captures])
    (plane,) = found[0].values()
    assert all(one["encoder"] is plane for one in found)
    heads = list(captures[0].layout)
    assert plane.heads == tuple(heads)
    assert plane.texts == len(captures)
    assert plane.rows == sum(len(rows(one, heads[0])) for one in captures)
    stacked = {head: np.stack([rows(one, head) for one in captures]) for head in heads}
    want = np.sqrt([[apart(stacked[a], stacked[b]) for b in heads] for a in heads])
    for number, near in enumerate(plane.nearest):
        others = sorted((want[number, n], n) for n in range(len(heads)) if n != number)
        assert [heads.index(head) for head, _ in near] == [n for _, n in others[:3]]
        np.testing.assert_allclose([far for _, far in near], [d for d, _ in others[:3]], atol=1e-5)
    flat = np.linalg.norm(plane.places[:, None] - plane.places[None], axis=-1)
    assert (flat <= want + 1e-5).all()  # a projection brings points closer, never apart
    assert plane.kept == pytest.approx((flat**2).sum() / (want**2).sum(), abs=1e-4)


def test_a_plane_of_three_heads_keeps_everything() -> None:
    capture = made(3, 1)
    ((plane,),) = (one.values() for one in alike([capture], [frozenset(capture.layout)]))
    assert plane.kept == pytest.approx(1)


def test_kinds_are_apart_and_only_shown_heads_are_compared() -> None:
    capture = encoder_decoder()
    (found,) = alike([capture], [frozenset(capture.layout)])
    assert {kind: len(plane.heads) for kind, plane in found.items()} == {
        "encoder": 6,
        "decoder": 6,
        "cross": 4,
    }
    assert all(head.site.kind == kind for kind, plane in found.items() for head in plane.heads)
    some = frozenset(h for h in capture.layout if h.site.kind == "encoder" and h.index != 1)
    (found,) = alike([capture], [some])
    assert {head.name for head in found["encoder"].heads} == {"0.0", "0.2", "1.0", "1.2"}
    assert list(found) == ["encoder"]


def test_other_models_heads_are_not_mixed() -> None:
    captures = [made(seed=1), made(seed=2, model="another"), made(seed=3)]
    one, other, third = alike(captures, [frozenset(c.layout) for c in captures])
    assert one["encoder"] is third["encoder"]
    assert one["encoder"] is not other["encoder"]
    assert (one["encoder"].texts, other["encoder"].texts) == (2, 1)


def test_two_runs_of_one_model_are_not_mixed() -> None:
    before, after = made(seed=1), made(seed=2)
    planes = data_of(av.view(before, other_model=after).page)["planes"]
    for plane, run in zip(planes, (before, after), strict=True):
        (own,) = alike([run], [frozenset(run.layout)])
        first = own["encoder"].nearest[0][0]
        assert plane["texts"] == 1
        assert plane["heads"]["0.0"][2] == [first[0].name, pytest.approx(first[1], abs=1e-4)]


def test_long_texts_give_some_rows_and_too_many_heads_none(monkeypatch) -> None:
    capture = made(tokens=words(80))
    (found,) = alike([capture], [frozenset(capture.layout)])
    assert found["encoder"].rows == likeness.CAPTURE_ROWS
    assert alike([capture], [frozenset(list(capture.layout)[:2])]) == [{}]
    monkeypatch.setattr(likeness, "MOST", 5)
    assert alike([capture], [frozenset(capture.layout)]) == [{}]


HEADS = "1.4, 3.0"


@pytest.fixture(scope="module")
def profile() -> Profile:
    texts = [" ".join(some) for some in zip(*[iter(sentences(36))] * 3, strict=True)]
    return av.profile(texts=texts, model="demo-gpt2", jobs=1, select=HEADS)


@pytest.fixture(scope="module")
def written(profile, tmp_path_factory) -> Path:
    return profile.save(tmp_path_factory.mktemp("page") / "heads.html")


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


def test_a_page_of_no_heads_is_refused_before_anything_runs(tmp_path, capsys) -> None:
    path = lines(tmp_path / "a.txt", sentences(4))
    assert main(["profile", str(path), "-o", str(tmp_path / "x.html")]) == 2
    assert "--select" in capsys.readouterr().err
    with pytest.raises(UsageError, match="name a few with select"):
        av.profile(path, jobs=1).page()


def test_a_page_by_keyboard_pointer_and_search(browser: Any, written: Path) -> None:
    with opened(browser, viewport={"width": 1440, "height": 900}) as tab:
        shown = tab.visit(written, "3.0").page
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


@pytest.mark.slow
def test_nothing_is_wider_than_a_wide_screen(browser: Any, written: Path) -> None:
    with opened(browser, viewport={"width": 1440, "height": 844}) as tab:
        shown = tab.visit(written).page
        shown.evaluate(SETTLED)
        assert shown.evaluate("document.documentElement.scrollWidth") <= 1440
        accessible(shown)


@pytest.mark.parametrize("touch", [True, False], ids=["tap", "click"])
def test_on_a_phone_a_row_pins_where_it_is_pressed(browser: Any, written: Path, touch) -> None:
    """What the box above the rows says moves them: it waits until they have been pressed."""
    size = {"width": 390, "height": 844}
    with opened(browser, viewport=size, color_scheme="dark", has_touch=touch) as tab:
        shown = tab.visit(written).page
        shown.evaluate(SETTLED)
        if touch:
            assert shown.evaluate("document.documentElement.scrollWidth") <= 390
            accessible(shown)
        for place in range(0, 24, 3):
            button = shown.locator(".row").nth(place)
            button.tap() if touch else button.click()
            assert button.get_attribute("aria-pressed") == "true", place
            assert shown.locator(".row[aria-pressed=true]").count() == 1
            button.tap() if touch else button.click()
            assert button.get_attribute("aria-pressed") == "false", place
