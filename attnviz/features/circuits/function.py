"""Circuits, as a script asks for them: what the weights of a model say about its heads."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnviz.captures.loading import light
from attnviz.captures.settings import Attaching, ModelSettings
from attnviz.core.arrays import Floats, no_gradients, to_numpy, top
from attnviz.core.heads import Head, Site
from attnviz.core.interface import interface
from attnviz.core.quantities import check_attends
from attnviz.core.settings import Progress
from attnviz.core.source import Source, held
from attnviz.core.threads import one_blas_thread
from attnviz.core.weights import Embedding, OutputProjection, Reading
from attnviz.errors import ModelError, UsageError
from attnviz.features.circuits import compose, copying
from attnviz.features.circuits.compose import LayerPair
from attnviz.features.circuits.result import (
    SIDES,
    ByPosition,
    Chance,
    Circuits,
    CircuitsSettings,
    Copying,
    Edge,
    ExcessSpread,
    Side,
)
from attnviz.files import packaged
from attnviz.scoring.select import select

if TYPE_CHECKING:
    from attnviz.core.result import Value
    from attnviz.features.results import Attached


_SHARES = (0.5, 0.9, 0.99)


@dataclass
class Strongest:
    """What is kept of the edges."""

    keep: int  # how many of each side
    wanted: Container[Head] | None = None  # heads of which an edge must have one; None for any
    _edges: dict[Side, list[Edge]] = field(default_factory=dict)
    _excess: dict[Side, list[Floats]] = field(default_factory=dict)

    def add(
        self, writers: Sequence[Head], readers: Sequence[Head], pair: LayerPair, mean: float
    ) -> None:
        """Take in the edges between two layers."""
        side, ratio = pair.side, to_numpy(pair.ratio).astype(np.float64)
        over = ratio - mean
        eligible = self._among(writers)[:, None] | self._among(readers)
        if not eligible.any():
            return
        self._excess.setdefault(side, []).append(over[eligible])
        count = min(self.keep, int(eligible.sum()))
        flat = np.where(eligible, over, -np.inf).ravel()
        best = np.array(top(flat, count), np.int64)
        strongest = self._edges.get(side, [])
        # edges that are no better than all that are kept cannot come among them
        least = strongest[-1].excess if len(strongest) >= self.keep else -np.inf
        indices = best[flat[best] > least]
        figures = zip(*(of.ravel()[indices].tolist() for of in (ratio, over, pair.p)), strict=True)
        edges = [
            Edge(side, writers[index // len(readers)], readers[index % len(readers)], *three)
            for index, three in zip(indices.tolist(), figures, strict=True)
        ]
        best_first = heapq.nlargest(self.keep, [*strongest, *edges], key=lambda edge: edge.excess)
        self._edges[side] = best_first

    def edges(self) -> tuple[Edge, ...]:
        """Of each side the strongest first."""
        return tuple(edge for side in SIDES for edge in self._edges.get(side, ()))

    def spread(self) -> dict[Side, ExcessSpread]:
        """How the excess of all edges is distributed."""
        excess = self._excess
        return {side: _spread(np.concatenate(excess[side])) for side in SIDES if side in excess}

    def _among(self, heads: Sequence[Head]) -> NDArray[np.bool_]:
        """Which of the heads are wanted, bool [n]."""
        return np.array([self.wanted is None or head in self.wanted for head in heads])


def _spread(values: Floats) -> ExcessSpread:
    """Quantiles, each one of the values."""
    ordered = np.sort(values)
    indices = [round(share * (len(ordered) - 1)) for share in _SHARES]
    return ExcessSpread(len(ordered), *(float(ordered[index]) for index in indices))


@dataclass
class _Model:
    """The matrices of a model's layers, and what was found to be missing."""

    source: Source
    sites: Sequence[Site]
    readings: list[Reading]
    outputs: list[OutputProjection]
    settings: CircuitsSettings
    progress: Progress
    reasons: dict[str, str] = field(default_factory=dict)

    def heads(self, number: int) -> list[Head]:
        """Of a layer."""
        site = self.sites[number]
        count = self.source.layout.heads[site.kind][site.layer]
        return [Head(site, index) for index in range(count)]

    @property
    def attending(self) -> list[int]:
        """The layers that have heads."""
        return [number for number in range(len(self.sites)) if self.heads(number)]

    def missing(self) -> str:
        """Why no matrix of queries is known of some layer that attends."""
        readings = [self.readings[number] for number in self.attending]
        unknown = (r.reason for r in readings if r.query is None and r.normed is None)
        return next(unknown, "")


def run(
    source: Source,
    settings: CircuitsSettings,
    chosen: Sequence[Head] | None = None,
    progress: Progress = lambda stage, count, total: None,
) -> Circuits:
    """Measure everything that can be."""
    settings.check()
    check_attends(source.info.model, source.layout)
    sites = source.layout.sites
    readings, outputs = [source.reading(s) for s in sites], [source.output(s) for s in sites]
    like = source.embedding().tokens
    if like is not None:  # layers may be on several devices
        readings = [reading.converted(like) for reading in readings]
        outputs = [output.moved_to(like) for output in outputs]
    model = _Model(source, sites, readings, outputs, settings, progress)
    if all(reading.value is None and reading.query is None for reading in model.readings):
        first = model.readings[model.attending[0]]
        raise _nothing(source, source.no_sum or first.reason)
    report = Circuits(source=source.info, layout=source.layout, seed=settings.seed)
    with no_gradients(), one_blas_thread():
        report = _edges(report, model, chosen)
        report = _copying(report, model)
        report = _positions(report, model)
    if not (report.chance or report.plain or report.by_position):
        raise _nothing(source, "; ".join(dict.fromkeys(model.reasons.values())))
    return replace(report, reasons=model.reasons, notes=tuple(_notes(report, model)))


def _nothing(source: Source, reason: str) -> ModelError:
    return ModelError(f"nothing can be read off the weights of {source.info.model}: {reason}")


def _edges(report: Circuits, model: _Model, chosen: Sequence[Head] | None) -> Circuits:
    """Return the report with the strongest edges."""
    if model.source.no_sum:
        model.reasons["edges"] = model.source.no_sum
        return report
    if len(model.attending) < 2:
        few = "it has one layer" if len(model.sites) < 2 else "one layer of it attends"
        model.reasons["edges"] = f"{few}, and heads can only feed heads of later layers"
        return report
    if missing := model.missing():
        model.reasons["Q and K"] = missing
    layers = [compose.ends(*parts) for parts in zip(model.readings, model.outputs, strict=True)]
    strongest = Strongest(model.settings.edges, None if chosen is None else frozenset(chosen))
    chances: dict[tuple[int, int], Chance] = {}
    chance: dict[Side, Chance] = {}
    total = len(layers) * (len(layers) - 1) // 2
    visited: set[tuple[int, int]] = set()
    norms = [n for r in model.readings for n in (r.norm, *r.after) if n is not None]
    # whether all that is written and read has its mean taken off
    goes = bool(norms) and all(norm.centred for norm in norms)
    for pair in compose.pairs(layers, mean_goes=goes):
        visited.add((pair.first, pair.second))
        model.progress("pairs of layers", len(visited), total)
        if pair.ranks not in chances:
            shape, seed = (pair.width, *pair.ranks), model.settings.seed
            chances[pair.ranks] = compose.chance(*shape, mean_goes=goes, seed=seed)
        chance.setdefault(pair.side, chances[pair.ranks])
        writers, readers = model.heads(pair.first), model.heads(pair.second)
        strongest.add(writers, readers, pair, chances[pair.ranks].mean)
    return replace(
        report,
        edges=strongest.edges(),
        chance=chance,
        spread=strongest.spread(),
        turned=any(reading.turned for reading in model.readings),
    )


def _copying(report: Circuits, model: _Model) -> Circuits:
    """Return the report with what heads copy."""
    source, embedding = model.source, model.source.embedding()
    settings, progress = model.settings, model.progress
    readout = source.readout()
    if embedding.tokens is not None and readout.table is not None:
        readout = readout.converted(embedding.tokens)
    head = "" if readout.head is None else "its LM head has an activation before its last matrix"
    over = _over(model)
    reason = readout.reason or head or embedding.reason or source.no_sum or over
    if reason or embedding.tokens is None or readout.table is None:
        model.reasons["copying"] = reason
        return report
    chosen = _tokens(embedding, settings, len(readout.table))
    raising = copying.words(readout, chosen)
    embedded = embedding.tokens[chosen]
    missing = copying.unknown(model.readings, model.outputs)
    unknown = [missing[number] for number in model.attending if number in missing]
    if unknown:
        model.reasons["copying"] = unknown[0]
    layers = [number for number in model.attending if number not in missing]
    work = [("plain", embedded, layers)] if layers else []
    if source.start_kind is not None and any(layers):
        progress("tokens through the first layer", 0, 1)
        work.append(("first", copying.after_first(source, embedded), [n for n in layers if n]))
    scores: dict[str, dict[Head, Copying]] = {"plain": {}, "first": {}}
    chance, matched = {}, {}
    total, finished = sum(len(numbers) for _, _, numbers in work), 0
    for kind, vectors, numbers in work:
        texts = copying.ReadTokens(vectors, raising)
        random_scores: list[float] = []
        for number in numbers:
            finished += 1
            progress("copying", finished, total)
            parts = model.readings[number], model.outputs[number]
            scores[kind] |= dict(zip(model.heads(number), texts.copying(*parts), strict=True))
            if kind not in chance:
                chance[kind] = texts.chance(*parts, settings.seed)
            random_scores += texts.matched(*parts, settings.seed + number)
        matched[kind] = Chance(
            float(np.mean(random_scores)), float(np.std(random_scores)), len(random_scores)
        )
    return replace(
        report,
        plain=scores["plain"],
        first=scores["first"],
        copying_chance=chance,
        copying_matched=matched,
        tokens=len(chosen),
    )


def _over(model: _Model) -> str:
    """Why what heads write does not come to the logits as it is; empty where it does."""
    for number, reading in enumerate(model.readings):
        if reading.before or reading.after:
            return f"layer {number} normalizes the sum of its input and what it adds (post-norm)"
    return ""


def _tokens(embedding: Embedding, settings: CircuitsSettings, words: int) -> NDArray[np.int64]:
    """Return the ids that copying is measured on, in order."""
    assert embedding.tokens is not None
    count = min(len(embedding.tokens), words)
    if count <= settings.sample:
        return np.arange(count)
    ids = np.random.default_rng(settings.seed).choice(count, settings.sample, replace=False)
    return np.sort(ids)


def _positions(report: Circuits, model: _Model) -> Circuits:
    """Return the report with where positions send attention."""
    embedding = model.source.embedding()
    if embedding.positions is None or len(embedding.positions) < copying.LEAST:
        rotated = any(reading.turned for reading in model.readings)
        model.reasons["positions"] = embedding.reason or (
            "positions rotate its queries and keys and are not in the residual stream"
            if rotated
            else "no positions are added to its residual stream"
        )
        return report
    places: dict[Head, ByPosition] = {}
    means = copying.by_position(embedding, model.readings)
    for site, of_heads in zip(model.sites, means, strict=True):
        places |= {Head(site, n): mean for n, mean in enumerate(of_heads or ())}
    length = min(len(embedding.positions), copying.MOST)
    uniform = copying.uniform(length, causal=model.readings[0].causal)
    return replace(report, by_position=places, positions=length, uniform=uniform)


def _notes(report: Circuits, model: _Model) -> Iterator[str]:
    sentences = packaged(__file__, "notes.toml")
    held_still, readings = held(model.source), model.readings
    if report.turned:
        yield sentences["turned"]
    yield from (sentences[kind] for kind in ("gate", "after") if kind in held_still)
    if any(reading.normed is not None for reading in readings):
        yield sentences["normed"]
    yield from _skipped(model)
    if any(reading.after for reading in readings):
        yield sentences["summed"]
    named = {"edges": "No edges", "Q and K": "No Q and K edges", "copying": "No copying scores",
             "positions": "No scores by position"}  # fmt: skip
    for quantity, reason in model.reasons.items():
        yield f"{named[quantity]} for {report.source.model}: {reason}."


def _skipped(model: _Model) -> Iterator[str]:
    """Yield what is said of layers that mix tokens without heads."""
    mixers = dict.fromkeys(model.source.readout().summed.mixers.values())
    without = len(model.sites) - len(model.attending)
    if without:
        count = f"{without} of {len(model.sites)} layers have"
        count = count if without > 1 else f"1 of {len(model.sites)} layers has"
        kinds = f" ({', '.join(mixers)})" if mixers else ""
        yield (
            f"{count} no attention{kinds} and no heads here; edges go past them, along the "
            "residual stream."
        )
    elif mixers:
        yield (
            f"Layers also mix tokens without attention ({', '.join(mixers)}): that has no heads "
            "here."
        )


@interface
def circuits(
    *,
    settings: CircuitsSettings,
    attaching: Attaching,
    model: ModelSettings,
    progress: Progress | None = None,
) -> Circuits:
    """Say from weights alone who can feed whom, what heads copy, and where positions send them.

    Composition between heads of different layers and copying scores as in Elhage et al. 2021, "A
    Mathematical Framework for Transformer Circuits", see :mod:`attnviz.features.circuits`. The
    share that a head was measured to have in another's queries and keys (:func:`attnviz.sources`
    of several texts, as evidence) stands beside the edge of the weights. Products are in float32
    or better.

    Args:
        progress: called again and again with a stage, how much is done and how much there is.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`; ModelError where nothing of a model's matrices is
            known for certain.
    """
    from attnviz.features.results import read_evidence

    evidence = read_evidence(attaching.evidence)
    selection = settings.select
    source = light(model.load(heads=None if selection is None else partial(select, selection)))
    heads = None if selection is None else select(selection, source.layout)
    result = run(source, settings, heads, progress or (lambda stage, count, total: None))
    result = replace(result, identity=model.identity)
    return _beside(result, evidence) if evidence else result


def _beside(result: Circuits, evidence: Sequence[Attached]) -> Circuits:
    """Return the same with what other results measured between heads."""
    measured: dict[tuple[str, Head, Head], Value] = {}
    for item in evidence:
        item.result.check_model(item.name, result.source, result.layout, result.identity)
        edges = item.result.measured_edges()
        if not edges:
            raise UsageError(
                "{} measures nothing between heads; give what attnviz sources result in many texts",
                item.name,
            )
        measured |= edges
    return replace(result, measured=measured)
