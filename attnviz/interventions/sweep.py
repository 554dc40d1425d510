"""Interventions on one batch, many in a pass, each begun where it changes anything.

What an intervention in layer l leaves below it is as it was, so a pass begins at the first layer
that is touched, with the states of the baseline, and interventions that begin there run as one
batch. One that touches no token before the n-th goes on behind keys and values that were kept.

Notation in shapes: B items of the batch, n interventions of a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from attnviz.captures.trials import Trial
from attnviz.core import arrays, threads
from attnviz.core.arrays import Array, fetched
from attnviz.core.heads import Site
from attnviz.core.prompt import Inputs, padded
from attnviz.core.source import Cut, Donor, ForwardRequest, Gate, Output, Source, Start
from attnviz.interventions.metrics import Metric
from attnviz.models.limits import batch_factor, memory_of
from attnviz.scoring.select import Group
from attnviz.scoring.user_measures import Outputs, UserFill

ROOM = 1 << 26
"""Logits of a pass at most, where those of all positions are kept: 256 MiB in float32."""
MEMORY = 1 << 28
"""Bytes for the logits and states of a batch: a model of a billion parameters has a vocabulary of
which a few thousand tokens take gigabytes, and gains nothing from more than some hundred rows."""
TOKENS = 4096
"""Of a pass at most, where nothing else is asked for."""
T = TypeVar("T")
V = TypeVar("V")
Run = Callable[[Sequence[Inputs], ForwardRequest], Output]
"""Runs a batch as a request changes it, and gives what is to be measured."""


@dataclass(frozen=True, slots=True)
class Intervention:
    """What one run of a batch changes."""

    layer: int | None  # the first layer that it touches; None where its pass is a whole one
    # its part of a :class:`ForwardRequest`, made when its turn comes: gates, donors and cuts of B
    # items, and a start where other states enter ``layer`` than the baseline's. Interventions of
    # one sweep share what fills a layer
    part: Callable[[], ForwardRequest]
    token: int = 0  # the first token that it touches, for passes that go on behind others


@dataclass(frozen=True, slots=True)
class BaselineRun:
    """The pass of the whole model on some trials, which interventions begin from."""

    base: list[Array]  # the metric, for each trial a float64 array [n] over its positions
    # with the states between layers; logits only where the metric compares with them
    output: Output
    # the positions whose logits are looked at; None for all, or where none are
    at: tuple[int, ...] | None


def baseline(source: Source, trials: Sequence[Trial], metric: Metric) -> BaselineRun:
    """Run the whole model once for all interventions."""
    positions = metric.logits_at(trials)
    request = ForwardRequest(
        hidden=not metric.logits,
        logits=metric.logits,
        logits_at=positions,
        states=source.start_kind is not None,
    )
    output = source.forward([trial.inputs for trial in trials], request=request)
    base = [values[0] for values in metric.of(output, output, trials, positions)]
    retained = output if metric.compares else replace(output, hidden=None, logits=None)
    return BaselineRun(base, retained, positions)


def sweep_trials(
    source: Source,
    trials: Sequence[Trial],
    interventions: Sequence[Intervention],
    metric: Metric,
    *,
    tokens: int = TOKENS,
    unchanged: BaselineRun | None = None,
    on_progress: Callable[[int], None] = lambda count: None,
) -> list[list[NDArray[np.float64]]]:
    """Measure trials with each intervention: of each, for every trial the metric [n]."""
    unchanged = unchanged or baseline(source, trials, metric)
    full, positions = unchanged.output, unchanged.at

    def run(batch: Sequence[Inputs], request: ForwardRequest) -> Output:
        request = replace(
            request, hidden=not metric.logits, logits=metric.logits, logits_at=positions
        )
        return source.forward(batch, request=request)

    def values(changed: Output, *_: Any) -> Any:
        return zip(*fetched(metric.of(full, changed, trials, positions)), strict=True)

    return sweep(
        run,
        [trial.inputs for trial in trials],
        interventions,
        values,
        full,
        tokens=tokens,
        on_progress=on_progress,
        concurrent=0 if metric.user is not None else source.concurrent,
    )


def ablations(
    source: Source, groups: Sequence[Group], items: int, fills: Mapping[Site, Array] | None = None
) -> list[Intervention]:
    """Ablate each group in ``items`` items: shut its heads' gates, or fill them by layer."""

    def gates(group: Group) -> ForwardRequest:
        shut = {}
        for site in group.sites:
            share = np.ones((items, source.layout.heads[site.kind][site.layer]), np.float32)
            share[:, [head.index for head in group.heads if head.site == site]] = 0
            shut[site] = Gate(arrays.array(share), None if fills is None else fills[site])
        return ForwardRequest(gates=shut)

    return [
        Intervention(first_layer(source, group.sites), partial(gates, group)) for group in groups
    ]


def filled(
    fill: UserFill,
    batch: Sequence[Inputs],
    site: Site,
    outputs: Array,
    replacement: Array,
    mixed: tuple[Array, Array] | None = None,
) -> Array:
    """Fill heads' places by a user's function, [B, T, H, d_v], where texts have tokens.

    ``outputs``: their own [B, T, H, d_v], which stay elsewhere; ``replacement``: what would take
    their place; ``mixed``: weights [B, H, T, S] and values [B, G, S, d_v] that outputs are made of.
    """
    lib = arrays.of(outputs)
    fills: Array = lib.copied(outputs)
    for number, item in enumerate(batch):
        sides = item.sides[site.kind]
        real, keys = slice(0, len(sides.queries)), slice(0, len(sides.keys))
        parts = [outputs[number, real], replacement[number, real]]
        if mixed is not None:
            parts += [mixed[0][number, :, real, keys], mixed[1][number, :, keys]]
        z, substitute, *mixture = (arrays.to_torch(lib.copied(part)) for part in parts)
        view = Outputs(z, substitute, site, sides.queries, *mixture)
        fills[number, real] = arrays.converted(fill.at(view), fills)
    return fills


def affordable(source: Source, metric: Metric) -> int:
    """How many tokens may run at once in :data:`MEMORY`, or in an eighth of what there is."""
    width = 64 * 64  # states, feed-forward parts and attention, generously
    vocabulary = 3 * (source.vocab_size or 0) if metric.logits else 0
    factor = batch_factor(source.info.device)
    memory = min(memory_of(source.info.device) // 8, MEMORY * factor)
    return int(min(max(memory // (4 * (width + vocabulary)), 128), 8192 * factor))


def pass_tokens(tokens: int, concurrent: int) -> int:
    """Return the tokens of a pass at most: a part of those of all, where several may run at once.

    The same on any machine and in any process, since the last bits of a product may depend on how
    many rows it has.
    """
    return tokens // threads.ASIDE if concurrent else tokens


def first_layer(source: Source, sites: Collection[Site]) -> int | None:
    """Find the layer at which a pass that changes some can begin; None for a whole pass."""
    startable = all(site.kind == source.start_kind for site in sites)
    return min(site.layer for site in sites) if startable else None


def grouped(layers: Sequence[T], at_once: int) -> Iterator[tuple[T, list[int]]]:
    """Yield what runs together: what begins at the same layer, so many at once."""
    by_layer: dict[T, list[int]] = {}
    for number, layer in enumerate(layers):
        by_layer.setdefault(layer, []).append(number)
    for layer, numbers in by_layer.items():
        for first in range(0, len(numbers), at_once):
            yield layer, numbers[first : first + at_once]


def sweep(
    run: Run,
    batch: Sequence[Inputs],
    interventions: Sequence[Intervention],
    values: Callable[[Output, Sequence[int], int], Iterable[V]],
    baseline: Output,
    *,
    tokens: int = TOKENS,
    width: int = 0,
    on_progress: Callable[[int], None] = lambda count: None,
    concurrent: int = 0,
) -> list[V]:
    """Measure a batch with each intervention.

    ``values`` takes what a pass gives, the numbers of its interventions and how many tokens were
    not run again, and gives one for each; ``baseline`` has the states or the past that passes begin
    with; ``width`` is V where logits of all positions are kept; ``on_progress`` gets how many more
    are done; ``concurrent``: how many passes, then smaller ones whoever runs them, may run side by
    side where each has one thread.
    """
    room = padded(batch)
    pass_size = max(1, pass_tokens(tokens, concurrent) // room)
    if width:
        pass_size = min(pass_size, max(1, ROOM // (room * width)))

    def measure(passed: tuple[int | None, list[int]]) -> list[V]:
        """Measure the interventions of one pass."""
        layer, numbers = passed
        group = [interventions[number] for number in numbers]
        skipped = 0 if baseline.past is None else min(intervention.token for intervention in group)
        past = None if baseline.past is None else baseline.past.first(skipped)
        request = joined([intervention.part() for intervention in group])
        if layer is not None and request.start is None:
            request = replace(request, start=Start(layer, baseline.states[layer]))
        changed = run(list(batch) * len(group), replace(request, past=past))
        return list(values(changed, numbers, skipped))

    passes = list(grouped([intervention.layer for intervention in interventions], pass_size))
    by_number: dict[int, V] = {}
    within = max(1, tokens // (pass_size * room))  # passes that have no more than these tokens
    measured = threads.side_by_side(measure, passes, min(beside(concurrent), within))
    for (_, numbers), results in zip(passes, measured, strict=True):
        by_number |= zip(numbers, results, strict=True)
        on_progress(len(numbers))
    return [by_number[number] for number in range(len(interventions))]


def beside(concurrent: int) -> int:
    """How many passes run side by side, of a source that can have ``concurrent`` ones."""
    return min(concurrent, threads.at_once()) if threads.limited() else 1


def joined(parts: Sequence[ForwardRequest]) -> ForwardRequest:
    """Ask for several interventions in one pass, whose batch repeats once for each of them."""
    gates, donors, cuts = ([getattr(part, name) or {} for part in parts] for name in _CHANGES)
    kinds = dict.fromkeys((site, d.part) for own in donors for site, ds in own.items() for d in ds)
    by_site: dict[Site, list[Donor]] = {}
    for site, kind in kinds:
        aligned = [[d for d in own.get(site, ()) if d.part == kind] for own in donors]
        by_site.setdefault(site, []).append(_donor([own[0] if own else None for own in aligned]))
    starts = [part.start for part in parts if part.start is not None]
    return ForwardRequest(
        gates=_joined(gates, _gate),
        donors=by_site or None,
        cuts=_joined(cuts, _cut),
        start=Start(starts[0].layer, _stacked([start.hidden for start in starts]))
        if starts
        else None,
    )


_CHANGES = ("gates", "donors", "cuts")


def _joined(
    parts: Sequence[Mapping[Site, T]], join: Callable[[Sequence[T | None]], T]
) -> dict[Site, T] | None:
    """Join what interventions have of each layer."""
    sites = dict.fromkeys(site for part in parts for site in part)
    return {site: join([part.get(site) for part in parts]) for site in sites} or None


def full_logits(source: Source) -> Run:
    """Run batches for the logits of all their positions."""
    return lambda batch, request: source.forward(
        batch, request=replace(request, hidden=False, logits=True)
    )


def item(output: Output, number: int) -> Output:
    """Take one item of an output, as a batch of it."""
    rows, hidden, logits = slice(number, number + 1), output.hidden, output.logits
    return Output(
        None if hidden is None else hidden[rows], None if logits is None else logits[rows]
    )


def _stacked(parts: Sequence[Any]) -> Array:
    return arrays.of(parts[0]).xp.concatenate(list(parts))


def _gate(optional: Sequence[Gate | None]) -> Gate:
    """Join the gates of a layer, open where an intervention has none."""
    first = next(gate for gate in optional if gate is not None)
    xp, fill = arrays.of(first.share).xp, first.fill
    if fill is not None and fill.ndim == 4 and len(fill) > 1:
        fill = arrays.of(fill).xp.tile(fill, (len(optional), 1, 1, 1))
    shares = [xp.ones_like(first.share) if gate is None else gate.share for gate in optional]
    return Gate(_stacked(shares), fill)


def _donor(optional: Sequence[Donor | None]) -> Donor:
    """Join the donors of a part of a layer, idle where an intervention has none."""
    first = next(donor for donor in optional if donor is not None)
    idle = replace(first, share=arrays.of(first.share).xp.zeros_like(first.share))
    donors = [idle if donor is None else donor for donor in optional]
    shared = all(donor.values is first.values for donor in donors)
    values = first.values if shared else _stacked([donor.values for donor in donors])
    return Donor(first.part, values, _stacked([donor.share for donor in donors]))


def _cut(optional: Sequence[Cut | None]) -> Cut:
    """Join the cuts of a layer, of no head where an intervention has none."""
    first = next(cut for cut in optional if cut is not None)
    idle = replace(first, heads=arrays.of(first.heads).xp.zeros_like(first.heads))
    cuts = [idle if cut is None else cut for cut in optional]
    parts: dict[str, Any] = {
        name: _stacked([getattr(cut, name) for cut in cuts])
        for name in ("heads", "rows", "keys", "instead", "order")
        if getattr(first, name) is not None
    }
    return replace(first, **parts)
