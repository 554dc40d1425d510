"""Folders of tiny models, each built once and read once."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from attnviz.models.demo import DEMOS
from attnviz.models.native.config import FAMILIES
from tests import checkpoints


@pytest.fixture(scope="session")
def read_once() -> Iterator[set[str]]:
    """Folders that nobody changes: what transformers reads of one is read once, and then copied."""
    from transformers import PreTrainedModel

    folders = set(map(str, DEMOS.values()))
    models: dict[object, Any] = {}
    read = PreTrainedModel.from_pretrained.__func__

    def once(cls: type, place: Any, *args: Any, config: Any = None, **how: Any) -> Any:
        if args or str(place) not in folders:
            return read(cls, place, *args, config=config, **how)
        asked = (*how.items(), *getattr(config, "__dict__", {}).items())  # with how it attends
        key = cls, str(place), tuple(sorted((name, str(value)) for name, value in asked))
        if key not in models:
            models[key] = read(cls, place, config=config, **how)
        return copy.deepcopy(models[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PreTrainedModel, "from_pretrained", classmethod(once))
        yield folders


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of one bare model of each family of the native backend; nobody changes them."""
    return {
        family: checkpoints.write(tmp_path_factory.mktemp(family), family) for family in FAMILIES
    }


@pytest.fixture
def bert(models: dict[str, Path], tmp_path: Path) -> Path:
    """A BERT that a test may break."""
    return Path(shutil.copytree(models["bert"], tmp_path / "bert"))


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory, read_once: set[str]) -> Any:
    """A function from a family, and how it is built, to a folder."""
    from tests.models.tiny import build

    built: dict[object, Path] = {}

    def folder(family: str, gain: float | None = None, *, words: bool = False) -> Path:
        key = family, gain, words
        if key not in built:
            built[key] = tmp_path_factory.mktemp(family)
            build(family, built[key], gain, words=words)
            read_once.add(str(built[key]))
        return built[key]

    return folder


@pytest.fixture(scope="session")
def loaded(folders: Any) -> Callable[..., Any]:
    """A function like ``folders`` to the model, with an LM head, read once and never changed."""
    from attnviz.models.pretrained import load
    from tests.models.tiny import WORDLESS

    @cache
    def source(family: str, gain: float | None = None, *, backend: Any = "hooked") -> Any:
        return load(str(folders(family, gain, words=family not in WORDLESS)), backend=backend)

    return source


@pytest.fixture(scope="session")
def eager(read_once: set[str]) -> Callable[..., Any]:
    """A function from a folder and an automatic class to transformers' own model, read once."""
    import torch
    import transformers

    @cache
    def model(folder: Path | str, kind: str = "AutoModel") -> Any:
        how = {"attn_implementation": "eager", "dtype": torch.float32}
        return getattr(transformers, kind).from_pretrained(folder, **how).eval()

    return model
