"""Captures made by hand, and a browser that looks at their pages; for the tests of the viewer."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnviz.core.capture import Capture
from attnviz.core.heads import Layout, Site
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo
from attnviz.core.tokens import Sides, Tokens
from attnviz.drawing.palette import ramp, rgb
from tests import ROOT

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--in-process-gpu", "--num-raster-threads=1", "--renderer-process-limit=1",
]  # fmt: skip

MEDIA = ("color_scheme", "reduced_motion", "forced_colors")
"""What a page can be told of how it is shown; everything else is its context's."""


def chromium() -> str | None:
    """The browser: $ATTNVIZ_CHROMIUM, or the system's, its faster shell first."""
    given = os.environ.get("ATTNVIZ_CHROMIUM")
    if given:
        return given
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


def data_of(page: bytes | str) -> Any:
    """What a page's script is given."""
    text = page if isinstance(page, str) else page.decode()
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def softmax(rng: np.random.Generator, heads: int, rows: int, columns: int, causal: bool = False):
    scores = rng.normal(0, 2.5, (heads, rows, columns))
    if causal:
        scores[:, *np.triu_indices(rows, 1)] = -np.inf
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return (powers / powers.sum(-1, keepdims=True)).astype(np.float32)


def words(count: int, *, name: str = "w") -> Tokens:
    return Tokens(tuple(f"{name}{i}" for i in range(count)))


def made(
    heads: int = 3,
    layers: int = 2,
    tokens: Tokens | None = None,
    *,
    causal: bool = False,
    seed: int = 0,
    model: str = "made by hand",
) -> Capture:
    """An encoder's (or, if causal, decoder's) capture with random weights."""
    tokens = tokens if tokens is not None else words(7)
    kind = "decoder" if causal else "encoder"
    rng = np.random.default_rng(seed)
    maps = {
        Site(kind, layer): softmax(rng, heads, len(tokens), len(tokens), causal)
        for layer in range(layers)
    }
    layout = Layout({kind: (heads,) * layers})
    inputs = Inputs({kind: Sides(tokens, tokens)})
    return Capture(SourceInfo(model, "recorded", "as recorded"), layout, inputs, maps)


def encoder_decoder(seed: int = 0) -> Capture:
    """Encoder 5 tokens, decoder 4 tokens, cross 4 × 5; 2 layers of 3 heads, cross 2 heads."""
    rng = np.random.default_rng(seed)
    source, target = words(5, name="src"), words(4, name="tgt")
    sides = {
        "encoder": Sides(source, source),
        "decoder": Sides(target, target),
        "cross": Sides(target, source),
    }
    layout = Layout({"encoder": (3, 3), "decoder": (3, 3), "cross": (2, 2)})
    maps = {
        site: softmax(
            rng,
            layout.heads[site.kind][site.layer],
            len(sides[site.kind].queries),
            len(sides[site.kind].keys),
            site.kind == "decoder",
        )
        for site in layout.sites
    }
    return Capture(SourceInfo("made by hand", "recorded", ""), layout, Inputs(sides), maps)


def pair() -> Capture:
    """A pair of sentences with subwords: [CLS] a key ##board . [SEP] it fell ##s [SEP]."""
    tokens = Tokens(
        texts=("[CLS]", "a", "key", "##board", ".", "[SEP]", "it", "fell", "##s", "[SEP]"),
        special=(True, False, False, False, False, True, False, False, False, True),
        separators=(False, False, False, False, False, True, False, False, False, True),
        words=(-1, 0, 1, 1, 2, -1, 3, 4, 4, -1),
        segments=(0, 0, 0, 0, 0, 0, 1, 1, 1, 1),
    )
    return made(3, 2, tokens, seed=5)


SOON = """{
    const { setTimeout: later, clearTimeout: never } = globalThis;
    const waiting = new Map();
    globalThis.setTimeout = (run, wait, ...given) => {
        const id = later(() => { waiting.delete(id); run(...given); }, wait);
        if (wait >= 140 && wait <= 210) waiting.set(id, run);
        return id;
    };
    globalThis.clearTimeout = id => { waiting.delete(id); never(id); };
    globalThis.writeAddress = () => {
        for (const [id, run] of [...waiting]) { clearTimeout(id); run(); }
    };
}"""
"""Pages write what is seen into the address once it has stood still for a fifth of a second."""


def colors(share: np.ndarray, palette: str) -> np.ndarray:
    """The colours [..., 3] of shares, from the palette that the figures use."""
    table = np.array([rgb(color) for color in ramp(palette)])
    return table[np.rint(np.clip(share, 0, 1) * 255).astype(int)]


class Opened:
    """A page in the browser, with everything it asked for and complained about."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.console: list[str] = []
        self.requests: list[str] = []
        self.documents: set[str] = set()
        self.errors = np.zeros(0)
        self.allowed: list[str] = []
        page.add_init_script(SOON)
        page.on("console", lambda message: self.console.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.console.append(f"error: {error}"))
        page.on("request", lambda request: self.requests.append(request.url))

    def open(self, path: Path, state: str = "", *, again: bool = False) -> Opened:
        """Show a page in a state; loaded anew only if it is another one, or ``again``."""
        self.documents.add(path.as_uri())
        here = self.page.url.split("#")[0] == path.as_uri()
        if here and not again:
            self.page.mouse.move(2, 2)
            self.page.evaluate("document.activeElement.blur()")
            return self.go(state)
        if here:  # else only the part behind # would change
            self.page.goto("about:blank")
        self.page.goto(f"{path.as_uri()}#{state}")
        return self.settle()

    def visit(self, path: Path, state: str = "") -> Opened:
        """Show a page that does not say when it is done."""
        self.documents.add(path.as_uri())
        self.page.goto(f"{path.as_uri()}#{state}")
        return self

    def go(self, state: str) -> Opened:
        """Another state of the same page, by its address."""
        self.page.evaluate(
            "state => { history.replaceState(null, '', `#${state}`);"
            " dispatchEvent(new Event('hashchange')); }",
            state,
        )
        return self.settle()

    def settle(self) -> Opened:
        self.page.evaluate(
            """async () => {
                const { dataset } = document.documentElement;
                let quiet = 0;
                while (quiet < 2) {
                    await new Promise(done => setTimeout(done, 4));
                    quiet = dataset.pending || dataset.busy !== '0' ? 0 : quiet + 1;
                }
            }"""
        )
        return self

    def press(self, *keys: str) -> Opened:
        for key in keys:
            self.page.keyboard.press(key)
        return self.settle()

    def click(self, selector: str, **options: Any) -> Opened:
        self.page.click(selector, **options)
        return self.settle()

    def fill(self, selector: str, text: str) -> Opened:
        self.page.fill(selector, text)
        return self.settle()

    def choose(self, selector: str, value: str) -> Opened:
        self.page.select_option(selector, value)
        return self.settle()

    def text(self, selector: str) -> str:
        return self.page.inner_text(selector)

    def hash(self) -> str:
        """The address, once it holds what is seen: what waits to write it does so now."""
        return self.page.evaluate("() => { globalThis.writeAddress?.(); return location.hash; }")

    def pressed(self, selector: str) -> list[str]:
        """Which buttons of a group are on."""
        return self.page.eval_on_selector_all(
            f"{selector} button[aria-pressed=true]",
            "all => all.map(one => one.dataset.head ?? one.textContent)",
        )

    def all(self, selector: str, part: str = "textContent") -> list[str]:
        """Return the text of every element that matches, or another part: ``dataset.head``."""
        return self.page.eval_on_selector_all(selector, f"all => all.map(one => one.{part})")

    def pixel(self, selector: str, x: float, y: float) -> tuple[int, int, int]:
        """A canvas' colour at a place in CSS pixels."""
        found = self.page.eval_on_selector(
            selector,
            """(canvas, [x, y]) => {
                const one = new OffscreenCanvas(1, 1).getContext('2d');
                const [left, top] = [x, y].map(v => -Math.floor(v * devicePixelRatio));
                one.drawImage(canvas, left, top);
                return [...one.getImageData(0, 0, 1, 1).data];
            }""",
            [x, y],
        )
        return tuple(found[:3])

    def downloaded(self, kind: str) -> bytes:
        """What a button saves, through the browser's downloads."""
        self.page.evaluate("document.getElementById('save').open = true")
        with self.page.expect_download() as waiting:
            self.page.click(f"#save-{kind}")
        self.page.evaluate("document.getElementById('save').open = false")
        return Path(waiting.value.path()).read_bytes()

    def saved(self, kind: str) -> bytes:
        """What a button saves, as the page hands it to the browser."""
        made = self.page.evaluate(
            """async kind => {
                const before = URL.createObjectURL;
                const click = HTMLAnchorElement.prototype.click;
                const found = new Promise(done => {
                    URL.createObjectURL = blob => { done(blob); return 'about:blank'; };
                });
                HTMLAnchorElement.prototype.click = () => {};
                document.getElementById(`save-${kind}`).click();
                const bytes = new Uint8Array(await (await found).arrayBuffer());
                URL.createObjectURL = before;
                HTMLAnchorElement.prototype.click = click;
                let text = '';
                for (const byte of bytes) text += String.fromCharCode(byte);
                return btoa(text);
            }""",
            kind,
        )
        return base64.b64decode(made)

    def table(self, kind: str = "csv") -> tuple[list[str], list[list[str]]]:
        lines = list(csv.reader(io.StringIO(self.saved(kind).decode("utf-8"))))
        assert lines[0][-1] == "made"
        self.made = lines[1][-1] if lines[1:] else ""
        return lines[0][:-1], [line[:-1] for line in lines[1:]]

    def numbers(self, shape: tuple[int, int]) -> np.ndarray:
        """The saved CSV of maps as [layers, R, C]; ``errors`` has how far each can be off.

        Where a query may not attend to a key there is no number, here 0; ``allowed`` is 0 there.
        """
        names, lines = self.table()
        assert names[:4] == ["query_index", "query", "key_index", "key"]
        assert names[-2:] == ["allowed", "note"]
        self.allowed = [line[-2] for line in lines]
        values = np.array([[float(v or 0) for v in line[4:-2]] for line in lines])
        self.errors = values[:, 1::2].T.reshape(-1, *shape)
        return values[:, ::2].T.reshape(-1, *shape)

    def clean(self) -> None:
        """Nothing was asked for but the page itself, and nothing complained."""
        others = [url for url in self.requests if url.split("#")[0] not in self.documents]
        asked = [url for url in others if not url.startswith(("about:", "blob:"))]
        assert not asked, asked
        assert not self.console, self.console


def until(page: Any, expression: str, arg: Any = None, seconds: float = 20.0) -> None:
    """Wait until something is true in a page, without the ``eval`` that its policy forbids."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression, arg):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(15)


LEAN = """;{
    const run = axe.run;
    const lean = { resultTypes: ['violations'], selectors: false };
    axe.run = (within = document, options = {}) => run.call(axe, within, { ...lean, ...options });
}
undefined"""
"""Nothing is worked out of rules that hold, or of where in a page something is: no test asks."""


def axe() -> str:
    """The script of axe, to be run in a page."""
    given = os.environ.get("ATTNVIZ_AXE")
    path = Path(given) if given else ROOT / ".venv/node/node_modules/axe-core/axe.min.js"
    if not path.exists():
        pytest.skip(f"NO AXE, SO ACCESSIBILITY IS NOT TESTED: {path} is missing; see make test")
    return path.read_text(encoding="utf-8") + LEAN


def accessible(page: Any, options: dict[str, Any] | None = None, within: str = "html") -> None:
    """Find nothing that axe complains about in a page, or a part of it, as it is now."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(axe())
    asked = [within, options or {}]
    found = page.evaluate("asked => axe.run(...asked)", asked)["violations"]
    told = [(one["id"], [node["html"][:120] for node in one["nodes"]][:3]) for one in found]
    assert told == [], page.url


_CONTEXTS: dict[tuple[Any, str], Any] = {}
"""The contexts that are open, by their browser and what they can do."""


def _context(browser: Any, options: dict[str, Any]) -> Any:
    """The context of all pages with these options: one of its own takes as long as a page."""
    key = browser, json.dumps(options, sort_keys=True)
    if key not in _CONTEXTS:
        _CONTEXTS[key] = browser.new_context(**options)
    return _CONTEXTS[key]


@contextmanager
def opened(browser: Any, **options: Any) -> Iterator[Opened]:
    """A new page, in a context with what a page itself cannot be told later."""
    size = options.pop("viewport", {"width": 1280, "height": 900})
    media = {name: options.pop(name) for name in list(options) if name in MEDIA}
    page = _context(browser, options).new_page()
    page.set_viewport_size(size)
    page.emulate_media(**media)
    found = Opened(page)
    try:
        yield found
        found.clean()
    finally:
        page.close()


def write_page(folder: Path, name: str, captures: Capture | Sequence[Capture], **options: Any):
    """A page, in 8 bits unless it is said otherwise, so that there is something to round."""
    import attnviz as av

    options.setdefault("bits", 8)
    return av.view(captures, **options).save(folder / f"{name}.html")
