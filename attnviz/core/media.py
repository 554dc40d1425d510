"""Pictures and sounds as models take them in, to show attention where it lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Space = Literal["text", "patches", "frames"]
"""What a sequence is laid out in: the order of words, a picture's rows and columns, or time."""

Place = tuple[float, ...]
"""Where a token stands: (row, column) of a patch, (seconds,) of a frame, () for any other."""


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A picture as the model saw it: cropped and scaled as its processor does.

    Attributes:
        pixels: uint8 [height, width, 3], the part that the patches cover.
        rows: of patches, from the top; ``columns`` from the left.
        columns: see ``rows``.
        name: of the file.
    """

    pixels: NDArray[np.uint8]
    rows: int
    columns: int
    name: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Sound:
    """A sound as the model heard it.

    Attributes:
        samples: float32 [n], from -1 to 1.
        rate: samples a second.
        name: of the file.
    """

    samples: NDArray[np.float32]
    rate: int
    name: str = ""

    @property
    def seconds(self) -> float:
        """How long it is."""
        return len(self.samples) / self.rate


def space(places: tuple[Place, ...], special: tuple[bool, ...]) -> Space:
    """What a sequence is laid out in: that in which all of its tokens but special ones stand."""
    sizes = {len(place) for place, alone in zip(places, special, strict=True) if not alone}
    if sizes == {2}:
        return "patches"
    return "frames" if sizes == {1} else "text"


def patch_grid(picture: Picture, places: tuple[Place, ...], weights: Any) -> Any:
    """Weights of a sequence's tokens laid out as the picture's patches.

    Args:
        picture: whose patches they are.
        places: of the tokens.
        weights: [..., S], one for each token.

    Returns:
        float64 [..., rows, columns]; zero where a patch has no token of its own.
    """
    import numpy as np

    given = np.asarray(weights)
    grid = np.zeros((*given.shape[:-1], picture.rows, picture.columns))
    for token, place in enumerate(places):
        if len(place) == 2:
            grid[..., int(place[0]), int(place[1])] = given[..., token]
    return grid
