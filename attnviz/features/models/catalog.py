"""What can be run right now, without a download: bundled models, the hub's cache, a fresh layer."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from attnviz.core.provenance import ModelEntry
from attnviz.errors import AttnvizError, Message, ModelError, system_errors
from attnviz.models.configs.model import read_config as read_attention
from attnviz.models.demo import DEMOS
from attnviz.models.folder import check_files, find_weights, read_config

_TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model", "*.spm")


def available() -> tuple[ModelEntry, ...]:
    """Every model that can be named without a download, usable or with the reason why not."""
    fresh = ModelEntry("fresh", "built in", note="random weights, any size")
    demos = [inspect(name, folder, "bundled") for name, folder in DEMOS.items()]
    cached = [inspect(name, snapshot, "hub cache") for name, snapshot in _repositories()]
    return (*demos, fresh, *cached)


def names() -> list[str]:
    """Return what models are called that can be named without a download."""
    return [*DEMOS, "fresh", *(name for name, _ in _repositories())]


def folder_of(name: str) -> Path | None:
    """Return the folder of a model that is on this machine; None for the fresh layer and others."""
    folders = {**DEMOS, **dict(_repositories())}
    return folders.get(name) or next((path for path in [Path(name)] if path.is_dir()), None)


def inspect(name: str, folder: Path, location: str) -> ModelEntry:
    """Look at a model folder's files, without loading weights or importing transformers."""
    size = 0
    try:
        check_files(folder)
        size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
        config = read_config(folder)
    except AttnvizError as error:
        return ModelEntry(name, location, size=size, usable=False, note=_reason(error, folder))
    family = str(config["model_type"])
    shape, note = "", ""
    try:
        groups = read_attention(config, name).groups
        shape = " + ".join(f"{len(g.layers)}×{g.spec.heads}" for g in groups)
    except AttnvizError:
        note = "its configuration does not tell layers and heads"
    try:
        find_weights(folder, config)
    except AttnvizError as error:
        return ModelEntry(name, location, family, shape, size, False, _reason(error, folder))
    if not has_tokenizer(folder):
        note = Message("no tokenizer: give {ids} instead of a text", ids=...)
    return ModelEntry(name, location, family, shape, size, note=note)


def has_tokenizer(folder: Path) -> bool:
    """Whether a folder holds the files of a tokenizer."""
    return any(any(folder.glob(pattern)) for pattern in _TOKENIZERS)


def _reason(error: AttnvizError, folder: Path) -> str:
    """Return what is wrong, without the folder's path and the remedy."""
    return str(error).removeprefix(f"{folder} ").partition("; ")[0]


def _repositories() -> Iterator[tuple[str, Path]]:
    """Give what is in the hub's cache, by name, and its folder; nothing without its package."""
    if find_spec("huggingface_hub") is None:
        return
    from huggingface_hub import constants

    between = constants.REPO_ID_SEPARATOR
    with system_errors(ModelError, f"cannot read the hub's cache in {constants.HF_HUB_CACHE}"):
        repositories = sorted(Path(constants.HF_HUB_CACHE).glob(f"models{between}*"))
    for repo in repositories:
        snapshot = _snapshot(repo)
        if snapshot is not None:
            name = "/".join(repo.name.split(between)[1:])
            yield name, snapshot


def _snapshot(repo: Path) -> Path | None:
    """Get the revision of a cached repository that main names, or else the newest; None if none."""
    try:
        snapshots = {path.name: path for path in (repo / "snapshots").iterdir() if path.is_dir()}
        main = repo / "refs" / "main"
        named = main.read_text("utf-8").strip() if main.is_file() else ""
        return snapshots.get(named) or max(
            snapshots.values(), key=lambda path: path.stat().st_mtime, default=None
        )
    except (OSError, UnicodeError):
        return None
