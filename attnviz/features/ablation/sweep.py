"""Taking groups of heads away, one after the other, on one batch of texts.

Gating layer l leaves everything below it as it was, so a pass begins at the first layer that is
touched, with the states of the full pass, and several groups that begin there run as one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attnviz.captures.trials import Trial
from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.heads import Layout, Site
from attnviz.core.source import ForwardRequest, Gate, Output, Source, Start
from attnviz.errors import ModelError
from attnviz.features.ablation.fills import Fills
from attnviz.features.ablation.metrics import Metric
from attnviz.scoring.groups import Group


@dataclass(frozen=True, slots=True)
class BatchValues:
    """What was measured on one batch.

    Attributes:
        base: the metric on the full model, for each trial a float64 array [n] over its positions.
        ablated: the same without each group, by the group's number; the same groups as asked for.
    """

    base: list[Array]
    ablated: dict[int, list[Array]]


@dataclass(frozen=True, slots=True)
class Full:
    """The pass of the whole model that a sweep compares with, and begins from.

    Attributes:
        base: the metric, as in :class:`BatchValues`.
        output: with the states between layers; logits only where the metric compares with them.
        at: the positions whose logits are looked at; None for all, or where none are.
    """

    base: list[Array]
    output: Output
    at: tuple[int, ...] | None


def check(source: Source, metric: Metric) -> None:
    """Raise ModelError if a model cannot be ablated, or not by this metric."""
    if source.no_gates:
        raise ModelError("{} cannot be ablated: {}", source.info.model, source.no_gates)
    if metric.logits and source.no_logits:
        raise ModelError(
            "{} has no {}: {}",
            source.info.model,
            metric.name,
            source.no_logits,
            remedy="use {metric}",
            metric="hidden",
        )


def sweep(
    source: Source,
    trials: Sequence[Trial],
    groups: Sequence[Group],
    metric: Metric,
    *,
    fills: Fills | None = None,
    tokens: int = 4096,
    full: Full | None = None,
    told: Callable[[int], None] = lambda groups: None,
) -> BatchValues:
    """Measure a batch without each of the groups."""
    batch = [trial.inputs for trial in trials]
    full = full or whole(source, trials, metric)
    longest = max(item.length for item in batch)
    at_once = max(1, tokens // (len(batch) * longest))
    ablated: dict[int, list[Array]] = {}
    for layer, numbers in _by_start(groups, source):
        for first in range(0, len(numbers), at_once):
            some = numbers[first : first + at_once]
            changed = _pass(source, trials, [groups[n] for n in some], metric, fills, full, layer)
            for place, number in enumerate(some):
                rows = slice(place * len(batch), (place + 1) * len(batch))
                ablated[number] = metric.of(full.output, _cut(changed, rows), trials, full.at)
            told(len(some))
    return BatchValues(full.base, ablated)


def whole(source: Source, trials: Sequence[Trial], metric: Metric) -> Full:
    """Run the whole model once for all that is ablated."""
    at = metric.logits_at(trials)
    output = source.forward(
        [trial.inputs for trial in trials],
        request=ForwardRequest(
            hidden=not metric.logits,
            logits=metric.logits,
            logits_at=at,
            states=source.start_kind is not None,
        ),
    )
    base = metric.of(output, output, trials, at)
    return Full(base, output if metric.compares else replace(output, hidden=None, logits=None), at)


def gates_of(
    groups: Sequence[Group], layout: Layout, items: int, fills: Fills | None
) -> dict[Site, Gate]:
    """Gates that close each group for ``items`` items, one group after the other.

    Returns: by layer, a share [groups · items, H], 0 for the ablated heads.
    """
    shares: dict[Site, NDArray[np.float32]] = {}
    for number, group in enumerate(groups):
        for head in group.heads:
            if head.site not in shares:
                heads = layout.heads[head.site.kind][head.layer]
                shares[head.site] = np.ones((len(groups), heads), np.float32)
            shares[head.site][number, head.index] = 0
    gates = {}
    for site, share in shares.items():
        fill = None if fills is None else fills[site]
        if fill is not None and fill.ndim == 4 and len(fill) > 1:
            fill = arrays.of(fill).xp.tile(fill, (len(groups), 1, 1, 1))
        gates[site] = Gate(arrays.array(share.repeat(items, 0)), fill)
    return gates


def _by_start(groups: Sequence[Group], source: Source) -> Iterator[tuple[int | None, list[int]]]:
    """Numbers of groups by the layer that their pass can begin at; None for a whole pass."""
    starts: dict[int | None, list[int]] = {}
    for number, group in enumerate(groups):
        layers = [site.layer for site in group.sites if site.kind == source.start_kind]
        whole = source.start_kind is None or len(layers) < len(group.sites)
        starts.setdefault(None if whole else min(layers), []).append(number)
    yield from starts.items()


def _pass(
    source: Source,
    trials: Sequence[Trial],
    groups: Sequence[Group],
    metric: Metric,
    fills: Fills | None,
    full: Full,
    layer: int | None,
) -> Output:
    """One pass with the batch repeated for each group."""
    return source.forward(
        [trial.inputs for trial in trials] * len(groups),
        request=ForwardRequest(
            gates=gates_of(groups, source.layout, len(trials), fills),
            hidden=not metric.logits,
            logits=metric.logits,
            logits_at=full.at,
            start=None if layer is None else Start(layer, full.output.states[layer]),
        ),
    )


def _cut(output: Output, rows: slice) -> Output:
    """Some items of an output."""
    return Output(
        None if output.hidden is None else output.hidden[rows],
        None if output.logits is None else output.logits[rows],
    )
