"""Inputs through the model in batches of about the same length.

Batches are formed in windows over the inputs, whatever is already done, so an export that was
interrupted runs the same batches again and gets the same weights, bit by bit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.errors import InputError, UsageError
from attnviz.export.inputs import Bad, Item
from attnviz.export.settings import Settings
from attnviz.models.memory import human_bytes, physical_memory
from attnviz.records import Head, HeadScores, Inputs, Layout, Rows, Site, Source, SourceInfo
from attnviz.scoring.observe import Recorder, ScoreObserver, score_capture
from attnviz.scoring.scores import SCORES

WINDOW = 64
"""Inputs that are put in order of length together."""
LARGEST_BATCH = 16
_FIELDS = re.compile(r"--(pair|context|target)\b")
"""What is an option for one text is a field here."""
_BATCH_BYTES = 64 << 20
"""How much the maps of a batch may take; a single input may take more."""

Maps = Mapping[Site, NDArray[np.floating[Any]]]


@dataclass(frozen=True, eq=False)
class Ran:
    """An input after the model: its tokens, the [H, T, S] maps by site, and every head's scores."""

    item: Item
    source: SourceInfo
    layout: Layout
    inputs: Inputs
    maps: Maps
    scores: Mapping[Head, HeadScores]


def run(
    items: Iterable[Item | Bad],
    source: Source,
    settings: Settings,
    heads: frozenset[Head],
    wanted: Callable[[Item], bool],
    tick: Callable[[Item], None],
) -> Iterator[Ran | Bad]:
    """Run inputs through a model.

    Args:
        items: what to run.
        source: the model.
        settings: how texts are tokenized.
        heads: the heads to keep.
        wanted: whether an input still has something to be done; only then it is given back.
        tick: called with every input that is not wanted.

    Yields:
        What ran, in an order that depends on lengths, and inputs that could not.
    """
    window: list[tuple[Item, Inputs]] = []
    taken = 0
    for item in items:
        if isinstance(item, Bad):
            yield item
            continue
        prepared = _prepared(item, source, settings, heads)
        taken += 1
        if isinstance(prepared, Bad):
            yield prepared
        else:
            window.append((item, prepared))
        if taken == WINDOW:
            yield from _window(window, source, heads, wanted, tick)
            window, taken = [], 0
    yield from _window(window, source, heads, wanted, tick)


def run_recorded(
    items: Iterable[Item | Bad],
    wanted: Callable[[Item], bool],
    tick: Callable[[Item], None],
) -> Iterator[Ran | Bad]:
    """Score recorded attention; arguments as for :func:`run`."""
    for item in items:
        if isinstance(item, Bad):
            yield item
            continue
        capture = item.capture
        assert capture is not None
        if not wanted(item):
            tick(item)
            continue
        scores = {found.head: found for found in score_capture(capture).result()}
        yield Ran(item, capture.source, capture.layout, capture.inputs, capture.maps, scores)


def _prepared(
    item: Item, source: Source, settings: Settings, heads: frozenset[Head]
) -> Inputs | Bad:
    """Tokens, or why this model cannot take the input."""
    assert item.prompt is not None
    prompt = replace(
        item.prompt, special_tokens=settings.special_tokens, truncate=settings.truncate
    )
    try:
        inputs = source.prepare(prompt)
    except (InputError, UsageError) as error:
        reason = _FIELDS.sub(r"the field '\1'", str(error)).replace("--kind", "--fresh-kind")
        return Bad(item.number, item.place, reason)
    needed = _bytes(inputs, source.layout, heads)
    if needed > physical_memory() // 4:
        return Bad(
            item.number,
            item.place,
            f"the maps of {inputs.length} tokens take {human_bytes(needed)}, too much for this "
            "machine; select fewer layers",
        )
    return inputs


def _bytes(inputs: Inputs, layout: Layout, heads: frozenset[Head]) -> int:
    """What the maps to keep take, in float32."""
    total = 0
    for site in {head.site for head in heads}:
        sides = inputs.sides[site.kind]
        total += layout.heads[site.kind][site.layer] * len(sides.queries) * len(sides.keys)
    return 4 * total


def _window(
    window: list[tuple[Item, Inputs]],
    source: Source,
    heads: frozenset[Head],
    wanted: Callable[[Item], bool],
    tick: Callable[[Item], None],
) -> Iterator[Ran | Bad]:
    """Run one window, shortest inputs first."""
    window.sort(key=lambda pair: (pair[1].length, pair[0].number))
    batch: list[tuple[Item, Inputs]] = []
    for pair in window:
        largest = _bytes(pair[1], source.layout, heads)  # the last in a batch is the longest
        if batch and (len(batch) == LARGEST_BATCH or (len(batch) + 1) * largest > _BATCH_BYTES):
            yield from _batch(batch, source, heads, wanted, tick)
            batch = []
        batch.append(pair)
    if batch:
        yield from _batch(batch, source, heads, wanted, tick)


def _batch(
    batch: list[tuple[Item, Inputs]],
    source: Source,
    heads: frozenset[Head],
    wanted: Callable[[Item], bool],
    tick: Callable[[Item], None],
) -> Iterator[Ran | Bad]:
    """Run one batch, all of it or, where nothing in it is wanted, not at all."""
    chosen = [wanted(item) for item, _ in batch]
    for (item, _), want in zip(batch, chosen, strict=True):
        if not want:
            tick(item)
    if not any(chosen):
        return
    inputs = [prepared for _, prepared in batch]
    recorder = Recorder(inputs, heads)
    scorer = _EachScored(inputs, source.layout, {head.site for head in heads}, chosen)
    source.forward(inputs, [recorder, scorer])
    for place, (item, prepared) in enumerate(batch):
        if not chosen[place]:
            continue
        maps = recorder.maps(place)
        if not all(np.isfinite(weights).all() for weights in maps.values()):
            yield Bad(item.number, item.place, "the model gives NaN; use --dtype float32")
            continue
        scores = {found.head: found for found in scorer.result(place)}
        yield Ran(item, source.info, source.layout, prepared, maps, scores)


class _EachScored:
    """Scores the items of a batch one by one, where a plain observer would pool them."""

    def __init__(
        self, batch: list[Inputs], layout: Layout, sites: set[Site], chosen: list[bool]
    ) -> None:
        self._sites = sites
        self._each = [
            ScoreObserver([inputs], layout, tuple(SCORES)) if want else None
            for inputs, want in zip(batch, chosen, strict=True)
        ]

    def observe(self, rows: Rows) -> None:
        """Give every item its part of the block."""
        if rows.site not in self._sites:
            return
        allowed = rows.allowed
        if allowed is not None:
            allowed = allowed[(None,) * (4 - allowed.ndim)]
        for place, observer in enumerate(self._each):
            if observer is None:
                continue
            mine = slice(place, place + 1)
            shared = allowed is None or allowed.shape[0] == 1
            part = allowed if allowed is None or shared else allowed[mine]
            logits = None if rows.logits is None else rows.logits[mine]
            weights = rows.weights[mine]
            observer.observe(replace(rows, weights=weights, allowed=part, logits=logits))

    def result(self, place: int) -> tuple[HeadScores, ...]:
        """The scores of one item."""
        observer = self._each[place]
        return () if observer is None else observer.result()
