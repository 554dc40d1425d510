"""``attnviz.heatmap``: the maps of some heads as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from attnviz.captures.captured import Captured
from attnviz.captures.inputs import (
    Input,
    capture,
    check_part,
    clearest,
    expected,
    is_long,
    prompt_of,
    source_for,
    tiled,
)
from attnviz.captures.loading import light
from attnviz.captures.settings import HeatmapSettings, MapSettings, ModelSettings
from attnviz.core.capture import Capture
from attnviz.core.heads import Head, Layout, SiteKind
from attnviz.core.interface import interface
from attnviz.core.prompt import Inputs
from attnviz.core.quantities import Quantity, quantity_named
from attnviz.core.settings import Progress
from attnviz.core.source import Source
from attnviz.core.spans import said_cut
from attnviz.core.tokens import Sides, Tokens
from attnviz.drawing.labels import visible
from attnviz.drawing.palette import SIGNED
from attnviz.drawing.style import Style
from attnviz.errors import SelectionError, Setting, UsageError
from attnviz.features.heatmap.result import Heatmap
from attnviz.models.norm_based import with_quantity
from attnviz.scoring import select as selection
from attnviz.scoring.merged import asked_places, cropped, shown_map, shown_positions, shown_sides
from attnviz.scoring.observe import allowed_keys, score_capture, unselected_in

ACROSS, LINES = 256, 64
"""Tiles along an axis of a picture and on the terminal, at most; a part of a text that has no more
tokens is shown token by token."""


def long_heatmap(
    source: Source,
    inputs: Inputs,
    select: str | None,
    settings: HeatmapSettings,
    style: Style,
    across: int,
    progress: Progress | None,
) -> Heatmap:
    """Draw the maps of some heads on a long text; UsageError for what tiles do not show."""
    quantity, cut = settings.quantity, (settings.rows, settings.keys)
    if quantity_named(quantity).signed:
        raise UsageError(
            "{quantity} has signs, which maps of long texts do not show; take a shorter text",
            quantity=quantity,
        )
    without = {"mean": settings.mean, "words": style.words, "hide": "sink" * style.hide_sink}
    for name, value in without.items():
        if value:
            raise UsageError(
                "a text of {:,} tokens is shown as tiles, without {}; shorten it",
                inputs.length,
                Setting(name, value),
            )

    def sizes(heads: int, rows: int, keys: int) -> tuple[int, int]:
        return -(-max(rows, keys) // across), 0

    reduced, layout = tiled(
        source,
        inputs,
        sizes,
        select=select,
        quantity=quantity,
        rows=cut[0],
        keys=cut[1],
        progress=progress,
    )
    maps = []
    for head in reduced.maps:
        sides = inputs.sides[head.site.kind]
        axes = Sides(
            _named(sides.queries, reduced.rows, reduced.size),
            _named(sides.keys, reduced.keys, reduced.size),
        )
        maps.append((head, reduced.shown(head, settings.tiles), axes))
    held = Captured(reduced.source, layout, reduced.inputs, {}, reduced.empty_rows, {}, quantity)
    roles = {scores.head: scores.roles for scores in reduced.scores}
    cells, content = "", "the weight on its keys, as a mean over its queries"
    if settings.tiles == "max":
        content = "the largest weight in it"
    if reduced.size > 1:
        cells = f"each cell is a tile of {reduced.size} × {reduced.size} tokens: {content}"
    return Heatmap(
        held, tuple(maps), roles, style, said_cut(cut, (reduced.rows, reduced.keys)), cells
    )


def _named(tokens: Tokens, positions: range, size: int) -> Tokens:
    """Tiles, called by the position and the text of their first tokens."""
    if size == 1:
        return Tokens(tokens.texts[positions.start : positions.stop])
    firsts = range(positions.start, positions.stop, size)
    return Tokens(tuple(f"{first:,} {visible(tokens.texts[first])}" for first in firsts))


@interface
def heatmap(
    text: Input,
    select: str | None = None,
    *,
    settings: HeatmapSettings,
    style: Style,
    across: int = ACROSS,
    model: ModelSettings,
    progress: Progress | None = None,
) -> Heatmap:
    """Draw the maps of some heads.

    Args:
        text: a capture, or a text or prompt to run.
        select: which heads, ``"4.11"`` or ``"0-3.*"``; by default the one with the clearest
            evidence for what it does.
        across: tiles of a long text along an axis, at most.
        progress: of a long text, called again and again with what is counted, how many are done
            and how many there are.

    Returns:
        A picture with ``save("x.png")``; notebooks show it.

    Raises:
        AttnvizError: as :func:`attnviz.capture`.
    """
    quantity, cut = settings.quantity, (settings.rows, settings.keys)
    identity: Mapping[str, Any] = {}
    if not isinstance(text, Capture):
        text = prompt_of(text)
        check_part(*cut, text)
        named = expected(MapSettings(select=select, quantity=quantity))
        source = light(source_for(text, model, named))
        identity, model = model.identity, ModelSettings(model=source)
        inputs = replace(source.prepare(text), texts=text.texts)
        measure, mean = quantity_named(quantity), settings.mean
        looked = source
        if measure.signed:
            looked = with_quantity(source, quantity, shares=measure.states)
        among = len(looked.layout) if select is None and mean is None else 0
        if mean is None:
            select = select or _first(looked.layout, measure) or clearest(inputs, looked)
        if is_long(inputs):
            tiles = long_heatmap(source, inputs, select, settings, style, across, progress)
            return replace(tiles, among=among, identity=identity)
    else:
        mean = settings.mean
        among = sum(map(text.holds, text.layout)) if select is None and mean is None else 0
        if mean is None and not text.layout.mean:
            select = select or _first(text.layout, quantity_named(text.quantity)) or clearest(text)
    held = capture(text, model=model.model, select=select, quantity=quantity, mean=mean)
    style = style.but(quantity=held.quantity)
    if style.signed:
        style = style.but(palette=SIGNED)
    heads = _heads(held, None if mean is not None else select)
    maps, cut_said, positions = _shown(held, heads, cut, style)
    unscored = quantity_named(held.quantity).ranks or bool(held.layout.mean)
    scored = () if unscored else score_capture(held).result()
    roles = {scores.head: scores.roles for scores in scored}
    return Heatmap(
        held,
        tuple(maps),
        roles,
        style,
        cut_said,
        among=among,
        identity=identity,
        positions=positions,
    )


def _heads(held: Capture, select: str | None) -> tuple[Head, ...]:
    """Select the heads to draw; of means, all that are held where none is named."""
    if select is None:
        return tuple(filter(held.holds, held.layout))
    heads = selection.select(select, held.layout)
    missing = [head for head in heads if not held.holds(head)]
    if missing:
        raise SelectionError(
            f"the capture does not hold {held.layout.name(missing[0])}; capture it again "
            "with a selection that does"
        )
    return heads


def _shown(
    held: Capture, heads: Sequence[Head], cut: tuple[str | None, str | None], style: Style
) -> tuple[list[tuple[Head, Any, Sides]], str, dict[SiteKind, tuple[list[int], list[int]]]]:
    """Make each map as it is drawn; with what was cut, in words, and where its axes stand."""
    maps: list[tuple[Head, Any, Sides]] = []
    positions: dict[SiteKind, tuple[list[int], list[int]]] = {}
    looks, cut_said = {"words": style.words, "hide_sink": style.hide_sink}, ""
    for head in heads:
        sides, part = held.sides(head), None
        axes = shown_sides(sides, **looks)
        unselected = unselected_in(held.reach.get(head.site))
        allowed = allowed_keys(held, head)
        weights = shown_map(held[head], allowed, sides, unselected=unselected, **looks)
        if cut != (None, None):
            part = asked_places(cut, sides)
            cut_said = said_cut(cut, part)
            weights, axes = cropped(weights, axes, sides, part, **looks)
        maps.append((head, weights, axes))
        if head.site.kind not in positions:
            positions[head.site.kind] = shown_positions(sides, part, **looks)
    return maps, cut_said, positions


def _first(layout: Layout, quantity: Quantity) -> str:
    """Return the first map, where a quantity has no scores to choose by; empty where it has."""
    return next(iter(layout)).qualified if quantity.ranks else ""
