"""What every row of a head does to the loss, to first order, in one backward pass.

With z_i what a head hands to W_O at position i, the loss changes by about -⟨z_i, ∂L/∂z_i⟩ if that
becomes 0 (attribution patching with zero, Nanda 2023; a gate's gradient, Michel et al. 2019, one
position at a time). L is the sum of -log p(next token) over the text, in nats: a row's effect is on
all tokens that follow it. Above 0 the text is predicted better for what the head wrote there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.attention.unembedding import sigma
from attnviz.captures.trials import is_masked, next_tokens
from attnviz.core.arrays import to_numpy
from attnviz.core.heads import Head, Site
from attnviz.core.prompt import Inputs
from attnviz.core.source import Donor, ForwardRequest, Source
from attnviz.core.weights import Readout
from attnviz.features.profile.sampled.watch import chosen_by_site

Floats = NDArray[np.floating[Any]]


def no_effects(source: Source) -> str:
    """Why there is no loss of next tokens to differentiate; empty where there is."""
    if source.no_logits:
        return source.no_logits
    if is_masked(source) or source.layout.kinds != ("decoder",):
        return "it does not predict the next token"
    return source.no_gates


def effects(
    source: Source, batch: Sequence[Inputs], heads: Sequence[Head], readout: Readout
) -> tuple[list[Floats], list[Floats]]:
    """The effects of some heads' rows, and what the last normalization divides by.

    Returns: for each item float32 [H, T], in nats, and float64 [T], empty without a table in the
    readout.
    """
    import torch
    from torch.nn.functional import cross_entropy

    by_site = chosen_by_site(heads)
    longest, layout = max(item.length for item in batch), source.layout
    shares, donors = {}, {}
    for site in by_site:
        count = layout.heads[site.kind][site.layer]
        shape = (len(batch), count, longest)
        shares[site] = torch.zeros(shape, device=source.info.device).requires_grad_()
        width = _width(source, site)
        nothing = torch.zeros((1, count, longest, width), device=source.info.device)
        donors[site] = [Donor("z", nothing, shares[site])]
    request = ForwardRequest(
        donors=donors,
        hidden=False,
        logits=True,
        states=readout.table is not None,
        grad=True,
    )
    output = source.forward(batch, request=request)
    assert output.logits is not None
    # one index for all: a slice for each text would get a gradient as large as all logits
    trials = [(n, trial) for n, item in enumerate(batch) for trial in next_tokens(n, item)]
    device = output.logits.device
    items = torch.tensor([n for n, trial in trials for _ in trial.positions], device=device)
    places = torch.tensor([p for _, trial in trials for p in trial.positions], device=device)
    targets = torch.tensor([t for _, trial in trials for t in trial.targets], device=device)
    with torch.enable_grad():
        rows = output.logits[items.long(), places.long()].float()
        total = cross_entropy(rows, targets.long(), reduction="sum")
    if not total.requires_grad:
        slopes = {site: torch.zeros_like(share) for site, share in shares.items()}
    else:
        gradients = torch.autograd.grad(total, list(shares.values()), allow_unused=True)
        slopes = {
            site: torch.zeros_like(share) if slope is None else slope
            for (site, share), slope in zip(shares.items(), gradients, strict=True)
        }
    whole = np.concatenate(
        [to_numpy(slopes[site].float())[:, some] for site, some in by_site.items()], 1
    )
    by_item = [whole[n, :, : item.length] for n, item in enumerate(batch)]
    if not output.states:
        return by_item, [np.zeros(0) for _ in batch]
    last = output.states[-1].detach()
    deviations = to_numpy(sigma(readout.converted(last), last))
    return by_item, [deviations[n, : item.length] for n, item in enumerate(batch)]


def _width(source: Source, site: Site) -> int:
    """d_v of a layer's heads."""
    weight = source.output(site).weight
    assert weight is not None
    return int(weight.shape[1])
