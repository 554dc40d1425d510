"""The moving picture of the README is what its commands print today."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from docs import moving


def test_it_is_what_the_commands_print() -> None:
    kept = moving.TARGET.read_text("utf-8")
    assert kept == moving.made(), "run python -m docs.moving"


def test_it_is_small_asks_for_nothing_and_has_both_schemes() -> None:
    kept = moving.TARGET.read_text("utf-8")
    assert len(kept) < 1_000_000
    drawn = ElementTree.fromstring(kept)
    assert {element.tag.rpartition("}")[2] for element in drawn.iter()} <= {
        "svg", "title", "desc", "style", "clipPath", "rect", "g", "text"
    }  # fmt: skip
    assert re.findall(r"url\((?!#)|https?://(?!www\.w3\.org/2000/svg)|@import", kept) == []
    assert "prefers-color-scheme:dark" in kept
    assert "prefers-reduced-motion:no-preference" in kept


def test_scenes_follow_each_other_for_the_whole_time() -> None:
    kept = moving.TARGET.read_text("utf-8")
    lasting = [moving._seconds([moving.Text()] * count) for count in (10, moving.ROWS + 10)]
    assert lasting[1] - lasting[0] == 20 * moving.SCROLLING
    for number in range(len(moving.COMMANDS)):
        assert f'id="s{number}"' in kept
        assert f"@keyframes s{number}{{" in kept
