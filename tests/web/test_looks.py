"""How pages look: small pictures of each, against those that are kept.

A picture is cut into blocks of 10 pixels and each becomes its mean grey, so that another font or
another rounding does not matter and another place or another colour does. After a change of looks
that is wanted: ``ATTNVIZ_KEEP=1 python -m pytest tests/web/test_looks.py``; look at what changed.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tests.samples import Samples
from tests.web.family import MAKE, looks

KEPT = Path(__file__).parent / "looks"
BLOCK = 10
WANTED = [("wide", "light"), ("small", "dark"), ("phone", "light")]
MEAN, FAR, SHARE = 3.0, 30, 0.02
"""A page looks the same where blocks are so near on average and at most this share is far off."""

SLOW = pytest.mark.slow
LONG = ("live", "atlas", "film", "patch", "explain", "lens", "lens-heads", "diff")
"""Pages that take their time to be made; what they share with others is looked at in those."""

Greys = NDArray[np.float64]


def reduced(picture: bytes) -> Greys:
    """Mean greys of blocks; what is left over at the edges does not count."""
    grey = np.asarray(Image.open(io.BytesIO(picture)).convert("L"), np.float64)
    rows, columns = (side // BLOCK for side in grey.shape)
    cut = grey[: rows * BLOCK, : columns * BLOCK]
    return cut.reshape(rows, BLOCK, columns, BLOCK).mean((1, 3))


def difference(one: Greys, other: Greys) -> str:
    """In words; empty where they look the same."""
    if one.shape != other.shape:
        return f"{one.shape} blocks in place of {other.shape}"
    apart = np.abs(one - other)
    mean, share = apart.mean(), (apart > FAR).mean()
    if mean <= MEAN and share <= SHARE:
        return ""
    row, column = np.unravel_index(apart.argmax(), apart.shape)
    return (
        f"{mean:.1f} of 255 on average, {100 * share:.1f} % far off, most at "
        f"{BLOCK * int(column)}, {BLOCK * int(row)}"
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("looks")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=SLOW if name in LONG else ()) for name in MAKE]
)
@pytest.mark.parametrize("wanted", [WANTED[1:], pytest.param(WANTED[:1], marks=SLOW)])
def test_a_page_looks_as_it_did(
    browser: Any, folder: Path, samples: Samples, name: str, wanted: list[tuple[str, str]]
) -> None:
    changed = []
    for size, scheme, picture in looks(browser, name, samples(name, MAKE[name]), wanted):
        path = KEPT / f"{name}-{size}-{scheme}.png"
        found = reduced(picture)
        if os.environ.get("ATTNVIZ_KEEP"):
            Image.fromarray(np.rint(found).astype(np.uint8)).save(path, optimize=True)
        said = difference(found, np.asarray(Image.open(path), np.float64))
        if said:
            (folder / path.name).write_bytes(picture)
            changed.append(f"{folder / path.name}: {said}")
    assert not changed, "\n".join(changed)


@pytest.mark.parametrize(
    "style",
    [
        "header { padding: 24px 18px; }",
        *(
            pytest.param(style, marks=SLOW)
            for style in (
                "main { background: var(--hover); }",
                "h2, p, button { font-size: 18px; }",
                ".maps, canvas { display: none; }",
            )
        ),
    ],
)
def test_a_change_of_looks_is_seen(browser: Any, folder: Path, style: str) -> None:
    path = MAKE["sheet"](folder)
    text = path.read_text("utf-8").replace("</style>", f"{style}</style>")
    start = text.index('<meta http-equiv="Content-Security-Policy"')  # which has the style's hash
    path.write_text(text[:start] + text[text.index(">", start) + 1 :], "utf-8")
    ((_, _, picture),) = looks(browser, "sheet", path, WANTED[:1])
    kept = np.asarray(Image.open(KEPT / "sheet-wide-light.png"), np.float64)
    assert difference(reduced(picture), kept)
