"""Sentences of a long trace suppressed one by one, against as many plain passes with logits.

GPT-2 small's sizes (12 layers × 12 heads × 768, 50,257 words) with random weights and 2,048
positions, one thread, processor time. Of the 60 sentences of 2,000 tokens every tenth is
suppressed, which is as far into the text on average as all of them are.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import torch

import attnviz as av
from attnviz.core.prompt import Prompt
from attnviz.core.source import ForwardRequest, Source
from attnviz.features.thoughts.suppress import suppressed
from benchmarks.ablation import HEADS, LAYERS, WIDTH
from benchmarks.table import Row, seconds

VOCABULARY, LENGTH, SENTENCES, STEP = 50257, 2000, 60, 10
TARGET = 1.3


def measure() -> list[Row]:
    """One row."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with model() as source:
            return [row(source)]
    finally:
        torch.set_num_threads(threads)


@contextmanager
def model() -> Iterator[Source]:
    """Random weights."""
    import transformers

    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_layer=LAYERS, n_head=HEADS,
                                     n_embd=WIDTH, n_positions=2048)  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        transformers.GPT2LMHeadModel(config).save_pretrained(folder)
        yield av.load(folder)


def row(source: Source) -> Row:
    """Return passes that a suppressed sentence takes."""
    ids = tuple((37 * n * n + 11 * n + 3) % VOCABULARY for n in range(LENGTH))
    inputs = source.prepare(Prompt(ids=ids))
    ends = [LENGTH * n // SENTENCES for n in range(SENTENCES + 1)]
    chosen = [(ends[n], ends[n + 1]) for n in range(STEP // 2, SENTENCES, STEP)]
    chosen.append((ends[-2], LENGTH))

    def plain() -> None:
        source.forward([inputs], request=ForwardRequest(hidden=False, logits=True))

    plain()
    one = seconds(plain)
    each = (seconds(lambda: suppressed(source, inputs, chosen)) - one) / (len(chosen) - 1)
    return Row(
        f"a sentence suppressed, T = {LENGTH:,}",
        "one forward with logits",
        each / one,
        TARGET,
        f"{each:.1f} s and {one:.1f} s",
    )
