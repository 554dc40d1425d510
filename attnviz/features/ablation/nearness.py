"""How far what takes a head's place stands from what the head hands on itself.

A mean lies between outputs and can be none of them; another text's output is one, of another state.
Two figures say so for each method and head, over the rows of some of the texts: the distance
‖fill − z‖ relative to ‖z‖, means of both over rows; and the share of rows whose fill is off the
manifold of the head's outputs: farther from the nearest one on another text than 95 % of real
outputs are, or of a norm outside of the middle 95 % of theirs, as that of a mean is.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnviz.captures.trials import Trial
from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.heads import Head, Site
from attnviz.core.source import Source
from attnviz.features.ablation.fills import HeadOutputs
from attnviz.features.ablation.measure import Meter, Plan
from attnviz.scoring.groups import Group, every_head
from attnviz.scoring.passes import observe

ROWS = 512
"""Rows are taken from as many texts, drawn by the seed, as give so many; at least two texts."""
_REAL = 0.95
"""The share of real outputs that are on the manifold, by distance and by norm."""


@dataclass(frozen=True, slots=True)
class Nearness:
    """Of one head's fills by one method.

    Attributes:
        apart: mean ‖fill − z‖ / mean ‖z‖; 1 for zero.
        off: share of rows off the manifold; None where a single text was looked at.
    """

    apart: float
    off: float | None


def nearness(source: Source, plan: Plan) -> dict[str, dict[Head, Nearness]]:
    """By method, every head's; users' fills and everything else that the plan has."""
    tested = _some(plan.trials, plan.seed)
    meter, every = Meter(source, plan), every_head(source.layout)
    outputs = HeadOutputs(source.layout.sites)
    observe(source, [trial.inputs for trial in tested], outputs)
    real = outputs.values()
    return {
        method: _of_method(source, tested, meter, every, method, real) for method in plan.methods
    }


def _some(trials: Sequence[Trial], seed: int) -> list[Trial]:
    """One trial each of a few texts."""
    first: dict[int, Trial] = {}
    for trial in trials:
        first.setdefault(trial.text, trial)
    order = list(first.values())
    random.Random(f"{seed}/nearness").shuffle(order)
    chosen: list[Trial] = []
    rows = 0
    for trial in order:
        if rows >= ROWS and len(chosen) >= 2:
            break
        chosen.append(trial)
        rows += trial.inputs.length
    return sorted(chosen, key=lambda trial: trial.text)


def _of_method(
    source: Source,
    tested: Sequence[Trial],
    meter: Meter,
    every: Sequence[Group],
    method: str,
    real: Mapping[Site, Array],
) -> dict[Head, Nearness]:
    fills = meter.fills(tested, every, method, 0)
    by_head = {}
    for site, output in real.items():  # of a hybrid, those of its layers that attend
        z = arrays.exact(output)
        xp = arrays.of(z).xp
        fill = xp.zeros_like(z) if fills is None else arrays.converted(fills[site], z)
        other = arrays.exact(xp.broadcast_to(fill, z.shape))
        lengths = [len(trial.inputs.sides[site.kind].queries) for trial in tested]
        ours, theirs = (
            xp.concatenate([part[n, :size] for n, size in enumerate(lengths)]).swapaxes(0, 1)
            for part in (z, other)
        )  # [H, rows, d]
        apart = arrays.norm(theirs - ours).mean(1) / arrays.norm(ours).mean(1).clip(1e-12)
        off = _off(ours, theirs, np.repeat(np.arange(len(lengths)), lengths))
        for index in range(len(apart)):
            share = None if off is None else off[index]
            by_head[Head(site, index)] = Nearness(float(apart[index]), share)
    return by_head


def _off(real: Array, fills: Array, text: NDArray[np.int64]) -> list[float] | None:
    """By head, the share of rows whose fill is no output that the head has on other texts."""
    same = text[:, None] == text[None, :]
    if same.all():
        return None
    own_text, xp = arrays.converted(arrays.array(same), real), arrays.of(real).xp
    shares = []
    for ours, theirs in zip(real, fills, strict=True):
        own, distance = (
            xp.amin(xp.where(own_text, np.inf, _distances(rows, ours)), 1)
            for rows in (ours, theirs)
        )
        far = distance > xp.quantile(own, _REAL)
        norms, size = arrays.norm(ours), arrays.norm(theirs)
        low, high = (xp.quantile(norms, (1 + sign * _REAL) / 2) for sign in (-1, 1))
        shares.append(float(arrays.exact(far | (size < low) | (size > high)).mean()))
    return shares


def _distances(a: Array, b: Array) -> Array:
    """‖a_i − b_j‖ = √(‖a_i‖² + ‖b_j‖² − 2 a_i · b_j) of rows [n, d] and [m, d], [n, m]."""
    xp = arrays.of(a).xp
    squares = xp.square(a).sum(-1)[:, None] + xp.square(b).sum(-1) - 2 * (a @ b.T)
    distances: Array = xp.sqrt(squares.clip(0))
    return distances
