"""Recorded attention as files: .npz and .safetensors."""

from __future__ import annotations

from pathlib import Path

from attnviz import files
from attnviz.captures.captured import Captured, captured
from attnviz.core.capture import Capture
from attnviz.models import recorded


def read_capture(path: str | Path, *, item: int | None = None) -> Captured:
    """Read recorded attention from .npz or .safetensors; see :mod:`attnviz.models.recorded`."""
    return captured(recorded.load(Path(path), item))


def write_capture(capture: Capture, path: str | Path) -> Path:
    """Write a capture of all layers as .npz or .safetensors; OutputError if that cannot be done."""
    path = Path(path)
    files.write(path, recorded.dump(capture, path.suffix))
    return path
