"""All states of a GPT-2 read out at every position, against the products that this takes.

The matrix of the LM head has 38.6 of the 124 million weights of a pass, so that 12 more readouts of
every position take 4.7 passes in matrix products alone, whatever is done with the logits. The
ratio is to a pass with logits and the same matrix times the 12 other states.

GPT-2 small's sizes (12 layers × 12 heads × 768, 50,257 words) with random weights, one thread,
processor time; the two take turns in one process.
"""

from __future__ import annotations

import torch

from attnviz.core.prompt import Prompt
from attnviz.core.source import ForwardRequest, Source
from attnviz.features.lens.function import run
from attnviz.features.lens.result import LensSettings
from benchmarks.ablation import LAYERS, WIDTH, ids
from benchmarks.logits import at_lengths
from benchmarks.table import Row, in_turn

TARGET = 2.5


def measure() -> list[Row]:
    """All rows."""
    return at_lengths(row)


def row(source: Source, length: int) -> Row:
    """Top ten, entropy, KL and every head's part, of 13 states at all positions."""
    inputs = source.prepare(Prompt(ids=ids(length)))
    table = source.readout().table
    assert table is not None
    others = torch.randn(LAYERS, length, WIDTH)

    def plain() -> None:
        source.forward([inputs], request=ForwardRequest(logits=True))
        for state in others:
            state @ table.t()

    turns = in_turn(lambda: run(source, inputs, LensSettings()), plain)
    return turns.row(f"all states, T = {length}", "one pass, 12 readouts", TARGET)
