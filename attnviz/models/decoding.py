"""Picture and sound files as arrays; the libraries that read them are extras."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attnviz.errors import InputError, missing, system_errors
from attnviz.models.external_errors import one_line

MOST_PIXELS = 1 << 26
"""A larger picture is refused before it is unpacked."""

MOST_SECONDS = 3600
"""So is a longer sound, and one of more samples in all its channels."""
MOST_SAMPLES = 1 << 26
_BLOCK = 1 << 18  # samples of a channel to read at a time
_SIXTEEN_BITS = ("I;16", "I;16L", "I;16B", "I;16N")  # pillow's modes of grey pictures of 16 bits


def read_picture(path: Path) -> NDArray[np.uint8]:
    """A picture file, upright, as uint8 [height, width, 3] in RGB; of a film its first frame."""
    from PIL import Image, ImageOps

    check_file(path)
    try:
        with Image.open(path) as image:
            width, height = image.size
            if width * height > MOST_PIXELS:
                raise InputError(
                    f"{path} has {width:,} × {height:,} pixels; scale it down, models see a few "
                    "hundred a side"
                )
            upright = ImageOps.exif_transpose(image)
            if upright.mode in _SIXTEEN_BITS:  # Pillow would cut off what is above 255
                grey = (np.asarray(upright, np.uint16) >> 8).astype(np.uint8)
                return np.stack([grey] * 3, axis=-1)
            if upright.mode in ("I", "F"):
                raise InputError(
                    f"{path} has 32-bit pixels, whose range is unknown; save it with 8 or 16 bits"
                )
            if not upright.has_transparency_data:
                return np.array(upright.convert("RGB"), np.uint8)
            upright = upright.convert("RGBA")
    except InputError:
        raise
    except Exception as error:  # Pillow raises whatever its readers raise
        raise InputError(f"cannot read {path} as a picture: {one_line(error)}") from None
    ground = Image.new("RGBA", upright.size, "white")  # what is transparent is white
    return np.array(Image.alpha_composite(ground, upright).convert("RGB"), np.uint8)


def read_sound(path: Path, rate: int) -> NDArray[np.float32]:
    """A sound file as float32 [n] at a rate of samples a second; channels are averaged."""
    try:
        import soundfile
    except (ImportError, OSError):  # it is there, but not the library that it calls
        raise missing("soundfile", path) from None
    check_file(path)
    try:
        with soundfile.SoundFile(path) as file:
            if len(file) > MOST_SECONDS * file.samplerate:
                raise InputError(f"{path} is longer than an hour; cut it")
            if len(file) * file.channels > MOST_SAMPLES:
                raise InputError(
                    f"{path} has {len(file) * file.channels:,} samples in {file.channels} "
                    f"channels, more than {MOST_SAMPLES:,}; cut it or leave channels out"
                )
            blocks = file.blocks(_BLOCK, dtype="float32", always_2d=True)
            samples = np.concatenate([np.zeros(0, np.float32), *(b.mean(1) for b in blocks)])
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

    ``samples``: float32 [n] at ``own`` samples a second; ``rate``: samples a second of the result.
    """
    if own == rate:
        return samples
    count = max(1, round(len(samples) * rate / own))
    spectrum = np.fft.rfft(samples)
    low = spectrum[: count // 2 + 1]
    made = np.fft.irfft(low, count) * (count / len(samples))
    return made.astype(np.float32)


def check_file(path: Path) -> None:
    """Raise InputError for a file of a picture or a sound that is not there."""
    with system_errors(InputError, f"cannot read {path}"):
        if not path.is_file():
            what = "a folder" if path.is_dir() else "missing"
            raise InputError(f"{path} is {what}; give a file")
