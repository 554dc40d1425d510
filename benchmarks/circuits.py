"""Circuits read off the weights of every head, against one forward pass of 128 tokens.

GPT-2 small's sizes (12 layers × 12 heads × 768, 50,257 words) with random weights, one thread,
processor time, in one process.
"""

from __future__ import annotations

import torch

from attnviz.core.source import ForwardRequest
from attnviz.features.circuits.function import run
from attnviz.features.circuits.result import CircuitsSettings
from benchmarks.ablation import ids
from benchmarks.logits import model
from benchmarks.table import Row, in_turn

TARGET = 30
LENGTH = 128


def measure() -> list[Row]:
    """One row."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with model() as source:
            from attnviz.core.prompt import Prompt

            inputs = source.prepare(Prompt(ids=ids(LENGTH)))
            turns = in_turn(
                lambda: run(source, CircuitsSettings()),
                lambda: source.forward([inputs], request=ForwardRequest(logits=True)),
            )
    finally:
        torch.set_num_threads(threads)
    return [turns.row("circuits of 144 heads", f"one forward, T = {LENGTH}", TARGET)]
