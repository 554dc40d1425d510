"""From a long text to its maps as tiles, in one pass and without a whole map in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from attnviz.captures.inputs import prompt_of, source_for
from attnviz.captures.loading import Model, observed
from attnviz.captures.settings import ModelSettings
from attnviz.core.capture import Tiled
from attnviz.core.heads import Head, Layout
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.settings import Progress
from attnviz.core.source import Source
from attnviz.core.spans import places
from attnviz.core.tokens import Tokens
from attnviz.errors import Setting, UsageError
from attnviz.models.norm_based import with_quantity
from attnviz.scoring import select as selection
from attnviz.scoring.observe import ScoreObserver

LONG = 2048
"""Texts of more tokens are shown as tiles."""


Sizes = Callable[[int, int, int], tuple[int, int]]
"""From the number of heads, rows and keys: tokens along a tile, and weights of a row to keep."""


def is_long(inputs: Inputs) -> bool:
    """Whether a text is shown as tiles."""
    return inputs.length > LONG


def prepared(what: str | Prompt, model: Model, device: str, dtype: str) -> tuple[Source, Inputs]:
    """A loaded model and the text as it takes it; parameters of :func:`attnviz.capture`."""
    prompt = prompt_of(what)
    source = source_for(prompt, ModelSettings(model=model, device=device, dtype=dtype))
    return source, replace(source.prepare(prompt), texts=prompt.texts)


def tiled(
    source: Source,
    inputs: Inputs,
    sizes: Sizes,
    *,
    select: str | None = None,
    off: str | None = None,
    quantity: str = "weights",
    rows: str | None = None,
    keys: str | None = None,
    progress: Progress | None = None,
) -> tuple[Tiled, Layout]:
    """Run a text, and fill the tiles of some heads on the way."""
    from attnviz.scoring.tiled import TileObserver

    shown = with_quantity(source, quantity, shares=False)
    heads = tuple(shown.layout if select is None else selection.select(select, shown.layout))
    kinds = {head.site.kind for head in heads}
    if len(kinds) > 1:
        raise UsageError(
            "a long text is shown as tiles of one kind of layers; select heads of {} alone",
            " or ".join(sorted(kinds)),
        )
    sides = inputs.sides[heads[0].site.kind]
    down, across = _asked(rows, sides.queries, "rows"), _asked(keys, sides.keys, "keys")
    size, keep = sizes(len(heads), len(down), len(across))
    tiles = TileObserver(heads, size, down, across, keep)
    scores = [ScoreObserver([inputs], shown.layout)] if quantity == "weights" else []
    noted = observed(source, inputs, tiles, *scores, off=off, shown=shown, progress=progress)
    scored = [head_scores for observer in scores for head_scores in observer.result()]
    chosen: frozenset[Head] = frozenset(heads)
    return (
        Tiled(
            source.info,
            noted,
            size,
            down,
            across,
            tiles.maps(),
            tiles.allowed(),
            tuple(head_scores for head_scores in scored if head_scores.head in chosen),
            sum(observer.empty_rows for observer in scores),
            tiles.unselected(),
        ),
        shown.layout,
    )


def _asked(asked: str | None, tokens: Tokens, what: str) -> range:
    """The positions that were asked for, in one piece; all where nothing was asked."""
    if asked is None:
        return range(len(tokens))
    positions = list(places(asked, tokens.spans, len(tokens), what))
    if positions != list(range(positions[0], positions[-1] + 1)):
        raise UsageError(
            "{} is in several pieces, and tiles need one; give it as 100-200", Setting(what, asked)
        )
    return range(positions[0], positions[-1] + 1)
