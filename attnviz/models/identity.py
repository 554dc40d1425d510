"""What a model is, beyond its name: no run must go on with other weights."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from attnviz.errors import ModelError, system_errors
from attnviz.files import open_regular
from attnviz.models.folder import locate
from attnviz.models.fresh_config import FreshConfig

_WHOLE = 1 << 20
_PIECES = 64
_SUFFIXES = (".json", ".safetensors", ".txt", ".model")


def identity(model: object) -> Mapping[str, Any]:
    """The options of a fresh layer, or a hash of a checkpoint's files."""
    if model == "fresh":
        model = FreshConfig()
    if is_dataclass(model) and not isinstance(model, type):
        return {"fresh": asdict(model)}
    if isinstance(model, str | Path):
        located = locate(str(model))
        added = {} if located.adapter is None else {"adapter": _hash(located.adapter)}
        return {"checkpoint": _hash(located.folder)} | added
    return {}


def _hash(folder: Path) -> str:
    """A hash of a model's files: small ones whole, large ones by their size and pieces of them."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES):
        with system_errors(ModelError, f"cannot read {path}"), open_regular(path) as file:
            size = path.stat().st_size
            digest.update(f"{path.name} {size}\n".encode())
            if size <= _WHOLE:
                digest.update(file.read())
                continue
            for piece in range(_PIECES):
                file.seek(piece * (size - (1 << 14)) // (_PIECES - 1))
                digest.update(file.read(1 << 14))
    return digest.hexdigest()[:32]
