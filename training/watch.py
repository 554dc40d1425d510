"""Head scores of models in training and of trained folders, by attnviz's own definitions."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from attnviz.core.heads import Layout, Site, SiteKind
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.scores import HeadScores
from attnviz.core.source import ForwardRequest, Rows, Source
from attnviz.core.tokens import Sides, Tokens
from attnviz.scoring.observe import ScoreObserver

Table = dict[str, Tensor]
"""Scores by name, [layers, heads] each; NaN where no row counted."""


def table(found: Sequence[HeadScores], layers: int) -> Table:
    """Return an observer's result as one tensor a score."""
    result: Table = {}
    for name in found[0].scores:
        means = [head.scores[name].mean for head in found]
        values = torch.tensor([float("nan") if mean is None else mean for mean in means])
        result[name] = values.view(layers, -1)
    return result


def best(scores: Table) -> dict[str, float]:
    """Return the best head's value of each score."""
    return {name: float(values.nan_to_num(0.0).max()) for name, values in scores.items()}


def tokens(ids: Sequence[int], special: Collection[int], separator: int | None) -> Tokens:
    """Ids as attnviz's records have them; readable text is not needed to score."""
    return Tokens(
        texts=tuple(map(str, ids)),
        ids=tuple(ids),
        special=tuple(token in special for token in ids),
        separators=tuple(token == separator for token in ids),
    )


def score_weights(
    weights: Tensor,
    ids: Tensor,
    names: Sequence[str],
    special: Collection[int],
    separator: int | None = None,
) -> Table:
    """Score attention weights [L, B, H, T, T] of ``ids`` [B, T].

    Without a separator the model is taken to be causal.
    """
    kind: SiteKind = "decoder" if separator is None else "encoder"
    batch = []
    for row in ids.tolist():
        sequence = tokens(row, special, separator)
        batch.append(Inputs({kind: Sides(sequence, sequence)}))
    layers, _, heads, length, _ = weights.shape
    allowed = None
    if kind == "decoder":
        allowed = torch.ones(length, length, dtype=torch.bool, device=weights.device).tril()
    observer = ScoreObserver(batch, Layout({kind: (heads,) * layers}), names)
    for layer in range(layers):
        observer.observe(Rows(Site(kind, layer), 0, 0, weights[layer], allowed))
    return table(observer.result(), layers)


def score_prompts(source: Source, prompts: Sequence[Prompt], names: Sequence[str]) -> Table:
    """Score a loaded model on ``prompts``, all their rows pooled."""
    batch = [source.prepare(prompt) for prompt in prompts]
    observer = ScoreObserver(batch, source.layout, names)
    source.forward(batch, [observer], ForwardRequest(hidden=False))
    return table(observer.result(), len(source.layout.sites))
