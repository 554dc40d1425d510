"""Checkpoints that come with attnviz, found by name before any folder or hub is asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

DEMOS: Mapping[str, Path] = {
    path.name: path
    for path in sorted(Path(__file__).parent.iterdir())
    if (path / "config.json").is_file()
}
"""Name -> folder with config.json, safetensors weights and tokenizer.json."""
