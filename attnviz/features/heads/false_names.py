"""How many heads of a model of this size would have a role on this text if they attended at random.

Roles of one text are judged by thresholds and not by tests, and a text has few rows for some of
them: among many heads some pass by chance. The null is drawn: every token and every place of the
text has a random vector, each head a random bilinear form of the sums of the two, so that like
tokens are attended to alike, as in a model before training. How sharply it attends decides how many
are named, so that several sharpnesses are drawn, and the one that names most is told.
"""

from __future__ import annotations

import math

import torch

from attnviz.attention.attend import attend
from attnviz.core.heads import Layout, Site, SiteKind
from attnviz.core.prompt import Inputs
from attnviz.scoring.observe import ScoreObserver

SHARP = (4.0, 12.0)
"""Standard deviations of a head's logits."""
WIDTH = 32
"""Of the random vectors."""
MOST, LEAST = 128, 64
"""Heads that are drawn of each sharpness."""
_WEIGHTS = 1 << 22
"""Weights that are drawn at most; texts for which that leaves fewer heads have no estimate."""
_CAUSAL = {"encoder": False, "decoder": True}


def false_names(inputs: Inputs, layout: Layout, seed: int = 0) -> float | None:
    """The expected number of heads with a role beyond a place to rest, if all attended at random.

    Args:
        inputs: the text.
        layout: of the model; heads of cross-attention are left out.
        seed: of the draws.

    Returns:
        None of pictures, sounds, and texts that are too long to draw maps of.
    """
    if inputs.picture is not None or inputs.sound is not None:
        return None
    expected = 0.0
    for kind, layers in layout.heads.items():
        if kind not in _CAUSAL:
            continue
        share = named(inputs, kind, seed)
        if share is None:
            return None
        expected += sum(layers) * share
    return expected


def named(inputs: Inputs, kind: SiteKind, seed: int = 0) -> float | None:
    """The share of random heads that have a role; None for a text that is too long."""
    ids = torch.tensor(inputs.sides[kind].queries.ids)
    length = len(ids)
    count = min(MOST, _WEIGHTS // (len(SHARP) * length * length))
    if count < LEAST:
        return None
    draw = torch.Generator().manual_seed(seed)
    known, own = torch.unique(ids, return_inverse=True)
    tokens, places = (torch.randn(n, WIDTH, generator=draw) for n in (len(known), length))
    states = (tokens[own] + places) / math.sqrt(2)  # [T, WIDTH]
    forms = torch.randn(count, WIDTH, WIDTH, generator=draw) / WIDTH
    queries = (states @ forms)[None]  # [1, H, T, WIDTH], whose products with states have SD 1
    keys = states.expand(1, count, -1, -1)
    site = Site(kind, 0)
    shares = []
    for sharp in SHARP:
        observer = ScoreObserver([inputs], Layout({kind: (count,)}))
        attend(queries, keys, keys[..., :1], causal=_CAUSAL[kind], scale=sharp, site=site,
               observers=[observer])  # fmt: skip
        roles = [any(not role.rests for role in head.roles) for head in observer.result()]
        shares.append(sum(roles) / count)
    return max(shares)
