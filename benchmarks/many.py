"""Pages of very many heads: how large they are, and how long a browser takes to the first overview.

The heads of a Llama of 8 billion parameters (32 layers × 32) and of 70 billion (80 × 64), with
random causal maps, some of which look at the token before, at themselves or at the first token.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

import attnviz as av
from attnviz.core.capture import Capture
from attnviz.core.heads import Layout, Site
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo
from attnviz.core.tokens import Sides, Tokens
from benchmarks.table import Row
from benchmarks.viewer import overview_seconds

SIZES = ((32, 32), (80, 64))
LENGTH = 64
MOST_MB, MOST_SECONDS = 30.0, 2.0
KINDS = 8
"""One in so many heads looks at the token before, one at itself, and one at the first token."""


def capture(layers: int, heads: int, length: int = LENGTH) -> Capture:
    """Causal maps of random heads, and of some that do one thing."""
    rng = np.random.default_rng(0)
    tokens = Tokens(tuple(f"token{i}" for i in range(length)))
    at = np.arange(length)
    targets = (np.maximum(at - 1, 0), at, np.zeros(length, int))
    maps = {}
    for layer in range(layers):
        scores = rng.normal(0, 2.5, (heads, length, length))
        for head in range(heads):
            kind = int(rng.integers(KINDS))
            if kind < len(targets):
                scores[head, at, targets[kind]] += rng.uniform(5, 9)
        powers = np.tril(np.exp(scores))
        maps[Site("decoder", layer)] = (powers / powers.sum(-1, keepdims=True)).astype(np.float32)
    layout = Layout({"decoder": (heads,) * layers})
    inputs = Inputs({"decoder": Sides(tokens, tokens)})
    return Capture(SourceInfo("random weights", "recorded", ""), layout, inputs, maps)


def measure() -> list[Row]:
    """Size and time of each page against its target."""
    rows = []
    for layers, heads in SIZES:
        shown = capture(layers, heads)
        start = time.process_time()
        page = av.view(shown)
        took = time.process_time() - start
        size = len(page.page) / 1e6
        what = f"page of {layers * heads:,} heads, {LENGTH} tokens"
        detail = f"{size:.1f} MB, made in {took:.1f} s"
        rows.append(Row(what, f"{MOST_MB:g} MB", size / MOST_MB, 1.0, detail))
        with tempfile.TemporaryDirectory() as folder:
            seconds = overview_seconds(page.save(Path(folder) / "page.html"))
        if seconds is not None:
            detail = f"{seconds:.2f} s"
            what = f"its first overview, {layers * heads:,} heads"
            rows.append(Row(what, f"{MOST_SECONDS:g} s", seconds / MOST_SECONDS, 1.0, detail))
    return rows
