"""``attnviz.heads``: what every head does with a text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.attention.blocks import attend_unchecked
from attnviz.captures import inputs as reading
from attnviz.captures.captured import notes
from attnviz.captures.loading import ablated, light
from attnviz.captures.settings import Attaching, MapSettings, ModelSettings
from attnviz.core.arrays import array
from attnviz.core.capture import Capture
from attnviz.core.heads import Head, Layout, Site, SiteKind
from attnviz.core.interface import interface
from attnviz.core.prompt import Inputs
from attnviz.core.quantities import quantity_named
from attnviz.core.scores import HeadScores, Mixing, PrefixMatching
from attnviz.core.settings import Progress
from attnviz.core.tokens import Sides
from attnviz.errors import UsageError
from attnviz.features.heads.result import Heads
from attnviz.models.norm_based import with_quantity
from attnviz.scoring import select as selection
from attnviz.scoring.observe import ScoreObserver, following, observe, score_capture
from attnviz.scoring.plugins import user_defined

if TYPE_CHECKING:
    from attnviz.core.source import Source
    from attnviz.models.decomposition import MixingObserver


SHARP = (4.0, 12.0)  # standard deviations of a head's logits
WIDTH = 32  # of the random vectors
MOST, LEAST = 128, 64  # heads that are drawn of each sharpness
STATES = 4  # so many times tokens and places get other vectors, which all heads of a draw share
_WEIGHTS = 1 << 22
"""Weights that are drawn at most; texts for which that leaves fewer heads have no estimate."""
_CAUSAL = {"encoder": False, "decoder": True}


def false_names(inputs: Inputs, layout: Layout, seed: int = 0) -> float | None:
    """Expect how many heads of random attention get a role; None of media and long texts."""
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
    """Return the share of random heads that have a role; None for a text that is too long."""
    draw = _named.__wrapped__ if user_defined() else _named
    return draw(inputs.sides[kind], kind, seed)


@lru_cache(maxsize=64)
def _named(sides: Sides, kind: SiteKind, seed: int) -> float | None:
    """:func:`named` of tokens, which take longer than a pass on a GPU: kept for the same again."""
    queried, inputs = sides.queries, Inputs({kind: sides})
    ids = queried.ids or queried.texts  # recorded attention may have no ids
    length = len(ids)
    count = min(MOST, _WEIGHTS // (len(SHARP) * length**2)) if length else 0
    if count < LEAST:
        return None
    draw = np.random.default_rng(seed)
    distinct, numbers = np.unique(np.asarray(ids), return_inverse=True)
    heads = count // STATES
    queries, keys = [], []
    for _ in range(STATES):
        tokens, places = (
            draw.standard_normal((n, WIDTH), dtype=np.float32) for n in (len(distinct), length)
        )
        states = (tokens[numbers] + places) / np.float32(math.sqrt(2))  # [T, WIDTH]
        forms = draw.standard_normal((heads, WIDTH, WIDTH), dtype=np.float32) / WIDTH
        queries += [states @ forms * np.float32(sharp) for sharp in SHARP]
        keys += [np.broadcast_to(states, (heads, length, WIDTH))] * len(SHARP)
    observer = ScoreObserver([inputs], Layout({kind: (len(queries) * heads,)}))
    random_keys = array(np.concatenate(keys)[None])  # [1, STATES × SHARP × H, T, WIDTH]
    attend_unchecked(
        array(np.concatenate(queries)[None]),
        random_keys,
        random_keys[..., :1],
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


@interface
def heads(
    text: reading.Input,
    *,
    probe: bool = False,
    maps: MapSettings,
    attaching: Attaching,
    model: ModelSettings,
    progress: Progress | None = None,
) -> Heads:
    """Score what every head does, and name its roles.

    Args:
        text: a text or prompt to run, or a capture; a text's maps are scored on the way and never
            kept, so that long texts need little memory.
        probe: also run the model on repeated random tokens (Olsson et al. 2022,
            arXiv:2209.11895), which tells induction and duplicate-token heads from chance, and
            match prefixes as they do.
        progress: called while the text runs, with ``"tokens"``, how many went through all layers,
            and how many there are.
    """
    select, off, quantity = maps.select, maps.without, maps.quantity
    evidence = attaching.evidence
    probed: tuple[HeadScores, ...] = ()
    mixed: tuple[Mixing, ...] = ()
    matching: PrefixMatching | None = None
    identity: dict[str, Any] = {}
    if isinstance(text, Capture):
        text = text.finite()
        reading.check_whole(off)
        reading.check_quantity(text, quantity)
        quantity = text.quantity
        if probe:
            raise UsageError("a probe needs the model itself; a recorded capture has only its maps")
        source, layout, inputs = text.source, text.layout, text.inputs
        observer, empty = score_capture(text), text.empty_rows
    else:
        prompt = reading.prompt_of(text)
        more_roles: Callable[[Sequence[HeadScores]], Sequence[HeadScores]] = tuple
        if evidence is not None:
            from attnviz.features.results import given_roles, read_evidence, with_roles

            evidence = read_evidence(evidence)
            more_roles = partial(with_roles, roles=given_roles(evidence))
        named = reading.expected(maps, annotated=bool(evidence))
        loaded = light(reading.source_for(prompt, model, named))
        inputs = loaded.prepare(prompt)
        mixing = _mixing(loaded, quantity, inputs)
        measured = with_quantity(loaded, quantity, shares=True, beside=mixing)
        observer = ScoreObserver([inputs], measured.layout)
        with ablated(loaded, off, inputs, more_roles) as inputs:
            observe(measured, [inputs], observer, *following(inputs, measured.layout, progress))
            if probe:
                probed, matching = _probed(loaded, quantity)
        source, layout, mixed = loaded.info, measured.layout, mixing[0].result() if mixing else ()
        empty, identity = observer.empty_rows, dict(model.identity)
    chosen = None if select is None else frozenset(selection.select(select, layout))
    result = Heads(
        source=source,
        layout=layout,
        identity=identity,
        texts=1,
        tokens=inputs.sides,
        heads=_only(observer.result(), chosen),
        probe=_only(probed, chosen),
        empty_rows=empty,
        false_names=false_names(inputs, layout) if quantity == "weights" else None,
        quantity=quantity,
        mixing=mixed,
        matching=matching,
        user_defined=user_defined(),
        notes=notes(inputs, empty),
    )
    if evidence is None:
        return result
    from attnviz.features.results import beside

    return beside(result, evidence)


def _mixing(source: Source, quantity: str, inputs: Inputs) -> Sequence[MixingObserver]:
    """Who watches how much the positions of each layer mix; nobody for weights."""
    if quantity == "weights":
        return ()
    from attnviz.models.decomposition import MixingObserver

    return (MixingObserver(source, quantity_named(quantity), [inputs]),)


def _probed(source: Source, quantity: str) -> tuple[tuple[HeadScores, ...], PrefixMatching | None]:
    """Return what heads do on repeated random tokens."""
    from attnviz.models.cache import Cache, as_records
    from attnviz.scoring.probe import match_prefixes, run_probe

    def probed(quantity: str) -> tuple[tuple[HeadScores, ...], PrefixMatching | None]:
        scored = run_probe(with_quantity(source, quantity, shares=True))
        return scored, match_prefixes(source) if quantity == "weights" else None

    kind = as_records(tuple[tuple[HeadScores, ...], PrefixMatching | None])
    scored, matching = Cache(source).recall(
        "probe of heads", (quantity,), probed, *kind, keep=not user_defined()
    )
    return scored, matching


def _only(scores: Sequence[HeadScores], chosen: frozenset[Head] | None) -> tuple[HeadScores, ...]:
    return tuple(s for s in scores if chosen is None or s.head in chosen)
