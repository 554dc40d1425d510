"""Makes a small picture and one second of sound: ``python sample_inputs/make_senses.py``.

The picture: a sun and a house on a meadow. The sound: a tone that rises from A3 to A4, a pause,
and a chord. Both are drawn from nothing, so they are free of anybody's rights.
"""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

FOLDER = Path(__file__).parent
SIDE, OVER = 224, 4
RATE = 16_000


def picture() -> Image.Image:
    """A scene with a few clear shapes, [224, 224], drawn four times as large and scaled down."""
    side = SIDE * OVER
    rows = np.linspace(0, 1, side)[:, None, None]
    sky = (1 - rows) * np.array([92, 158, 224]) + rows * np.array([214, 235, 250])
    image = Image.fromarray(np.broadcast_to(sky, (side, side, 3)).astype(np.uint8).copy())
    draw = ImageDraw.Draw(image)

    def scaled(*numbers: float) -> list[float]:
        return [number * OVER for number in numbers]

    draw.ellipse(scaled(-60, 150, 300, 330), fill=(96, 158, 74))
    draw.ellipse(scaled(154, 22, 198, 66), fill=(250, 205, 62))
    draw.rectangle(scaled(42, 112, 122, 182), fill=(201, 92, 70))
    draw.polygon(scaled(30, 114, 82, 66, 134, 114), fill=(110, 54, 48))
    draw.rectangle(scaled(72, 142, 92, 182), fill=(74, 44, 34))
    for left in (50, 98):
        draw.rectangle(scaled(left, 124, left + 16, 140), fill=(250, 236, 160))
    draw.rectangle(scaled(170, 130, 178, 176), fill=(98, 66, 42))
    draw.ellipse(scaled(150, 92, 198, 142), fill=(48, 112, 62))
    return image.resize((SIDE, SIDE), Image.Resampling.LANCZOS)


def sound() -> np.ndarray:
    """One second, float [16000]: a rising tone, a pause, a chord."""
    time = np.arange(RATE) / RATE
    rising = np.sin(2 * np.pi * (220 * time + 110 / 0.45 * time**2)) * (time < 0.45)
    chord = sum(np.sin(2 * np.pi * tone * time) for tone in (261.63, 329.63, 392.0)) / 3
    edges = np.minimum(1, np.minimum(time, 1 - time) * 100)
    gate = np.clip(np.minimum(time, 0.45 - time) * 60, 0, 1)
    later = np.clip((time - 0.6) * 60, 0, 1) * np.exp(-3 * np.clip(time - 0.6, 0, None))
    return 0.6 * edges * (rising * gate + chord * later)


def main() -> None:
    """Write both beside this file."""
    picture().save(FOLDER / "house.png", optimize=True)
    with wave.open(str(FOLDER / "tones.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((sound() * 32767).astype("<i2").tobytes())


if __name__ == "__main__":
    main()
