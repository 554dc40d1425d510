"""Patching one batch of pairs with many things, one run each.

A patch leaves everything below its first layer as it was, so a run begins there with the states of
the base run, and several runs that begin at one layer are one batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.heads import Site
from attnviz.core.source import Donor, Part, Start
from attnviz.features.patch.pairs import PreparedPair
from attnviz.features.patch.result import Direction
from attnviz.features.patch.runs import Integers, PatchBench, RunPair
from attnviz.features.patch.targets import Patching, Target
from attnviz.scoring.user_measures import Outputs, UserFill

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def sweep(
    bench: PatchBench,
    runs: RunPair,
    trials: Sequence[Patching],
    direction: Direction,
    *,
    at: str = "",
    tokens: int = 4096,
    fill: UserFill | None = None,
) -> Floats:
    """The metric of every patched run, float64 [trials, N]."""
    base = runs.base(direction)
    where = marked(runs, direction, at)
    at_once = max(1, tokens // (len(base.batch) * max(item.length for item in base.batch)))
    changes = np.zeros((len(trials), len(base.batch)))
    patching = _Patching(bench, runs, direction, where, fill)
    for layer, numbers in _by_start(trials, bench):
        for first in range(0, len(numbers), at_once):
            some = numbers[first : first + at_once]
            logits = patching.logits([trials[n] for n in some], layer)
            values = bench.metric.of(logits, runs.clean.logits, runs.pairs)
            changes[some] = arrays.to_numpy(values).reshape(len(some), -1)
    return changes


def marked(runs: RunPair, direction: Direction, at: str) -> Bools | None:
    """Which positions of the base run are patched, bool [N, T]; None for all that have partners."""
    places, base = runs.places(direction), runs.base(direction)
    if places is None and not at:
        return None
    length = max(item.length for item in base.batch)
    mask = np.ones((len(base.batch), length), np.bool_)
    if places is not None:
        mask &= places >= 0
    if at:
        chosen = np.zeros_like(mask)
        for row, pair in enumerate(runs.pairs):
            chosen[row, list(positions(pair, direction, at))] = True
        mask &= chosen
    return mask


def positions(pair: PreparedPair, direction: Direction, at: str) -> Iterator[int]:
    """The positions of one pair's base run."""
    length = pair.lengths[1 if direction == "denoise" else 0]
    for text in at.split(","):
        if text.startswith("span"):
            name = text.removeprefix("span").removeprefix(":")
            for place in pair.spans[name] if name else pair.span:
                mine = pair.partner[place] if direction == "denoise" else place
                if mine >= 0:
                    yield mine
            continue
        place = int(text)
        if not -length <= place < length:
            raise IndexError(place)
        yield place % length


def moved(values: Array, places: Integers | None) -> Array:
    """Another run's values [N, heads, T, width] at the places of this run's positions."""
    if places is None:
        return values
    on = arrays.of(values)
    items = on.arange(0, len(values), on.int64, values)[:, None]
    taken = values.swapaxes(1, 2)[items, on.asarray(places.clip(0), on.int64, values)]
    there: Array = on.contiguous(taken.swapaxes(1, 2))
    return there


def _by_start(
    trials: Sequence[Patching], bench: PatchBench
) -> Iterator[tuple[int | None, list[int]]]:
    """Numbers of trials by the layer that their run can begin at; None for a whole pass."""
    by_start: dict[int | None, list[int]] = {}
    for number, trial in enumerate(trials):
        target, layer = trial.target, None
        if bench.source.start_kind is not None:
            layer = target.layer + (target.component == "mlp")
        by_start.setdefault(layer, []).append(number)
    yield from by_start.items()


class _Patching:
    """Runs patches of one batch in one direction."""

    def __init__(
        self,
        bench: PatchBench,
        runs: RunPair,
        direction: Direction,
        where: Bools | None,
        fill: UserFill | None = None,
    ) -> None:
        self.fill = fill
        self.bench, self.base, self.donor = bench, runs.base(direction), runs.donor(direction)
        self.where, self.places = where, runs.places(direction)

    def logits(self, trials: Sequence[Patching], layer: int | None) -> Array:
        """[n · N, V] of n trials that begin at one layer."""
        base = self.base
        donors: dict[Site, list[Donor]] = {}
        start = None
        if trials[0].target.part is not None:
            donors = self._donors(trials)
            start = None if layer is None else Start(layer, base.states[layer])
        else:
            assert layer is not None
            states = [self._state(trial, layer) for trial in trials]
            start = Start(layer, arrays.of(states[0]).xp.concatenate(states))
        at = np.tile(base.at, len(trials))
        batch = list(base.batch) * len(trials)
        _, logits = self.bench.forward(batch, at, donors=donors, start=start)
        return logits

    def _donors(self, trials: Sequence[Patching]) -> dict[Site, list[Donor]]:
        shares: dict[tuple[Site, Part], NDArray[np.float32]] = {}
        values: dict[tuple[Site, Part], Array] = {}
        count = len(self.base.batch)
        some = self.where is not None or any(trial.position is not None for trial in trials)
        for number, trial in enumerate(trials):
            assert trial.target.part is not None
            for site, part, rows in self._parts(trial.target, trial.target.part):
                key = (site, part)
                if key not in shares:
                    theirs = moved(self.donor.values[part][site], self.places)
                    values[key] = theirs = self._filled(site, theirs) if part != "gate" else theirs
                    size: tuple[int, ...] = (len(trials), count, theirs.shape[1])
                    size = (*size, theirs.shape[2]) if some else size
                    shares[key] = np.zeros(size, np.float32)
                mask = self._mask(trial, shares[key].shape[3])[:, None] if some else True
                shares[key][number][:, list(rows)] = mask
        donors: dict[Site, list[Donor]] = {}
        for (site, part), share in shares.items():
            theirs = values[site, part]
            whole = arrays.of(theirs).asarray(
                share.reshape(-1, *share.shape[2:]), theirs.dtype, theirs
            )
            donors.setdefault(site, []).append(Donor(part, theirs, whole))
        return donors

    def _parts(self, target: Target, part: Part) -> Iterator[tuple[Site, Part, tuple[int, ...]]]:
        """What of which layer is replaced: of a whole sublayer its gate as well."""
        gates = self.donor.values.get("gate", {}) if target.component == "attention" else {}
        for site, rows in target.rows.items():
            yield site, part, rows
            if site in gates:
                yield site, "gate", rows

    def _filled(self, site: Site, theirs: Array) -> Array:
        """What takes a place: the other run's values [N, H, T, d], or what a user makes of them."""
        if self.fill is None:
            return theirs
        own = self.base.values["z"][site]
        filled: Array = arrays.of(theirs).copied(theirs)
        for number, item in enumerate(self.base.batch):
            tokens = item.sides[site.kind].queries
            real = slice(0, len(tokens))
            outputs, other = (
                arrays.to_torch(arrays.of(z).copied(z[number, :, real].swapaxes(0, 1)))
                for z in (own, theirs)
            )
            made = self.fill.at(Outputs(outputs, other, site, tokens))
            filled[number, :, real] = arrays.converted(made, filled).swapaxes(0, 1)
        return filled

    def _mask(self, trial: Patching, length: int) -> Bools:
        """Bool [N, length], which positions one trial patches."""
        count = len(self.base.batch)
        if trial.position is not None:
            mask = np.zeros((count, length), np.bool_)
            mask[:, trial.position] = True
            return mask if self.where is None else mask & self.where
        if self.where is not None:
            return self.where
        return np.ones((count, length), np.bool_)

    def _state(self, trial: Patching, layer: int) -> Array:
        """The states [N, T, D] that a patched residual stream or MLP leaves."""
        base, donor = self.base, self.donor
        own, mlp = base.states[layer], trial.target.component == "mlp"
        on = arrays.of(own)
        given = donor.mlps[layer - 1] if mlp else donor.states[layer]
        theirs = arrays.converted(moved(given[:, None], self.places)[:, 0], own)
        changed = own - base.mlps[layer - 1] + theirs if mlp else theirs
        mask = on.asarray(self._mask(trial, own.shape[1])[..., None], on.bool_, own)
        state: Array = on.xp.where(mask, changed, own)
        return state
