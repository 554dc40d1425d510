"""Every page that attnviz makes, small, and how it is looked at.

``python -m tests.web.family FOLDER`` writes the pages and their pictures;
``ATTNVIZ_KEEP=1 pytest tests/web/test_pages.py`` keeps how they look.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import attnviz as av
from attnviz.features.atlas import function as atlases
from attnviz.features.shapes.animation.page import animation_page
from attnviz.models.controls import FreshConfig
from tests import ROOT
from tests.features.shapes.test_drawing import animation
from tests.viewing import FLAGS, Opened, chromium, opened
from tests.web.sheet import sheet
from training.phases import MARKOV, save, train

TEXT = "The keys to the cabinet are on the table because the keys to the cabinet were lost."
FIRST, SECOND = (f"The cat did not cross it because it was too {one}." for one in ("tired", "wide"))
TRACE = (
    "It rains. We stay at home. The sea is dark. The lamp is lit. It rains. They come. It rains."
)
TEXTS = (TEXT, FIRST, "A cat sat on the mat and the cat slept.", "When it rained, they went home.")
SIZES = {"wide": (1440, 900), "middle": (1280, 800), "small": (1024, 768), "phone": (390, 844)}
"""In CSS pixels."""

SETTLED = """async () => {
    const { dataset } = document.documentElement;
    const busy = () => dataset.pending || (dataset.busy && dataset.busy !== '0');
    for (let n = 0, quiet = 0; n < 2500 && quiet < 3; n++) {
        await new Promise(done => setTimeout(done, 4));
        quiet = busy() ? 0 : quiet + 1;
    }
    await Promise.all([...document.images].map(image => image.decode().catch(() => {})));
}"""


def _gallery(folder: Path) -> Path:
    (folder / "s.txt").write_text("\n".join(TEXTS))
    settings = {"layout": "heads,layers", "dpi": 60}
    model = FreshConfig(d_model=32, heads=4, layers=2, causal=True)
    one = {"jobs": 1}
    av.export(folder / "s.txt", folder / "maps", model=model, **settings, **one)
    return folder / "maps" / "index.html"


def _atlas(folder: Path) -> Path:
    (folder / "atlas.txt").write_text("\n".join(TEXTS))
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr(atlases, "MEASURED_HEADS", 2)
        # its card names the file: the same wherever the tests run
        return av.atlas("atlas.txt").save(folder / "atlas.html")


def _patch(folder: Path) -> Path:
    found = av.patch(task="gender", count=14, circuit=4)
    return found.save(folder / "patch.html")


def _film(folder: Path) -> Path:
    run = replace(MARKOV, steps=80, every=20, texts=12)
    train(run, save(run, folder / "run"))
    found = av.film(folder / "run" / "texts.txt", model=f"{folder}/run/step-*")
    return found.save(folder / "film.html")


def _shapes(folder: Path) -> Path:
    path = folder / "shapes.html"
    path.write_bytes(animation_page(animation()))
    return path


def _long(folder: Path) -> Path:
    text = " ".join(f"w{n * n % 211}" for n in range(2100))
    model = FreshConfig(heads=2, layers=1, causal=True, d_model=32)
    return av.view(text, model=model).save(folder / "long.html")


def profile_page(folder: Path) -> Path:
    """Write the page of one head row by row, which is no page of the family alone."""
    texts = ROOT / "sample_inputs" / "sentences.txt"
    return av.profile(texts, select="1.4").save(folder / "profile.html")


MAKE: dict[str, Callable[[Path], Path]] = {
    "view": lambda folder: av.view(TEXT).save(folder / "view.html"), "long": _long,
    "live": lambda folder: av.live(text=TEXT).save(folder / "live.html"), "atlas": _atlas,
    "diff": lambda folder: av.diff(FIRST, SECOND, align="position").save(folder / "diff.html"),
    "explain": lambda folder: av.explain(TEXT.rsplit(" ", 3)[0]).save(folder / "explain.html"),
    "flow": lambda folder: av.flow(TEXT).save(folder / "flow.html"), "film": _film,
    "knockout": lambda folder: av.knockout(
        av.Prompt(TEXT, spans={"first": "all:the"}), window=1, select="1.*", draws=1
    ).save(folder / "knockout.html"),
    "thoughts": lambda folder: av.thoughts(TRACE).save(folder / "thoughts.html"),
    "lens": lambda folder: av.lens(TEXT).save(folder / "lens.html"),
    "lens-heads": lambda folder: av.lens(TEXT, by="head").save(folder / "heads.html"),
    "patch": _patch,
    "gallery": _gallery,
    "shapes": _shapes,
    "sheet": sheet,
}  # fmt: skip
"""Each page, by the name of its feature, made in a folder."""

STATES = {"atlas": "2.4"}
"""What a page opens on, where its start shows too little."""


def visit(found: Opened, path: Path, state: str = "") -> None:
    """Show a page in a state, until it stands still."""
    found.documents |= {picture.as_uri() for picture in path.parent.rglob("*.png")}  # a gallery's
    found.visit(path, state).page.evaluate(SETTLED)


def looks(
    browser: Any, name: str, path: Path, wanted: Iterable[tuple[str, str]]
) -> Iterator[tuple[str, str, bytes]]:
    """Pictures of what a page shows first, by size and scheme."""
    with opened(browser, reduced_motion="reduce") as found:
        for size, scheme in wanted:
            width, height = SIZES[size]
            found.page.set_viewport_size({"width": width, "height": height})
            found.page.emulate_media(color_scheme=scheme)
            found.page.goto("about:blank")
            visit(found, path, STATES.get(name, ""))
            yield size, scheme, found.page.screenshot()


def main(folder: Path) -> None:
    """Write every page and its pictures."""
    from playwright.sync_api import sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    wanted = [(size, scheme) for size in SIZES for scheme in ("light", "dark")]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        for name, make in MAKE.items():
            for size, scheme, picture in looks(browser, name, make(folder), wanted):
                (folder / f"{name}-{size}-{scheme}.png").write_bytes(picture)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
