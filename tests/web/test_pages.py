"""Pages: a headline with its figure, stages that are filled, what is folded; looks and scripts."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import attnviz as av
from tests import ROOT, mostly_slow
from tests.samples import Samples
from tests.viewing import opened
from tests.web.family import MAKE, SETTLED, looks, profile_page
from tests.web.reference import cases

FOUND = {
    "lens": " becomes the most probable word in the last layer, with ",
    "lens-heads": "Of all heads ", "flow": " takes in most from ",
    "patch": " heads of demo-gpt2 keep ", "explain": "The lead of ", "film": " becomes a",
    "knockout": "Where the last token cannot attend to “first”, ",
    "thoughts": "Later sentences move most without ", "diff": " changed most between ",
    "profile": "Head 1.4 looks most at the token before in ",
}  # fmt: skip
"""Words of the sentence that stands on top of each page."""


def _film(folder: Path) -> Path:
    film = av.read(ROOT / "sample_inputs" / "phases" / "demo-gpt2.json")
    return film.save(folder / "film.html")


Show = Callable[..., Any]
OWN = {"profile": profile_page, "film-phases": _film}


@pytest.fixture(scope="module")
def pages(samples: Samples) -> dict[str, Path]:
    kinds = {name: "film-phases" if name == "film" else name for name in (*FOUND, "view", "atlas")}
    return {name: samples(kind, (MAKE | OWN)[kind]) for name, kind in kinds.items()}


@pytest.fixture(scope="module")
def shown(browser: Any, pages: dict[str, Path], request: Any) -> Iterator[Show]:
    """A page, in a window of some size; it is loaded once for all tests that name it."""
    path = pages[request.param]
    with opened(browser) as found:
        found.visit(path)

        def show(width: int = 1440, height: int = 900, scheme: str = "light") -> Any:
            found.page.set_viewport_size({"width": width, "height": height})
            found.page.emulate_media(color_scheme=scheme)
            found.page.evaluate(SETTLED)
            return found.page

        yield show


def of(*names: str) -> Any:
    return pytest.mark.parametrize("shown", names, indirect=True)


@pytest.mark.parametrize(("shown", "words"), FOUND.items(), indirect=["shown"])
def test_a_page_has_one_headline_with_its_figure(shown: Show, words: str) -> None:
    for width, letters in ((1440, "28px"), (390, "18px")):
        page = shown(width)
        assert page.locator("h1").count() == 1
        said = page.inner_text("h1")
        assert words in said
        assert any(map(str.isdigit, said))
        assert page.eval_on_selector("h1", "h => getComputedStyle(h).fontSize") == letters
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    largest = page.evaluate(
        "Math.max(...[...document.querySelectorAll('body :not(h1, h1 *)')]"
        ".filter(e => e.checkVisibility() && e.innerText)"
        ".map(e => parseFloat(getComputedStyle(e).fontSize)))"
    )
    assert largest <= 18
    assert page.inner_text("#about, #origin, #below") != said


@of("flow", "patch", "film", "knockout", "thoughts")
def test_how_it_was_measured_is_folded_and_open_on_paper(shown: Show) -> None:
    page = shown()
    assert not page.is_visible(".how > :not(summary)")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert len(page.inner_text(".how > :nth-child(2)")) > 40
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not page.is_visible(".how > :not(summary)")
    page.focus(".how > summary")
    page.keyboard.press("Enter")
    assert page.is_visible(".how > :not(summary)")
    page.keyboard.press("Enter")


@of("lens")
def test_cells_of_a_lens_fill_its_width(shown: Show) -> None:
    for width in (1024, 1440):
        empty, over = shown(width).eval_on_selector(
            "#wide",
            "e => [e.clientWidth - e.firstChild.offsetWidth, e.scrollWidth - e.clientWidth]",
        )
        assert empty <= 1
        assert over <= 1


@of("flow")
def test_rows_of_a_flow_are_32_pixels_high(shown: Show) -> None:
    high = "all => all.map(e => e.offsetHeight)"
    assert set(shown().eval_on_selector_all("#before .row", high)) == {32}


@of("patch")
@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1024, 768)])
def test_a_circuit_fits_its_window(
    shown: Show, pages: dict[str, Path], width: int, height: int
) -> None:
    page = shown(width, height, "dark")
    bottom = "e => e.getBoundingClientRect().bottom"
    assert page.eval_on_selector("main", bottom) <= height
    links = av.read(pages["patch"]).circuit.links
    strongest = sorted((abs(link.edge.first.share) for link in links), reverse=True)[:5]
    numbers = page.locator(".number text").all_text_contents()
    assert len(numbers) == len(strongest) > 0
    read = sorted(abs(int(n.replace("−", "-").split("\xa0")[0].split(" ")[0])) for n in numbers)
    assert read == sorted(round(100 * share) for share in strongest)


INSIDE = """() => [...document.querySelectorAll('.node')].flatMap(node => {
    const box = node.querySelector('rect').getBoundingClientRect();
    return [...node.querySelectorAll('text')].map(text => text.getBoundingClientRect())
        .filter(b => b.left < box.left || b.right > box.right || b.top < box.top - 1
            || b.bottom > box.bottom + 1).map(b => node.textContent); })"""


@of("patch")
@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_labels_of_a_circuit_stand_in_its_nodes(shown: Show, width: int, scheme: str) -> None:
    page = shown(width, 844, scheme)
    assert page.evaluate(INSIDE) == []
    grounds = page.eval_on_selector_all(
        ".node.quiet rect", "all => all.map(e => getComputedStyle(e).fill)"
    )
    assert grounds, "heads without a role, and the logits"
    assert set(grounds) == {"rgb(255, 255, 255)" if scheme == "light" else "rgb(35, 41, 51)"}


@of("film", "lens-heads")
def test_pages_open_on_the_head_of_their_headline(shown: Show) -> None:
    head = shown().inner_text("#name").split()[1]
    assert f" {head} " in shown().inner_text("h1")


@of("lens-heads")
def test_a_lens_opens_on_the_head_that_raises_most(shown: Show, pages: dict[str, Path]) -> None:
    page = shown()
    lens = av.read(pages["lens-heads"])
    most = max(lens.heads, key=lambda writes: writes.raises[0].value)
    assert page.inner_text("#name") == f"Head {lens.layout.name(most.head)}"
    raised = page.inner_text("#raises .bar-line bdi >> nth=0")
    assert raised in page.inner_text("h1")
    assert "#head" not in page.url


SIZES = "all => all.map(e => getComputedStyle(e).fontSize)"


@of("atlas")
def test_the_numbers_of_an_atlas_are_its_headline(shown: Show) -> None:
    page = shown()
    assert set(page.eval_on_selector_all("#large .number", SIZES)) == {"28px"}
    assert page.locator("#large .number").count() >= 2  # three where needs are known
    doubts = page.locator("#large .small").all_inner_texts()
    said = r"\[| draws of the texts|would have been|nothing is known|have a role"
    assert all(re.search(said, doubt) for doubt in doubts), doubts
    assert not page.is_visible("#summary")
    assert page.locator("#summary li").count() >= 3


@of("view")
def test_the_sentence_of_a_view_is_its_headline(shown: Show) -> None:
    for width, letters in ((1440, "28px"), (390, "18px")):
        page = shown(width)
        assert set(page.eval_on_selector_all("#opening button", SIZES)) == {letters}
    assert "head" in page.inner_text("#doubt")


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
    mostly_slow(
        ("header { padding: 24px 18px; }", "main { background: var(--hover); }",
         "h2, p, button { font-size: 18px; }", ".maps, canvas { display: none; }"),
        "header { padding: 24px 18px; }",
    ),
)  # fmt: skip
def test_a_change_of_looks_is_seen(browser: Any, folder: Path, style: str) -> None:
    path = MAKE["sheet"](folder)
    text = path.read_text("utf-8").replace("</style>", f"{style}</style>")
    start = text.index('<meta http-equiv="Content-Security-Policy"')  # which has the style's hash
    path.write_text(text[:start] + text[text.index(">", start) + 1 :], "utf-8")
    ((_, _, picture),) = looks(browser, "sheet", path, WANTED[:1])
    kept = np.asarray(Image.open(KEPT / "sheet-wide-light.png"), np.float64)
    assert difference(reduced(picture), kept)


NODE = shutil.which("node")
TESTS = sorted((ROOT / "tests").rglob("*.test.js"))


@pytest.mark.skipif(NODE is None, reason="needs node, to run the pages' scripts without a page")
def test_scripts_answer_as_the_reference_does(tmp_path: Path) -> None:
    assert NODE is not None
    (tmp_path / "package.json").write_text('{"type": "module"}')
    given = cases()
    folders: dict[Path, list[Path]] = {}
    for test in TESTS:
        folders.setdefault(test.parent.relative_to(ROOT / "tests"), []).append(test)
    for name, tests in folders.items():
        folder = tmp_path / "-".join(name.parts)
        for source in (ROOT / "attnviz/web/js", ROOT / "attnviz" / name / "js"):
            shutil.copytree(source, folder, dirs_exist_ok=True)
        for test in tests:
            shutil.copy(test, folder)
        named = re.findall(r"const \{ (.+?) \} = JSON\.parse", "".join(map(Path.read_text, tests)))
        keys = {key.split(":")[0] for line in named for key in line.split(", ")}
        (folder / "cases.json").write_text(json.dumps({key: given[key] for key in keys}))
    copies = sorted(tmp_path.rglob("*.test.js"))
    assert len(copies) == len(TESTS) == 10
    (tmp_path / "all.js").write_text("".join(f"import '{path.as_uri()}';" for path in copies))
    ran = subprocess.run(
        [NODE, "--test-reporter=tap", str(tmp_path / "all.js")], capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = re.search(r"^# pass (\d+)$", ran.stdout, re.MULTILINE)
    assert found
    assert int(found[1]) >= len(copies)


def test_one_module_writes_numbers() -> None:
    """Others would have hyphens for minus signs, and digits that nobody knows."""
    own = re.compile(r"\.to(Fixed|Precision|Exponential|LocaleString)\(|Math\.round\(100 \*")
    free = {"numbers.js", "painter.js"}  # the latter writes paths
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()[:80]}"
        for path in sorted((ROOT / "attnviz").rglob("js/*.js"))
        for line in path.read_text("utf-8").splitlines()
        if path.name not in free and own.search(line)
    ]
    assert found == []
