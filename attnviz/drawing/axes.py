"""One attention map in matplotlib axes that belong to somebody else."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from numpy.typing import NDArray

from attnviz.core.tokens import Sides
from attnviz.drawing.labels import row_labels, token_labels
from attnviz.drawing.palette import UNSELECTED, anchors, masked_color
from attnviz.drawing.shades import checked, hidden, largest, shades, unselected
from attnviz.drawing.style import Style


def draw(axes: Axes, weights: NDArray[np.floating[Any]], sides: Sides, style: Style) -> None:
    """Draw a map with queries downwards and keys across, its tokens on the axes.

    Fonts and lines are those of the axes: nothing is shortened, turned or left out to fit.

    Args:
        axes: empty ones.
        weights: [T, S]; masked cells are keys that the query may not attend to, with NaN those that
            an indexer did not select.
        sides: the tokens on the axes.
        style: palette, scale, and whether there are labels.
    """
    array, masked, few = checked(weights, sides), hidden(weights), unselected(weights)
    shown = np.ma.array(
        shades(array, style, largest([array])), mask=False if masked is None else masked
    )
    if few is not None:  # beyond the scale, where nothing else is
        shown[few] = 2.0
    colors = LinearSegmentedColormap.from_list(style.palette, anchors(style.palette))
    axes.imshow(
        shown,
        cmap=colors.with_extremes(bad=masked_color(style.palette), over=UNSELECTED),
        vmin=0,
        vmax=1,
        interpolation="nearest",
    )
    if not style.labels:
        axes.set_xticks([])
        axes.set_yticks([])
        return
    axes.set_xticks(range(len(sides.keys)), token_labels(sides.keys), rotation=90)
    axes.set_yticks(range(len(sides.queries)), row_labels(sides.queries))
