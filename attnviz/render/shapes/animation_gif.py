"""The film as a GIF of at most 3 MB, drawn with Pillow."""

from __future__ import annotations

import io
from functools import lru_cache
from pathlib import Path
from typing import Any

from attnviz.errors import UsageError
from attnviz.render.palette import mix
from attnviz.render.shapes.stage import CAPTION_TOP, HEIGHT, WIDTH, Box, Frame
from attnviz.render.shapes.storyboard import storyboard
from attnviz.render.shapes.table import wrapped
from attnviz.shapes.worked.by_hand import NumericWalk

MAX_BYTES = 3_000_000
TRIES = ((1.0, 7), (1.0, 4), (1.0, 2), (0.8, 2), (0.7, 0))
"""Scale and pictures between two frames: the first that stays small enough is taken."""


def animation_gif(walked: NumericWalk) -> bytes:
    """Play a numeric walk.

    Raises:
        UsageError: an input that cannot be shown; see :func:`storyboard`.
    """
    frames = storyboard(walked)
    for scale, between in TRIES:
        data = _encoded(frames, scale, between)
        if len(data) <= MAX_BYTES:
            return data
    raise UsageError("this animation takes more than 3 MB as a GIF; use fewer words, or .html")


def _encoded(frames: tuple[Frame, ...], scale: float, between: int) -> bytes:
    pictures, times = [], []
    for number, frame in enumerate(frames):
        if number and between:
            for k in range(1, between + 1):
                part = k / (between + 1)
                eased = part * part * (3 - 2 * part)
                pictures.append(_picture(tween(frames[number - 1], frame, eased), scale))
                times.append(50)
        pictures.append(_picture(frame, scale))
        times.append(round(frame.seconds * 1000))
    palette = _palette(pictures)
    indexed = [picture.quantize(palette=palette, dither=0) for picture in pictures]
    out = io.BytesIO()
    indexed[0].save(
        out, "GIF", save_all=True, append_images=indexed[1:], duration=times, loop=0, optimize=False
    )
    return out.getvalue()


def _palette(pictures: list[Any]) -> Any:
    """Common colours of some pictures along the film."""
    from PIL import Image

    chosen = pictures[:: max(1, len(pictures) // 8)]
    sheet = Image.new("RGB", (pictures[0].width, pictures[0].height * len(chosen)))
    for i, picture in enumerate(chosen):
        sheet.paste(picture, (0, i * picture.height))
    return sheet.quantize(colors=128)


def tween(first: Frame, second: Frame, part: float) -> Frame:
    """A picture between two frames: boxes in both move, others fade."""
    boxes = {}
    for name, box in second.boxes.items():
        before = first.boxes.get(name)
        if before is None:
            boxes[name] = _faded(box, part)
            continue
        place = [a + (b - a) * part for a, b in zip(before[:4], box[:4], strict=True)]
        fill = mix(before.fill, box.fill, part) if before.fill and box.fill else box.fill
        boxes[name] = box._replace(
            x=place[0], y=place[1], width=place[2], height=place[3], fill=fill
        )
    for name, box in first.boxes.items():
        if name not in second.boxes and part < 0.5:
            boxes[name] = _faded(box, 1 - 2 * part)
    return Frame(boxes, second.caption, second.shapes, 0)


def _faded(box: Box, part: float) -> Box:
    fill = mix("#ffffff", box.fill, part) if box.fill else ""
    return box._replace(fill=fill, colour=mix(fill or "#ffffff", box.colour, part), ring=False)


@lru_cache(maxsize=32)
def _font(size: int, bold: bool) -> Any:
    from matplotlib import get_data_path
    from PIL import ImageFont

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(get_data_path()) / "fonts" / "ttf" / name), size)


@lru_cache(maxsize=256)
def _drawable(text: str) -> str:
    """The text with a box for what the font lacks."""
    from matplotlib import get_data_path
    from matplotlib.font_manager import get_font

    font = get_font(str(Path(get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"))
    return "".join(c if font.get_char_index(ord(c)) else "□" for c in text)


def _picture(frame: Frame, scale: float) -> Any:
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (round(WIDTH * scale), round(HEIGHT * scale)), "#ffffff")
    draw = ImageDraw.Draw(image)
    for box in frame.boxes.values():
        _draw_box(draw, box, scale)
    draw.rectangle((0, CAPTION_TOP * scale, image.width, image.height), fill="#f3f4f6")
    lines = [(line, 17, "#1f2430") for line in wrapped(frame.caption, 96)]
    for place, (text, points, colour) in enumerate([*lines, (frame.shapes, 14, "#6b7280")]):
        font = _font(round(points * scale), False)
        where = (24 * scale, (CAPTION_TOP + 6 + 21 * place) * scale)
        draw.text(where, _drawable(text), fill=colour, font=font)
    return image


def _draw_box(draw: Any, box: Box, scale: float) -> None:
    left, top = box.x * scale, box.y * scale
    right, bottom = (box.x + box.width) * scale, (box.y + box.height) * scale
    if box.fill:
        outline = "#111827" if box.ring else None
        draw.rectangle(
            (left, top, right, bottom), fill=box.fill, outline=outline, width=2 if box.ring else 0
        )
    if not box.text:
        return
    size = 13.0
    if box.fill:
        size = min(box.height * 0.62, box.width / (0.62 * max(5, len(box.text))), 16)
    font = _font(max(6, round(size * scale)), box.bold)
    anchor = {"middle": "mm", "start": "lm", "end": "rm"}[box.align]
    x = (left + right) / 2 if box.align == "middle" else left
    draw.text(
        (x, (top + bottom) / 2), _drawable(box.text), fill=box.colour, font=font, anchor=anchor
    )
