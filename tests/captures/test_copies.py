"""Copies of texts say nothing new: every command with texts is as sure as without them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import attnviz as av
from attnviz.captures.trials import distinct

TEXTS = [
    "the cat and the dog and the cat",
    "one two three one two three",
    "the keys to the cabinet are on the table",
    "a b c a b c a",
    "she read a book and then another book",
    "rain fell all day on the small town by the small river",
]
COPIES = [*TEXTS, *random.Random(0).sample(TEXTS * 3, 18)]

Ends = Iterator[tuple[float | None, float | None]]


def of_ablate(texts: list[str]) -> Ends:
    found = av.ablate(texts, select="2.*", method="mean", reference=REFERENCE)
    return ((one.first.low, one.first.high) for one in found.effects)


def of_diff(texts: list[str]) -> Ends:
    model, bare = av.load("demo-gpt2"), av.load("demo-gpt2")
    with bare.gated({"0.5": 0}):
        found = av.diff(texts, model=model, other_model=bare)
    return ((one.low, one.high) for head in found.heads for one in head.changes)


def of_sinks(texts: list[str]) -> Ends:
    return ((one.share.low, one.share.high) for one in av.sinks(texts).heads)


def of_spans(texts: list[str]) -> Ends:
    prompts = [av.Prompt(text, spans={"first": "tokens:1-3"}) for text in texts]
    found = av.spans(prompts, from_="all")
    return ((share.low, share.high) for head in found.heads for share in head.shares)


def of_sources(texts: list[str]) -> Ends:
    return ((one.low, one.high) for one in av.sources(texts, select="2.0", role="duplicate").by_key)


def of_lens(texts: list[str]) -> Ends:
    found = av.lens(texts, by="head")
    return ((one.in_text.low, one.in_text.high) for one in found.heads if one.in_text)


def of_profile(texts: list[str]) -> Ends:
    found = av.profile(texts=texts)
    return ((one.low, one.high) for head in found.heads for one in head.estimates.values())


REFERENCE = ["a small boat waited at the quay", "nobody knew why he had gone", "two horses stood"]


@pytest.mark.parametrize(
    "ends", [of_ablate, of_diff, of_sinks, of_spans, of_sources, of_lens, of_profile]
)
def test_copies_make_no_interval_narrower(ends: Callable[[list[str]], Any]) -> None:
    once, often = list(ends(TEXTS)), list(ends(COPIES))
    assert len(once) == len(often)
    widths = [
        (high - low, more - less)
        for (low, high), (less, more) in zip(once, often, strict=True)
        if None not in (low, high, less, more) and high > low + 1e-6
    ]
    assert len(widths) > 3
    assert all(wide >= 0.6 * narrow for narrow, wide in widths)  # 24 texts would be half as wide


def test_copies_of_a_document_are_one_document(tmp_path: Path) -> None:
    words = [("the", "cat", "sat"), ("a", "dog", "ran"), ("the", "man", "slept")]
    lines = []
    for document in (*words, words[0], words[0]):
        lines.append("# newdoc")
        lines += [
            f"{n}\t{word}\t_\t_\t_\t_\t{(2, 3, 0)[n - 1]}\t{('det', 'nsubj', 'root')[n - 1]}\t_\t_"
            for n, word in enumerate(document, 1)
        ]
        lines += ["", *lines[-3:], ""]
    path = tmp_path / "copies.conllu"
    path.write_text("\n".join(lines) + "\n")
    found = av.syntax(path, split="all")
    assert found.texts == 3
    assert next(one for one in found.relations if one.name == "det").count == 10


def test_what_is_like_nothing_else_stays() -> None:
    kept, said = distinct(["a", "b", "c", "d"], ["x", None, "x", None])
    assert kept == ["a", "b", "d"]
    assert said == ("1 text repeats another one word for word: copies count once.",)
    assert distinct(["a"], ["x"]) == (["a"], ())
