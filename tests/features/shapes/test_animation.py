"""The animation in a browser: its keys, and what it says when it fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attnviz.features.shapes.animation.page import animation_page
from tests.features.shapes.test_drawing import animation
from tests.viewing import opened


def test_the_animation_goes_on_and_back_by_keys_and_says_when_it_fails(
    browser: Any, tmp_path: Path
) -> None:
    path = tmp_path / "animation.html"
    path.write_bytes(animation_page(animation()))
    with opened(browser, reduced_motion="reduce") as found:
        page = found.page
        found.documents.add(path.as_uri())
        page.goto(path.as_uri())
        last = page.eval_on_selector("#seek", "seek => seek.max")
        assert page.inner_text("#play") == "Play"
        assert page.inner_text("#where") == f"1 / {int(last) + 1}"
        assert page.eval_on_selector_all("#stage text", "all => all.some(one => one.textContent)")
        for key, where in (("ArrowRight", 2), ("End", int(last) + 1), ("ArrowLeft", int(last))):
            page.keyboard.press(key)
            assert page.inner_text("#where").split(" / ")[0] == str(where)
        page.keyboard.press("+")
        assert page.input_value("#speed") == "2"
        page.keyboard.press(" ")
        assert page.inner_text("#play") == "Pause"
        assert not page.is_visible("#failure")
        page.evaluate("dispatchEvent(new ErrorEvent('error', { message: 'a mishap' }))")
        assert page.inner_text("#failure") == "This page failed: a mishap"
        assert found.console == ["error: a mishap"]
        found.console.clear()
