"""A figure for a paper: its width and its text in print, a caption; light in every theme."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.samples import Samples
from tests.viewing import Opened, accessible, opened
from tests.web.family import MAKE

POINTS_A_MM = 72 / 25.4


@pytest.fixture(scope="module")
def view(browser: Any, samples: Samples) -> Iterator[Opened]:
    """The dialog, in which a test sets what it looks at."""
    with opened(browser, color_scheme="dark", reduced_motion="reduce") as found:
        open_dialog(found, samples("view", MAKE["view"]))
        yield found


def open_dialog(found: Opened, path: Path) -> None:
    found.documents.add(path.as_uri())
    found.page.goto(path.as_uri())
    found.page.wait_for_timeout(300)
    found.page.click("#save summary")
    found.page.click("#save-paper")


def kept(found: Opened, button: str, path: Path) -> Path:
    with found.page.expect_download() as download:
        found.page.click(button)
    download.value.save_as(path)
    return path


@pytest.mark.parametrize(("width", "points"), [("84", 7), ("84", 8), ("174", 8)])
def test_an_svg_has_its_width_and_its_text_the_points_that_were_asked_for(
    view: Opened, tmp_path: Path, width: str, points: int
) -> None:
    view.page.select_option("#paper-width", width)
    view.page.fill("#paper-points", str(points))
    svg = kept(view, "#paper-svg", tmp_path / "x.svg").read_text("utf-8")
    assert f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}mm"' in svg
    (across,) = re.findall(r'viewBox="0 0 (\d+) \d+"', svg)
    unit = int(width) * POINTS_A_MM / int(across)
    sizes = [float(size) * unit for size in re.findall(r'<text [^>]*font-size="([\d.]+)"', svg)]
    assert max(sizes) == pytest.approx(points, rel=0.02)
    assert min(sizes) > 0.75 * points, "labels of a narrow map may be a little smaller"
    assert '<rect width="' in svg
    assert 'fill="#ffffff"' in svg, "light, though the page is dark"
    assert "·cabinet</text>" in svg, "text stays text"


def test_a_png_has_the_dots_that_were_asked_for(view: Opened, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    view.page.select_option("#paper-width", "84")
    view.page.select_option("#paper-dpi", "600")
    data = kept(view, "#paper-png", tmp_path / "x.png").read_bytes()
    picture = image.open(io.BytesIO(data))
    assert picture.size[0] == pytest.approx(84 / 25.4 * 600, abs=2)
    assert picture.info["dpi"][0] == pytest.approx(600, rel=0.01)
    assert "demo-gpt2" in picture.text["Description"]
    assert picture.convert("RGB").getpixel((2, 2)) == (255, 255, 255)


def test_the_caption_names_head_model_hash_measure_and_text(view: Opened) -> None:
    caption = view.page.input_value("#paper-caption")
    said = r"Head \d\.\d of demo-gpt2 [0-9a-f]{8}, .*: attention weights on “The keys to the"
    assert re.match(said, caption)
    view.page.fill("#paper-caption", "An own caption")
    assert "An own caption" in view.page.text_content("#paper-shown svg")
    view.page.fill("#paper-caption", "")
    assert "Head" not in view.page.text_content("#paper-shown svg")


def test_other_widths_are_in_millimetres_and_small_text_is_told(
    browser: Any, samples: Samples
) -> None:
    with opened(browser, viewport={"width": 390, "height": 844}) as found:
        open_dialog(found, samples("lens", MAKE["lens"]))
        assert "a wider figure or fewer tokens" in found.page.inner_text("#paper-said")
        found.page.select_option("#paper-width", "")
        found.page.fill("#paper-mm", "500")
        width = found.page.locator("#paper-shown svg").get_attribute("width")
        assert width == "500mm"
        assert found.page.inner_text("#paper-said") == "Text of 8.0 points in print."
        accessible(found.page, within="#paper")
        assert found.page.evaluate("document.documentElement.scrollWidth") <= 390
        found.page.click("#paper-close")
        assert not found.page.is_visible("#paper")
