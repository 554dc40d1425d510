"""Whose maps, writing and need moved between two models, and what an adapter adds to each head.

Over several texts that both models cut into the same tokens, each text has of every head the mean
Jensen-Shannon distance of its rows; by how much what the head writes (z_h W_O^h, its own W_O in
either model) changed, mean ‖after - before‖ over rows as a share of mean ‖before‖; and by how many
nats more its loss rises where the head's mean over the other half of the texts takes its place
(:mod:`attnviz.features.ablation`). Of all of them together stands the typical text, the median.

Notation in shapes: n texts, H heads of the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from attnviz.attention.contributions import Writes
from attnviz.captures.loading import light
from attnviz.captures.trials import labels_of
from attnviz.core import arrays
from attnviz.core.arrays import Floats
from attnviz.core.heads import Head, Layout, Site
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo, called
from attnviz.core.source import Observer, Rows, Source
from attnviz.errors import ModelError, UsageError
from attnviz.features.ablation.judge import rounding
from attnviz.features.ablation.run import loss_by_text
from attnviz.features.diff.result import ADDED, MOVING, Along, Diff, FigureChange, HeadChange
from attnviz.models.adapters import head_norms
from attnviz.models.folder import locate_adapter
from attnviz.statistics.histogram import none_if_nan
from attnviz.statistics.order import ROUNDING, medians, ranks, texts_needed, too_few

NEED_TOKENS = 1 << 19
"""Tokens times heads for which need is measured: of so many texts, the first ones."""
_DRAWS = 9999
"""Orders of the heads that a rank correlation is held against."""

Figures = dict[str, tuple[FigureChange, ...]]
"""By the name of a head."""


class _Writing:
    """An observer of what the heads of a text write, z_h W_O^h, where W_O is known."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._blocks: dict[Site, list[Floats]] = {}  # [H, r, D] each

    def observe(self, rows: Rows) -> None:
        """Mix the block's values by its weights and gates."""
        projection = self._source.output(rows.site)
        if projection.weight is not None:
            writes = Writes.of(rows, projection)
            block = arrays.exact(writes.heads[0]) @ arrays.exact(writes.matrix)
            self._blocks.setdefault(rows.site, []).append(arrays.to_numpy(block))

    def written(self) -> dict[Site, Floats]:
        """[H, T, D] by layer."""
        return {site: np.concatenate(blocks, 1) for site, blocks in self._blocks.items()}


class Movement:
    """What of the heads of two models moves, text by text."""

    def __init__(self, first: Source, second: Source) -> None:
        self._sources, self._heads = (first, second), list(first.layout)
        self._texts: list[tuple[Inputs, Inputs]] = []
        self._maps: list[Floats] = []  # [H] of every text, as for writing
        self._writing: list[Floats] = []
        self._apart = first.no_gates or second.no_gates  # why nothing but maps is measured
        self._watching: list[_Writing] = []  # of the text that runs, in both models

    def observers(self) -> tuple[tuple[Observer, ...], tuple[Observer, ...]]:
        """Return what watches either model run the next text."""
        self._watching = [] if self._apart else [*map(_Writing, map(light, self._sources))]
        first, second = self._watching or (None, None)
        return ((), ()) if first is None or second is None else ((first,), (second,))

    def add(self, earlier: Inputs, later: Inputs, distances: Mapping[Head, float]) -> None:
        """Take in a text; ``distances``: the mean of each head's rows."""
        tokens = [[sides.queries.texts for sides in x.sides.values()] for x in (earlier, later)]
        if tokens[0] != tokens[1]:
            self._apart = self._apart or "the two runs have other tokens"
        self._texts.append((earlier, later))
        self._maps.append(np.array([distances.get(head, math.nan) for head in self._heads]))
        self._writing.append(self._maps[-1] * math.nan)
        if not self._apart:
            before, after = (watching.written() for watching in self._watching)
            shares: dict[Head, float] = {}
            for site in before.keys() & after.keys():
                first, second = before[site], after[site]
                if first.shape == second.shape:
                    sizes, changes = (
                        np.linalg.norm(x, axis=-1).mean(-1) for x in (first, second - first)
                    )
                    shares |= {
                        Head(site, n): change / size
                        for n, (size, change) in enumerate(zip(sizes, changes, strict=True))
                        if size > 0
                    }
            self._writing[-1][:] = [shares.get(head, math.nan) for head in self._heads]

    def judged(self) -> tuple[dict[Head, tuple[FigureChange, ...]], list[str]]:
        """Judge all heads together; and what was not measured, in sentences."""
        values = [np.array(self._maps), np.array(self._writing), np.array(self._maps) * math.nan]
        heads, notes, noise = len(self._heads), list[str](), 0.0
        sums = np.zeros((2, heads))
        if self._apart:
            values[1] *= math.nan
            notes.append(f"Writing and need are not measured, since {self._apart}.")
        else:
            if np.isnan(values[1]).all():
                notes.append("Writing is not measured: W_O of these models is not known.")
            reason, count = self._measurable()
            if count < len(self._texts):
                extent = f"of the first {count:,} texts" if count else "not measured"
                notes.append(f"Need is {extent}, since {reason}.")
            if count:
                values[2], sums, noise = self._needed(count)
        stacked = np.concatenate(values, 1)
        measured = ~np.isnan(stacked).all(0)
        least, questions = np.repeat([ROUNDING, ROUNDING, noise], heads), int(measured.sum())
        typical = medians(stacked, rounding=least, questions=questions)
        floor = np.repeat([0.0, 0.0, -np.inf], heads)  # distances are not below 0
        low = np.maximum(typical.joint_low, floor)
        ends = (typical.center, low, typical.joint_high, typical.detectable)
        moved = dict[Head, tuple[FigureChange, ...]]()
        for column in np.flatnonzero(measured).tolist():
            kind, head = divmod(column, heads)
            before, after = sums[:, head] if kind == 2 else (0.0, np.nanmean(stacked[:, column]))
            center, *judged = (none_if_nan(end[column]) for end in ends)
            figure = FigureChange(MOVING[kind], float(before), float(after), float(after - before),
                               None, None, center, *judged)  # fmt: skip
            moved[self._heads[head]] = (*moved.get(self._heads[head], ()), figure)
        warning = too_few(len(stacked), questions, "maps, writings and needs")
        return moved, [*notes, *filter(None, [warning])]

    def _measurable(self) -> tuple[str, int]:
        """For how many texts need is measured, and why for no more."""
        heads = len(self._heads)
        for source in self._sources:
            if source.no_logits or labels_of(source) is not None:
                return source.no_logits or f"{source.info.model} predicts labels", 0
        sizes = accumulate(heads * earlier.length for earlier, _ in self._texts)
        count = sum(size <= NEED_TOKENS for size in sizes)
        enough = min(texts_needed(len(MOVING) * heads), len(self._texts))
        reason = f"{heads:,} heads are ablated one by one; attnviz ablate measures more"
        return reason, count if count >= enough else 0

    def _needed(self, count: int) -> tuple[Floats, Floats, float]:
        """How need changed [n, H]; the mean effects in both models [2, H]; and what rounding is."""
        values = [np.full((len(self._texts), len(self._heads)), math.nan) for _ in range(2)]
        sums, noise = np.zeros((2, len(self._heads))), 0.0
        for number, source in enumerate(map(light, self._sources)):
            summed = loss_by_text(source, [pair[number] for pair in self._texts[:count]])
            if summed is not None:
                changes, rows = summed.changes[:, 0], summed.rows[:, None]
                values[number][list(summed.texts)] = changes / rows
                sums[number] = changes.sum(0) / rows.sum()
                noise += rounding(source, summed.mean_base()[0], int(rows.min()))
        return values[1] - values[0], sums, noise


def beside(result: Diff, first: object, second: object) -> Diff:
    """Add to a result what an adapter adds to each head, where one of two models is one."""
    adapters = [located for located in map(_located, (first, second)) if located is not None]
    if len(adapters) != 1:
        return result
    try:
        layout, figures, elsewhere = _norms(adapters[0])
    except ModelError as error:
        return replace(result, notes=(*result.notes, f"What it adds to heads: {error.message}."))
    places = {layout.name(head): head.layer for head in layout}
    along = []
    for quantity in MOVING:
        rows = [
            (places[head.name], figures[head.name][0].change, abs(figure.typical or 0.0))
            for head in result.heads
            for figure in head.moved
            if figure.name == quantity and head.name in figures
        ]
        along += correlation(quantity, *np.array(sorted(rows)).reshape(-1, 3).T)
    heads = [replace(h, moved=(*h.moved, *figures.get(h.name, ()))) for h in result.heads]
    return replace(result, heads=tuple(heads), along=tuple(along), elsewhere=elsewhere)


def correlation(quantity: str, layers: Floats, added: Floats, moved: Floats) -> list[Along]:
    """Correlate the ranks of two numbers of heads [H], sorted by layer; nothing where one is equal.

    A p is the share of orders of the heads, their own among them, that correlate as much.
    """
    x, y = (ranks(values) - (len(values) + 1) / 2 for values in (added, moved))
    size = float(np.sqrt((x @ x) * (y @ y)))
    if len(x) < 3 or not size:
        return []
    rho, draws = float(x @ y) / size, np.random.default_rng(0).random((_DRAWS, len(x)))
    orders = (np.argsort(keys, 1) for keys in (draws, layers + draws))
    as_much = [(np.abs(x[order] @ y) >= (abs(rho) - 1e-12) * size).sum() for order in orders]
    return [Along(quantity, rho, *((1 + int(count)) / (1 + _DRAWS) for count in as_much))]


def from_file(*models: object) -> Diff:
    """Read what an adapter adds to each head from its file and its base's configuration alone."""
    (*_, located) = (None, *filter(None, map(_located, models)))
    if located is None:
        raise UsageError(
            "without texts only the file of a LoRA adapter is read; give texts, or its folder with "
            "{other_model}",
            other_model=...,
        )
    layout, figures, elsewhere = _norms(located)
    ordered = sorted(figures.items(), key=lambda pair: -pair[1][0].change)
    sources = [SourceInfo(called(str(path)), "recorded", "its weights were not run")
               for path in (located[3], located[0])]  # fmt: skip
    return Diff(
        source=sources[0], layout=layout, kind="adapter", other=sources[1],
        before=sources[0].model, after=sources[1].model, elsewhere=elsewhere,
        heads=tuple(HeadChange(name, None, (), moved=norms) for name, norms in ordered),
    )  # fmt: skip


_Located = tuple[Path, dict[str, Any], dict[str, Any], str]


def _located(model: object) -> _Located | None:
    """See :func:`locate_adapter`; None for what is no name."""
    named = isinstance(model, str | Path) and model != "fresh"
    return locate_adapter(str(model)) if named else None


def _norms(located: _Located) -> tuple[Layout, Figures, tuple[str, ...]]:
    """Return the norms of what an adapter adds to every head, all of it first."""
    from attnviz.models.pruned.checkpoint import place

    layout, norms, elsewhere = head_norms(*located[:3], place)
    figures = {}
    for head, parts in norms.items():
        sizes = {ADDED: math.hypot(*parts.values())}
        sizes |= {f"{ADDED} {name}": size for name, size in parts.items()}
        figures[layout.name(head)] = tuple(
            FigureChange(name, 0.0, size, size) for name, size in sizes.items()
        )
    return layout, figures, elsewhere
