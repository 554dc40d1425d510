"""What reports share: rows for other programs, text, and what notebooks show."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import attnviz as av
from attnviz.core.heads import Head, Site
from attnviz.errors import SelectionError, UsageError

TEXT = "one two three one two three <b>one</b> two"


@pytest.fixture(scope="module")
def source() -> Any:
    return av.load("demo-gpt2")


@pytest.fixture(scope="module")
def capture(source: Any) -> Any:
    return av.capture(TEXT, model=source)


@pytest.fixture(scope="module")
def report(capture: Any) -> Any:
    return av.heads(capture)


def test_csv_is_the_records(report: Any) -> None:
    rows = list(csv.DictReader(io.StringIO(report.to_csv())))
    expected = [{k: "" if v is None else str(v) for k, v in row.items()}
                for row in report.to_records()]  # fmt: skip
    assert rows == expected
    assert replace(report, heads=()).to_csv() == "layer,index,head,does,rests,roles\n"


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_heads_are_a_grid_with_a_table(report: Any) -> None:
    tags = Tags(report._repr_html_())
    rows = sum(tag == "tr" for tag, _ in tags.found) - 1
    assert rows == sum(bool(head.roles) for head in report.heads)
    assert {"head", "role", "score", "chance", "1.4", "previous"} <= set(tags.words)
    alt = next(a["alt"] for tag, a in tags.found if tag == "img")
    assert "previous 0.5, 1.4" in alt
    assert f"no role: {24 - rows}" in alt


def test_a_heatmap_says_where_most_of_it_is(capture: Any) -> None:
    picture = av.heatmap(capture, "1.4")
    weights = capture["1.4"]
    _, column = np.unravel_index(weights.argmax(), weights.shape)
    assert f"({weights.max():.2f})" in picture.described()
    assert capture.tokens[column].strip() in picture.described()
    assert "<b>" not in av.heatmap(capture, "1.4")._repr_html_()


def test_a_head_by_its_name(capture: Any) -> None:
    head = Head(Site("decoder", 1), 4)
    assert (capture["1.4"] == capture.maps[head.site][4]).all()
    assert (capture["L1H4"] == capture[head]).all()
    assert capture.tokens == capture.inputs.sides["decoder"].queries.texts
    assert capture.source_tokens == capture.tokens
    with pytest.raises(SelectionError, match=r"'1\.\*' are 6 heads; name one"):
        capture["1.*"]
    with pytest.raises(SelectionError):
        capture["9.9"]
    with pytest.raises(UsageError, match=r"a head's name such as '4\.11' is needed, not 3"):
        capture[3]
