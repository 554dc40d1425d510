"""Records that show themselves in a notebook, and pictures that can be saved."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz import files
from attnviz.errors import SelectionError, UsageError
from attnviz.media import Picture, patch_grid
from attnviz.models.memory import human_bytes
from attnviz.models.opened import reason
from attnviz.models.recorded import SUFFIXES
from attnviz.reasons import Reason
from attnviz.records import Capture, Head, HeadsReport, Role, Sides
from attnviz.render import html
from attnviz.render.figure import FORMATS, heads_figure, heatmap_figure, overlay_figure
from attnviz.render.labels import caption, head_title, percent, visible
from attnviz.render.style import Style
from attnviz.scoring.gaze import Gaze, gaze
from attnviz.scoring.select import select

_WIDTH = 100
"""Columns of a printed report."""


def picture_format(path: Path) -> str:
    """The format that a file's suffix means; UsageError for one that cannot be written."""
    suffix = path.suffix.removeprefix(".").lower()
    if suffix not in FORMATS:
        known = ", ".join(f".{name}" for name in FORMATS)
        raise UsageError(f"cannot draw {path.name!r}; name the file {known}")
    return suffix


class Captured(Capture):
    """A capture as :func:`attnviz.capture` returns it."""

    def __getitem__(self, head: Head | str) -> NDArray[np.floating]:
        """The [T, S] map of one head, by its name such as ``"4.11"``; SelectionError for none."""
        return super().__getitem__(self._head(head))

    def _head(self, head: Head | str) -> Head:
        """A head that the capture holds."""
        if isinstance(head, str):
            found = select(head, self.layout)
            if len(found) != 1:
                raise SelectionError(f"{head!r} are {len(found)} heads; name one, such as '4.11'")
            head = found[0]
        if not isinstance(head, Head):
            raise UsageError("a head's name such as '4.11' is wanted, not {!r}", head)
        if head.site not in self.maps:
            raise SelectionError(
                f"the capture does not hold {self.layout.name(head)}; capture it again with a "
                "selection that does"
            )
        return head

    def why(self, head: Head | str, query: int, key: int) -> Why:
        """Why a head's weight is what it is: query, key, their products, the row's softmax.

        Args:
            head: one of those that were captured with ``why=``.
            query: position of the query, from 0 or, negative, from the end; ``key`` of the key.
            key: see ``query``.

        Raises:
            SelectionError: no such head; UsageError: one whose queries and keys were not kept, or
            no such position.
        """
        return Why(**vars(reason(self, self._head(head), query, key)))

    @property
    def tokens(self) -> tuple[str, ...]:
        """The text of each position; of the decoder where there are two sequences."""
        return self.inputs.sides[self.layout.kinds[-1]].queries.texts

    @property
    def source_tokens(self) -> tuple[str, ...]:
        """The text of each position that is attended to; the encoder's where there are two."""
        return self.inputs.sides[self.layout.kinds[-1]].keys.texts

    def _repr_html_(self) -> str:
        known = {"model": self.source.model, "backend": self.source.backend}
        known |= {"exactness": self.source.exactness, "heads": str(len(self.layout))}
        return html.facts(known | {"tokens": " ".join(self.tokens), "capture": repr(self)})


def captured(found: Capture) -> Captured:
    """A capture with all that :class:`Captured` adds."""
    return Captured(**{name: getattr(found, name) for name in found.__dataclass_fields__})


class Pictured:
    """What has a picture: notebooks show it, with words for those who cannot see it."""

    def _repr_png_(self) -> bytes | None:
        raise TypeError(f"{type(self).__name__} has no picture")

    def _repr_html_(self) -> str | None:
        png = self._repr_png_()
        return None if png is None else html.picture(png, self.described())

    def described(self) -> str:
        """What the picture shows, in words."""
        return repr(self)


class Tabular:
    """What reports share: their figures as rows, for other programs."""

    def to_records(self) -> list[dict[str, Any]]:
        """The figures as a list of rows, None for what is not known; the columns are CSV's."""
        raise TypeError(f"{type(self).__name__} has no rows")

    def to_pandas(self) -> Any:
        """The same as a ``pandas.DataFrame``; UsageError where pandas is not installed."""
        try:
            import pandas
        except ImportError:
            raise UsageError("pandas is not installed; install it, or use to_records()") from None
        return pandas.DataFrame(self.to_records())


def printed(*parts: Any) -> str:
    """What the command line prints, as text of a fixed width without colours."""
    from rich.console import Console

    out = io.StringIO()
    console = Console(
        file=out, width=_WIDTH, color_system=None, emoji=False, markup=False, force_jupyter=False
    )  # rich would show it in a notebook at once, and print nothing
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


class Why(Tabular, Reason):
    """One weight taken apart, as :meth:`Captured.why` returns it."""

    def to_records(self) -> list[dict[str, Any]]:
        """A row a dimension, the largest product first."""
        return Reason.to_records(self)

    def __str__(self) -> str:
        """The steps from query and key to the weight and what is written with it."""
        from attnviz.render import reasons

        return printed(*reasons.parts(self))

    def __repr__(self) -> str:
        return f"<Why {self.head}, {self.query} to {self.key}: {self.weight:.4f}>"


class Report(Pictured, Tabular, HeadsReport):
    """A report as :func:`attnviz.heads` returns it."""

    def to_records(self) -> list[dict[str, Any]]:
        """A row a head: its roles, and mean, chance, lift and rows of every score."""
        from attnviz.render.tables import head_rows

        return head_rows(self.heads)

    def figure(self, format: str = "png") -> bytes:
        """The layer × head grid as a figure, in ``png``, ``svg`` or ``pdf``."""
        return heads_figure(self, format)

    def save(self, path: str | Path) -> Path:
        """Draw the grid into a file; its suffix decides the format."""
        path = Path(path)
        files.write(path, self.figure(picture_format(path)))
        return path

    def __str__(self) -> str:
        """The grid and the evidence, as the command line prints them, without colours."""
        from attnviz.render import terminal
        from attnviz.render.findings import Findings

        named = [self.layout.name(one.head) for one in self.heads if one.roles]
        return printed(
            terminal.heads_grid(self),
            terminal.heads_table(self),
            *([Findings(self.findings, named)] if self.findings else ()),
            terminal.closing_line(self),
        )

    def described(self) -> str:
        """Which heads have which role."""
        return html.described(self)

    def _repr_png_(self) -> bytes:
        return self.figure()

    def _repr_html_(self) -> str:
        return html.heads(self, self.figure())


@dataclass(frozen=True, eq=False)
class Heatmap(Pictured):
    """Maps of some heads, ready to be drawn.

    ``maps`` holds each head with its [T, S] weights and the tokens on both axes, ``roles`` what
    the heads do, ``style`` how they look.
    """

    capture: Capture
    maps: tuple[tuple[Head, NDArray[np.floating], Sides], ...]
    roles: Mapping[Head, tuple[Role, ...]]
    style: Style

    def figure(self, format: str = "png") -> bytes:
        """The picture in ``png``, ``svg`` or ``pdf``."""
        titled = [(self.title(head), weights, sides) for head, weights, sides in self.maps]
        return heatmap_figure(
            titled,
            self.style,
            format=format,
            caption=self.caption,
            sound=self.capture.inputs.sound,
        )

    @property
    def caption(self) -> str:
        """The model and the text, as they stand below."""
        return caption(self.capture.source, self.capture.inputs.texts)

    @property
    def top(self) -> float:
        """The largest weight in any of the maps: the end of a global scale."""
        return max(float(weights.max()) for _, weights, _ in self.maps)

    def title(self, head: Head) -> str:
        """A head's name and roles, as they stand above its map."""
        return head_title(self.capture.layout.name(head), self.roles.get(head, ()))

    def save(self, path: str | Path) -> Path:
        """Draw into a file; its suffix decides the format."""
        path = Path(path)
        files.write(path, self.figure(picture_format(path)))
        return path

    def over(self, query: str | None = None) -> Overlay:
        """The same heads over the picture that was looked at.

        Args:
            query: from where: ``cls``, ``3,4`` (row and column of a patch), ``mean`` over all
                patches, or the number of a token. By default [CLS]; the last token of a text; else
                all patches.

        Raises:
            UsageError: there was no picture, or there is no such query.
        """
        picture = self.capture.inputs.picture
        if picture is None:
            raise UsageError("there is no picture to draw over; attention is of a text or a sound")
        maps, titles = [], {}
        for head, _, _ in self.maps:
            tokens = self.capture.sides(head).queries
            found = gaze(tokens, picture, query)
            row = self.capture.maps[head.site][head.index][list(found.rows)].mean(0)
            maps.append((head, patch_grid(picture, tokens.places, row)))
            share = maps[-1][1].sum() / row.sum() if row.sum() > 0 else 0.0
            titles[head] = f"{self.title(head)} ({percent(float(share))} on patches)"
        return Overlay(self.capture, picture, tuple(maps), found, titles, self.style)

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

    def _repr_png_(self) -> bytes:
        return self.figure()


@dataclass(frozen=True, eq=False)
class Overlay(Pictured):
    """Attention of some heads over the picture that it is of, ready to be drawn.

    ``maps`` holds each head with its weights [rows, columns] of patches, ``gaze`` from where is
    looked, ``titles`` what stands above each, ``style`` how they look.
    """

    capture: Capture
    picture: Picture
    maps: tuple[tuple[Head, NDArray[np.floating]], ...]
    gaze: Gaze
    titles: Mapping[Head, str]
    style: Style

    def figure(self, format: str = "png") -> bytes:
        """The picture in ``png``, ``svg`` or ``pdf``."""
        return overlay_figure(
            self.picture,
            [(self.titles[head], grid) for head, grid in self.maps],
            self.style,
            query=self.gaze.name,
            place=self.gaze.place,
            caption=caption(self.capture.source, self.capture.inputs.texts or (self.picture.name,)),
            format=format,
        )

    def save(self, path: str | Path) -> Path:
        """Draw into a file; its suffix decides the format."""
        path = Path(path)
        files.write(path, self.figure(picture_format(path)))
        return path

    def __repr__(self) -> str:
        names = ", ".join(self.capture.layout.name(head) for head, _ in self.maps)
        return f"<Overlay of {names} {self.gaze.name}; {self.capture.source.model}>"

    def described(self) -> str:
        """Each head, and the patch that it attends to most."""
        parts = []
        for head, grid in self.maps:
            row, column = np.unravel_index(int(grid.argmax()), grid.shape)
            parts.append(f"{self.titles[head]}, most on patch {row},{column}")
        return f"Attention {self.gaze.name}, over the picture: {'; '.join(parts)}"

    def _repr_png_(self) -> bytes:
        return self.figure()


@dataclass(frozen=True, eq=False)
class Page:
    """One self-contained HTML file; it asks for nothing: no server, no network.

    ``page`` is the whole file.
    """

    page: bytes
    title: str

    def save(self, path: str | Path) -> Path:
        """Write the page; its name must end in .html or .htm."""
        path = Path(path)
        page_path(path)
        files.write(path, self.page)
        return path

    @property
    def size(self) -> str:
        """Of the page, for people: ``2.1 MB``."""
        return human_bytes(len(self.page))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.title!r}, {self.size}>"

    def _repr_html_(self) -> str:
        inside = escape(self.page.decode("utf-8"), quote=True)
        return (
            f'<iframe data-attnviz="1" title="{escape(self.title)}" srcdoc="{inside}" '
            'style="width:100%;height:760px;border:1px solid #ccc;border-radius:6px"></iframe>'
        )


@dataclass(frozen=True, eq=False, repr=False)
class Viewer(Page):
    """One page with every head of some captures, as :func:`attnviz.view` makes it.

    ``captures`` are those that it shows, ``notes`` what must be said of all of it.
    """

    captures: tuple[Capture, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class LivePage(Page):
    """One page with a network in it, as :func:`attnviz.live` makes it.

    ``error`` says how far storing the weights moves attention, see there.
    """

    error: float


def page_path(path: Path) -> None:
    """UsageError for a file that a browser would not open as a page."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"cannot write a page to {path.name!r}; name the file .html")


def capture_path(path: Path) -> None:
    """UsageError for a file that attention cannot be written to."""
    if path.suffix not in SUFFIXES:
        raise UsageError(f"cannot write attention to {path.name!r}; name it .npz or .safetensors")
