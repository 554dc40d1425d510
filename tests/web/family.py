"""Every page that attnviz makes, small, and how it is looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attnviz as av
from attnviz.drawing.style import Style
from attnviz.features.export.execution import Execution
from attnviz.features.export.settings import ExportSettings
from attnviz.features.shapes.animation.page import film_page
from attnviz.models.untrained import FreshConfig
from tests.features.shapes.test_drawing import film

TEXT = "The keys to the cabinet are on the table because the keys to the cabinet were lost."
SHORT, OTHER = (f"The cat did not cross it because it was too {one}." for one in ("tired", "wide"))
TEXTS = (TEXT, SHORT, "A cat sat on the mat and the cat slept.", "When it rained, they went home.")
SIZES = {
    "wide": (1440, 900),
    "middle": (1280, 800),
    "small": (1024, 768),
    "phone": (390, 844),
}


def gallery(folder: Path) -> Path:
    (folder / "s.txt").write_text("\n".join(TEXTS))
    settings = ExportSettings(kinds=("heads", "layers"), style=Style(dpi=60))
    model = FreshConfig(d_model=32, heads=4, layers=2, causal=True)
    av.export_maps(
        folder / "s.txt",
        folder / "maps",
        model=model,
        settings=settings,
        execution=Execution(jobs=1),
    )
    return folder / "maps" / "index.html"


def _atlas(folder: Path) -> Path:
    (folder / "atlas.txt").write_text("\n".join(TEXTS))
    return av.atlas(folder / "atlas.txt").save(folder / "atlas.html")


def _patch(folder: Path) -> Path:
    found = av.patch(task="gender", count=12, circuit=True, size=4)
    return found.save(folder / "patch.html")


def _shapes(folder: Path) -> Path:
    path = folder / "shapes.html"
    path.write_bytes(film_page(film()))
    return path


MAKE: dict[str, Callable[[Path], Path]] = {
    "view": lambda folder: av.view(TEXT).save(folder / "view.html"),
    "live": lambda folder: av.live(text=TEXT).save(folder / "live.html"),
    "atlas": _atlas,
    "diff": lambda folder: av.diff(SHORT, OTHER, align="position").save(folder / "diff.html"),
    "flow": lambda folder: av.flow(TEXT).save(folder / "flow.html"),
    "patch": _patch,
    "gallery": gallery,
    "shapes": _shapes,
}
"""Each page, by the name of its feature, made in a folder."""


def shoot(
    browser: Any, path: Path, size: str, *, state: str = "", scheme: str = "light", **context: Any
) -> bytes:
    """A picture of what a page shows first."""
    width, height = SIZES[size]
    touch = size == "phone"
    where = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        reduced_motion="reduce",
        has_touch=touch,
        **context,
    )
    try:
        page = where.new_page()
        page.goto(f"{path.as_uri()}#{state}")
        page.wait_for_timeout(400)
        page.evaluate(
            """async () => {
                const { dataset } = document.documentElement;
                for (let n = 0; n < 400 && (dataset.pending || (dataset.busy && dataset.busy !== '0')); n++)
                    await new Promise(done => setTimeout(done, 10));
                await document.fonts.ready;
            }"""
        )
        return page.screenshot()
    finally:
        where.close()
