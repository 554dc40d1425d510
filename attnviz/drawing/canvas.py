"""From a matplotlib figure to bytes, the same all day: no clock, no random ids, no pyplot."""

from __future__ import annotations

import gc
import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from threading import Lock
from typing import Any, Concatenate, ParamSpec

import matplotlib as mpl
import numpy as np
from fontTools import subset
from matplotlib.axis import Tick
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import Collection, PathCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch
from matplotlib.text import Annotation, Text

from attnviz.core.provenance import current, day
from attnviz.drawing import paper
from attnviz.drawing.paper import BASE_FAMILY
from attnviz.drawing.png import said
from attnviz.drawing.shades import check_pixels
from attnviz.errors import AttnvizWarning, UsageError

UNUSED = ("BASE", "GDEF", "GPOS", "GSUB", "JSTF", "MATH", "kern", "cmap", "post", "name", "OS/2")
"""Tables by which a program sets text or finds glyphs by character, by name or as a family.

In a PDF every glyph has its number and its place already, see ISO 32000-1, 9.9.
"""


@contextmanager
def drawn_tables_only() -> Iterator[None]:
    """Embed fonts in the block without :data:`UNUSED`: matplotlib's reader of them is replaced."""
    load_font = subset.load_font

    def load(file: Any, options: Any, **settings: Any) -> Any:
        options.glyph_names = False
        font = load_font(file, options, **settings)
        for table in UNUSED:
            if table in font:
                del font[table]
        return font

    subset.load_font = load
    try:
        yield
    finally:
        subset.load_font = load_font


def scale(figure: Figure, factor: float) -> None:
    """Multiply every length of a figure by a factor, in place."""
    figure.set_size_inches(*(factor * figure.get_size_inches()))
    all_axes: list[Any] = figure.get_axes()
    for axes in all_axes:
        pad = axes.titleOffsetTrans.get_matrix()[1, 2] * 72 / figure.dpi
        axes._set_title_offset_trans(factor * pad)
        for axis in (axes.xaxis, axes.yaxis):
            axis.labelpad *= factor
            kinds = (("major", axis.get_major_ticks()), ("minor", axis.get_minor_ticks()))
            for which, ticks in kinds:
                for tick in ticks[:1]:  # all are as the first
                    axis.set_tick_params(which=which, length=factor * tick._size,
                                         width=factor * tick._width, pad=factor * tick._base_pad,
                                         labelsize=factor * tick.label1.get_size())  # fmt: skip
    artists = figure.findobj()
    parts = {id(part) for tick in artists if isinstance(tick, Tick) for part in tick.findobj()}
    for artist in artists:
        if id(artist) not in parts:
            _artist(artist, factor)


def _artist(artist: Any, factor: float) -> None:
    """Text, lines and marks, whose sizes are in points."""
    if isinstance(artist, Text):
        artist.set_fontsize(factor * float(artist.get_fontsize()))
    if isinstance(artist, Annotation) and artist.anncoords == "offset points":
        x, y = artist.xyann
        artist.xyann = (factor * x, factor * y)
    elif isinstance(artist, Line2D):
        artist.set_linewidth(factor * artist.get_linewidth())
        artist.set_markersize(factor * artist.get_markersize())
    elif isinstance(artist, Patch):
        artist.set_linewidth(factor * artist.get_linewidth())
        if isinstance(artist, FancyArrowPatch):
            artist.set_mutation_scale(factor * artist.get_mutation_scale())
    elif isinstance(artist, Collection):
        artist.set_linewidth((factor * np.asarray(artist.get_linewidth())).tolist())
        if isinstance(artist, PathCollection):
            artist.set_sizes(factor**2 * np.asarray(artist.get_sizes()))


Options = ParamSpec("Options")

_SETTINGS: dict[Any, Any] = {
    "font.family": [BASE_FAMILY], "svg.hashsalt": "attnviz", "svg.fonttype": "none",
    "pdf.fonttype": 42, "axes.linewidth": 0.5,
}  # fmt: skip
"""Where the user's style says nothing else; text in SVG is text, to be searched and set anew."""
_FIXED: dict[Any, Any] = {
    "text.parse_math": False, "text.usetex": False, "axes.grid": False,
    "figure.autolayout": False, "figure.constrained_layout.use": False, "savefig.bbox": None,
}  # fmt: skip
"""What the places of everything, worked out by hand, rest on."""
_LOCK = Lock()


def rendered(build: Callable[[], Figure], format: str, dpi: float, *, fitted: bool = False) -> Any:
    """Build a figure in the user's style and encode it; gives bytes of a file, or the Figure."""
    with _LOCK, _uncollected(), mpl.rc_context():
        _use(paper.current().mplstyle)
        styled = {
            name: value
            for name, value in _SETTINGS.items()
            if mpl.rcParams[name] == mpl.rcParamsDefault[name]
        }
        mpl.rcParams.update(styled | _FIXED)
        if paper.current().family is not None:
            mpl.rcParams["font.family"] = [paper.current().family]
        figure = build()
        _fit(figure, fitted)
        if format == "figure":
            return figure
        if format == "png":
            width, height = figure.get_size_inches() * dpi
            check_pixels(width, height)
        FigureCanvasAgg(figure)
        out = io.BytesIO()
        with drawn_tables_only() if format == "pdf" else nullcontext():
            figure.savefig(
                out, format=format, dpi=dpi, facecolor="white", metadata=_metadata(format)
            )
    return out.getvalue()


def _metadata(format: str) -> dict[str, Any]:
    """Return what a file says of what made it, by the names that its format has for that."""
    made = current()
    if format == "png":
        return {"Software": None, **said()}
    if made is None:
        if format == "svg":
            return {"Date": None, "Creator": "attnviz"}
        return {"CreationDate": None, "Creator": "attnviz", "Producer": "attnviz"}
    program = f"attnviz {made.version}"
    if format == "svg":
        return {"Date": made.date, "Creator": program, "Description": made.line()}
    return {
        "CreationDate": day().replace(hour=0, minute=0, second=0, microsecond=0),
        "Creator": program,
        "Producer": program,
        "Subject": made.line(),
    }


def picture(build: Callable[Concatenate[Any, float, Options], Figure]) -> Callable[..., Any]:
    """Return what builds a figure of a result at some dots per inch, as what encodes it."""

    @wraps(build)
    def draw(
        result: Any,
        format: str = "png",
        dpi: float = 150,
        *args: Options.args,
        **options: Options.kwargs,
    ) -> Any:
        return rendered(lambda: build(result, dpi, *args, **options), format, dpi)

    return draw


@contextmanager
def _uncollected() -> Iterator[None]:
    """Let garbage wait in the block: a figure's many objects would be looked at again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _use(style: str | None) -> None:
    """Draw in a style of matplotlib's; UsageError for one that it has not, or cannot read."""
    if style is None:
        return
    from matplotlib import style as styles

    try:
        styles.use(style)
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise UsageError(
            "matplotlib has no style {!r} ({}); give its name or a .mplstyle file",
            style,
            type(error).__name__,
        ) from None


def text_scale() -> float:
    """How much larger all text is to be than in pictures that nobody asked anything of."""
    return (paper.current().points or paper.BASE_SIZE) / paper.BASE_SIZE


def _fit(figure: Figure, fitted: bool) -> None:
    """Bring a figure to the width and the size of text that are asked for."""
    sheet = paper.current()
    if fitted or sheet.width is None:
        factor = text_scale()
    else:
        width = float(figure.get_size_inches()[0])
        factor = sheet.width / width
        size = paper.BASE_SIZE * factor
        if sheet.points is not None:
            raise UsageError(
                "{width} and the size of {font} cannot both be chosen for this picture, which is "
                "scaled as a whole: its axis labels are {:.2g} points at that width; give one of "
                "them",
                size,
                width=...,
                font=...,
            )
        warn_of_small_text(size, sheet.width)
    if factor != 1:
        scale(figure, factor)


def warn_of_small_text(size: float, width: float) -> None:
    """Warn where labels of axes, of ``size`` points on a page of so many inches, are too small."""
    if size < paper.SMALLEST:
        warnings.warn(
            f"at a width of {width:.3g} inches this picture's labels have {size:.2g} "
            f"points, which nobody can read; {width * paper.SMALLEST / size:.1f} "
            "inches or more, or fewer heads or tokens, help",
            AttnvizWarning,
            stacklevel=2,
        )
