"""Picture and sound files as arrays; the libraries that read them are extras."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.errors import InputError, UsageError, system_errors
from attnviz.models.containers import one_line

MOST_PIXELS = 1 << 27
"""A larger picture is refused before it is unpacked."""

MOST_SECONDS = 3600
"""So is a longer sound."""


def read_picture(path: Path) -> NDArray[np.uint8]:
    """A picture file, upright, as uint8 [height, width, 3] in RGB; of a film its first frame.

    Raises:
        UsageError: Pillow is not installed.
        InputError: not there, no picture, or one of too many pixels.
    """
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise UsageError("{} needs Pillow; install attnviz[image]", path) from None
    _check(path)
    try:
        with Image.open(path) as image:
            width, height = image.size
            if width * height > MOST_PIXELS:
                raise InputError(
                    f"{path} has {width:,} × {height:,} pixels; scale it down, models see a few "
                    "hundred a side"
                )
            upright = ImageOps.exif_transpose(image).convert("RGBA")
    except InputError:
        raise
    except Exception as error:  # Pillow raises whatever its readers raise
        raise InputError(f"cannot read {path} as a picture: {one_line(error)}") from None
    ground = Image.new("RGBA", upright.size, "white")  # what is transparent is white
    return np.array(Image.alpha_composite(ground, upright).convert("RGB"), np.uint8)


def read_sound(path: Path, rate: int) -> NDArray[np.float32]:
    """A sound file as float32 [n] at a rate of samples a second; channels are averaged.

    Raises:
        UsageError: soundfile is not installed.
        InputError: not there, no sound, silent for want of samples, or too long.
    """
    try:
        import soundfile
    except (ImportError, OSError):  # it is there, but not the library that it calls
        raise UsageError("{} needs soundfile; install attnviz[audio]", path) from None
    _check(path)
    try:
        with soundfile.SoundFile(path) as file:
            if len(file) > MOST_SECONDS * file.samplerate:
                raise InputError(f"{path} is longer than an hour; cut it")
            samples = file.read(dtype="float32", always_2d=True).mean(1)
            own = int(file.samplerate)
    except InputError:
        raise
    except Exception as error:  # libsndfile's errors are of several kinds
        raise InputError(f"cannot read {path} as a sound: {one_line(error)}") from None
    if not len(samples) or not np.isfinite(samples).all():
        raise InputError(f"{path} holds no sound")
    return resampled(samples, own, rate)


def resampled(samples: NDArray[np.float32], own: int, rate: int) -> NDArray[np.float32]:
    """A sound at another rate, by cutting or lengthening its spectrum.

    Args:
        samples: float32 [n] at ``own`` samples a second.
        own: see ``samples``.
        rate: samples a second of the result.
    """
    if own == rate:
        return samples
    count = max(1, round(len(samples) * rate / own))
    spectrum = np.fft.rfft(samples)
    kept = spectrum[: count // 2 + 1]
    made = np.fft.irfft(kept, count) * (count / len(samples))
    return made.astype(np.float32)


def _check(path: Path) -> Any:
    with system_errors(InputError, f"cannot read {path}"):
        if not path.is_file():
            what = "a folder" if path.is_dir() else "not there"
            raise InputError(f"{path} is {what}; give a file")
