"""A model's name -> a local folder with safe weights and a readable configuration, or that alone.

Pickled weights (``.bin``, ``.pt``, ...) can run any code when they are loaded, so they are refused;
so is code that comes with a model (``trust_remote_code`` is never set).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from attnviz.core.provenance import called
from attnviz.errors import ModelError, system_errors
from attnviz.files import contents, is_unfinished
from attnviz.models import adapters
from attnviz.models.configs.keys import shown
from attnviz.models.demo import DEMOS
from attnviz.models.hub import (
    CONFIG,
    CONVERT,
    PICKLES,
    TEMPLATES,
    bundled,
    download,
    download_config,
)

INDEX = "model.safetensors.index.json"
MAX_CONFIG_BYTES = 8 << 20
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?(@[\w.-]+)?")
_OPENED = (".json", ".txt", ".model", ".spm", ".jinja", ".tiktoken", ".safetensors")
"""Endings of the files of a model that attnviz, tokenizers or transformers open."""

OLD_NAMES = {"gamma": "weight", "beta": "bias"}
"""What old checkpoints call parts of a normalization, and how they are called now."""

_NUMBERS = ("F64", "F32", "F16", "BF16")  # how weights are stored that can be used as they are

_HALF = {"F16": "float16", "BF16": "bfloat16"}

_FOREIGN = (".h5", ".msgpack", ".gguf", ".onnx", ".tflite")


@dataclass(frozen=True, slots=True)
class Located:
    """A model on this machine."""

    name: str  # what the user calls it
    folder: Path  # where it lies
    config: dict[str, Any]  # its ``config.json``
    weights: tuple[Path, ...]  # its safetensors files
    tensors: int  # how many are stored in them
    # the folder of what is added to them, where the name is that of an adapter
    adapter: Path | None = None

    @property
    def precision(self) -> str:
        """The half precision that most of its numbers are stored in; else ``float32``."""
        from safetensors import safe_open

        counts: Counter[str] = Counter()
        for path in self.weights:
            with safe_open(path, framework="np") as file:
                for key in file.keys():  # noqa: SIM118 (no dict)
                    tensor = file.get_slice(key)
                    name = _HALF.get(tensor.get_dtype(), "float32")
                    counts[name] += math.prod(tensor.get_shape())
        return max(counts, key=lambda name: (counts[name], name == "float32"), default="float32")


def locate(model: str) -> Located:
    """Find a model: a bundled name, a folder, or an id on the hub, in this order."""
    folder, adapter = _opened(model, download)
    if adapter is None:
        return located(folder, model)
    pair = _both(model)
    name = model if pair is None else f"{called(pair[0])}+{called(str(adapter))}"
    return replace(located(folder, name), adapter=adapter)


def located(folder: Path, name: str) -> Located:
    """Return the same of a folder that is known, finished or not."""
    check_files(folder)
    config = read_config(folder)
    files, tensors = find_weights(folder, config)
    return Located(name, folder, config, files, tensors)


def locate_config(model: str) -> tuple[dict[str, Any], Path]:
    """Find a model's configuration, and nothing else of it."""
    if model.endswith(".json") and _local(model).is_file():
        return read_object(_local(model)), _local(model).parent
    folder, _ = _opened(model, download_config)
    return _config(folder), folder


def locate_adapter(model: str) -> tuple[Path, dict[str, Any], dict[str, Any], str] | None:
    """Find an adapter: its folder and settings, its base's configuration and name, or None."""
    folder, adapter = _opened(model, download_config)
    if adapter is None:
        return None
    base = next((name for name, path in DEMOS.items() if path == folder), str(folder))
    return adapter, read_object(adapter / adapters.CONFIG), _config(folder), base


def _opened(model: str, fetch: Callable[[str], Path]) -> tuple[Path, Path | None]:
    """Return the folder of a model, and that of an adapter that is added to it, or None.

    ``base+adapter`` names both; the folder of an adapter alone says itself what its base is.
    """
    pair = _both(model)
    folder = _folder(model, fetch) if pair is None else pair[1]
    with system_errors(ModelError, f"cannot read {folder}"):
        if is_unfinished(folder.resolve()):
            raise ModelError(f"{folder} was never finished and checked; delete it")
        is_model = (folder / CONFIG).is_file() or not (folder / adapters.CONFIG).is_file()
        if is_model and pair is None:
            return folder, None
        config = read_object(folder / adapters.CONFIG)
    return _folder(adapters.base_of(folder, config, pair and pair[0]), fetch), folder


def _both(model: str) -> tuple[str, Path] | None:
    """Split ``base+adapter``; None for any other name."""
    base, _, last = model.rpartition("+")
    if not base or _local(model).is_dir() or not (_local(last) / adapters.CONFIG).is_file():
        return None
    return base, _local(last)


def read_config(folder: Path) -> dict[str, Any]:
    """Return a folder's ``config.json``; ModelError if there is none or it cannot be read."""
    config = _config(folder)
    if not isinstance(config.get("model_type"), str):
        path = folder / "config.json"
        raise ModelError(f"{path} has no model_type; it is not a transformers configuration")
    named = config.get("architectures") or []
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise ModelError(
            f"{folder / CONFIG} has architectures {shown(config['architectures'])}; it must be a "
            "list of names"
        )
    return config


def check_files(folder: Path) -> None:
    """Refuse a folder in which a file of the model is anything but a regular file.

    A pipe would be waited for, a device read without end, and a link into nothing (the hub's cache
    after pruning) would count as a file that never was there.
    """
    with system_errors(ModelError, f"cannot read {folder}"):
        for path in sorted(folder.iterdir()):
            if path.suffix in _OPENED and not path.is_file():
                dangling = path.is_symlink() and not path.exists()
                kind = "a folder" if path.is_dir() else "a pipe or a device"
                raise ModelError(
                    f"{path} is {'a link to a file that is gone' if dangling else kind}",
                    remedy="download the model again",
                )


def _config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    with system_errors(ModelError, f"cannot read {folder}"):
        if path.is_file():
            return read_object(path)
    raise ModelError(
        "no config.json in {}; {model} takes a folder that transformers' save_pretrained wrote",
        folder,
        model=...,
    )


def find_weights(folder: Path, config: Mapping[str, Any]) -> tuple[tuple[Path, ...], int]:
    """Return the safetensors files that hold a model's weights, checked to be whole."""
    single = folder / "model.safetensors"
    if single.is_file():
        files = [single]
    elif (folder / INDEX).is_file():
        files = _shards(folder)
    else:
        files = sorted(folder.glob("*.safetensors"))
        if len(files) > 1:
            raise ModelError(
                f"{folder} has {len(files)} safetensors files and no {INDEX} that says how they "
                "belong together; add it, or leave one file"
            )
    if not files:
        raise ModelError(_no_weights(folder))
    quantized = bool(config.get("quantization_config"))
    names: dict[str, str] = {}
    for file in files:
        for key in _check_header(file, quantized=quantized):
            stem, _, last = key.rpartition(".")
            name = f"{stem}.{OLD_NAMES.get(last, last)}"
            if name in names:
                raise ModelError(
                    f"{folder} stores {name.lstrip('.')} twice, as {names[name]} and as {key}, and "
                    "nothing says which counts",
                    remedy="save the model again with one of them",
                )
            names[name] = key
    return tuple(files), len(names)


def _local(model: str) -> Path:
    """Return the path that a name stands for, if it can be one."""
    try:
        path = Path(model).expanduser()
        path.exists()
    except PermissionError as error:
        raise ModelError(f"cannot read {model}: {error.strerror}") from None
    except (OSError, ValueError, RuntimeError):  # too long, a null byte, an unknown home
        raise ModelError(f"{model[:60]!r} is neither a folder nor a hub id") from None
    return path


def _folder(model: str, fetch: Callable[[str], Path]) -> Path:
    if model in DEMOS:
        return DEMOS[model]
    path = _local(model)
    if path.is_dir():
        return path
    if path.exists():
        if path.suffix in (".npz", ".safetensors"):
            raise ModelError(
                "{} is a file; {model} takes the folder that contains it; for recorded attention "
                "use {recorded}",
                model,
                model=...,
                recorded=path,
            )
        raise ModelError(
            "{} is a file; {model} takes the folder that contains it", model, model=...
        )
    if not model.startswith((".", "~", "/")) and _HUB_ID.fullmatch(model):
        return fetch(model)
    raise ModelError(
        f"no folder {model!r}, and it is not a hub id such as openai-community/gpt2{bundled()}"
    )


def read_object(path: Path) -> dict[str, Any]:
    """Return a JSON object from a file; ModelError names the file and what is wrong."""
    try:
        size = path.stat().st_size
        if path.name == "config.json" and size > MAX_CONFIG_BYTES:
            raise ModelError(f"{path} has {size:,} bytes, too many for a configuration")
        value = json.loads(contents(path))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"cannot read {path}: {error}; download it again") from None
    if not isinstance(value, dict):
        raise ModelError(f"{path} holds no JSON object; download it again")
    return value


def _shards(folder: Path) -> list[Path]:
    shards = read_object(folder / INDEX).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(v, str) for v in shards.values()):
        raise ModelError(f"{folder / INDEX} has no weight_map; download it again")
    files = []
    for name in sorted(set(shards.values())):
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise ModelError(
                f"{folder / INDEX} names {name!r}, which is not a safetensors file beside it"
            )
        if not (folder / name).is_file():
            raise ModelError(f"{folder} lacks {name}, one part of its weights; download it again")
        files.append(folder / name)
    return files


def _no_weights(folder: Path) -> str:
    names = [path.name for path in sorted(folder.iterdir()) if path.is_file()]
    pickles = [name for name in names if name.endswith(PICKLES)]
    if pickles:
        return (
            f"{folder} has only pickled weights ({pickles[0]}), which can run code when they are "
            f"loaded; {CONVERT}"
        )
    unsupported = [name for name in names if name.endswith(_FOREIGN)]
    if unsupported:
        return (
            f"{folder} has no safetensors weights ({unsupported[0]} cannot be read); convert them"
        )
    return f"{folder} has no weights; add model.safetensors"


def _check_header(path: Path, *, quantized: bool) -> list[str]:
    """Return the names of the tensors in a file that is whole, and whose weights can be used."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            slices = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118 (no dict)
            for key, tensor in slices.items():
                if not (quantized or tensor.get_dtype() in _NUMBERS) and _is_weight(key, tensor):
                    raise ModelError(
                        f"{path} stores {key} as {tensor.get_dtype()}, and config.json has no "
                        "quantization_config that says what such numbers stand for",
                        remedy="take the model in float32, float16 or bfloat16",
                    )
            return list(slices)
    except (SafetensorError, OSError) as error:
        with path.open("rb") as raw:
            pointer = raw.read(20).startswith(b"version https://git")
        remedy = "git lfs pull fetches it" if pointer else "download it again"
        fault = "a git-lfs pointer, not the file" if pointer else f"truncated or damaged ({error})"
        raise ModelError(f"{path} is {fault}; {remedy}") from None


def _is_weight(key: str, tensor: Any) -> bool:
    """Whether a tensor is multiplied or added, and not a mask or a list of positions."""
    last = key.rpartition(".")[2]
    return last in ("weight", "gamma") or (
        last in ("bias", "beta") and len(tensor.get_shape()) == 1  # GPT-2's mask is a bias too
    )


class SmallFiles:
    """The files of a model beside its weights, as they were when it was loaded.

    They decide its tokens, their special ids, chat templates and what ends a text.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder, self._stamps = folder, _stamps(folder)

    def digest(self) -> str | None:
        """Hash every byte of them; None for none, or where one was changed since."""
        if self._folder is None:
            return None
        hashed = hashlib.sha256()
        try:
            for name in sorted(self._stamps):
                data = hashlib.sha256(contents(self._folder / name)).hexdigest()
                hashed.update(f"{name!r} {data}\n".encode())
        except OSError:
            return None
        return hashed.hexdigest() if _stamps(self._folder) == self._stamps else None


def _stamps(folder: Path | None) -> dict[str, tuple[int, int]]:
    """Size and time of the last change of each file beside the weights, by its name."""
    stamps: dict[str, tuple[int, int]] = {}
    for part in () if folder is None else (folder, folder / TEMPLATES):
        with contextlib.suppress(OSError):
            for path in part.iterdir():
                if path.suffix not in (".safetensors", *PICKLES, *_FOREIGN) and path.is_file():
                    status = path.stat()
                    name = str(path.relative_to(str(folder)))
                    stamps[name] = (status.st_size, status.st_mtime_ns)
    return stamps


def ends(folder: Path, config: Mapping[str, Any]) -> frozenset[int]:
    """Get the ids that end what a model writes, by its ``generation_config.json`` or its config."""
    path = folder / "generation_config.json"
    named: Any = None
    if path.is_file():
        try:
            named = json.loads(contents(path)).get("eos_token_id")
        except (OSError, ValueError, AttributeError, RecursionError) as error:
            raise ModelError(f"{path} cannot be read: {error}") from error
    named = config.get("eos_token_id") if named is None else named
    listed = named if isinstance(named, list) else [named]
    return frozenset(token_id for token_id in listed if isinstance(token_id, int))
