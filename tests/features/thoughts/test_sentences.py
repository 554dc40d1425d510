"""Where a trace is split: think tags, ends of sentences, spans, and what is refused."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import attnviz as av
from attnviz.core.spans import Span
from attnviz.core.tokens import Tokens
from attnviz.errors import InputError
from attnviz.features.thoughts.result import Thoughts
from attnviz.features.thoughts.sentences import split
from tests import ROOT
from tests.viewing import opened


def tokens_of(text: str, spans: tuple[Span, ...] = ()) -> Tokens:
    """Words with their space, and punctuation apart, as byte-level vocabularies have them."""
    return Tokens(tuple(re.findall(r" ?\w+|\n+| ?[^\w\s]+", text)), spans=spans)


def said(text: str, first: int = 0) -> list[str]:
    return [sentence.text for sentence in split(tokens_of(text), first=first)]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("It rains. We stay!", ["It rains.", "We stay!"]),
        ("Is it so? Yes. No…", ["Is it so?", "Yes.", "No…"]),
        ('He said "it rains." We stay.', ['He said "it rains."', "We stay."]),
        ("Mr. Brown went. J. Smith did not.", ["Mr. Brown went.", "J. Smith did not."]),
        ("It is 3.5 in all. Good.", ["It is 3.5 in all.", "Good."]),
        ("1. Take it.\n2. Give it.", ["1. Take it.", "2. Give it."]),
        ("one line\nanother line", ["one line", "another line"]),
        ("One. ***\n\nTwo.", ["One. ***", "Two."]),
        ("We go, e.g. by sea. Or not.", ["We go, e.g. by sea.", "Or not."]),
    ],
)
def test_where_a_sentence_ends(text: str, sentences: list[str]) -> None:
    assert said(text) == sentences


def test_every_token_of_a_part_is_in_one_sentence() -> None:
    text = 'One day, it rained. "Well!" said he. So we went.\n\nThen it was night.'
    sentences = split(tokens_of(text))
    ends = [(sentence.start, sentence.stop) for sentence in sentences]
    assert ends[0][0] == 0
    assert all(a[1] == b[0] for a, b in pairwise(ends))
    assert ends[-1][1] == len(tokens_of(text))


@pytest.mark.parametrize(
    ("opening", "closing"), [("<think>", "</think>"), ("[THINK]", "[/THINK]"), ("", "</think>")]
)
def test_thoughts_stand_between_tags_and_the_answer_behind(opening: str, closing: str) -> None:
    question = "What is it? " if opening else ""
    trace = split(tokens_of(f"{question}{opening} It is a cat. Or a dog. {closing} A cat."))
    assert [(s.text, s.part) for s in trace] == [
        ("It is a cat.", "thought"), ("Or a dog.", "thought"), ("A cat.", "answer"),
    ]  # fmt: skip


def test_thoughts_without_an_end_go_on_to_the_last_token() -> None:
    trace = split(tokens_of("Why? <think> Because. It is so. And"))
    assert [s.part for s in trace] == ["thought"] * 3


def test_a_trace_begins_where_it_is_said_to() -> None:
    assert said("One. Two. Three. Four.", first=2) == ["Two.", "Three.", "Four."]


def test_spans_are_the_sentences_where_they_are_named() -> None:
    spans = (Span("late", ((4, 6),)), Span("early", ((0, 3),)))
    trace = split(tokens_of("one two three four five six", spans), ("late", "early"))
    assert [(s.name, s.text) for s in trace] == [
        ("early", "one two three"), ("late", "five six"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("spans", "told"),
    [
        ((Span("a", ((0, 3),)), Span("b", ((2, 4),))), "'a' and 'b' overlap"),
        ((Span("a", ((0, 4),)), Span("b", ((2, 3),))), "'a' and 'b' overlap"),
        ((Span("a", ((0, 1), (2, 3))), Span("b", ((4, 5),))), "'a' is in 2 pieces"),
        ((Span("a", ((0, 3),)),), "the trace has 1 sentence"),
    ],
)
def test_spans_that_are_no_sentences_are_refused(spans: tuple[Span, ...], told: str) -> None:
    with pytest.raises(InputError, match=told):
        split(tokens_of("one two three four five six", spans), tuple(span.name for span in spans))


def test_one_sentence_is_no_trace() -> None:
    with pytest.raises(InputError, match="the trace has 1 sentence"):
        split(tokens_of("It rains."))


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
