"""The film as one HTML file that loads nothing from anywhere."""

from __future__ import annotations

import html
from importlib.resources import files

from attnviz.render.page import html_page, safe_json
from attnviz.render.shapes.stage import CAPTION_TOP, WIDTH, Frame
from attnviz.render.shapes.storyboard import storyboard
from attnviz.render.shapes.units import plural
from attnviz.shapes.worked.by_hand import NumericWalk


def film_page(walked: NumericWalk) -> bytes:
    """Play a numeric walk, with pause, steps and speed; keyboard and reduced motion are heeded.

    Raises:
        UsageError: an input that cannot be shown; see :func:`storyboard`.
    """
    assets = files(__package__).joinpath("assets")

    def asset(name: str) -> str:
        return assets.joinpath(name).read_text(encoding="utf-8")

    given = walked.given
    words = " ".join(given.tokens)
    about = (
        f"“{words}”: {plural(len(given.tokens), 'token')}, "
        f"{plural(given.heads, 'head')}. Every number is real: float64, shown to two digits."
    )
    return html_page(
        asset("film.html"),
        title=f"attnviz: attention over “{words}”",
        style=asset("film.css"),
        script=asset("film.js"),
        about=html.escape(about),
        data=film_json(storyboard(walked)),
        width=str(WIDTH),
        height=str(CAPTION_TOP),
    )


def film_json(frames: tuple[Frame, ...]) -> str:
    """The frames, each box and name written once, safe inside a script element."""
    names: dict[str, int] = {}
    boxes: dict[tuple[object, ...], int] = {}
    told = []
    for frame in frames:
        placed = []
        for name, box in frame.boxes.items():
            rounded = tuple(round(v, 2) if isinstance(v, float) else v for v in box)
            placed.append(
                [names.setdefault(name, len(names)), boxes.setdefault(rounded, len(boxes))]
            )
        told.append(
            {
                "boxes": placed,
                "caption": frame.caption,
                "shapes": frame.shapes,
                "seconds": frame.seconds,
            }
        )
    film = {"names": list(names), "boxes": [list(box) for box in boxes], "frames": told}
    return safe_json(film)
