"""What an export reads: texts, or recorded attention."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from attnviz.captures.files import read_items
from attnviz.core.capture import Capture
from attnviz.corpus.texts import InvalidRecord, Text
from attnviz.errors import InputError, UsageError
from attnviz.models import recorded


@dataclass(frozen=True, eq=False)
class RecordedInput:
    """One item of recorded attention; see :class:`attnviz.corpus.texts.Text`."""

    number: int
    place: str
    capture: Capture
    name: None = None

    @property
    def text(self) -> str:
        """The tokens in a row."""
        sides = next(iter(self.capture.inputs.sides.values()))
        return " ".join(sides.queries.texts)

    @cached_property
    def digest(self) -> str:
        """What tells this input from another: a hash of everything in it."""
        sha256_ = hashlib.sha256(json.dumps([self.name, self.text]).encode())
        for weights in self.capture.maps.values():
            sha256_.update(weights.tobytes())
        return sha256_.hexdigest()[:32]


Input = Text | RecordedInput


_SENSED = {
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff"), "picture"),
    **dict.fromkeys((".wav", ".flac", ".mp3", ".ogg", ".m4a"), "sound"),
}
"""What files are by their names that hold no text."""


def check_texts(names: Sequence[str]) -> None:
    """Raise UsageError where a file to be read as text looks like something else."""
    for name in names:
        suffix = Path(name).suffix.lower()
        if suffix in recorded.SUFFIXES:
            raise UsageError(
                "{} looks like recorded attention; add {recorded}", name, recorded=True
            )
        if suffix in _SENSED:
            raise UsageError(
                "{} is a {}, and an export reads texts",
                name,
                _SENSED[suffix],
                remedy="capture it first, then give the capture with {recorded}",
                recorded=True,
            )


def read_recorded(names: Sequence[str]) -> Iterator[RecordedInput | InvalidRecord]:
    """Every item of recorded attention in some files."""
    number = 0
    for name in names:
        for index, item in enumerate(read_items(Path(name))):
            number += 1
            if isinstance(item, InputError):
                yield InvalidRecord(number, name, str(item).removeprefix(f"cannot read {name}: "))
            else:
                yield RecordedInput(number, f"{name}:{index}", item)
