"""The processor of a vision-language model, from its folder; without torchvision, of pictures only.

Many processors read films too, by a library (torchvision) that pictures do not need: without it
transformers does not load them at all. They are loaded then without the part that reads films.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

from attnviz.models.external_errors import refusing, silenced

_FILES = ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json")
"""Where a folder names the class of its processor."""


def load_processor(folder: Path, name: str, family: str) -> Any:
    """The processor in a folder."""
    import transformers

    auto: Any = transformers.AutoProcessor
    with silenced(), refusing(f"the processor of {name} cannot be loaded"):
        try:
            return auto.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        except Exception:  # transformers says it in several ways
            filmless = None if _installed() else _without_films(folder, family)
            if filmless is None:
                raise
            return filmless.from_pretrained(folder, local_files_only=True)


def _installed() -> bool:
    return importlib.util.find_spec("torchvision") is not None


def _without_films(folder: Path, family: str) -> Any | None:
    """The class of a folder's processor, reading no films; None where it needs torchvision too."""
    known: Any = importlib.import_module("transformers.models.auto.processing_auto")
    name = _class_name(folder) or known.PROCESSOR_MAPPING_NAMES.get(family)
    whole: Any = known.processor_class_from_name(name) if isinstance(name, str) else None
    if not hasattr(whole, "get_attributes"):
        return None
    listed = whole.get_attributes()
    attributes = [part for part in listed if "video" not in part]
    missing = {part: None for part in listed if part not in attributes}

    class Filmless(whole):  # type: ignore[misc]
        @classmethod
        def from_args_and_dict(cls, args: Any, settings: Any, **others: Any) -> Any:
            return super().from_args_and_dict(args, {**settings, **missing}, **others)

        @classmethod
        def get_attributes(cls) -> list[str]:
            return attributes

    Filmless.__name__ = whole.__name__  # by which it finds its settings
    return Filmless


def _class_name(folder: Path) -> str | None:
    for file in _FILES:
        if (folder / file).is_file():
            written = json.loads((folder / file).read_text("utf-8"))
            if isinstance(written, dict) and isinstance(written.get("processor_class"), str):
                return str(written["processor_class"])
    return None
