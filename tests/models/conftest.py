"""Folders of tiny models, each built once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function from a family, and how it is built, to a folder."""
    from tests.models.tiny import build

    built: dict[object, Path] = {}

    def folder(family: str, gain: float | None = None, *, words: bool = False) -> Path:
        key = family, gain, words
        if key not in built:
            built[key] = tmp_path_factory.mktemp(family)
            build(family, built[key], gain, words=words)
        return built[key]

    return folder
