"""The animation as one HTML file that loads nothing from anywhere."""

from __future__ import annotations

import html

from attnviz.core.made import Made
from attnviz.features.shapes.animation.stage import CAPTION_TOP, WIDTH, Frame
from attnviz.features.shapes.animation.storyboard import storyboard
from attnviz.features.shapes.drawing.units import plural
from attnviz.features.shapes.worked.by_hand import NumericWalk
from attnviz.web.page import html_page, parts, safe_json


def animation_page(walked: NumericWalk) -> bytes:
    """Play a numeric walk, with pause, steps and speed; keyboard and reduced motion are heeded.

    Raises:
        UsageError: an input that cannot be shown; see :func:`storyboard`.
    """
    template, style, script = parts(__package__, "main")
    given = walked.given
    words = " ".join(given.tokens)
    frames = storyboard(walked)
    about = (
        f"“{words}”: {plural(len(given.tokens), 'token')}, "
        f"{plural(given.heads, 'head')}. Every number is real: float64, shown to two digits."
    )
    return html_page(
        template,
        title=f"attnviz: attention over “{words}”",
        style=style,
        script=script,
        of=Made.now(),
        still=_still(frames),
        about=html.escape(about),
        data=animation_json(frames),
        width=str(WIDTH),
        height=str(CAPTION_TOP),
    )


def _still(frames: tuple[Frame, ...]) -> str:
    """What each step says, and the shapes in it, for browsers without a script."""
    told = dict.fromkeys((frame.caption, frame.shapes) for frame in frames)
    steps = (f"<li>{html.escape(f'{said} {shapes}'.strip())}</li>" for said, shapes in told)
    return f"<ol>{''.join(steps)}</ol>"


def animation_json(frames: tuple[Frame, ...]) -> str:
    """The frames, each box and name written once, safe inside a script element."""
    names: dict[str, int] = {}
    boxes: dict[tuple[object, ...], int] = {}
    told = []
    for frame in frames:
        places = []
        for name, box in frame.boxes.items():
            rounded = tuple(round(v, 2) if isinstance(v, float) else v for v in box)
            places.append(
                [names.setdefault(name, len(names)), boxes.setdefault(rounded, len(boxes))]
            )
        told.append(
            {
                "boxes": places,
                "caption": frame.caption,
                "shapes": frame.shapes,
                "seconds": frame.seconds,
            }
        )
    animation = {"names": list(names), "boxes": [list(box) for box in boxes], "frames": told}
    return safe_json(animation)
