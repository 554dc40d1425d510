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

import torch
from torch import Tensor

from attnviz.captures.trials import Trial
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
    real: Mapping[Site, Tensor],
) -> dict[Head, Nearness]:
    fills = meter.fills(tested, every, method, 0)
    by_head = {}
    for site, output in real.items():  # of a hybrid, those of its layers that attend
        z = output.double()
        other = torch.zeros_like(z) if fills is None else fills[site].to(z).expand_as(z)
        lengths = [len(trial.inputs.sides[site.kind].queries) for trial in tested]
        text = torch.cat([torch.full((size,), n) for n, size in enumerate(lengths)])
        ours, theirs = (
            torch.cat([part[n, :size] for n, size in enumerate(lengths)]).transpose(0, 1)
            for part in (z, other)
        )  # [H, rows, d]
        apart = (theirs - ours).norm(dim=-1).mean(1) / ours.norm(dim=-1).mean(1).clamp(min=1e-12)
        off = _off(ours, theirs, text.to(ours.device))
        for index in range(len(apart)):
            share = None if off is None else float(off[index])
            by_head[Head(site, index)] = Nearness(float(apart[index]), share)
    return by_head


def _off(real: Tensor, fills: Tensor, text: Tensor) -> Tensor | None:
    """[H], the share of rows whose fill is no output that the head has on other texts."""
    same = text[:, None] == text[None, :]
    if bool(same.all()):
        return None
    shares = []
    for ours, theirs in zip(real, fills, strict=True):
        own = torch.cdist(ours, ours).masked_fill(same, torch.inf).amin(1)
        distance = torch.cdist(theirs, ours).masked_fill(same, torch.inf).amin(1)
        far = distance > own.quantile(_REAL)
        norms = ours.norm(dim=-1)
        low, high = norms.quantile((1 - _REAL) / 2), norms.quantile((1 + _REAL) / 2)
        size = theirs.norm(dim=-1)
        shares.append((far | (size < low) | (size > high)).double().mean())
    return torch.stack(shares)
