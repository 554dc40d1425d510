"""Importance from gradients: how the metric would change if a gate closed a little.

∂L/∂ξ_h = ⟨z_h, ∂L/∂z_h⟩, summed over the tokens of one text (Michel et al. 2019, arXiv:1905.10650;
their code takes absolute values per token, others per batch: these are three different numbers).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attnviz.captures.trials import Trial
from attnviz.core.arrays import exact
from attnviz.core.source import ForwardRequest, Gate, Output, Source
from attnviz.errors import UsageError
from attnviz.features.ablation.metrics import Metric

if TYPE_CHECKING:
    from torch import Tensor


def check(metric: Metric) -> None:
    """Raise UsageError for a metric whose gradient is zero where nothing is ablated."""
    if metric.compares:
        raise UsageError(
            "{} is 0 on the full model and flat there, so it has no gradient",
            metric.name,
            remedy="use {metric} or leave {estimate} out",
            metric="loss",
            estimate=...,
        )


def gradients(source: Source, trials: Sequence[Trial], metric: Metric) -> Tensor:
    """∂(sum of the metric over a trial's positions)/∂ξ_h in one backward pass.

    Returns float64 [trials, heads], the heads in the order of the layout.
    """
    import torch

    layout = source.layout
    shares = {
        site: torch.ones(
            len(trials), layout.heads[site.kind][site.layer], device=source.info.device
        ).requires_grad_()
        for site in layout.sites
        if layout.heads[site.kind][site.layer]
    }
    at = metric.logits_at(trials)
    output = source.forward(
        [trial.inputs for trial in trials],
        request=ForwardRequest(
            gates={site: Gate(share) for site, share in shares.items()},
            hidden=not metric.logits,
            logits=metric.logits,
            logits_at=at,
            grad=True,
        ),
    )
    with torch.enable_grad():
        values = metric.of(Output(), output, trials, at)
        total = torch.stack([of_trial.sum() for of_trial in values]).sum()
    if not total.requires_grad:
        raise UsageError("{} has no gradient; leave {estimate} out", metric.name, estimate=...)
    slopes = torch.autograd.grad(total, list(shares.values()))
    return exact(torch.cat(slopes, 1))
