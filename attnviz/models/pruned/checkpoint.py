"""A folder in, a folder out: the checkpoint without some heads, as plain transformers loads it.

It is built in a hidden folder beside its place, whose name says that it is unfinished, and takes
its place in one step once it is checked. :func:`attnviz.models.folder.locate` refuses such names.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnviz import files
from attnviz.errors import ModelError, OutputError, system_errors
from attnviz.models.external_errors import silenced
from attnviz.models.folder import INDEX, Located
from attnviz.models.hub import CONFIG

_FUSED = re.compile(r"(?:^|\.)h\.(\d+)\.attn\.(c_attn|c_proj)\.(weight|bias)$")
_APART = (
    re.compile(r"(?:^|\.)layer\.(\d+)\.attention\.self\.(query|key|value)\.(weight|bias)$"),
    re.compile(r"(?:^|\.)layer\.(\d+)\.attention\.output\.(dense)\.(weight|bias)$"),
    re.compile(r"(?:^|\.)layer\.(\d+)\.attention\.(q_lin|k_lin|v_lin|out_lin)\.(weight|bias)$"),
)
_GROUPED = re.compile(r"(?:^|\.)layers\.(\d+)\.self_attn\.(\w+)(?:\.(weight|bias))?$")
_ROLES = {
    "c_attn": "qkv", "c_proj": "out", "query": "q", "key": "k", "value": "v", "dense": "out",
    "q_lin": "q", "k_lin": "k", "v_lin": "v", "out_lin": "out",
    "q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "out",
}  # fmt: skip


@dataclass(frozen=True)
class StoredProjections:
    """The tensors of every layer's attention."""

    # whether query, key and value are one matrix, and all matrices stored as [in, out] (GPT-2)
    fused: bool
    # whether sizes of heads do not follow from their number, so that transformers may load fewer
    cuttable: bool
    # by layer and part (``q``, ``k``, ``v``, ``qkv``, ``out``, then ``.weight`` or ``.bias``), the
    # tensor's name
    names: Mapping[int, Mapping[str, str]]
    # of each layer's attention, tensors that are none of these
    extra: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


def place(module: str) -> tuple[int, str] | None:
    """Say which layer a module is of, and which part (``q``, ``out``); None for other names."""
    for pattern in (_FUSED, *_APART, _GROUPED):
        match = pattern.search(f"{module}.weight")
        if match is not None and match[2] in _ROLES:
            return int(match[1]), _ROLES[match[2]]
    return None


def find_projections(tensors: Iterable[str], model: str) -> StoredProjections:
    """Find the projections by the names of a checkpoint's tensors."""
    listed = list(tensors)
    for patterns, fused, grouped in (
        ((_FUSED,), True, False),
        (_APART, False, False),
        ((_GROUPED,), False, True),
    ):
        names: dict[int, dict[str, str]] = {}
        extra: dict[int, tuple[str, ...]] = {}
        for name in listed:
            for pattern in patterns:
                match = pattern.search(name)
                if match is None:
                    continue
                layer, role = int(match[1]), _ROLES.get(match[2])
                if role is None:
                    extra[layer] = (*extra.get(layer, ()), name)
                    continue
                names.setdefault(layer, {})[f"{role}.{match[3]}"] = name
        needed = {"qkv.weight", "out.weight"} if fused else {
            "q.weight", "k.weight", "v.weight", "out.weight"
        }  # fmt: skip
        if names and all(needed <= set(keys) for keys in names.values()):
            return StoredProjections(fused, grouped, names, extra)
    raise ModelError(
        f"the heads of {model} cannot be removed: its projections are none of GPT-2's, BERT's or "
        "Llama's by their names"
    )


@dataclass(frozen=True)
class StoredSizes:
    """Of a layer's attention."""

    heads: int  # query heads H
    groups: int  # key/value heads G
    width: int  # of a head, d

    @property
    def each(self) -> int:
        """Query heads of a group."""
        return self.heads // self.groups


@dataclass(frozen=True)
class Removal:
    """What happens to each layer's heads."""

    # query heads that are taken out, by layer; as many in each, and whole groups
    cut: Mapping[int, tuple[int, ...]]
    zeroed: Mapping[int, tuple[int, ...]]  # query heads whose weights become zero


def plan(
    targets: Mapping[int, Collection[int]],
    layers: Collection[int],
    sizes: StoredSizes,
    loadable: Callable[[int, int], bool],
) -> Removal:
    """Cut as many whole groups as every layer can lose, and zero what is left."""
    whole_groups = {
        layer: [
            group
            for group in range(sizes.groups)
            if set(_members(group, sizes)) <= set(targets.get(layer, ()))
        ]
        for layer in layers
    }
    count = min(*(len(groups) for groups in whole_groups.values()), sizes.groups - 1)
    while count and not loadable(sizes.heads - count * sizes.each, sizes.groups - count):
        count -= 1
    cut = {
        layer: tuple(head for group in groups[:count] for head in _members(group, sizes))
        for layer, groups in whole_groups.items()
    }
    return Removal(cut if count else {}, _rest(targets, cut))


def _rest(
    targets: Mapping[int, Collection[int]], cut: Mapping[int, Collection[int]]
) -> dict[int, tuple[int, ...]]:
    zeroed = {
        layer: sorted(set(heads) - set(cut.get(layer, ()))) for layer, heads in targets.items()
    }
    return {layer: tuple(heads) for layer, heads in zeroed.items() if heads}


def _members(group: int, sizes: StoredSizes) -> range:
    return range(group * sizes.each, (group + 1) * sizes.each)


def sizes_of(
    tensors: Mapping[str, Tensor], projected: StoredProjections, heads: int, model: str
) -> StoredSizes:
    """Return the sizes of every layer's attention, read off its matrices."""
    listed = {_sizes(tensors, names, projected, heads) for names in projected.names.values()}
    if len(listed) == 1 and None not in listed:
        return next(sizes for sizes in listed if sizes is not None)
    raise ModelError(
        f"the heads of {model} cannot be removed: its layers' projections differ in size, or do "
        f"not belong to {heads} heads each"
    )


def _sizes(
    tensors: Mapping[str, Tensor],
    names: Mapping[str, str],
    projected: StoredProjections,
    heads: int,
) -> StoredSizes | None:
    """Of one layer; None where they do not fit together."""

    def wide(part: str) -> int:
        role = part.partition(".")[0]
        return int(tensors[names[part]].shape[_axis(role, "weight", projected.fused)])

    width, remainder = divmod(wide("out.weight"), heads)
    key = (wide("qkv.weight") - heads * width) // 2 if projected.fused else wide("k.weight")
    groups = key // width if width else 0
    fits = not remainder and groups and groups * width == key and heads % groups == 0
    if projected.fused:
        fits = fits and wide("qkv.weight") == heads * width + 2 * key
    else:
        fits = fits and wide("q.weight") == heads * width and wide("v.weight") == key
    return StoredSizes(heads, groups, width) if fits else None


def removed(
    tensors: Mapping[str, Tensor], projected: StoredProjections, sizes: StoredSizes, edit: Removal
) -> dict[str, Tensor]:
    """All tensors, those of the projections without the heads."""
    changed = dict(tensors)
    for layer, names in projected.names.items():
        shared = any(
            tensors[extra].shape[-1] != sizes.width for extra in projected.extra.get(layer, ())
        )  # a normalization over all heads: zero rows would change the others
        for part, name in names.items():
            role, _, kind = part.partition(".")
            if role == "out" and kind == "bias":
                continue
            tensor = changed[name]
            zero = _places(role, edit.zeroed.get(layer, ()), sizes)
            if zero and (role == "out" or not shared):
                tensor = tensor.clone()
                tensor.index_fill_(_axis(role, kind, projected.fused), torch.tensor(zero), 0.0)
            cut = set(_places(role, edit.cut.get(layer, ()), sizes))
            if cut:
                axis = _axis(role, kind, projected.fused)
                staying = [index for index in range(tensor.shape[axis]) if index not in cut]
                tensor = tensor.index_select(axis, torch.tensor(staying)).contiguous()
            changed[name] = tensor
    return changed


def _axis(role: str, kind: str, transposed: bool) -> int:
    """Along which axis of a tensor heads stand."""
    if kind == "bias":
        return 0
    return int((role == "out") != transposed)


def _places(role: str, heads: Sequence[int], sizes: StoredSizes) -> list[int]:
    """Rows of a part that belong to some query heads; keys and values of whole groups only."""
    query = _spread(heads, sizes.width)
    if role in ("q", "out"):
        return query
    chosen = set(heads)
    groups = [g for g in range(sizes.groups) if set(_members(g, sizes)) <= chosen]
    key = _spread(groups, sizes.width)
    if role in ("k", "v"):
        return key
    first, second = sizes.heads * sizes.width, sizes.groups * sizes.width
    return [*query, *(first + index for index in key), *(first + second + index for index in key)]


def _spread(heads: Sequence[int], width: int) -> list[int]:
    return [head * width + index for head in heads for index in range(width)]


SINGLE = "model.safetensors"


@dataclass(frozen=True)
class PrunedFiles:
    """What was written."""

    removal: Removal  # what was cut and what was zeroed
    parameters: tuple[int, int]  # before and after
    size: tuple[int, int]  # bytes of the weights before and after


@contextlib.contextmanager
def building(model: Located, folder: Path) -> Iterator[Path]:
    """Make an empty folder beside another one, for what is to take its place.

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
    model: Located, targets: Mapping[int, Collection[int]], heads: int, folder: Path, *, cut: bool
) -> PrunedFiles:
    """Write a checkpoint without some heads."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    if model.config.get("quantization_config"):
        raise ModelError(f"{model.name} is quantized, and its heads cannot be removed")
    tensors = _tensors(model)
    projected = find_projections(tensors, model.name)
    sizes = sizes_of(tensors, projected, heads, model.name)
    whole_groups = cut and projected.cuttable and not _by_head(tensors, projected, sizes)

    def loadable(heads: int, groups: int) -> bool:
        return _loadable(_config(model.config, heads, groups, sizes.width))

    removal = Removal({}, _rest(targets, {}))
    if whole_groups:
        removal = plan(targets, projected.names, sizes, loadable)
    result = removed(tensors, projected, sizes, removal)
    with system_errors(OutputError, f"cannot write {folder}"):
        for path in _copied(model):
            files.write(folder / path.name, files.contents(path))
        lost = len(next(iter(removal.cut.values()), ()))
        remaining = sizes.heads - lost, sizes.groups - lost // sizes.each
        fewer = _config(model.config, *remaining, sizes.width) if lost else model.config
        config = json.dumps(fewer, indent=2, ensure_ascii=False)
        files.write(folder / CONFIG, f"{config}\n".encode())
        try:
            save_file(result, folder / SINGLE, metadata={"format": "pt"})
        except SafetensorError as error:  # of the system: a full disk, too large a file
            raise OSError(str(error)) from None
        (folder / SINGLE).chmod((folder / CONFIG).stat().st_mode)
    return PrunedFiles(
        removal,
        (_count(tensors), _count(result)),
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
        for names in projected.extra.values()
        for name in names
    )


def _config(config: Mapping[str, Any], heads: int, groups: int, width: int) -> dict[str, Any]:
    """Return the configuration with the number of heads that are left."""
    sizes = {"num_attention_heads": heads, "num_key_value_heads": groups, "head_dim": width}
    return {**config, **sizes}


def _loadable(config: Mapping[str, Any]) -> bool:
    """Whether transformers takes such a configuration: some want D to be divisible by H."""
    from transformers import AutoConfig

    fields = {name: value for name, value in config.items() if name != "model_type"}
    with silenced(), contextlib.suppress(Exception):
        built = AutoConfig.for_model(config["model_type"], **fields)
        return bool(getattr(built, "head_dim", None) == config["head_dim"])
    return False


def _count(tensors: Mapping[str, Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors.values())
