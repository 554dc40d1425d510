"""Models of the native backend on NumPy against the same on torch, one thread each."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import cast

import numpy as np

import attnviz as av
from attnviz.core.arrays import array, on_numpy, on_torch, to_torch
from attnviz.core.prompt import Inputs
from attnviz.core.source import ForwardRequest
from attnviz.core.threads import one_thread
from attnviz.models.native import source as native
from attnviz.scoring.observe import ScoreObserver
from benchmarks.startup import minilm
from benchmarks.table import Row, in_turn

RUNS = 9
PASSES = ((1, 16), (1, 128), (16, 16), (16, 32), (1, 256))
"""Texts, and tokens of each."""


def against(what: str, ours: Callable[[], object], theirs: Callable[[], object]) -> Row:
    """Return the median ratio of two calls in turn, by the processor's time."""
    turns = in_turn(ours, theirs, RUNS)
    return Row(what, "torch", turns.ratio, None, f"{1e3 * turns.mine:.2f} ms")


def kernels() -> list[Row]:
    """Return what has two implementations."""
    draw, rows = np.random.default_rng(0), []
    for length in (24, 512):
        scores = draw.normal(size=(12, length, length)).astype(np.float32)
        ours = partial(on_numpy.softmax, scores, None)
        theirs = partial(on_torch.softmax, to_torch(array(scores)), None)
        rows.append(against(f"softmax of 12 × {length} × {length}", ours, theirs))
    tokens = draw.normal(size=(256, 1536)).astype(np.float32)
    weight = draw.normal(size=(384, 1536)).astype(np.float32)
    tensor = to_torch(array(tokens))
    for name in ("gelu", "gelu_tanh"):
        ours = partial(getattr(on_numpy, name), tokens)
        theirs = partial(getattr(on_torch, name), tensor)
        rows.append(against(f"{name} of 256 × 1536", ours, theirs))
    ours = partial(on_numpy.linear, tokens, weight, None)
    theirs = partial(on_torch.linear, tensor, to_torch(array(weight)), None)
    return [*rows, against("256 × 1536 × 384", ours, theirs)]


def passes() -> list[Row]:
    """Whole passes with all scores, whatever the sizes would choose."""
    rows, draw, most = [], random.Random(0), native.MOST_TOKENS
    native.MOST_TOKENS = 1 << 30
    for name, model in (("demo-gpt2", "demo-gpt2"), ("MiniLM", minilm())):
        source = cast("native.Native", av.load(model))
        for texts, length in PASSES:
            ids = [tuple(draw.randrange(300, 900) for _ in range(length)) for _ in range(texts)]
            batch = [source.prepare(av.Prompt(ids=each)) for each in ids]
            ours, theirs = (partial(_scored, one, batch) for one in (source.light, source))
            rows.append(against(f"{name}, {texts} × {length} tokens", ours, theirs))
    native.MOST_TOKENS = most
    return rows


def _scored(source: native.Native, batch: list[Inputs]) -> None:
    observer = ScoreObserver(batch, source.layout)
    source.forward(batch, [observer], ForwardRequest(hidden=False))


def measure() -> list[Row]:
    """Kernels, then passes."""
    with one_thread():
        return [*kernels(), *passes()]
