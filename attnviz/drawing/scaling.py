"""A matplotlib figure made larger or smaller as a whole: page, text, lines and marks alike."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axis import Axis, Tick
from matplotlib.collections import Collection, PathCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch
from matplotlib.text import Annotation, Text


def scale(figure: Figure, factor: float) -> None:
    """Multiply every length of a figure by a factor, in place."""
    figure.set_size_inches(*(factor * figure.get_size_inches()))
    every: list[Any] = figure.get_axes()
    for axes in every:
        pad = axes.titleOffsetTrans.get_matrix()[1, 2] * 72 / figure.dpi
        axes._set_title_offset_trans(factor * pad)
        for axis in (axes.xaxis, axes.yaxis):
            axis.labelpad *= factor
            kinds = (("major", axis.get_major_ticks()), ("minor", axis.get_minor_ticks()))
            for which, ticks in kinds:
                if ticks:
                    _ticks(axis, which, ticks[0], factor)
    artists = figure.findobj()
    parts = {id(part) for tick in artists if isinstance(tick, Tick) for part in tick.findobj()}
    for artist in artists:
        if id(artist) not in parts:
            _artist(artist, factor)


def _ticks(axis: Axis, which: Any, tick: Any, factor: float) -> None:
    """The marks and labels of an axis, all as its first."""
    axis.set_tick_params(
        which=which,
        length=factor * tick._size,
        width=factor * tick._width,
        pad=factor * tick._base_pad,
        labelsize=factor * tick.label1.get_size(),
    )


def _artist(artist: Any, factor: float) -> None:
    """Text, lines and marks, whose sizes are in points."""
    if isinstance(artist, Text):
        artist.set_fontsize(factor * float(artist.get_fontsize()))
    if isinstance(artist, Annotation) and artist.anncoords == "offset points":
        across, up = artist.xyann
        artist.xyann = (factor * across, factor * up)
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
