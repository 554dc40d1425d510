"""What can be patched, and one batch of pairs with many things patched, one run each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from attnviz.captures.trials import Activations, predicted
from attnviz.core import arrays
from attnviz.core.arrays import Array, Bools, Floats, Integers, fetched
from attnviz.core.heads import Head, Layout, Site
from attnviz.core.prompt import Inputs, padded
from attnviz.core.source import Donor, ForwardRequest, Output, Part, Source, Start
from attnviz.core.spans import EVERY
from attnviz.core.threads import side_by_side
from attnviz.errors import ModelError, SelectionError, UsageError
from attnviz.features.patch.pairs import PreparedPair
from attnviz.features.patch.result import Component, Direction
from attnviz.features.patch.runs import PatchBench, Prefix, RunPair
from attnviz.interventions.sweep import MEMORY, Intervention, beside, filled, joined
from attnviz.interventions.sweep import sweep as sweep_interventions
from attnviz.scoring.observe import observe
from attnviz.scoring.select import Group, every_head, read_groups
from attnviz.scoring.user_measures import UserFill

WHOLE: tuple[Component, ...] = ("mlp", "residual")  # what has no heads

_WORDS = {"k": "keys", "v": "values"}


@dataclass(frozen=True, slots=True)
class Target:
    """What one run patches."""

    name: str  # as it is shown
    component: Component  # what it is
    heads: tuple[Head, ...]  # whose values; of ``k`` and ``v`` all query heads that read them
    # by layer, which rows of the part are replaced: query heads, or key heads
    rows: Mapping[Site, tuple[int, ...]]
    layer: int  # the first layer that it touches; of residual states the layer that they enter

    @property
    def part(self) -> Part | None:
        """What of the layers; None for sublayers and states."""
        if self.component == "attention":
            return "z"
        return None if self.component in WHOLE else self.component  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Patching:
    """One run: a target at one position of the base run, or wherever it is asked for."""

    target: Target
    position: int | None = None


def parts_of(component: Component) -> tuple[Part, ...]:
    """Return what must be kept of a run to patch that."""
    if component in WHOLE:
        return ()
    return ("z", "gate") if component == "attention" else (component,)  # type: ignore[return-value]


def key_heads(source: Source, pair: PreparedPair) -> dict[Site, int]:
    """G of every layer: heads that have keys and values of their own."""
    activations = Activations(["k"], source.layout.sites)
    observe(source, [pair.clean], activations)
    return {site: keys.shape[1] for site, keys in activations.values["k"].items()}


def targets(
    source: Source, component: Component, heads: str | None, shared: Mapping[Site, int]
) -> tuple[Target, ...]:
    """Everything of a kind, or what was asked for."""
    layout = source.layout
    if component == "gate":
        _check_gates(source)
    if component in ("attention", *WHOLE):
        if heads is not None:
            raise UsageError(
                "{component} is of a whole layer; leave out {select}", component=component,
                select=heads,
            )  # fmt: skip
        return _whole(source, component)
    groups = every_head(layout) if heads is None else read_groups(heads, layout, no_roles)
    by_name: dict[str, Target] = {}
    for group in groups:
        target = _of_heads(group, component, layout, shared)
        by_name.setdefault(target.name, target)
    return tuple(by_name.values())


def _check_gates(source: Source) -> None:
    """Refuse a model without gated attention."""
    for site in source.layout.sites:
        if source.layout.heads[site.kind][site.layer] and "gate" not in source.output(site).held:
            raise ModelError(
                "{} layer {} of {} does not multiply its heads' outputs with a gate; patch "
                "outputs, with {component}",
                site.kind,
                site.layer,
                source.info.model,
                component="z",
            )


def _of_heads(
    group: Group, component: Component, layout: Layout, shared: Mapping[Site, int]
) -> Target:
    """Return a group of heads; of keys and values with all that read the same."""
    layer = min(head.layer for head in group.heads)
    if component not in ("k", "v"):
        rows = {
            site: tuple(head.index for head in group.heads if head.site == site)
            for site in group.sites
        }
        return Target(group.name, component, group.heads, rows, layer)
    rows, heads = {}, list[Head]()
    for site in group.sites:
        group_size = layout.heads[site.kind][site.layer] // shared[site]
        mine = dict.fromkeys(head.index // group_size for head in group.heads if head.site == site)
        rows[site] = tuple(mine)
        heads += [Head(site, key * group_size + n) for key in mine for n in range(group_size)]
    name = "+".join(map(layout.name, heads))
    if any(layout.heads[site.kind][site.layer] != shared[site] for site in group.sites):
        name = f"{_WORDS[component]} of {name}"
    return Target(name, component, tuple(heads), rows, layer)


def _whole(source: Source, component: Component) -> tuple[Target, ...]:
    """Sublayers, or the states between them."""
    layout = source.layout
    if component == "attention":
        return tuple(
            Target(
                f"attention {layout.name(Head(site, 0)).rpartition('.')[0]}",
                component,
                heads := tuple(Head(site, n) for n in range(count)),
                {site: tuple(head.index for head in heads)},
                site.layer,
            )
            for site in layout.sites
            if (count := layout.heads[site.kind][site.layer])
        )
    if source.start_kind is None:
        raise ModelError(
            "{} has no plain list of layers that run one after the other; patch heads, with "
            "{component}",
            source.info.model,
            component="z",
        )
    layers = layout.layers(source.start_kind)
    if component == "mlp":
        readout = source.readout()
        over = "its layers normalize the sum of what they get and what their MLPs add"
        if reason := readout.reason or (over if readout.over else ""):
            raise ModelError(
                "what the MLPs of {} add cannot be told: {}", source.info.model, reason
            )
        return tuple(Target(f"MLP {n}", component, (), {}, n) for n in range(layers))
    return tuple(Target(f"residual {n}", component, (), {}, n) for n in range(layers + 1))


def no_roles(name: str) -> tuple[Head, ...]:
    """Raise SelectionError: pairs are no text on which heads show roles."""
    raise SelectionError(
        f"role:{name} is found on texts, and patching runs pairs; name the heads, as attnviz heads "
        "lists them"
    )


def trials(targets: Sequence[Target], by: str, positions: Sequence[int]) -> tuple[Patching, ...]:
    """Return the runs: every target, at all positions at once or at each by itself."""
    if by == "head":
        return tuple(Patching(target) for target in targets)
    return tuple(Patching(target, position) for target in targets for position in positions)


def sweep(
    bench: PatchBench,
    runs: RunPair,
    trials: Sequence[Patching],
    direction: Direction,
    *,
    selection: str = "",
    tokens: int = 4096,
    fill: UserFill | None = None,
) -> Floats:
    """Return the metric of every patched run, float64 [trials, N]."""
    base, source = runs.base(direction), bench.source
    patches = _Patches(source, runs, direction, marked(runs, direction, selection), fill)
    users = bench.metric.function is not None or fill is not None
    concurrent = 0 if users else source.concurrent

    def run(batch: Sequence[Inputs], request: ForwardRequest) -> Output:
        ends = np.tile(base.at, len(batch) // len(base.batch))
        return Output(hidden=bench.forward(batch, ends, request)[1])

    def metric(changed: Output, numbers: object = None, *_: int) -> Floats:
        assert changed.hidden is not None
        ends, rows = changed.hidden, len(changed.hidden)
        if numbers and arrays.of(ends).on_cpu(ends):  # last bits are those of each patch alone
            rows = len(base.batch)
        parts = [bench.values(ends[n : n + rows], runs) for n in range(0, len(ends), rows)]
        return np.concatenate(fetched(parts)).reshape(-1, len(base.batch))

    layers = 0 if source.start_kind is None else len(base.states) - 1
    sets: dict[Prefix, list[int]] = {}  # of heads in several layers, alike ones together
    for number, trial in enumerate(trials):
        if layers and len({site.layer for site in trial.target.rows}) > 1:
            sets.setdefault(_prefix(trial, layers), []).append(number)
    single = sorted(set(range(len(trials))) - {n for alike in sets.values() for n in alike})
    values = np.zeros((len(trials), len(base.batch)))
    if single:
        interventions = [patches.one(trials[n]) for n in single]
        start = Output(states=base.states)
        results = sweep_interventions(
            run, base.batch, interventions, metric, start, tokens=tokens, concurrent=concurrent
        )
        values[single] = np.stack(results)
    room = max(1, tokens // padded(base.batch))
    ordered = [sets[key] for key in sorted(sets)]
    for first in range(0, len(ordered), room):
        chunk = ordered[first : first + room]
        key = (direction, trials[chunk[0][0]].target.component, selection)
        reached = runs.reached.setdefault(key, {}) if concurrent else {}
        rows = patches.by_layer(
            [trials[alike[0]] for alike in chunk],
            lambda batch, request: metric(run(batch, request)),
            reached,
            pass_size=1 if concurrent else room,
            count=beside(concurrent),
        )
        for alike, row in zip(chunk, rows, strict=True):
            values[alike] = row
    return values


def _prefix(trial: Patching, layers: int) -> Prefix:
    """Say what a trial patches in the first layers: trials alike there have the same states."""
    rows = trial.target.rows
    return tuple(
        tuple((tuple(sorted(rows[site])), trial.position) for site in rows if site.layer == layer)
        for layer in range(layers)
    )


def marked(runs: RunPair, direction: Direction, selection: str) -> Bools | None:
    """Which positions of the base run are patched, bool [N, T]; None for all that have partners."""
    places, base = runs.places(direction), runs.base(direction)
    if places is None and not selection:
        return None
    length = max(item.length for item in base.batch)
    mask = np.ones((len(base.batch), length), np.bool_)
    if places is not None:
        mask &= places >= 0
    if selection:
        chosen = np.zeros_like(mask)
        for row, pair in enumerate(runs.pairs):
            chosen[row, list(positions(pair, direction, selection))] = True
        mask &= chosen
    return mask


def positions(pair: PreparedPair, direction: Direction, selection: str) -> list[int]:
    """Give positions of one pair's base run; what has a text or a name is of the clean prompt."""
    denoise = direction == "denoise"
    clean = predicted(pair.clean)
    base = predicted(pair.corrupted) if denoise else clean
    places: list[int] = []
    for part in [selection] if clean.match(selection, range(len(clean))) else selection.split(","):
        if part == EVERY or part.strip("-0123456789") == "":
            places += base.locate(part)
            continue
        mine = pair.span if part == "span" else clean.locate(part)
        places += [pair.partner[position] for position in mine] if denoise else mine
    return [position for position in places if position >= 0]


def moved(values: Array, places: Integers | None) -> Array:
    """Another run's values [N, heads, T, width] at the places of this run's positions."""
    if places is None:
        return values
    lib = arrays.of(values)
    items = lib.arange(0, len(values), lib.int64, values)[:, None]
    rows = values.swapaxes(1, 2)[items, lib.asarray(places.clip(0), lib.int64, values)]
    return lib.contiguous(rows.swapaxes(1, 2))


class _Patches:
    """Patches of one batch in one direction, as interventions."""

    def __init__(
        self,
        source: Source,
        runs: RunPair,
        direction: Direction,
        mask: Bools | None,
        fill: UserFill | None = None,
    ) -> None:
        self.source, self.fill, self.mask = source, fill, mask
        self.base, self.donor = runs.base(direction), runs.donor(direction)
        self.places = runs.places(direction)
        self._values: dict[tuple[Site, Part], Array] = {}

    def one(self, trial: Patching) -> Intervention:
        """One patch, begun behind the MLP that it is of, or where its layer begins."""
        target, layer = trial.target, None
        if self.source.start_kind is not None:
            layer = target.layer + (target.component == "mlp")
        return Intervention(layer, partial(self._request, trial, layer))

    def by_layer(
        self,
        trials: Sequence[Patching],
        metric: Callable[[Sequence[Inputs], ForwardRequest], Floats],
        reached: dict[Prefix, Any],
        pass_size: int,
        count: int,
    ) -> list[Floats]:
        """Run sets of heads layer by layer, those that are alike so far as one.

        ``metric`` runs the last layer and gives a row for each set; ``reached``: what sets that
        were run before came to, as :class:`RunPair` keeps it; ``pass_size``: sets of a pass at
        most; ``count``: passes side by side.
        """
        states, batch = self.base.states, list(self.base.batch)
        last = len(states) - 2

        def passed(sets: Sequence[tuple[Prefix, Patching]]) -> Sequence[Any]:
            """Run one layer: what leaves it in each set, or the metric."""
            layer = len(sets[0][0]) - 1
            below = [reached.get(prefix[:-1], states[layer]) for prefix, _ in sets]
            hidden = arrays.joined(below)
            start = Start(layer, hidden, None if layer == last else layer + 1)
            request = joined([self._request(trial, layer, layer) for _, trial in sets])
            request = replace(request, start=start)
            if layer == last:
                return list(metric(batch * len(sets), request))
            request = replace(request, hidden=False, states=True)
            leaving = self.source.forward(batch * len(sets), request=request).states[-1]
            return [leaving[n : n + len(batch)] for n in range(0, len(leaving), len(batch))]

        missing = [trial for trial in trials if _prefix(trial, last + 1) not in reached]
        for layer in range(last + 1):
            sets = {prefix: trial for trial in missing if any(prefix := _prefix(trial, layer + 1))}
            new = [(prefix, trial) for prefix, trial in sets.items() if prefix not in reached]
            passes = [new[first : first + pass_size] for first in range(0, len(new), pass_size)]
            for group, ends in zip(passes, side_by_side(passed, passes, count), strict=True):
                reached |= zip((prefix for prefix, _ in group), ends, strict=True)
            if sum(int(values.nbytes) for values in reached.values()) > MEMORY:
                for prefix in [x for x in reached if x not in sets and len(x) <= last]:
                    del reached[prefix]
        return [reached[_prefix(trial, last + 1)] for trial in trials]

    def _request(
        self, trial: Patching, layer: int | None, within: int | None = None
    ) -> ForwardRequest:
        """Ask for one patch, or for what of it is ``within`` a layer."""
        target, count = trial.target, len(self.base.batch)
        if target.part is None:
            assert layer is not None
            return ForwardRequest(start=Start(layer, self._state(trial, layer)))
        donors: dict[Site, list[Donor]] = {}
        for site, part, rows in self._parts(target, target.part):
            if within not in (None, site.layer):
                continue
            theirs = self._theirs(site, part)
            size: tuple[int, ...] = theirs.shape[1:2]
            mask: Bools | bool = True
            if self.mask is not None or trial.position is not None:
                size = theirs.shape[1:3]
                mask = self._mask(trial, theirs.shape[2])[:, None]
            share = np.zeros((count, *size), np.float32)
            share[:, list(rows)] = mask
            donors.setdefault(site, []).append(Donor(part, theirs, arrays.array(share)))
        return ForwardRequest(donors=donors)

    def _theirs(self, site: Site, part: Part) -> Array:
        """Return what is put in the place of a part of a layer."""
        if (site, part) not in self._values:
            theirs = moved(self.donor.values[part][site], self.places)
            if self.fill is not None and part != "gate":  # by the user, of [N, T, H, d]
                ours, other = (z.swapaxes(1, 2) for z in (self.base.values["z"][site], theirs))
                theirs = filled(self.fill, self.base.batch, site, ours, other).swapaxes(1, 2)
            self._values[site, part] = theirs
        return self._values[site, part]

    def _parts(self, target: Target, part: Part) -> Iterator[tuple[Site, Part, tuple[int, ...]]]:
        """Yield what of which layer is replaced: of a whole sublayer its gate as well."""
        gates = self.donor.values.get("gate", {}) if target.component == "attention" else {}
        for site, rows in target.rows.items():
            yield site, part, rows
            if site in gates:
                yield site, "gate", rows

    def _mask(self, trial: Patching, length: int) -> Bools:
        """Bool [N, length], which positions one trial patches."""
        count = len(self.base.batch)
        if trial.position is not None:
            mask = np.zeros((count, length), np.bool_)
            mask[:, trial.position] = True
            return mask if self.mask is None else mask & self.mask
        if self.mask is not None:
            return self.mask
        return np.ones((count, length), np.bool_)

    def _state(self, trial: Patching, layer: int) -> Array:
        """Return the states [N, T, D] that a patched residual stream or MLP leaves."""
        base, donor = self.base, self.donor
        ours, mlp = base.states[layer], trial.target.component == "mlp"
        lib = arrays.of(ours)
        donated = donor.mlps[layer - 1] if mlp else donor.states[layer]
        theirs = arrays.converted(moved(donated[:, None], self.places)[:, 0], ours)
        changed = ours - base.mlps[layer - 1] + theirs if mlp else theirs
        mask = lib.asarray(self._mask(trial, ours.shape[1])[..., None], lib.bool_, ours)
        return lib.xp.where(mask, changed, ours)
