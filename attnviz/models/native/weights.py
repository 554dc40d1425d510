"""The tensors of a checkpoint, under the names that our tables use.

Published checkpoints store one model in many ways: with or without a prefix (``bert.``,
``transformer.``), with ``LayerNorm.gamma`` for ``LayerNorm.weight``, in one file or in several,
with heads of some task beside it. All of that ends here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.errors import ModelError
from attnviz.models.folder import OLD_NAMES
from attnviz.models.native.config import NativeFamily, Unsupported

if TYPE_CHECKING:
    import torch

    from attnviz.models.native.config import Config


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


class Weights:
    """Open safetensors files; a context manager.

    ``placed``: where tensors go, and in which precision; None for NumPy arrays in float32.
    """

    def __init__(
        self,
        files: Sequence[Path],
        family: NativeFamily,
        target: tuple[torch.device, torch.dtype] | None = None,
    ) -> None:
        self._stack = ExitStack()
        self._family, self._placed = family, target
        self._where: dict[str, tuple[Any, Any, str]] = {}
        self._taken: set[str] = set()
        for path in files:
            framework = "np" if target is None else "pt"
            file = self._stack.enter_context(safe_open(path, framework=framework))
            tensors = TensorFile(path) if target is None else file
            for key in file.keys():  # noqa: SIM118 (not a dict)
                stem, _, last = key.rpartition(".")
                name = f"{stem}.{OLD_NAMES.get(last, last)}"
                self._where[name] = (file, tensors, key)
        self._prefix = self._find_prefix(f"{family.tensors['tokens']}.weight")

    def __enter__(self) -> Weights:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def has(self, name: str) -> bool:
        """Whether there is a tensor of this full name."""
        return name in self._where

    def take(self, name: str, *shape: int) -> Array:
        """One tensor of the model itself, in the device and dtype asked for."""
        if not self.has(self._prefix + name):
            raise Unsupported(f"its weights lack {name}")
        self._taken.add(name)
        return self.take_whole(self._prefix + name, *shape)

    def take_whole(self, name: str, *shape: int) -> Array:
        """One tensor by its full name, as :meth:`take`; it must be there."""
        file, tensors, key = self._where[name]
        actual = tuple(file.get_slice(key).get_shape())
        if actual != shape:
            raise ModelError(
                f"weight {key} has shape {list(actual)}, config.json says {list(shape)}; the two "
                "files belong to different models"
            )
        try:
            tensor: Array = tensors.take(key) if self._placed is None else file.get_tensor(key)
        except (SafetensorError, RuntimeError, OSError, ValueError) as error:
            raise ModelError(f"cannot read weight {key}: {error}; download it again") from None
        return tensor if self._placed is None else tensor.to(*self._placed)

    def check_copies(self, config: Config) -> None:
        """Refuse tied tensors that are stored under two names with other numbers in each."""
        names = config.family.words
        head, own = names["table"], f"{names['table']}.bias"
        pairs = [(f"{self._prefix}{config.family.tensors['tokens']}.weight", f"{head}.weight")]
        pairs += [(names["bias"], own)] if names.get("bias", own) != own else []
        for first, second in pairs if config.tied else ():
            if not (self.has(first) and self.has(second)):
                continue
            shapes = [self._where[name][0].get_slice(self._where[name][2]).get_shape()
                      for name in (first, second)]  # fmt: skip
            ours, other = (
                self.take_whole(name, *shape)
                for name, shape in zip((first, second), shapes, strict=True)
            )
            if shapes[0] != shapes[1] or not arrays.of(ours).equal(ours, other):
                raise ModelError(
                    f"its weights have {second}, which config.json says is {first}, and the two "
                    "differ",
                    remedy="say tie_word_embeddings false in config.json, or save one of them",
                )

    def check_all_taken(self) -> None:
        """Raise Unsupported if the model has tensors that nobody asked for."""
        for name in sorted(self._where):
            if not name.startswith(self._prefix):
                continue
            own = name.removeprefix(self._prefix)
            known = own in self._taken or self._family.buffers.fullmatch(own)
            if own.startswith(self._family.roots) and not known:
                raise Unsupported(f"its weights have {own}, which the native backend does not know")

    def _find_prefix(self, name: str) -> str:
        keys = [key for key in self._where if key == name or key.endswith(f".{name}")]
        if len(keys) != 1:
            raise Unsupported(f"its weights have {len(keys)} tensors called {name}")
        return keys[0].removesuffix(name)
