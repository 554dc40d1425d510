"""A folder in, a folder out: the checkpoint without some heads, as plain transformers loads it.

It is built in a hidden folder beside its place, whose name says that it is unfinished, and takes
its place in one step once it is checked. :func:`attnviz.models.folder.locate` refuses such names.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from attnviz import files
from attnviz.errors import ModelError, OutputError, system_errors
from attnviz.models.folder import INDEX, Located
from attnviz.models.hub import CONFIG
from attnviz.models.pruned.remove import (
    Removal,
    StoredProjections,
    StoredSizes,
    find_projections,
    plan,
    removed,
    sizes_of,
    zeroing,
)

SINGLE = "model.safetensors"


@dataclass(frozen=True)
class PrunedFiles:
    """What was written."""

    how: Removal  # what was cut and what was zeroed
    parameters: tuple[int, int]  # before and after
    size: tuple[int, int]  # bytes of the weights before and after


@contextlib.contextmanager
def building(model: Located, folder: Path) -> Iterator[Path]:
    """An empty folder beside another one, for what is to take its place.

    What is still there in the end is removed: files with the names that :func:`write` gives, and
    the folder unless something else has come into it.
    """
    target = Path(os.path.realpath(folder))
    with system_errors(OutputError, f"cannot write {folder}"):
        target.parent.mkdir(parents=True, exist_ok=True)
        part = files.unfinished(target)
        part.mkdir()
    try:
        yield part
    finally:
        with contextlib.suppress(OSError):
            for name in (*(path.name for path in _copied(model)), CONFIG, SINGLE):
                (part / name).unlink(missing_ok=True)
            part.rmdir()


def keep(part: Path, folder: Path) -> None:
    """Let a finished folder take its place, if that is still free."""
    check_free(folder)
    target = Path(os.path.realpath(folder))
    with system_errors(OutputError, f"cannot write {folder}"):
        if target.exists():
            shutil.copymode(target, part)
            target.rmdir()  # which only an empty folder allows
        part.rename(target)


def write(
    model: Located, gone: Mapping[int, Collection[int]], heads: int, folder: Path, *, cut: bool
) -> PrunedFiles:
    """Write a checkpoint without some heads."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    if model.config.get("quantization_config"):
        raise ModelError(f"{model.name} is quantized, and its heads cannot be removed")
    tensors = _tensors(model)
    projected = find_projections(tensors, model.name)
    sizes = sizes_of(tensors, projected, heads, model.name)
    whole = cut and projected.cuttable and not _by_head(tensors, projected, sizes)

    def loadable(heads: int, groups: int) -> bool:
        return _loadable(_config(model.config, heads, groups, sizes.width))

    how = plan(gone, projected.names, sizes, loadable) if whole else zeroing(gone)
    made = removed(tensors, projected, sizes, how)
    with system_errors(OutputError, f"cannot write {folder}"):
        for path in _copied(model):
            files.write(folder / path.name, files.contents(path))
        lost = len(next(iter(how.cut.values()), ()))
        left = sizes.heads - lost, sizes.groups - lost // sizes.each
        fewer = _config(model.config, *left, sizes.width) if lost else model.config
        config = json.dumps(fewer, indent=2, ensure_ascii=False)
        files.write(folder / CONFIG, f"{config}\n".encode())
        try:
            save_file(made, folder / SINGLE, metadata={"format": "pt"})
        except SafetensorError as error:  # of the system: a full disk, too large a file
            raise OSError(str(error)) from None
        (folder / SINGLE).chmod((folder / CONFIG).stat().st_mode)
    return PrunedFiles(
        how,
        (_count(tensors), _count(made)),
        (sum(path.stat().st_size for path in model.weights), (folder / SINGLE).stat().st_size),
    )


def check_free(folder: Path) -> None:
    """OutputError for a folder in which there is something already, or that must stay itself."""
    with system_errors(OutputError, f"cannot write {folder}"):
        if not folder.exists():
            files.check_folder(folder)
            return
        if not folder.is_dir() or any(folder.iterdir()):
            raise OutputError(f"{folder} is there already; name a folder that is not, or empty")
        if os.path.ismount(folder) or folder.samefile("."):
            raise OutputError(
                f"{folder} is a mount point or the folder you are in; name a folder inside it"
            )


def _copied(model: Located) -> list[Path]:
    """Files that stay as they are."""
    return [
        path
        for path in sorted(model.folder.iterdir())
        if path.is_file() and path.suffix != ".safetensors" and path.name not in (INDEX, CONFIG)
    ]


def _tensors(model: Located) -> dict[str, Tensor]:
    from safetensors import safe_open

    tensors: dict[str, Tensor] = {}
    for path in model.weights:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - no mapping
                tensors[name] = file.get_tensor(name)
    return tensors


def _by_head(
    tensors: Mapping[str, Tensor], projected: StoredProjections, sizes: StoredSizes
) -> bool:
    """Whether other tensors of attention have something for each head, such as learned sinks."""
    return any(
        tensors[name].shape[-1] != sizes.width
        for names in projected.others.values()
        for name in names
    )


def _config(config: Mapping[str, Any], heads: int, groups: int, width: int) -> dict[str, Any]:
    """The configuration with the number of heads that are left."""
    sizes = {"num_attention_heads": heads, "num_key_value_heads": groups, "head_dim": width}
    return {**config, **sizes}


def _loadable(config: Mapping[str, Any]) -> bool:
    """Whether transformers takes such a configuration: some want D to be divisible by H."""
    from transformers import AutoConfig

    fields = {name: value for name, value in config.items() if name != "model_type"}
    try:
        made = AutoConfig.for_model(config["model_type"], **fields)
    except Exception:
        return False
    return bool(getattr(made, "head_dim", None) == config["head_dim"])


def _count(tensors: Mapping[str, Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors.values())
