"""A row of a head's scores split over every source, against a plain forward pass.

GPT-2 small's sizes (12 layers × 12 heads × 768) with random weights, a head of the last layer, one
thread, processor time; the two take turns in one process.
"""

from __future__ import annotations

import torch

from attnviz.core.prompt import Prompt
from attnviz.core.source import ForwardRequest, Source
from attnviz.features.sources.result import SourcesSettings
from attnviz.features.sources.run import answer
from benchmarks.ablation import LAYERS, ids
from benchmarks.logits import model
from benchmarks.table import Row, in_turn

LENGTH = 128
TARGET = 6


def measure() -> list[Row]:
    """All rows."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with model() as source:
            return [row(source)]
    finally:
        torch.set_num_threads(threads)


def row(source: Source) -> Row:
    """Return the matrix of one pair, sums by side, every key of the row by source."""
    inputs = source.prepare(Prompt(ids=ids(LENGTH)))
    asked = SourcesSettings(select=f"{LAYERS - 1}.3", key=5)
    turns = in_turn(
        lambda: answer(source, inputs, asked),
        lambda: source.forward([inputs], request=ForwardRequest(hidden=True)),
    )
    return turns.row(f"all sources of a row, T = {LENGTH}", "one forward", TARGET)
