"""What chosen heads do in a batch, row by row, as blocks of weights go by.

Notation in shapes: h chosen heads of a layer, H of all layers, T queries and S keys of an item, r
rows and s keys of a block, d width of queries and keys, d_v of values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.attention.contributions import sigma
from attnviz.captures.trials import is_masked, next_tokens
from attnviz.core.arrays import Array, Reals, to_numpy
from attnviz.core.heads import Head, Site
from attnviz.core.prompt import Inputs
from attnviz.core.source import Donor, ForwardRequest, Rows, Source
from attnviz.core.weights import OutputProjection, Readout
from attnviz.corpus.relations import CLASSES, TokenTraits
from attnviz.errors import ModelError

BINS = 24
"""Stretches of a text, each twice as long as the one before: position i is in ⌊log₂(i + 1)⌋."""
VECTORS = ("q", "k", "v", "z")
"""What of a head lies in a plane: queries, keys and values as attention reads them, and what it
makes of them, z_i = Σ_j α_ij v_j."""
KEY_CLASSES = (*CLASSES, "repeated")  # the classes of keys; ``repeated`` beside its class


def chosen_by_site(heads: Sequence[Head]) -> dict[Site, list[int]]:
    """Return the chosen heads of every layer that has any, by index, in their order."""
    by_site: dict[Site, list[int]] = {}
    for head in heads:
        by_site.setdefault(head.site, []).append(head.index)
    return by_site


class LayerRows:
    """Some heads of one layer on one text, NaN and -1 where no row went by.

    Attributes:
        top, norm, written, entropy, sink: float32 [h, T]: the largest weight; the largest
            α_ij‖f(x_j)‖; ‖z_i W_O‖; bits; the weight on position 0 and special tokens.
        key: int32 [h, T], the key with the largest weight.
        z: float32 [h, T, d_v].
        allowed: bool [T, S]; ``choices`` int64 [T], how many keys are allowed.
        weights: float32 [h, n, S], of the rows that are shown in full.
        by_class: float64 [h, T, len(KEY_CLASSES)], weight by class of key.
    """

    def __init__(self, heads: int, length: int, width: int, full: int) -> None:
        self.top, self.norm, self.written, self.entropy, self.sink = np.full(
            (5, heads, length), np.nan, np.float32
        )
        self.key = np.full((heads, length), -1, np.int32)
        self.z = np.zeros((heads, length, width), np.float32)
        self.allowed = np.zeros((length, length), np.bool_)
        self.choices = np.zeros(length, np.int64)
        self.weights = np.zeros((heads, full, length), np.float32)
        self.by_class = np.zeros((heads, length, len(KEY_CLASSES)))


@dataclass
class RowWatch:
    """Watches a batch."""

    batch: Sequence[Inputs]  # the items that run
    traits: Sequence[TokenTraits]  # what is known of the tokens of each
    whole: Sequence[NDArray[np.int64]]  # int64 [n] for each item, its rows that are shown in full
    heads: Sequence[Head]  # the chosen ones
    outputs: Mapping[Site, OutputProjection]  # W_O of their layers
    # what went by, by item and layer
    layers: dict[tuple[int, Site], LayerRows] = field(default_factory=dict)
    # queries, keys and values of each layer [B, H or G, T, d]; none where that is not known
    terms: dict[Site, tuple[Array, Array, Array]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._by_site = chosen_by_site(self.heads)
        self.features = [_features(traits) for traits in self.traits]
        self._grams: dict[Site, Reals | None] = {}

    def watch(self, item: int, site: Site, start: int, names: Sequence[str], values: Any) -> None:
        """Take entropies from the scores of single rows [n, H, r]; blocks come before."""
        layer = self.layers.get((item, site))
        if layer is not None and "entropy" in names:
            entropies = values[names.index("entropy")][self._by_site[site]]
            layer.entropy[:, start : start + entropies.shape[1]] = entropies

    def observe(self, rows: Rows) -> None:
        """Take in one block; changes nothing in it."""
        site = rows.site
        if site not in self._by_site:
            return
        chosen = self._by_site[site]
        weights = to_numpy(rows.weights)[:, chosen]
        if rows.values is None:
            raise ModelError("a layer of this model hands out no values, so no row can be read")
        values = to_numpy(rows.values).astype(np.float32, copy=False)
        passes = None if rows.passes is None else to_numpy(rows.passes)[:, chosen]
        masks = to_numpy(rows.mask)
        groups = [index // (rows.weights.shape[1] // values.shape[1]) for index in chosen]
        gram = self._gram(site)
        if site not in self.terms and rows.terms is not None:
            self.terms[site] = rows.terms.query, rows.terms.key, rows.terms.value
        for item, traits in enumerate(self.traits):
            length = len(traits.words)
            r = min(weights.shape[2], length - rows.start)
            s = min(weights.shape[3], length - rows.key_start)
            if r <= 0 or s <= 0:
                continue
            layer = self.layers.get((item, site))
            if layer is None:
                layer = LayerRows(len(chosen), length, values.shape[-1], len(self.whole[item]))
                self.layers[item, site] = layer
            queries = slice(rows.start, rows.start + r)
            keys = slice(rows.key_start, rows.key_start + s)
            w, v = weights[item, :, :r, :s], values[item, groups, :s]  # [h, r, s], [h, s, d_v]
            z = w @ v
            if passes is not None:
                z = z * passes[item, :, :r]
            layer.z[:, queries] = z
            layer.top[:, queries] = w.max(-1)
            layer.key[:, queries] = w.argmax(-1) + rows.key_start
            if gram is not None:
                lengths = _norms(v, gram)
                if passes is None:  # else every query passes other parts of a value
                    layer.norm[:, queries] = (w * lengths[:, None]).max(-1)
                layer.written[:, queries] = _norms(z, gram)
            layer.sink[:, queries] = w[..., traits.sink[keys]].sum(-1)
            layer.by_class[:, queries] = w @ self.features[item][keys]
            mask = masks[item if len(masks) > 1 else 0]
            allowed = mask[chosen[0] if len(mask) > 1 else 0, :r, :s]
            layer.allowed[queries, keys] = allowed
            layer.choices[queries] = allowed.sum(-1)
            full = self.whole[item]
            inside = (full >= rows.start) & (full < rows.start + r)
            layer.weights[:, inside, keys] = w[:, full[inside] - rows.start]

    def vectors(self, item: int, site: Site) -> dict[str, Reals]:
        """Give the q, k, v and z that are known of chosen heads, float32 [h, T, d or d_v]."""
        traits, layer = self.traits[item], self.layers[item, site]
        vectors = {"z": layer.z}
        if site in self.terms:
            length, chosen = len(traits.words), self._by_site[site]
            for name, array in zip(("q", "k", "v"), self.terms[site], strict=True):
                of_heads = to_numpy(array[item, :, :length]).astype(np.float32)
                shared = self.terms[site][0].shape[1] // len(of_heads)
                vectors[name] = of_heads[[index // shared for index in chosen]]
        return vectors

    def _gram(self, site: Site) -> Reals | None:
        """W_O W_Oᵀ of the chosen heads, [h, d_v, d_v]; None where W_O is not known."""
        if site not in self._grams:
            weight = self.outputs[site].weight
            if weight is None:
                self._grams[site] = None
            else:
                output = to_numpy(weight)[self._by_site[site]].astype(np.float64)
                self._grams[site] = output @ output.swapaxes(1, 2)
        return self._grams[site]


def _norms(vectors: Reals, gram: Reals) -> Reals:
    """‖x W_O‖ of vectors [h, n, d_v], in float64."""
    exact = vectors.astype(np.float64)
    return np.sqrt(((exact @ gram) * exact).sum(-1).clip(0))


def _features(traits: TokenTraits) -> Reals:
    """[S, len(KEY_CLASSES)], 1 for the keys of a class."""
    features = np.zeros((len(traits.words), len(KEY_CLASSES)), np.float32)
    features[np.arange(len(features)), traits.classes] = 1
    features[:, -1] = traits.repeated
    return features


def no_effects(source: Source) -> str:
    """Why there is no loss of next tokens to differentiate; empty where there is."""
    if source.no_logits:
        return source.no_logits
    if is_masked(source) or source.layout.kinds != ("decoder",):
        return "it does not predict the next token"
    return source.no_gates


def effects(
    source: Source, item: Inputs, heads: Sequence[Head], readout: Readout
) -> tuple[Reals, Reals]:
    """Take effects of rows, float32 [H, T] in nats, and σ of the last normalization [T].

    A text runs alone: which others are asked depends on what a worker has seen, and bits would.
    """
    import torch
    from torch.nn.functional import cross_entropy

    by_site, layout = chosen_by_site(heads), source.layout
    shares, donors = {}, {}
    for site in by_site:
        shape = (1, layout.heads[site.kind][site.layer], item.length)
        shares[site] = torch.zeros(shape, device=source.info.device).requires_grad_()
        weight = source.output(site).weight
        assert weight is not None
        nothing = torch.zeros((*shape, weight.shape[1]), device=source.info.device)
        donors[site] = [Donor("z", nothing, shares[site])]
    request = ForwardRequest(
        donors=donors, hidden=False, logits=True, states=readout.table is not None, grad=True
    )
    output = source.forward([item], request=request)
    assert output.logits is not None
    device, trials = output.logits.device, next_tokens(0, item)
    places = torch.tensor([p for trial in trials for p in trial.positions], device=device)
    targets = torch.tensor([t for trial in trials for t in trial.targets], device=device)
    with torch.enable_grad():
        rows = output.logits[0, places.long()].float()
        total = cross_entropy(rows, targets.long(), reduction="sum")
    gradients: Sequence[torch.Tensor | None] = [None] * len(shares)
    if total.requires_grad:
        gradients = torch.autograd.grad(total, list(shares.values()), allow_unused=True)
    slopes = [
        to_numpy((torch.zeros_like(share) if slope is None else slope).float())[0, indices]
        for share, slope, indices in zip(shares.values(), gradients, by_site.values(), strict=True)
    ]
    if not output.states:
        return np.concatenate(slopes), np.zeros(0)
    last = output.states[-1].detach()
    return np.concatenate(slopes), to_numpy(sigma(readout.converted(last), last))[0]
