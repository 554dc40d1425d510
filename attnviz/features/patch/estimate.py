"""Attribution patching: what a patch would do, from one gradient for all (Nanda 2023).

The change of a metric by denoising x is about Σ (x_clean - x) ∂m/∂x on the corrupted run: the slope
of the donor's share at 0, see :class:`~attnviz.core.source.Donor`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.core import arrays
from attnviz.core.heads import Site
from attnviz.core.source import Donor
from attnviz.features.patch.runs import PatchBench, RunPair
from attnviz.features.patch.sweep import marked, moved
from attnviz.features.patch.targets import Target


def estimates(
    bench: PatchBench, runs: RunPair, targets: Sequence[Target], at: str
) -> NDArray[np.float64]:
    """The estimated change of the metric by denoising each target, [targets, N]."""
    part = targets[0].part
    assert part is not None
    where, places = marked(runs, "denoise", at), runs.places("denoise")
    shares: dict[Site, torch.Tensor] = {}
    donors: dict[Site, list[Donor]] = {}
    for site, theirs in runs.clean.values[part].items():
        values = arrays.to_torch(moved(theirs, places))
        shares[site] = values.new_zeros(values.shape[:3]).requires_grad_()
        donors[site] = [Donor(part, values, shares[site])]
    base = runs.corrupted
    _, logits = bench.forward(list(base.batch), base.at, donors=donors, grad=True)
    total = bench.metric.of(logits, runs.clean.logits, runs.pairs).sum()
    slopes = dict(zip(shares, torch.autograd.grad(total, list(shares.values())), strict=True))
    if where is not None:
        there = torch.from_numpy(where).to(logits.device)[:, None]
        slopes = {site: slope * there for site, slope in slopes.items()}
    by_head = {site: slope.sum(2) for site, slope in slopes.items()}  # [N, heads]
    return np.stack(
        [
            sum(by_head[site][:, list(rows)].sum(1) for site, rows in target.rows.items())
            .cpu().double().numpy()  # type: ignore[union-attr]
            for target in targets
        ]
    )  # fmt: skip
