"""How many heads of a model of this size would have a role on this text if they attended at random.

Roles of one text are judged by thresholds and not by tests, and a text has few rows for some of
them: among many heads some pass by chance. The null is drawn: every token and every place of the
text has a random vector, each head a random bilinear form of the sums of the two, so that like
tokens are attended to alike, as in a model before training. How sharply it attends decides how many
are named, so that several sharpnesses are drawn, and the one that names most is told.
"""

from __future__ import annotations

import math

import numpy as np

from attnviz.attention.blocks import attend_unchecked
from attnviz.core.arrays import array
from attnviz.core.heads import Layout, Site, SiteKind
from attnviz.core.prompt import Inputs
from attnviz.scoring.observe import ScoreObserver

SHARP = (4.0, 12.0)
"""Standard deviations of a head's logits."""
WIDTH = 32
"""Of the random vectors."""
MOST, LEAST = 128, 64
"""Heads that are drawn of each sharpness."""
STATES = 4
"""So many times tokens and places get other vectors, which all heads of a draw share."""
_WEIGHTS = 1 << 22
"""Weights that are drawn at most; texts for which that leaves fewer heads have no estimate."""
_CAUSAL = {"encoder": False, "decoder": True}


def false_names(inputs: Inputs, layout: Layout, seed: int = 0) -> float | None:
    """The expected number of heads with a role beyond a place to rest, if all attended at random.

    Returns None of pictures, sounds, and texts that are too long to draw maps of.
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
    queried = inputs.sides[kind].queries
    same = queried.ids or queried.texts  # recorded attention may have no ids
    length = len(same)
    count = min(MOST, _WEIGHTS // (len(SHARP) * length**2)) if length else 0
    if count < LEAST:
        return None
    draw = np.random.default_rng(seed)
    known, own = np.unique(np.asarray(same), return_inverse=True)
    heads = count // STATES
    queries, keys = [], []
    for _ in range(STATES):
        tokens, places = (
            draw.standard_normal((n, WIDTH), dtype=np.float32) for n in (len(known), length)
        )
        states = (tokens[own] + places) / np.float32(math.sqrt(2))  # [T, WIDTH]
        forms = draw.standard_normal((heads, WIDTH, WIDTH), dtype=np.float32) / WIDTH
        queries += [states @ forms * np.float32(sharp) for sharp in SHARP]
        keys += [np.broadcast_to(states, (heads, length, WIDTH))] * len(SHARP)
    observer = ScoreObserver([inputs], Layout({kind: (len(queries) * heads,)}))
    drawn = array(np.concatenate(keys)[None])  # [1, STATES × SHARP × H, T, WIDTH]
    attend_unchecked(
        array(np.concatenate(queries)[None]),
        drawn,
        drawn[..., :1],
        causal=_CAUSAL[kind],
        scale=1.0,  # products of SD 1, times how sharp
        site=Site(kind, 0),
        observers=[observer],
    )
    total = observer.total()
    acts = total.may_act()
    for head in acts.nonzero()[0].tolist():
        acts[head] = any(not role.rests for role in total.roles(head))
    shares = np.reshape(acts, (STATES, len(SHARP), heads)).mean((0, 2))
    return float(shares.max())
