"""``attnviz.heatmap``: the maps of some heads as a picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from attnviz.captures.look import DEFAULT_MODEL, Look, Model, capture, prompt_of, source_for
from attnviz.captures.tiled import is_long
from attnviz.core.capture import Capture
from attnviz.core.progress import Progress
from attnviz.core.prompt import Prompt
from attnviz.core.spans import said_cut
from attnviz.core.tiled import TILES
from attnviz.drawing.style import Style, styled
from attnviz.errors import SelectionError, UsageError
from attnviz.features.heatmap.long import ACROSS, long_heatmap
from attnviz.features.heatmap.result import Heatmap
from attnviz.models.untrained import FreshConfig
from attnviz.scoring import select as selection
from attnviz.scoring.observe import score_capture
from attnviz.scoring.shown import asked_places, cropped, shown_map, shown_sides
from attnviz.scoring.stored import allowed_in


def heatmap(
    what: Look,
    select: str | None = None,
    *,
    model: Model = DEFAULT_MODEL,
    weigh: str = "weights",
    rows: str | None = None,
    keys: str | None = None,
    tiles: str = "max",
    across: int = ACROSS,
    style: Style | None = None,
    device: str = "auto",
    dtype: str = "auto",
    progress: Progress | None = None,
    **changes: Any,
) -> Heatmap:
    """Draw the maps of some heads.

    Args:
        what: a capture from :func:`capture` or :func:`read_capture`, or a text or prompt to run.
        select: which heads, ``"4.11"`` or ``"0-3.*"``; by default the first there is.
        model: for a text or prompt, see :func:`load`, as for ``device`` and ``dtype``.
        weigh: what is drawn, see :func:`capture`: norms as they are, which the colour bar says.
        rows: only these queries: tokens such as ``"100-200"``, from 0 and with both ends, or the
            name of a span; ``keys`` the same of keys. Weights stay what they are, so that rows need
            not sum to 1.
        keys: see ``rows``.
        tiles: what cells of a text of more than 2,048 tokens show, which are tiles of tokens,
            filled block by block without a whole map in memory: the largest weight in each
            (``"max"``), or the sum over its keys as a mean over its rows (``"sum"``).
        across: tiles along an axis, at most.
        style: how they look.
        device: where to run.
        dtype: in which precision.
        progress: of a long text, called again and again with what is counted, how many are done
            and how many there are.
        changes: fields of :class:`attnviz.drawing.style.Style` to change in it, such as
            ``scale="log"``, ``words=True`` (sum over a word's keys, mean over its queries) or
            ``hide_sink=True``.

    Returns:
        A picture with ``save("x.png")``; notebooks show it.

    Raises:
        UsageError: no such field or value of a style.
        AttnvizError: as :func:`capture`.
    """
    looks = styled(style, changes)
    if tiles not in TILES:
        raise UsageError("no {tiles}; choose {}", " or ".join(map(repr, TILES)), tiles=tiles)
    if not isinstance(what, Capture):
        what = prompt_of(what)
        model = source_for(what, model, device, dtype)
        inputs = replace(model.prepare(what), texts=what.texts)
        if is_long(inputs):
            cut = (rows, keys)
            return long_heatmap(model, inputs, select, weigh, cut, tiles, looks, across, progress)
    if select is None:
        select = _first(what, model)
    held = capture(what, model=model, select=select, weigh=weigh, device=device, dtype=dtype)
    looks = replace(looks, quantity=held.quantity)
    chosen = selection.select(select, held.layout)
    missing = [head for head in chosen if not held.holds(head)]
    if missing:
        raise SelectionError(
            f"the capture does not hold {held.layout.name(missing[0])}; capture it again "
            "with a selection that does"
        )
    maps, said = [], ""
    for head in chosen:
        layer, sides = held.maps[head.site], held.sides(head)
        reach = allowed_in(layer, head.site.kind, held.reach.get(head.site))
        allowed = reach[held.place(head) if len(reach) > 1 else 0]
        shown = shown_sides(sides, words=looks.words, hide_sink=looks.hide_sink)
        weights = shown_map(
            held[head], allowed, sides, words=looks.words, hide_sink=looks.hide_sink
        )
        if rows is not None or keys is not None:
            wanted = asked_places((rows, keys), sides)
            said = said_cut((rows, keys), wanted)
            weights, shown = cropped(
                weights, shown, sides, wanted, words=looks.words, hide_sink=looks.hide_sink
            )
        maps.append((head, weights, shown))
    roles = {scores.head: scores.roles for scores in score_capture(held).result()}
    return Heatmap(held, tuple(maps), roles, looks, said)


def _first(what: Capture | Prompt, model: Model) -> str:
    """The first head that there is: of a capture, or else of a loaded model."""
    if isinstance(what, Capture):
        return next(head.qualified for head in what.layout if what.holds(head))
    assert not isinstance(model, str | Path | FreshConfig)
    return next(iter(model.layout)).qualified
