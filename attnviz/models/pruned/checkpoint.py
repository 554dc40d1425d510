"""A folder in, a folder out: the checkpoint without some heads, as plain transformers loads it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from attnviz import files
from attnviz.errors import ModelError, OutputError, system_errors
from attnviz.models.folder import INDEX, Located
from attnviz.models.pruned import projections
from attnviz.models.pruned.remove import Removal, StoredSizes, plan, removed, sizes_of, zeroing

SINGLE = "model.safetensors"


@dataclass(frozen=True)
class PrunedFiles:
    """What was written.

    Attributes:
        how: what was cut and what was zeroed.
        parameters: before and after.
        size: bytes of the weights before and after.
    """

    how: Removal
    parameters: tuple[int, int]
    size: tuple[int, int]


def write(
    model: Located, gone: Mapping[int, Collection[int]], heads: int, folder: Path, *, cut: bool
) -> PrunedFiles:
    """Write a checkpoint without some heads.

    Args:
        model: the checkpoint.
        gone: the heads, by layer.
        heads: of every layer.
        folder: where to; it must not be there, or be empty.
        cut: take out what every layer can lose, and zero the rest; else zero everything.

    Raises:
        ModelError: projections that are not known, or quantized; OutputError: nothing can be
            written there.
    """
    from safetensors.torch import save_file

    if model.config.get("quantization_config"):
        raise ModelError(f"{model.name} is quantized, and its heads cannot be removed")
    tensors = _tensors(model)
    found = projections.find(tensors, model.name)
    sizes = sizes_of(tensors, found, heads, model.name)
    whole = cut and found.cuttable and not _by_head(tensors, found, sizes)

    def loadable(heads: int, groups: int) -> bool:
        return _loadable(_config(model.config, heads, groups, sizes.width))

    how = plan(gone, found.names, sizes, loadable) if whole else zeroing(gone)
    made = removed(tensors, found, sizes, how)
    prepare(folder)
    with system_errors(OutputError, f"cannot write {folder}"):
        for path in sorted(model.folder.iterdir()):
            if path.is_file() and path.suffix != ".safetensors" and path.name != INDEX:
                files.write(folder / path.name, files.contents(path))
        lost = len(next(iter(how.cut.values()), ()))
        left = sizes.heads - lost, sizes.groups - lost // sizes.each
        fewer = _config(model.config, *left, sizes.width) if lost else model.config
        config = json.dumps(fewer, indent=2, ensure_ascii=False)
        files.write(folder / "config.json", f"{config}\n".encode())
        save_file(made, folder / SINGLE, metadata={"format": "pt"})
        (folder / SINGLE).chmod((folder / "config.json").stat().st_mode)
    return PrunedFiles(
        how,
        (_count(tensors), _count(made)),
        (sum(path.stat().st_size for path in model.weights), (folder / SINGLE).stat().st_size),
    )


def check_free(folder: Path) -> None:
    """OutputError for a folder in which there is something already."""
    with system_errors(OutputError, f"cannot write {folder}"):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise OutputError(f"{folder} is there already; name a folder that is not, or empty")


def prepare(folder: Path) -> None:
    """Make the folder; OutputError where there is something already, or it cannot be made."""
    check_free(folder)
    with system_errors(OutputError, f"cannot write {folder}"):
        folder.mkdir(parents=True, exist_ok=True)


def clear(folder: Path) -> None:
    """Remove the files that :func:`write` wrote."""
    for path in folder.iterdir():
        path.unlink()


def _tensors(model: Located) -> dict[str, Tensor]:
    from safetensors import safe_open

    found: dict[str, Tensor] = {}
    for path in model.weights:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - no mapping
                found[name] = file.get_tensor(name)
    return found


def _by_head(
    tensors: Mapping[str, Tensor], found: projections.StoredProjections, sizes: StoredSizes
) -> bool:
    """Whether other tensors of attention have something for each head, such as learned sinks."""
    return any(
        tensors[name].shape[-1] != sizes.width for names in found.others.values() for name in names
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
