"""Tensors of a safetensors file as NumPy arrays that stay in the file until they are read.

safetensors' own NumPy reader copies every tensor. The format (huggingface/safetensors) is eight
bytes with the length of a header in JSON, the header, and the numbers, row after row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


class TensorFile:
    """A file that safetensors has opened, and so checked, before."""

    def __init__(self, path: Path) -> None:
        # a copy on write: nobody writes, but torch warns of memory that it could not write to
        self._bytes = np.memmap(path, mode="c")
        size = int.from_bytes(self._bytes[:8].tobytes(), "little")
        self._first = 8 + size
        header = json.loads(self._bytes[8 : self._first].tobytes())
        self._entries: Mapping[str, Mapping[str, Any]] = header

    def take(self, key: str) -> NDArray[np.float32]:
        """One tensor in float32; of a file in float32, a view of it."""
        entry = self._entries[key]
        if entry["dtype"] not in _TYPES:
            raise ValueError(f"numbers of type {entry['dtype']}")
        start, stop = (self._first + offset for offset in entry["data_offsets"])
        raw = np.asarray(self._bytes[start:stop])
        if start % 8:  # numbers at odd addresses are slow
            raw = raw.copy()
        numbers = raw.view(_TYPES[entry["dtype"]])
        if entry["dtype"] == "BF16":  # the upper half of a float32
            numbers = (numbers.astype("<u4") << 16).view("<f4")
        return numbers.reshape(entry["shape"]).astype(np.float32, copy=False)
