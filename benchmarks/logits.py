"""A logit split over every part of the model, against a plain forward pass with logits.

GPT-2 small's sizes (12 layers × 12 heads × 768, 50,257 words) with random weights, one thread,
processor time; the two take turns in one process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

import attnviz as av
from attnviz.core.prompt import Prompt
from attnviz.core.source import ForwardRequest, Source
from attnviz.features.logits.function import run
from attnviz.features.logits.result import LogitsSettings
from benchmarks.ablation import HEADS, LAYERS, WIDTH, ids
from benchmarks.table import Row, in_turn

VOCABULARY = 50257
TARGET = 1.5


def measure() -> list[Row]:
    """All rows."""
    return at_lengths(row)


def at_lengths(row: Callable[[Source, int], Row]) -> list[Row]:
    """Return a row for a short and a long text, by one thread.

    Args:
        row: measures the model at a length.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with model() as source:
            return [row(source, length) for length in (32, 128)]
    finally:
        torch.set_num_threads(threads)


@contextmanager
def model() -> Iterator[Source]:
    """Random weights."""
    import transformers

    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_layer=LAYERS, n_head=HEADS,
                                     n_embd=WIDTH)  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        transformers.GPT2LMHeadModel(config).save_pretrained(folder)
        yield av.load(folder)


def row(source: Source, length: int) -> Row:
    """Every part of the last token's top logit, with the ten strongest heads in words."""
    inputs = source.prepare(Prompt(ids=ids(length)))
    turns = in_turn(
        lambda: run(source, inputs, LogitsSettings()),
        lambda: source.forward([inputs], request=ForwardRequest(logits=True)),
    )
    return turns.row(f"all parts of a logit, T = {length}", "one forward", TARGET)
