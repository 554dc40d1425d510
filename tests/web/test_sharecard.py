"""A share card: 1200 × 630 pixels with a headline and the page's picture, made in the page."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from attnviz.core.tokens import Tokens
from attnviz.features.flow.function import run_recorded
from tests.samples import Samples
from tests.viewing import made, opened
from tests.web.family import MAKE, SETTLED, STATES

SIZE = (1200, 630)
MARGIN = 56
SLOW = pytest.mark.slow
QUICK = ("view", "lens", "knockout")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cards")


@pytest.fixture(scope="module")
def long(folder: Path) -> Path:
    """A page whose headline names two long tokens."""
    tokens = Tokens(tuple(f"{'a long word ' * 14}{n}" for n in range(5)))
    found = run_recorded(made(2, 2, tokens, causal=True))
    return found.save(folder / "long-flow.html")


def card(browser: Any, path: Path, scheme: str, state: str = "", **sizes: Any) -> Image.Image:
    """The card of a page; no request is made, and nothing complains."""
    with opened(browser, color_scheme=scheme, reduced_motion="reduce", **sizes) as found:
        found.documents.add(path.as_uri())
        found.page.goto(f"{path.as_uri()}#{state}")
        found.page.evaluate(SETTLED)
        found.page.click("#save summary")
        with found.page.expect_download() as download:
            found.page.click("#save-card")
        assert download.value.suggested_filename.endswith("-card.png")
        data = Path(download.value.path()).read_bytes()
        assert not found.page.get_attribute("#save", "open")
    return Image.open(io.BytesIO(data))


def pixels(picture: Image.Image) -> NDArray[np.int64]:
    return np.asarray(picture.convert("RGB")).astype(int)


def drawn(found: NDArray[np.int64], paper: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which pixels are not paper."""
    return np.asarray(np.abs(found - paper).max(-1) > 8)


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=SLOW)])
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else SLOW)
        for name in MAKE
        if name not in ("gallery", "sheet")
    ],
)
def test_a_card_of_every_page(browser: Any, samples: Samples, name: str, scheme: str) -> None:
    path = samples(name, MAKE[name])
    picture = card(browser, path, scheme, STATES.get(name, ""))
    assert picture.size == SIZE
    found, paper = pixels(picture), pixels(picture)[0, 0]
    ink = drawn(found, paper)
    assert (paper > 200).all() if scheme == "light" else (paper < 60).all()
    inside = np.zeros_like(ink)
    inside[MARGIN:-MARGIN, MARGIN:-MARGIN] = True
    assert not ink[~inside].any(), "nothing in the margin"
    foot = ink[-MARGIN - 24 : -MARGIN]
    assert foot[:, MARGIN : MARGIN + 200].any(), "what made it"
    body = found[MARGIN : -MARGIN - 40, MARGIN:-MARGIN]
    assert body.std() > 10
    assert 0.01 < drawn(body, paper).mean() < 0.9
    texts = picture.text  # type: ignore[attr-defined]
    assert texts["Title"]
    assert "attnviz" in texts["Description"]


def test_of_a_picture_that_is_no_wider_the_headline_stands_beside_it(
    browser: Any, samples: Samples
) -> None:
    """Left of the middle only words, right of it the colours of the map."""
    path = samples("view", MAKE["view"])
    picture = card(browser, path, "light")
    assert picture.text["Title"].startswith("Head 2.0 perhaps looks at")  # type: ignore[attr-defined]
    found = pixels(picture)[MARGIN : -MARGIN - 40]
    colourful = (found.max(-1) - found.min(-1)) > 60
    assert not colourful[:, :600].any()
    assert colourful[:, 600:].mean() > 0.1


@pytest.mark.parametrize("width", [1440, 390])
def test_a_long_headline_ends_with_an_ellipsis(browser: Any, long: Path, width: int) -> None:
    """It keeps to its place: a gap, and then the picture; and its words break between lines."""
    picture = card(browser, long, "dark", viewport={"width": width, "height": 844})
    assert len(picture.text["Title"]) > 300  # type: ignore[attr-defined]
    found = pixels(picture)
    ink = drawn(found, found[0, 0])
    assert not ink[:, :MARGIN].any()
    assert not ink[:, -MARGIN:].any()
    assert not ink[:MARGIN].any()
    rows = ink.any(1)
    lines = [n for n in range(MARGIN, 200) if rows[n] and not rows[n - 1]]
    assert len(lines) >= 3
    assert not rows[190:210].all(), "room below it"
    last = ink[lines[3] : lines[3] + 28] if len(lines) > 3 else ink[lines[-1] :]
    assert last[:, 900:-MARGIN].any(), "the last line is full"


def test_what_is_shown_is_what_the_card_shows(browser: Any, samples: Samples) -> None:
    """Another head has another headline and another map."""
    path = samples("view", MAKE["view"])
    one, other = (card(browser, path, "light", state) for state in ("", "view=map&head=1.4&on=1.4"))
    assert "Head 1.4 of demo-gpt2" in other.text["Title"]  # type: ignore[attr-defined]
    assert (pixels(one) != pixels(other)).mean() > 0.02
