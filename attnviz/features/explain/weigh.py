"""Which heads are worth an ablation, and what of an MLP's share hangs on what some heads wrote.

The share of MLP l in the lead is MLP_l(x) · d at the row of the prediction, with x what it reads
and d the direction of the lead, the last σ held. Its edge from head h is ablated by x less what h
wrote plus what h writes at its mean; everything else that the MLP reads stays as it is.
Shapes: T tokens, H heads of a layer, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attnviz.attention.unembedding import direction
from attnviz.captures.trials import Activations, Trial, at_mask, is_masked, last, mask_id
from attnviz.core import arrays
from attnviz.core.arrays import Array, converted, exact
from attnviz.core.heads import Head, Site
from attnviz.core.prompt import Inputs
from attnviz.core.source import Donor, ForwardRequest, Gate, Kept, Output, Source, Start
from attnviz.errors import AttnvizError
from attnviz.features.ablation.fills import Fills
from attnviz.features.ablation.measure import gradients
from attnviz.features.ablation.run import Study, choose_reference
from attnviz.features.ablation.settings import AblationSettings
from attnviz.features.explain.result import EdgeShare, MlpShare
from attnviz.features.logits.result import LogitPart
from attnviz.interventions.metrics import logit_difference

EVERY = 48
"""Up to so many heads a model has each of them ablated; of more, candidates."""
CANDIDATES = 8
"""Heads with the largest votes that are candidates; as many have the largest gradients."""
_SHARE = 0.1
"""Of the lead: MLPs that add or take less are not traced to heads."""
_TRACED = 3
"""MLPs that are, at most."""


def trial_of(source: Source, inputs: Inputs) -> Trial:
    """Make the trial of one prediction: after the last token, or at the mask."""
    if is_masked(source):
        return at_mask(0, inputs, mask_id(source))[0]
    return last(0, inputs, source)[0]


def candidates(
    source: Source, inputs: Inputs, pair: tuple[int, int], votes: Mapping[Head, float]
) -> tuple[Head, ...]:
    """Choose the heads to ablate: all of a small model, else by vote and by gradient.

    ``votes``: what each head adds to the lead; empty where logits are no sum.
    """
    layout = list(source.layout)
    if len(layout) <= EVERY:
        return tuple(layout)
    try:
        slopes = gradients(source, [trial_of(source, inputs)], logit_difference(*pair))
    except AttnvizError:
        if not votes:  # nothing else tells which
            return tuple(layout)
        slopes = None
    by_gradient = {} if slopes is None else dict(zip(layout, slopes[0].tolist(), strict=True))
    most = [
        head
        for values in (votes, by_gradient)
        for head in sorted(values, key=lambda head: -values[head])[:CANDIDATES]
    ]
    return tuple(sorted(set(most), key=layout.index))


def mlp_shares(
    source: Source,
    inputs: Inputs,
    pair: tuple[int, int],
    parts: Sequence[LogitPart],
    lead: float,
    heads: Sequence[Head],
    voters: Sequence[Head],
    seed: int,
) -> tuple[MlpShare, ...]:
    """Trace the MLPs with the largest shares to some heads, the largest first.

    ``lead``: in logits.
    """
    large = sorted(
        (p for p in parts if p.kind == "mlp" and abs(p.value) >= _SHARE * abs(lead)),
        key=lambda part: -abs(part.value),
    )[:_TRACED]
    kind = source.start_kind
    if not large or kind is None or any(head.site.kind != kind for head in heads):
        return ()
    readout = source.readout().summed
    if readout.over or readout.residual_scales:
        return ()
    trial = trial_of(source, inputs)
    study = Study(source, [inputs], AblationSettings(method="mean", seed=seed))
    reference = choose_reference(study, logit_difference(*pair), [trial], (0,))
    bench = _Layers(source, inputs, reference.means([trial], {head.site for head in heads}))
    stream = bench.whole.states[-1][0, trial.positions[0]]
    toward = direction(readout.converted(stream), stream, *pair).vector
    shares = []
    for part in large:
        layer = part.layer
        assert layer is not None
        if layer in bench.whole.mixers:  # which reads what the edges change, too
            continue
        before = float(exact(bench.whole.mlps[layer][0, trial.positions[0]]) @ toward)
        lost = {
            cut: before - float(exact(bench.mlp(layer, cut)[0, trial.positions[0]]) @ toward)
            for cut in dict.fromkeys([*((head,) for head in heads), tuple(voters)])
            if any(head.layer <= layer for head in cut)
        }
        each = tuple(EdgeShare(head, lost[head,]) for head in heads if (head,) in lost)
        shares.append(MlpShare(layer, part.value, each, lost.get(tuple(voters), 0.0)))
    return tuple(shares)


class _Layers:
    """A model on a text, run again layer by layer with some heads at their means.

    ``fills``: the means [1, T, H, d_v], by layer.
    """

    def __init__(self, source: Source, inputs: Inputs, fills: Fills) -> None:
        self._source, self._inputs, self._fills = source, inputs, fills
        kept: tuple[Kept, ...] = ("z",)
        outputs = Activations(kept, source.layout.sites)
        request = ForwardRequest(hidden=False, states=True, mlps=True)
        self.whole = source.forward([inputs], [outputs], request)
        self._z = outputs.values["z"]

    def mlp(self, layer: int, heads: Sequence[Head]) -> Array:
        """What the MLP of a layer adds, [1, T, D], without its edges from some heads."""
        entering = self.whole.states[layer]
        for earlier in sorted({head.layer for head in heads if head.layer < layer}):
            own = self.whole.states[earlier + 1] - self.whole.mlps[earlier]
            changed = self._again(earlier, heads)
            entering = entering + (changed.states[-1] - changed.mlps[-1] - own)
        return self._again(layer, heads, entering).mlps[-1]

    def _again(
        self, layer: int, heads: Sequence[Head] = (), entering: Array | None = None
    ) -> Output:
        """Run a layer with its heads' outputs held, but for some that are at their means."""
        sites = [site for site in self._source.layout.sites if site.layer == layer]
        donors: dict[Site, list[Donor]] = {}
        gates: dict[Site, Gate] = {}
        for site in sites:
            z = self._z[site]
            on = arrays.of(z)
            donors[site] = [Donor("z", z, on.full((1, z.shape[1]), 1, z.dtype, z))]
            share = on.full((z.shape[1],), 1, z.dtype, z)
            for head in heads:
                if head.site == site:
                    share[head.index] = 0
            if site in self._fills:
                fill = on.cast(converted(self._fills[site], z), z.dtype)
                gates[site] = Gate(share, fill)
        state = self.whole.states[layer] if entering is None else entering
        return self._source.forward(
            [self._inputs],
            request=ForwardRequest(
                donors=donors, gates=gates, hidden=False, states=True, mlps=True,
                start=Start(layer, state, layer + 1),
            ),
        )  # fmt: skip
