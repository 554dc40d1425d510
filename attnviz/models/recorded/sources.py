"""Files and folders of other tools: ``.npz``, ``.safetensors``, ``.pt``, ``.npy``, ``.json``.

No file runs code: pickles are read as far as torch's ``weights_only`` goes, tensors in lists and
dictionaries, and NumPy's not at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnviz.core.media import PATCH
from attnviz.core.tokens import Tokens
from attnviz.errors import InputError, UsageError, system_errors
from attnviz.files import contents, open_regular
from attnviz.models.containers import (
    check_packed,
    list_arrays,
    read_array,
    read_arrays,
    read_tensors,
)
from attnviz.models.external_errors import one_line
from attnviz.models.recorded import arrays, format, layouts, other_tools
from attnviz.models.recorded.format import BY_KIND, JSON, PLAIN, SUFFIXES
from attnviz.models.recorded.other_tools import Imported

TORCH = (".pt", ".pth")
KNOWN = (*SUFFIXES, *TORCH, ".npy", JSON)
"""Suffixes of files that attention is read from."""

_TEXTS = ("tokens.json", "tokens.txt")
_LONGEST = 64 << 20
"""Bytes of a file of tokens."""
_SHAPE = re.compile(r" \[[\d, ]*\]$")


def is_recording(path: Path) -> bool:
    """Whether a file is in attnviz's own format, or claims to be, and no other tool's."""
    if _is_folder(path) or path.suffix not in (*SUFFIXES, JSON):
        return False
    if path.suffix == JSON:
        return format.is_recording(format.read_document(path))
    if not path.is_file():
        return True  # which says so
    there = _names(path)
    return bool({*PLAIN, *BY_KIND} & set(there)) or not other_tools.wanted(there)


def find(path: Path, item: int | None = None) -> Imported:
    """The attention in a file or folder of another tool."""
    if _is_folder(path):
        return _folder(path)
    suffix = path.suffix.lower()
    if suffix not in KNOWN:
        raise InputError(
            f"cannot read {path}: attention is recorded in {', '.join(KNOWN)} or a folder of .npy"
        )
    if suffix == JSON:
        return _json(path, item)
    if suffix in TORCH:
        return imported(_torch(path), path.name)
    if suffix == ".npy":
        return imported(read_array(path), path.name)
    names = set(other_tools.wanted(_names(path)))
    read = read_arrays(path, names) if suffix == ".npz" else read_tensors(path, names)
    return other_tools.from_names(read)


def imported(given: Any, name: str = "") -> Imported:
    """The attention in what somebody has in memory."""
    tensors = getattr(given, "cache_dict", given)  # TransformerLens
    if isinstance(tensors, Mapping):
        if not any(tensors.get(name) is not None for name in arrays.NAMES):
            return other_tools.from_names(tensors)
        texts = tensors.get("tokens")
        listed = isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts)
        tokens = arrays.named(list(texts)) if listed and texts else None
        return Imported("a model's output", output=tensors, tokens=tokens)
    if isinstance(given, list | tuple) or layouts.is_array(given):
        if not len(given):
            raise InputError(f"{name or 'this list'} holds no layers; give at least one")
        return Imported("layers in a list", output=given)
    raise UsageError(
        "no attention can be read from {}; give a path, a cache or dictionary of tensors, or a "
        "list of layers",
        type(given).__name__,
    )


def read_tokens(path: Path) -> Tokens:
    """The texts of tokens in a file: a JSON list of strings (null for a patch), or one a line."""
    from attnviz.core.record import parsed

    with system_errors(InputError, f"cannot read {path}"):
        data = contents(path, _LONGEST)
    if path.suffix.lower() == JSON:
        listed = parsed(data, path.name)
    else:
        try:
            listed = data.decode().removesuffix("\n").split("\n")
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not UTF-8: {one_line(error)}") from None
    if isinstance(listed, list):
        listed = [PATCH if text is None else text for text in listed]
    if not isinstance(listed, list) or not all(isinstance(text, str) for text in listed):
        raise InputError(f"{path} is not a list of strings; give the text of each token")
    return arrays.named(listed)


def _is_folder(path: Path) -> bool:
    """Whether it is one; InputError for a name that no file can have."""
    with system_errors(InputError, f"cannot read {path}"):
        return path.is_dir()


def _names(path: Path) -> list[str]:
    return [_SHAPE.sub("", entry) for entry in list_arrays(path)]


def _json(path: Path, item: int | None) -> Imported:
    read = format.read_document(path)
    if not other_tools.is_inseq(read):
        raise InputError(
            f"{path} is no recorded attention: neither a recording (schema "
            f"{format.Recording.schema}) nor saved by Inseq"
        )
    return other_tools.from_inseq(
        read, layouts.choose_item(max(other_tools.count_sequences(read), 1), item), str(path)
    )


def items(path: Path) -> int:
    """How many items a file or folder of another tool holds; raises as :func:`find`."""
    if not _is_folder(path) and path.suffix.lower() == JSON:
        return other_tools.count_sequences(format.read_document(path)) or 1
    return find(path).items()


def _torch(path: Path) -> Any:
    import pickle

    import torch

    with system_errors(InputError, f"cannot read {path}"):
        file = open_regular(path)
    check_packed(path)
    try:
        with file:
            return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise InputError(
            f"{path} holds a pickle of more than tensors, which can run code and is not loaded; "
            "save a dictionary of tensors, such as torch.save(cache.cache_dict, ...)"
        ) from None
    except Exception as error:
        raise InputError(f"cannot read {path}: {one_line(error)}; save it again") from None


def _folder(path: Path) -> Imported:
    """Arrays by the names of their files, with ``tokens.json`` or ``tokens.txt`` beside them."""
    with system_errors(InputError, f"cannot read {path}"):
        files = sorted(path.glob("*.npy"))
    if not files:
        raise InputError(f"{path} is a folder without .npy files; give a file, or one a layer")
    tokens, source = (
        next((read_tokens(path / f"{p}{n}") for n in _TEXTS if (path / f"{p}{n}").is_file()), None)
        for p in ("", "source_")
    )
    if len(files) == 1:
        found = imported(read_array(files[0]), path.name)
    else:
        found = other_tools.from_names(
            {file.stem: read_array(file) for file in files}, "NumPy arrays in a folder"
        )
    return replace(found, tokens=tokens, source_tokens=source)
