"""A model's config.json, and nothing else of it: from a folder, or from the hub."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from attnviz.errors import ModelError
from attnviz.models.demo import DEMOS

MAX_BYTES = 8 << 20
_HUB_ID = re.compile(r"^[\w.-]+(/[\w.-]+)?$")


def read_config_file(model: str) -> tuple[dict[str, Any], Path | None]:
    """Read a model's config.

    Args:
        model: a bundled model, a folder with a config.json, such a file itself, or a hub id.

    Returns:
        Its fields, and the folder, None for a model on the hub.

    Raises:
        ModelError: no such folder, no config in it, not JSON; a hub that cannot be reached.
    """
    path = DEMOS.get(model) or Path(model).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelError(f"{model} has no config.json; name a model's folder or a hub id")
        return _parse(path / "config.json"), path
    if path.is_file():
        if path.suffix != ".json":
            raise ModelError(f"{model} is a file; name the folder with config.json, or that file")
        return _parse(path), path.parent
    local = path.is_absolute() or model.startswith((".", "~"))
    if local or not _HUB_ID.match(model):
        raise ModelError(f"{model!r} is neither a folder with config.json nor a hub id")
    return _parse(_from_hub(model)), None


def _from_hub(model: str) -> Path:
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(model, "config.json"))
    except Exception as error:
        reason = type(error).__name__
        if reason in ("RepositoryNotFoundError", "GatedRepoError", "EntryNotFoundError"):
            why = "there is no such public model, or it has no config.json"
        else:
            why = f"the hub cannot be reached ({reason}); download the model's config.json first"
        raise ModelError(f"{model!r} is no folder here, and on the hub: {why}") from None


def _parse(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ModelError(f"{path} has {path.stat().st_size:,} bytes; that is no config.json")
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(content, dict):
        raise ModelError(f"{path} must hold a JSON object, not {type(content).__name__}")
    return content
