"""The gallery: pages are the same when they are built again, and every picture is there."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from tests import ROOT

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def gallery() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gallery", DOCS / "gallery.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_a_page_is_the_same_to_the_byte_when_built_again(
    gallery: ModuleType, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    one, two = (gallery.build("demo-bert", folder, limit=6).read_bytes() for folder in folders)
    assert one == two
    assert str(tmp_path).encode() not in one
    assert str(ROOT).encode() not in one


def test_a_page_that_differs_is_told(
    gallery: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    written = iter(("a", "b"))

    def build(model: str, folder: Path) -> Path:
        path = folder / f"{model}.html"
        path.write_text(next(written))
        return path

    monkeypatch.setattr(gallery, "build", build)
    assert gallery.main([str(tmp_path), "--models", "demo-bert"]) == 1
    assert capsys.readouterr().err == "pages that differ when built again: demo-bert\n"


def test_every_model_has_its_picture_of_modest_size(gallery: ModuleType) -> None:
    said = (DOCS / "gallery.md").read_text("utf-8")
    for model in gallery.MODELS:
        assert f"](gallery/{model}.png)" in said
        assert (DOCS / "gallery" / f"{model}.png").stat().st_size < 150_000
