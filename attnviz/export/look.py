"""How pictures look; apart from the other settings, since workers must not load torch."""

from __future__ import annotations

from dataclasses import dataclass

from attnviz.errors import UsageError
from attnviz.render.figure import check_format
from attnviz.render.palette import DEFAULT_PALETTE, anchors
from attnviz.render.scaling import DPI, check_scale


@dataclass(frozen=True, slots=True)
class Look:
    """How pictures look; see :class:`attnviz.render.raster.Raster`."""

    format: str = "png"
    size: float | None = None
    dpi: float = DPI
    palette: str = DEFAULT_PALETTE
    scale: str = "global"
    labels: bool = True
    values: bool = False

    def check(self) -> None:
        """Raise UsageError for what cannot be drawn."""
        check_format(self.format)
        anchors(self.palette)
        check_scale(self.scale)
        if not 20 <= self.dpi <= 1200:
            raise UsageError("{dpi} must be from 20 to 1200, not {:g}", self.dpi, dpi=...)
        if self.size is not None and not 0.2 <= self.size <= 50:
            raise UsageError("{size} is in inches, from 0.2 to 50, not {:g}", self.size, size=...)
