"""The tensors of a checkpoint, under the names that our tables use.

Published checkpoints store one model in many ways: with or without a prefix (``bert.``,
``transformer.``), with ``LayerNorm.gamma`` for ``LayerNorm.weight``, in one file or in several,
with heads of some task beside it. All of that ends here. So do random weights in their place.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.errors import ModelError
from attnviz.models.controls import shuffled
from attnviz.models.folder import OLD_NAMES
from attnviz.models.native.config import GPT2, Config, NativeFamily, Unsupported

if TYPE_CHECKING:
    import torch

_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}


class TensorFile:
    """A file that safetensors has opened, and so checked, before; it is mapped, to be read only.

    What the system reads of it, it may drop again, so that the file may be larger than memory.
    """

    def __init__(self, path: Path) -> None:
        self._bytes = np.memmap(path, mode="r")
        size = int.from_bytes(self._bytes[:8].tobytes(), "little")
        self._first = 8 + size
        header = json.loads(self._bytes[8 : self._first].tobytes())
        self._entries: Mapping[str, Mapping[str, Any]] = header

    def shape(self, key: str) -> tuple[int, ...]:
        """Of a tensor."""
        return tuple(self._entries[key]["shape"])

    def size(self, key: str, target: tuple[torch.device, torch.dtype] | None) -> int:
        """Bytes of memory that a tensor takes beside the file; 0 for a view of it."""
        entry = self._entries[key]
        dtype = "float32" if target is None else str(target[1]).removeprefix("torch.")
        mapped = target is None or target[0].type == "cpu"
        if mapped and dtype == _NAMES.get(entry["dtype"]) and self._is_aligned(entry):
            return 0
        count: int = math.prod(entry["shape"])
        return count * (4 if dtype == "float32" else 2)

    def take(self, key: str) -> NDArray[np.float32]:
        """One tensor in float32; of a file in float32, a view of it."""
        entry = self._entries[key]
        numbers = self._raw(entry).view(_TYPES[entry["dtype"]])
        if entry["dtype"] == "BF16":  # the upper half of a float32
            numbers = (numbers.astype("<u4") << 16).view("<f4")
        return numbers.reshape(entry["shape"]).astype(np.float32, copy=False)

    def take_torch(self, key: str) -> torch.Tensor:
        """One tensor as it is stored, a view of the file."""
        import torch

        entry = self._entries[key]
        raw = arrays.to_torch(arrays.array(self._raw(entry)))
        return raw.view(getattr(torch, _NAMES[entry["dtype"]])).reshape(entry["shape"])

    def _raw(self, entry: Mapping[str, Any]) -> NDArray[np.uint8]:
        """Return the bytes of a tensor."""
        if entry["dtype"] not in _TYPES:
            raise ValueError(f"numbers of type {entry['dtype']}")
        start, stop = (self._first + offset for offset in entry["data_offsets"])
        raw = np.asarray(self._bytes[start:stop])
        return raw if self._is_aligned(entry) else raw.copy()

    def _is_aligned(self, entry: Mapping[str, Any]) -> bool:
        """Whether a tensor begins at an even address; numbers at odd ones are slow."""
        start: int = self._first + entry["data_offsets"][0]
        return start % 8 == 0


class Weights:
    """Open safetensors files.

    ``target``: where tensors go, and in which precision; None for NumPy arrays in float32.
    """

    def __init__(
        self,
        files: Sequence[Path],
        family: NativeFamily,
        target: tuple[torch.device, torch.dtype] | None = None,
    ) -> None:
        self._family, self._target = family, target
        self._where: dict[str, tuple[TensorFile, str]] = {}
        self._taken: set[str] = set()
        self._reads = True
        for path in files:
            with safe_open(path, framework="np") as file:
                tensors, keys = TensorFile(path), list(file.keys())
            for key in keys:
                stem, _, last = key.rpartition(".")
                name = f"{stem}.{OLD_NAMES.get(last, last)}"
                self._where[name] = (tensors, key)
        self._prefix = self._find_prefix(f"{family.tensors['tokens']}.weight")

    @property
    def size(self) -> int:
        """Bytes of memory that all tensors take beside the files."""
        return sum(file.size(key, self._target) for file, key in self._where.values())

    @contextmanager
    def unread(self) -> Iterator[None]:
        """Look at names and shapes alone inside the ``with`` block, and give nothing."""
        self._reads = False
        try:
            yield
        finally:
            self._reads = True

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
        tensors, key = self._where[name]
        actual = tensors.shape(key)
        if actual != shape:
            raise ModelError(
                f"weight {key} has shape {list(actual)}, config.json says {list(shape)}; the two "
                "files belong to different models"
            )
        try:
            if not self._reads:
                return arrays.array(np.empty(0, np.float32))
            if self._target is None:
                return arrays.array(tensors.take(key))
            return tensors.take_torch(key).to(*self._target)
        except (RuntimeError, OSError, ValueError) as error:
            raise ModelError(f"cannot read weight {key}: {error}; download it again") from None

    def check_copies(self, config: Config) -> None:
        """Refuse tied tensors that are stored under two names with other numbers in each."""
        names = config.family.words
        head, head_bias = names["table"], f"{names['table']}.bias"
        pairs = [(f"{self._prefix}{config.family.tensors['tokens']}.weight", f"{head}.weight")]
        pairs += [(names["bias"], head_bias)] if names.get("bias", head_bias) != head_bias else []
        for first, second in pairs if config.tied else ():
            if not (self.has(first) and self.has(second)):
                continue
            files = [self._where[name] for name in (first, second)]
            shapes = [file.shape(key) for file, key in files]
            values, copy = (
                self.take_whole(name, *shape)
                for name, shape in zip((first, second), shapes, strict=True)
            )
            if shapes[0] != shapes[1] or not arrays.of(values).equal(values, copy):
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
            key = name.removeprefix(self._prefix)
            used = key in self._taken or self._family.buffers.fullmatch(key)
            if key.startswith(self._family.roots) and not used:
                raise Unsupported(f"its weights have {key}, which the native backend does not know")

    def _find_prefix(self, name: str) -> str:
        keys = [key for key in self._where if key == name or key.endswith(f".{name}")]
        if len(keys) != 1:
            raise Unsupported(f"its weights have {len(keys)} tensors called {name}")
        return keys[0].removesuffix(name)


Numbers = NDArray[np.float32]

NO_WORDS = "its weights are untrained"
_RANGE = 0.02
_GROUP, _BITS = 16, 24


class NormalDraws:
    """What ``torch.randn`` draws of a seed, in float32, without torch: equal to 1e-6.

    Mersenne Twister (Matsumoto & Nishimura 1998), of each output the low 24 bits, and the two
    numbers that Box & Muller (1958) make of each two, in groups of 16.
    """

    def __init__(self, seed: int) -> None:
        self._twister = np.random.RandomState(seed & 0xFFFFFFFF)

    def take(self, *shape: int) -> Numbers:
        """Return the next numbers."""
        count = math.prod(shape)
        uniform = self._uniform(max(count, _GROUP))
        full = len(uniform) - len(uniform) % _GROUP
        normal = _normal(uniform[:full])
        if len(uniform) > full:  # the last sixteen are drawn anew
            head = normal[: len(uniform) - _GROUP]
            normal = np.concatenate([head, _normal(self._uniform(_GROUP))])
        return normal[:count].reshape(shape)

    def _uniform(self, count: int) -> Numbers:
        """From 0 to before 1."""
        bits = self._twister.randint(0, 1 << 32, count, np.uint32)
        bits &= (1 << _BITS) - 1
        return bits.astype(np.float32) * np.float32(2.0**-_BITS)


def _normal(uniform: Numbers) -> Numbers:
    """Return normal numbers of as many uniform ones, [16 n]: 8 radii and 8 angles make 16."""
    radius, angle = uniform.reshape(-1, 2, _GROUP // 2).swapaxes(0, 1)
    radius = np.sqrt(np.float32(-2) * np.log(1 - radius))
    angle = np.float32(2 * math.pi) * angle
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)


class DrawnWeights:
    """Weights as transformers draws them before training, under the names of a checkpoint.

    Matrices and embeddings are normal with the configuration's ``initializer_range``, biases 0,
    normalizations 1. In GPT-2 what is added to the residual stream is smaller by √(2 layers)
    (Radford et al. 2019).

    ``target``: where tensors go, and in which precision; None for NumPy arrays in float32.
    """

    def __init__(
        self,
        raw: Mapping[str, Any],
        config: Config,
        seed: int,
        target: tuple[torch.device, torch.dtype] | None,
    ) -> None:
        self._draws, self._target = NormalDraws(seed), target
        self._range = float(raw.get("initializer_range", _RANGE))
        self._added = (2 * config.layers) ** -0.5 if config.family is GPT2 else 1.0

    def take(self, name: str, *shape: int) -> Array:
        """Return the tensor of this name."""
        if name.endswith(".bias"):
            values = np.zeros(shape, np.float32)
        elif len(shape) == 1:
            values = np.ones(shape, np.float32)
        else:
            scale = self._range * (self._added if name.endswith("c_proj.weight") else 1.0)
            values = self._draws.take(*shape)
            values *= np.float32(scale)
        tensor = arrays.array(values)
        return tensor if self._target is None else arrays.to_torch(tensor).to(*self._target)


class ShuffledWeights(Weights):
    """The tensors of a checkpoint, the entries of each in random order, which torch draws."""

    def __init__(self, *origin: Any, seed: int) -> None:
        import torch

        super().__init__(*origin)
        self._generator = torch.Generator().manual_seed(seed)

    def take(self, name: str, *shape: int) -> Array:
        """Return the tensor of this name."""
        return shuffled(super().take(name, *shape), self._generator)
