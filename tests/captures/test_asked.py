"""A capture knows its text, model and settings, so that what needs the model runs it again.

Copies of texts say nothing new: every command with texts is as sure as without them.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import attnviz as av
from attnviz.captures.files import write_capture
from attnviz.captures.trials import distinct
from attnviz.errors import UsageError

TEXT = "the cat and the dog and the cat"
PROMPT = av.Prompt(TEXT, spans={"cat": "all:cat"})
CALLS: dict[str, Callable[..., Any]] = {
    "explain": av.explain, "lens": av.lens, "logits": av.logits,
    "ablate": lambda what, **model: av.ablate(what, select="0.0", method="mean", **model),
    "sinks": av.sinks,
    "knockout": lambda what, **model: av.knockout(what, select="0.0", draws=1, **model),
    "flow": av.flow, "sources": lambda what, **model: av.sources(what, select="1.0", **model),
}  # fmt: skip


OTHERS: dict[str, tuple[str, dict[str, Any], av.Prompt]] = {
    "ablate": ("demo-gpt2", {"untrained": 1}, PROMPT),
    "explain": ("demo-bert", {}, av.Prompt("the cat and the [MASK]")),
}
"""Model and text where many passes run, each of which takes long in bfloat16; else it is that."""


@pytest.mark.parametrize("name", CALLS)
def test_a_capture_is_as_good_as_its_text(name: str) -> None:
    other, asked, prompt = OTHERS.get(name, ("demo-gpt2", {"dtype": "bfloat16"}, PROMPT))
    call, model = CALLS[name], av.load(other, **asked)
    capture = av.capture(prompt, model=model)
    wanted = call(prompt, model=model).to_json()
    found = call(capture)
    assert found.to_json() == wanted
    assert call(capture, model=model).to_json() == wanted
    ran, default = ((info.model, info.dtype) for info in (found.source, av.load("demo-gpt2").info))
    assert ran == (model.info.model, model.info.dtype)
    assert ran != default, "the default model is another one"


@pytest.mark.parametrize("name", CALLS)
def test_it_is_never_of_another_model_or_of_one_that_was_changed(name: str) -> None:
    call, model = CALLS[name], av.load("demo-gpt2")
    with pytest.raises(UsageError, match="the capture is of demo-gpt2; leave model out"):
        call(av.capture(PROMPT, model=model), model="demo-bert")
    with pytest.raises(UsageError):
        call(av.capture(PROMPT, without="0.0"))
    with model.gated({"0.0": 0.0}):
        capture = av.capture(PROMPT, model=model)
    with pytest.raises(UsageError):
        call(capture)
    with pytest.raises(UsageError):
        call(dataclasses.replace(av.capture(PROMPT), asked=None))


def test_its_settings_are_kept() -> None:
    capture = av.capture(PROMPT, model="demo-gpt2", dtype="bfloat16")
    assert av.logits(capture).source.dtype == "bfloat16"
    several = [capture, av.capture("a dog", dtype="bfloat16"), "a cat"]
    assert av.sinks(several).source.dtype == "bfloat16"
    with pytest.raises(UsageError, match="the capture is of demo-gpt2"):
        av.sinks([capture, av.capture("a dog")])


def test_what_is_recorded_names_the_method_of_flow(tmp_path: Path) -> None:
    """Rollout never stands where ALTI would, unless it is named."""
    capture = av.capture(TEXT)
    assert av.flow(capture).method == av.flow(TEXT).method == "alti"
    assert av.flow(capture, method="rollout").method == "rollout"
    path = tmp_path / "c.npz"
    write_capture(capture, path)
    recorded = av.read(path)
    with pytest.raises(UsageError, match="take method='rollout' or method='max-flow'"):
        av.flow(recorded)
    assert av.flow(recorded, method="rollout").method == "rollout"


TEXTS = [
    "the cat and the dog and the cat", "one two three one two three",
    "the keys to the cabinet are on the table", "a b c a b c a",
    "she read a book and then another book",
    "rain fell all day on the small town by the small river",
]  # fmt: skip
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
    found = av.spans(prompts, rows="all")
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
