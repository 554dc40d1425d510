"""Two threads on one model: neither sees what the other does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import attnviz as av
from attnviz.models import pretrained
from tests.models.tiny import transformers

TEXT = "the keys to the cabinet are on the table"
DEMO = Path(av.__file__).parent / "models" / "demo" / "demo-gpt2"


def load(how: str) -> tuple[Any, Any]:
    """A source, and another one of the same weights in memory where they are borrowed."""
    if how != "in memory":
        source = pretrained.load("demo-gpt2", backend=how)  # type: ignore[arg-type]
        return source, source
    model = transformers.AutoModelForCausalLM.from_pretrained(DEMO)
    tokenizer = transformers.AutoTokenizer.from_pretrained(DEMO)
    first, second = (av.load(model, tokenizer=tokenizer) for _ in range(2))
    return first, second


@contextmanager
def looking(source: Any) -> Iterator[list[Any]]:
    """Another thread that looks at heads again and again inside the ``with`` block."""
    found: list[Any] = []
    stop = threading.Event()

    def look() -> None:
        try:
            while not stop.is_set():
                found.append(av.heads(TEXT, model=source))
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize(
    "how",
    ["native", *(pytest.param(how, marks=pytest.mark.slow) for how in ("hooked", "in memory"))],
)
def test_what_one_thread_changes_the_other_does_not_see(how: str) -> None:
    one, other = load(how)
    level = logging.getLogger("transformers").level
    plain, alone = av.heads(TEXT, model=other), av.ablate(TEXT, model=one)
    with one.gated({"0.*": 0.0}):
        without = av.heads(TEXT, model=one)
    assert without != plain
    with looking(other) as seen:
        assert av.ablate(TEXT, model=one) == alone
        with one.gated({"0.*": 0.0}):
            for _ in range(5):
                assert av.heads(TEXT, model=one) == without
    assert seen
    assert all(heads == plain for heads in seen)
    assert logging.getLogger("transformers").level == level


def test_gates_are_gone_after_an_error() -> None:
    source, _ = load("native")
    plain = av.heads(TEXT, model=source)
    with pytest.raises(KeyError), source.gated({"0.*": 0.0}), source.gated({"1.*": 0.5}):
        raise KeyError
    assert av.heads(TEXT, model=source) == plain
