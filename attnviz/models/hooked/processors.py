"""What a checkpoint's own processor makes of pictures and sounds, and where its tokens stand.

A vision transformer cuts a picture into patches, row by row, and puts [CLS] and registers in front;
a speech model makes frames of equal length. Which tokens are which follows from the sizes in the
configuration and is compared with the number of tokens that the model makes of a sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnviz.core.media import Crop, Picture, Place, Sound
from attnviz.core.tokens import Tokens
from attnviz.errors import ModelError
from attnviz.models.containers import read_picture, read_sound
from attnviz.models.external_errors import refusing, silenced
from attnviz.models.hooked.picture_layout import GivenPicture, ramp, tiles_of, unscaled

DETECTS = "[DET{}]"
"""What tokens are called that stand behind the patches and become boxes (YOLOS)."""

_STEPS = (4, 8, 16, 32, 64)  # pixels that a cell of a feature map may stand for, to either side

REGISTER = "[REG{}]"
"""What register tokens are called (Darcet et al. 2023, arXiv:2309.16588)."""

_SAMPLE_PIXELS, _SAMPLE_SECONDS = (96, 128, 3), 0.5
_MOST_ADDED = 2  # [CLS] and a distillation token; registers come on top


@dataclass(frozen=True, slots=True)
class ProcessedMedia:
    """A file as a model takes it in."""

    # what goes into the model, by the names of its arguments, one item each
    features: Mapping[str, Tensor]
    # what it shows, where it is one; of sound, its spectrogram where that is cut into patches
    picture: Picture | None = None
    sound: Sound | None = None  # what it plays, where it is one


class Processors:
    """The processor of one model."""

    def __init__(self, processor: Any, config: Any, accepted: frozenset[str], sense: str) -> None:
        self._processor, self._config, self._accepted = processor, config, accepted
        self._step: int | None = None  # pixels from a cell of a feature map to the next
        self.sense = sense

    def fit(self, measure: Callable[[Mapping[str, Tensor]], int]) -> None:
        """Find out how many pixels a token stands for, where no patch_size says it."""
        if self.sense != "image" or getattr(self._config, "patch_size", None) is not None:
            return
        features = self._features(self._process(images=_noise()))
        length = measure(features)
        height, width = features["pixel_values"].shape[-2:]
        steps = [step for step in _STEPS if math.prod(_cells(height, width, step)) == length]
        if len(steps) != 1:
            raise ModelError(
                f"the model's configuration names no patch_size, and it makes {length} tokens of "
                f"{height} × {width} pixels; what they show is not known: run yours inside of "
                "attnviz.watch(model)"
            )
        self._step = steps[0]

    def sample(self) -> ProcessedMedia:
        """Noise, always the same."""
        draw = np.random.default_rng(0)
        if self.sense == "image":
            return self.see(_noise(), "")
        count = round(_SAMPLE_SECONDS * self.rate)
        return self.hear(draw.uniform(-0.5, 0.5, count).astype(np.float32), "")

    def read(self, path: Path) -> ProcessedMedia:
        """Give a file; raises as :func:`~attnviz.models.containers.read_picture` and read_sound."""
        if self.sense == "image":
            return self.see(read_picture(path), path.name)
        return self.hear(read_sound(path, self.rate), path.name)

    @property
    def rate(self) -> int:
        """Samples a second that the model was trained on."""
        return int(getattr(self._processor, "sampling_rate", 16000))

    def see(self, pixels: NDArray[np.uint8], name: str) -> ProcessedMedia:
        """Return what the model sees of a picture, uint8 [height, width, 3]."""
        features = self._features(self._process(images=pixels))
        values = features.get("pixel_values")
        if values is None or values.ndim != 4 or len(values) != 1:
            raise ModelError("the model's processor cuts a picture up in a way that is not known")
        grid = self._grid(values.shape[2], values.shape[3])
        picture = GivenPicture(pixels, name)
        image = unscaled(values[0], self._processor)
        return ProcessedMedia(features, Picture(image, *grid, name, self._crops(picture, *grid)))

    def _crops(self, picture: GivenPicture, rows: int, columns: int) -> tuple[Crop, ...]:
        """Return what the patches show of the picture; nothing where that is not known."""
        processed = self._process(images=ramp(picture.size, 1))
        tiles = tiles_of(processed["pixel_values"], [picture.size], self._processor)
        if tiles is None or tiles[0] is None:
            return ()
        return (Crop(1, picture.name, picture.size, tiles[0][1], rows, columns),)

    def hear(self, samples: NDArray[np.float32], name: str) -> ProcessedMedia:
        """Return what the model hears of a sound, float32 [n] at its own rate."""
        features = self._features(self._process(samples, sampling_rate=self.rate))
        sound = Sound(samples, self.rate, name)
        values = features.get("input_values")
        if values is None or values.ndim != 3:
            return ProcessedMedia(features, sound=sound)
        grid = self._grid(values.shape[2], values.shape[1])  # frequencies and times
        return ProcessedMedia(features, Picture(_grey(values[0].T), *grid, name), sound)

    def tokens(self, sensed: ProcessedMedia, length: int) -> Tokens:
        """Give the patches or frames of something, ``length`` of them with what is put in front."""
        if sensed.picture is not None:
            return self._patches(sensed.picture, length)
        assert sensed.sound is not None
        features = next(iter(sensed.features.values()))
        if features.ndim == 2:
            step, width = self._stride()
            seconds = [(n * step + width / 2) / self.rate for n in range(length)]
        else:
            hop = int(getattr(self._processor, "hop_length", 160))
            bands = int(getattr(self._processor, "feature_size", 0))
            _, first, second = features.shape
            duration = (second if first == bands else first) * hop / self.rate
            seconds = [(n + 0.5) * duration / length for n in range(length)]
        beyond = tuple(second >= sensed.sound.seconds for second in seconds)
        beyond = (False, *beyond[1:])
        names = tuple(
            "[PAD]" if padding else f"{second:.2f}s"
            for second, padding in zip(seconds, beyond, strict=True)
        )
        places: tuple[Place, ...] = tuple((second,) for second in seconds)
        return Tokens(names, special=beyond, words=tuple(range(length)), places=places)

    def _patches(self, picture: Picture, length: int) -> Tokens:
        """[CLS] and whatever else stands in front, then row by row."""
        added = length - picture.rows * picture.columns
        registers = int(getattr(self._config, "num_register_tokens", 0) or 0)
        behind = int(getattr(self._config, "num_detection_tokens", 0) or 0)
        added -= behind
        if not 0 <= added - registers <= _MOST_ADDED:
            raise ModelError(
                f"this model makes {length} tokens of {picture.rows} × {picture.columns} patches; "
                "which of them are patches is not known; run yours inside of attnviz.watch(model)"
            )
        front = ["[CLS]", "[DIST]"][: added - registers]
        front[1:1] = [REGISTER.format(n + 1) for n in range(registers)]
        patches = [(r, c) for r in range(picture.rows) for c in range(picture.columns)]
        detecting = [DETECTS.format(n + 1) for n in range(behind)]
        names = (*front, *(f"{r},{c}" for r, c in patches), *detecting)
        places: tuple[Place, ...] = (*[()] * added, *patches, *[()] * behind)
        special = (True,) * added + (False,) * len(patches) + (True,) * behind
        words = (-1,) * added + tuple(range(len(patches))) + (-1,) * behind
        return Tokens(names, special=special, words=words, places=places)

    def _process(self, *media: Any, **options: Any) -> Mapping[str, Any]:
        """Return what the processor makes of a picture or a sound."""
        kind = "picture" if self.sense == "image" else "sound"
        with silenced(), refusing(f"the model's processor cannot prepare this {kind}"):
            return self._processor(*media, **options, return_tensors="pt")

    def _features(self, processed: Mapping[str, Any]) -> dict[str, Tensor]:
        features = {name: value for name, value in processed.items() if name in self._accepted}
        if "attention_mask" in features and bool(features["attention_mask"].all()):
            del features["attention_mask"]  # one item alone has no padding
        return {name: value for name, value in features.items() if isinstance(value, Tensor)}

    def _grid(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of patches; they overlap where a configuration has strides."""
        if self._step is not None:
            return _cells(height, width, self._step)
        size = getattr(self._config, "patch_size", None)
        patch_height, patch_width = size if isinstance(size, list | tuple) else (size, size)
        if not isinstance(patch_height, int) or not isinstance(patch_width, int):
            raise ModelError("the model's configuration names no patch_size")
        steps = (
            getattr(self._config, "frequency_stride", patch_height),
            getattr(self._config, "time_stride", patch_width),
        )
        return (height - patch_height) // steps[0] + 1, (width - patch_width) // steps[1] + 1

    def _stride(self) -> tuple[int, int]:
        """Return samples from one frame to the next, and how many one frame takes in."""
        step = width = 1
        for kernel, stride in zip(self._config.conv_kernel, self._config.conv_stride, strict=True):
            width += (kernel - 1) * step
            step *= stride
        return step, width


def _noise() -> NDArray[np.uint8]:
    """Return a picture [height, width, 3], always the same."""
    return np.random.default_rng(0).integers(0, 256, _SAMPLE_PIXELS, np.uint8)


def _cells(height: int, width: int, step: int) -> tuple[int, int]:
    """Rows and columns of a feature map with a cell for every ``step`` pixels."""
    return math.ceil(height / step), math.ceil(width / step)


def load_processors(
    folder: Path, name: str, config: Any, accepted: frozenset[str], sense: str
) -> Processors:
    """Return the processor in a model's folder."""
    if not any((folder / file).is_file() for file in _FILES):
        raise ModelError(
            f"{name} reads {'pictures' if sense == 'image' else 'sound'}, and its folder does not "
            f"say how to prepare them; add {_FILES[0]}"
        )
    from transformers import AutoFeatureExtractor, AutoImageProcessor

    kind: Any = AutoImageProcessor if sense == "image" else AutoFeatureExtractor
    with silenced(), refusing(f"the processor of {name} cannot be loaded"):
        processor = kind.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    return Processors(processor, config, accepted, sense)


_FILES = ("preprocessor_config.json", "processor_config.json")


def _grey(values: Tensor) -> NDArray[np.uint8]:
    """Return a spectrogram [frequencies, times] as a grey picture, the loudest white."""
    scaled = values.float()
    low, high = scaled.min(), scaled.max()
    scaled = (scaled - low) / (high - low).clamp_min(1e-9) * 255
    grey: NDArray[np.uint8] = scaled.round().to(torch.uint8).numpy()
    return np.ascontiguousarray(np.repeat(grey[..., None], 3, axis=2))
