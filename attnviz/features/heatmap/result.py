"""Maps of some heads, and the same over the picture that was looked at, ready to be drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.capture import Capture
from attnviz.core.heads import Head, Site, SiteKind
from attnviz.core.media import Picture, patch_grid, patch_name
from attnviz.core.scores import Role
from attnviz.core.tokens import Sides
from attnviz.drawing.figure import heatmap_figure
from attnviz.drawing.labels import caption, head_title, mean_warning, model_name, percent, visible
from attnviz.drawing.renderable import Figured, picture_suffixes
from attnviz.drawing.style import Style
from attnviz.drawing.tables import MAP_SUFFIXES, NamedMap, maps_bytes
from attnviz.errors import SelectionError, UsageError
from attnviz.scoring.merged import WORDS_NOTE, SelectedQuery, selected_query

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ACROSS = 16  # heads of a layer that still stand on one line
_PANELS = 256  # beyond so many maps each is a tile without tokens, a line a layer


@dataclass(frozen=True, eq=False)
class Heatmap(Figured):
    """Maps of some heads, ready to be drawn.

    ``maps`` holds each head with its [T, S] weights and the tokens on both axes, ``roles`` what
    the heads do, ``style`` how they look, ``cut`` which rows and keys of the text they are, in
    words, where they are not all; ``cells`` what a cell is, where it is a tile of tokens; ``among``
    how many heads the one was chosen from, 0 where the heads were named; ``identity`` what no other
    model shares, where that is known; ``positions`` where rows and columns stand among all tokens
    or words, by kind of layer.
    """

    capture: Capture
    maps: tuple[tuple[Head, NDArray[np.floating], Sides], ...]
    roles: Mapping[Head, tuple[Role, ...]]
    style: Style
    cut: str = ""
    cells: str = ""
    among: int = 0
    identity: Mapping[str, Any] = field(default_factory=dict)
    positions: Mapping[SiteKind, tuple[Sequence[int], Sequence[int]]] = field(default_factory=dict)

    @classmethod
    def suffixes(cls) -> tuple[str, ...]:
        """Of pictures, and of files of numbers."""
        return (*picture_suffixes(), *MAP_SUFFIXES)

    def to_bytes(self, suffix: str, **options: Any) -> bytes:
        """Draw, or write the numbers, as a file of that suffix holds them, ``.png`` or ``csv``.

        ``.csv`` has a row for each weight, ``.json`` the maps as lists, ``.npz`` and
        ``.safetensors`` an array for each head under its name, and the tokens or words on both
        axes. With ``words`` they are of words, as drawn; of what is not allowed there is no row,
        null or 0.
        """
        suffix = "." + suffix.lower().removeprefix(".")
        if suffix not in MAP_SUFFIXES:
            return super().to_bytes(suffix, **options)
        if self.cells:
            raise UsageError(
                "the cells of a long text are tiles, not weights; take a part of it with {rows} "
                "and {keys}, or attnviz capture", rows=..., keys=...,
            )  # fmt: skip
        layout, inputs = self.capture.layout, self.capture.inputs
        return maps_bytes(
            suffix,
            [
                NamedMap(
                    head, layout.name(head), weights, sides, self.positions.get(head.site.kind)
                )
                for head, weights, sides in self.maps
            ],
            layout,
            quantity=self.capture.quantity.removesuffix("s"),
            about={
                "model": self.capture.source.model,
                "texts": list(inputs.texts),
                "words": self.style.words,
                "mean": layout.mean or None,
                "notes": [*inputs.notes, *[WORDS_NOTE] * self.style.words],
            },
            made=self.made,
        )

    def _draw(self, format: str) -> Any:
        if len(self.maps) > _PANELS:
            return self._mosaic(format)
        titled = [(self.title(head), weights, sides) for head, weights, sides in self.maps]
        return heatmap_figure(
            titled,
            self.style,
            format=format,
            columns=self._columns(),
            caption=self.caption,
            sound=self.capture.inputs.sound,
        )

    def _mosaic(self, format: str) -> Any:
        """All maps as small tiles, which very many are."""
        kinds = {head.site.kind for head, _, _ in self.maps}
        if len(kinds) > 1:
            raise UsageError(
                "{} maps of {} kinds of attention are too many for one picture; select those of "
                "one kind", len(self.maps), len(kinds),
            )  # fmt: skip
        maps = {(head.layer, head.index): weights for head, weights, _ in self.maps}
        title = f"{model_name(self.capture.source)}: {len(maps):,} heads"
        from attnviz.drawing.mosaic import mosaic_figure

        return mosaic_figure(maps, self.style, title, self.caption, format)

    def _columns(self) -> int | None:
        """Count maps a line where several layers show the same heads: a line a layer."""
        layers: dict[Site, list[int]] = {}
        for head, _, _ in self.maps:
            layers.setdefault(head.site, []).append(head.index)
        first, *remaining = layers.values()
        alike = remaining and all(indices == first for indices in remaining)
        return len(first) if alike and len(first) <= _ACROSS else None

    def draw(self, axes: Axes, head: str | None = None) -> None:
        """Draw one map into axes of one's own, with its tokens, and nothing beside it."""
        from attnviz.drawing.heatmap_figure import draw

        names = [self.capture.layout.name(h) for h, _, _ in self.maps]
        if head is not None and head not in names:
            raise SelectionError(f"no map of {head!r} here; there are {', '.join(names)}")
        _, weights, sides = self.maps[0 if head is None else names.index(head)]
        draw(axes, weights, sides, self.style)

    @property
    def caption(self) -> str:
        """The model and the text, as they stand below."""
        text = caption(self.capture.source, self.capture.inputs.texts)
        text = f"{self.cut} of {text}" if self.cut else text
        if self.capture.layout.mean:
            text = f"{mean_warning(self.capture.layout.mean)}; {text}"
        return f"{self.cells}; {text}" if self.cells else text

    @cached_property
    def top(self) -> float:
        """The largest weight in any of the maps: the end of a global scale."""
        return max(float(weights.max()) for _, weights, _ in self.maps)

    @property
    def dim(self) -> bool:
        """Whether nine of ten tiles are below a tenth of the largest, and look alike."""
        if not self.cells or self.style.scale != "linear":
            return False
        values = np.concatenate([np.ma.compressed(weights) for _, weights, _ in self.maps])
        return bool((values < 0.1 * self.top).mean() > 0.9)

    def title(self, head: Head) -> str:
        """Return a head's name and roles, as they stand above its map."""
        return head_title(self.capture.layout.name(head), self.roles.get(head, ()))

    def over(self, query: str | None = None) -> Overlay:
        """Return the same heads over the picture that was looked at.

        ``query``: from where: ``cls``, ``3,4`` (row and column of a patch), ``mean`` over all
        patches, or the number of a token. By default [CLS]; the last token of a text; else all
        patches.
        """
        picture = self.capture.inputs.picture
        if picture is None:
            raise UsageError(
                "there is no picture to draw over: the attention is of a text or a sound"
            )
        maps, titles = [], {}
        for head, _, _ in self.maps:
            tokens = self.capture.sides(head).queries
            selected = selected_query(tokens, picture, query)
            row = self.capture[head][list(selected.rows)].mean(0)
            maps.append((head, patch_grid(picture, tokens.places, row)))
            share = maps[-1][1].sum() / row.sum() if row.sum() > 0 else 0.0
            titles[head] = f"{self.title(head)} ({percent(float(share))} on patches)"
        return Overlay(
            self.capture, picture, tuple(maps), selected, titles, self.style, self.identity
        )

    def __repr__(self) -> str:
        names = ", ".join(self.capture.layout.name(head) for head, _, _ in self.maps)
        return f"<Heatmap of {names}; {self.capture.source.model}>"

    def described(self) -> str:
        """Each map: its size, and where its largest weight is."""
        parts = []
        for head, weights, sides in self.maps:
            row, column = np.unravel_index(int(np.ma.filled(weights, 0).argmax()), weights.shape)
            query, key = sides.queries.texts[row], sides.keys.texts[column]
            parts.append(
                f"{self.title(head)}, {len(sides.queries)} queries by {len(sides.keys)} keys, most "
                f"from {visible(query)} to {visible(key)} ({weights[row, column]:.2f})"
            )
        return f"Attention of {self.capture.source.model}: {'; '.join(parts)}"


@dataclass(frozen=True, eq=False)
class Overlay(Figured):
    """Attention of some heads over the picture that it is of, ready to be drawn.

    ``maps`` holds each head with its weights [rows, columns] of patches, ``selected`` from where is
    looked, ``titles`` what stands above each, ``style`` how they look.
    """

    capture: Capture
    picture: Picture
    maps: tuple[tuple[Head, NDArray[np.floating]], ...]
    selected: SelectedQuery
    titles: Mapping[Head, str]
    style: Style
    identity: Mapping[str, Any] = field(default_factory=dict)

    def _draw(self, format: str) -> Any:
        from attnviz.drawing import canvas, overlay

        build = partial(
            overlay.build,
            self.picture,
            [(self.titles[head], grid) for head, grid in self.maps],
            self.style,
            query=self.selected.name,
            place=self.selected.place,
            caption=caption(self.capture.source, self.capture.inputs.texts or (self.picture.name,)),
        )
        return canvas.rendered(build, format, self.style.dpi)

    def __repr__(self) -> str:
        names = ", ".join(self.capture.layout.name(head) for head, _ in self.maps)
        return f"<Overlay of {names} {self.selected.name}; {self.capture.source.model}>"

    def described(self) -> str:
        """Each head, and the patch that it attends to most."""
        parts = []
        for head, grid in self.maps:
            row, column = map(int, np.unravel_index(int(grid.argmax()), grid.shape))
            patch = patch_name(self.picture, row, column)
            parts.append(f"{self.titles[head]}, most on patch {patch}")
        return f"Attention {self.selected.name}, over the picture: {'; '.join(parts)}"
