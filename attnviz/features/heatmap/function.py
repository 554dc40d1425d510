"""``attnviz.heatmap``: the maps of some heads as a picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from attnviz.captures.look import DEFAULT_MODEL, Look, Model, capture, prompt_of, source_for
from attnviz.core.capture import Capture
from attnviz.core.prompt import Prompt
from attnviz.drawing.style import Style, styled
from attnviz.errors import SelectionError
from attnviz.features.heatmap.result import Heatmap
from attnviz.models.untrained import FreshConfig
from attnviz.scoring import select as selection
from attnviz.scoring.observe import score_capture
from attnviz.scoring.shown import shown_map, shown_sides
from attnviz.scoring.stored import allowed_in


def heatmap(
    what: Look,
    select: str | None = None,
    *,
    model: Model = DEFAULT_MODEL,
    weigh: str = "weights",
    style: Style | None = None,
    device: str = "auto",
    dtype: str = "auto",
    **changes: Any,
) -> Heatmap:
    """Draw the maps of some heads.

    Args:
        what: a capture from :func:`capture` or :func:`read_capture`, or a text or prompt to run.
        select: which heads, ``"4.11"`` or ``"0-3.*"``; by default the first there is.
        model: for a text or prompt, see :func:`load`, as for ``device`` and ``dtype``.
        weigh: what is drawn, see :func:`capture`: norms as they are, which the colour bar says.
        style: how they look.
        device: where to run.
        dtype: in which precision.
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
    if select is None:
        if not isinstance(what, Capture):
            what = prompt_of(what)
            model = source_for(what, model, device, dtype)
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
    maps = []
    for head in chosen:
        layer, sides = held.maps[head.site], held.sides(head)
        reach = allowed_in(layer, head.site.kind, held.reach.get(head.site))
        allowed = reach[held.place(head) if len(reach) > 1 else 0]
        shown = shown_sides(sides, words=looks.words, hide_sink=looks.hide_sink)
        weights = shown_map(
            held[head], allowed, sides, words=looks.words, hide_sink=looks.hide_sink
        )
        maps.append((head, weights, shown))
    roles = {scores.head: scores.roles for scores in score_capture(held).result()}
    return Heatmap(held, tuple(maps), roles, looks)


def _first(what: Capture | Prompt, model: Model) -> str:
    """The first head that there is: of a capture, or else of a loaded model."""
    if isinstance(what, Capture):
        return next(head.qualified for head in what.layout if what.holds(head))
    assert not isinstance(model, str | Path | FreshConfig)
    return next(iter(model.layout)).qualified
