"""From layer to layer: ALTI and rollout against a forward pass, max-flow against networkx.

GPT-2 small's sizes (12 layers × 12 heads × 768) with random weights, one thread, processor time;
the two take turns in one process. networkx gets the same graph with whole capacities.
"""

from __future__ import annotations

from typing import Any

import networkx
import numpy as np
import torch

from attnviz.core.prompt import Prompt
from attnviz.core.source import ForwardRequest, Source
from attnviz.features.flow.function import run
from attnviz.features.flow.result import LayerFlow, Method
from attnviz.features.flow.stack import flows
from benchmarks.ablation import ids
from benchmarks.logits import model
from benchmarks.table import Row, in_turn

LENGTH, SHORT = 128, 16


def measure() -> list[Row]:
    """All rows."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with model() as source:
            return [layered(source, "alti", 3), layered(source, "rollout", 1.3), pipes(source)]
    finally:
        torch.set_num_threads(threads)


def layered(source: Source, method: Method, target: float) -> Row:
    """All tokens to all positions, by the shares of every layer."""
    inputs = source.prepare(Prompt(ids=ids(LENGTH)))
    turns = in_turn(
        lambda: run(source, inputs, method),
        lambda: source.forward([inputs], request=ForwardRequest(hidden=True)),
    )
    return turns.row(f"{method}, T = {LENGTH}", "one forward", target)


def pipes(source: Source) -> Row:
    """Every maximum flow, by what people take for it."""
    steps = run(source, source.prepare(Prompt(ids=ids(SHORT))), "rollout").layers
    ours: list[Any] = []
    theirs: list[Any] = []
    turns = in_turn(lambda: ours.append(flows(steps)), lambda: theirs.append(usual(steps)))
    worst = abs(ours[0] - theirs[0]).max()
    equal = f"; equal within {worst:.0e}"
    return turns.row(f"max-flow, T = {SHORT}", "networkx", 1 / 30, equal)


def usual(steps: tuple[LayerFlow, ...]) -> np.ndarray[Any, Any]:
    """Return a maximum flow of networkx for every pair that has a path."""
    count, top = len(steps[0].shares), len(steps)
    graph = networkx.DiGraph()
    for layer, step in enumerate(steps):
        for i, j in np.argwhere(step.shares):
            capacity = round(float(step.shares[i, j]) * (1 << 30))
            graph.add_edge((layer, j), (layer + 1, i), capacity=capacity)
    found = np.zeros((count, count))
    for end, token in np.ndindex(count, count):
        if networkx.has_path(graph, (0, token), (top, end)):
            flow = networkx.maximum_flow_value(graph, (0, token), (top, end))
            found[end, token] = flow / (1 << 30)
    return found
