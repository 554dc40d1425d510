"""What patches would do, from gradients: attribution patching of heads, and EAP of every edge.

The change of a metric by denoising x is about Σ (x_clean - x) ∂m/∂x on the corrupted run (Nanda
2023): the slope of the donor's share at 0, see :class:`~attnviz.core.source.Donor`.

The score of the edge s → r.x is Σ δ_s · ∂m/∂(what r reads for x), with δ_s the sender's difference
in the residual stream and the gradient on the corrupted run (Syed et al. 2023, arXiv:2310.10348),
or its mean over n inputs between corrupted and clean embeddings (Hanna et al. 2024,
arXiv:2403.17806). It estimates what path patching with frozen MLPs measures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnviz.captures.trials import Activations
from attnviz.core import arrays
from attnviz.core.heads import Head, Site
from attnviz.core.prompt import Inputs
from attnviz.core.source import Donor, ForwardRequest, Part, Source, Start
from attnviz.core.weights import Normalization
from attnviz.features.patch.paths import Path, outputs, written
from attnviz.features.patch.runs import PatchBench, RunPair
from attnviz.features.patch.sweep import Target, marked, moved


def estimates(
    bench: PatchBench, runs: RunPair, targets: Sequence[Target], selection: str
) -> NDArray[np.float64]:
    """Return the estimated change of the metric by denoising each target, [targets, N]."""
    part = targets[0].part
    assert part is not None
    mask, places = marked(runs, "denoise", selection), runs.places("denoise")
    shares: dict[Site, torch.Tensor] = {}
    donors: dict[Site, list[Donor]] = {}
    for site, theirs in runs.clean.values[part].items():
        values = arrays.to_torch(moved(theirs, places))
        shares[site] = values.new_zeros(values.shape[:3]).requires_grad_()
        donors[site] = [Donor(part, values, shares[site])]
    base = runs.corrupted
    _, ends = bench.forward(list(base.batch), base.at, ForwardRequest(donors=donors, grad=True))
    logits = bench.logits(ends, grad=True)
    total = bench.metric.of(logits, runs.clean.logits, runs.pairs).sum()
    slopes = dict(zip(shares, torch.autograd.grad(total, list(shares.values())), strict=True))
    if mask is not None:
        patched = torch.from_numpy(mask).to(logits.device)[:, None]
        slopes = {site: slope * patched for site, slope in slopes.items()}
    by_head = {site: slope.sum(2) for site, slope in slopes.items()}  # [N, heads]
    return np.stack(
        [
            sum(by_head[site][:, list(rows)].sum(1) for site, rows in target.rows.items())
            .cpu().double().numpy()  # type: ignore[union-attr]
            for target in targets
        ]
    )  # fmt: skip


_READ: tuple[Part, ...] = ("q", "k", "v")


def scores(
    bench: PatchBench, runs: RunPair, paths: Sequence[Path], steps: int
) -> NDArray[np.float64]:
    """Return the estimated change of the metric along every path, [paths, N], denoising."""
    source, clean, corrupted = bench.source, runs.clean, runs.corrupted
    mixes = [step / steps for step in range(1, steps + 1)] or [0.0]
    slopes: dict[tuple[Site | None, Part | None], Tensor] = {}
    for mix in mixes:
        first, last = (arrays.to_torch(run.states[0]) for run in (corrupted, clean))
        entering = first + mix * (last - first)
        for key, slope in _slopes(bench, runs, entering).items():
            slopes[key] = slopes[key].add_(slope) if key in slopes else slope
    senders = list(dict.fromkeys(path.sender for path in paths))
    wrote = {head: _difference(source, runs, head) for head in senders}
    changes = np.zeros((len(paths), len(runs.pairs)))
    by_reader: dict[tuple[Site | None, Part | None], list[int]] = {}
    for number, path in enumerate(paths):
        part: Part | None = None if path.side == "logits" else path.side
        by_reader.setdefault((path.site, part), []).append(number)
    for key, numbers in by_reader.items():
        heads = list(dict.fromkeys(paths[n].sender for n in numbers))
        differences = torch.stack([wrote[head] for head in heads], 1)  # [N, S, T, D]
        slope = slopes[key] / len(mixes)  # [N, rows, T, D]
        products = torch.einsum("nstd,nrtd->nsr", differences, slope).cpu().double().numpy()
        order = {head: n for n, head in enumerate(heads)}
        for number in numbers:
            changes[number] = products[:, order[paths[number].sender], paths[number].row]
    return changes


def _difference(source: Source, runs: RunPair, head: Head) -> Tensor:
    """δ of a sender, clean minus corrupted, [N, T, D]."""
    pair = (runs.clean, runs.corrupted)
    clean, corrupted = (written(source, outputs(run), head) for run in pair)
    return arrays.to_torch(clean - corrupted)


def _slopes(
    bench: PatchBench, runs: RunPair, entering: Tensor
) -> dict[tuple[Site | None, Part | None], Tensor]:
    """∂m/∂(what is read), [N, rows, T, D]: by layer and input, and of the last states."""
    source, base = bench.source, runs.corrupted
    sites = source.layout.sites
    activations = Activations(_READ, sites)
    first = entering.detach().clone().requires_grad_()
    output, ends = bench.forward(
        list(base.batch),
        base.at,
        ForwardRequest(start=Start(0, first), states=True, grad=True),
        [activations],
    )
    logits = bench.logits(ends, grad=True)
    total = bench.metric.of(logits, runs.clean.logits, runs.pairs).sum()
    inside = activations.values
    inputs = [inside[part][site] for site in sites for part in _READ]
    *inner, last = torch.autograd.grad(total, [*inputs, output.states[-1]])
    by_site = iter(inner)
    slopes: dict[tuple[Site | None, Part | None], Tensor] = {(None, None): last[:, None]}
    for site in sites:
        mine = {part: next(by_site) for part in _READ}
        state = output.states[site.layer].detach()
        for part, slope in _through(source, base.batch, site, state, mine).items():
            slopes[site, part] = slope
    return slopes


def _through(
    source: Source,
    batch: Sequence[Inputs],
    site: Site,
    state: Tensor,
    slopes: Mapping[Part, Tensor],
) -> dict[Part, Tensor]:
    """From slopes of q, k and v [N, rows, T, d] to those of the stream they are read from."""
    reading = source.reading(site)
    norm = None if reading.norm is None else reading.norm.converted(state)
    matrices: dict[Part, Tensor | None] = {
        "q": None if reading.turned else reading.query,
        "k": None if reading.turned else reading.key,
        "v": reading.value,
    }
    upstream: dict[Part, Tensor] = {}
    for part, slope in slopes.items():
        matrix = matrices[part]
        if matrix is None:
            continue
        folded = _folded(arrays.converted(matrix, state), norm).to(slope.dtype)
        read = torch.einsum("nhtd,hed->nhte", slope, folded)
        upstream[part] = _back(norm, state, read)
    remaining = [part for part in slopes if part not in upstream]
    if remaining:
        upstream |= _tracked(source, batch, site, state, {part: slopes[part] for part in remaining})
    return upstream


def _folded(matrix: Tensor, norm: Normalization | None) -> Tensor:
    """W [rows, D, d] with what a normalization does to every slope alike: γ, and the mean taken."""
    if norm is None:
        return matrix
    scaled = matrix * norm.scale[:, None]
    return scaled - scaled.mean(1, keepdim=True) if norm.centred else scaled


def _back(norm: Normalization | None, state: Tensor, slope: Tensor) -> Tensor:
    """Take a normalization's slope at a state [N, T, D], over its output's [N, r, T, D]."""
    if norm is None:
        return slope
    x = state - state.mean(-1, keepdim=True) if norm.centred else state
    size = (x.pow(2).mean(-1, keepdim=True) + norm.eps).rsqrt()  # [N, T, 1]
    unit = x * size
    inner = torch.einsum("nrtd,ntd->nrt", slope, unit)[..., None] / state.shape[-1]
    return slope.addcmul_(unit[:, None], inner, value=-1).mul_(size[:, None])


def _tracked(
    source: Source,
    batch: Sequence[Inputs],
    site: Site,
    state: Tensor,
    slopes: Mapping[Part, Tensor],
) -> dict[Part, Tensor]:
    """Return the same by the model's own code, head by head: for rotary positions and the like."""
    activations = Activations(tuple(slopes), [site])
    first = state.clone().requires_grad_()
    start = Start(site.layer, first, site.layer + 1)
    source.forward(batch, [activations], ForwardRequest(start=start, grad=True))
    inside, upstream = activations.values, {}
    for part, slope in slopes.items():
        rows = []
        for row in range(slope.shape[1]):
            only = torch.zeros_like(slope)
            only[:, row] = slope[:, row]
            rows.append(torch.autograd.grad(inside[part][site], first, only, retain_graph=True)[0])
        upstream[part] = torch.stack(rows, 1)
    return upstream
