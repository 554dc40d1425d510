"""A capture knows its text, model and settings, so that what needs the model runs it again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import attnviz as av
from attnviz.captures.files import write_capture
from attnviz.errors import UsageError

TEXT = "the cat and the dog and the cat"
PROMPT = av.Prompt(TEXT, spans={"cat": "all:cat"})
CALLS: dict[str, Callable[..., Any]] = {
    "explain": av.explain,
    "lens": av.lens,
    "logits": av.logits,
    "ablate": lambda what, **model: av.ablate(what, select="0.0", method="mean", **model),
    "sinks": av.sinks,
    "knockout": lambda what, **model: av.knockout(what, select="0.0", draws=1, **model),
    "flow": av.flow,
    "sources": lambda what, **model: av.sources(what, select="1.0", **model),
}


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
