"""The viewer's page: its size, and how long a browser takes to show the first overview.

``python -m benchmarks.viewer [LENGTH ...]``; random weights, which deflate less than real ones.
BertViz' model view is measured beside it where ``bertviz`` is installed: its size only, since its
page loads its scripts from the network.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import attnviz as av
from attnviz.core.capture import Capture
from attnviz.core.heads import Layout, Site
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo
from attnviz.core.tokens import Sides, Tokens
from attnviz.features.profile.likeness import alike
from benchmarks.table import Row, rounds, show

LAYERS = HEADS = 12
RUNS = 3
MOST_MB = {64: 1.5, 128: 5.0, 256: 16.0}
EXACT_MB = 8.0
"""A page that is no larger has 16 bits a weight."""
MOST_SECONDS = {128: 1.0, 256: 1.5}
LONG = 512
HOVERED = 30
MOST_FRAME_SECONDS = 0.05
COMPARED = ((12, 128), (86, 64))
"""Layers of 12 heads, and tokens, whose likeness is timed."""


def capture(length: int, layers: int = LAYERS) -> Capture:
    """Return maps of layers of 12 heads with random weights."""
    rng = np.random.default_rng(0)
    tokens = Tokens(tuple(f"token{i}" for i in range(length)))
    maps = {}
    for layer in range(layers):
        powers = np.exp(rng.normal(0, 2.5, (HEADS, length, length)))
        weights = powers / powers.sum(-1, keepdims=True)
        maps[Site("encoder", layer)] = weights.astype(np.float32)
    layout = Layout({"encoder": (HEADS,) * layers})
    inputs = Inputs({"encoder": Sides(tokens, tokens)})
    return Capture(SourceInfo("random weights", "recorded", ""), layout, inputs, maps)


def overview_seconds(path: Path) -> float | None:
    """From the start of loading to the first overview; the median, or None without a browser."""
    from tests.viewing import FLAGS, chromium

    executable = chromium()
    if executable is None:
        return None
    from playwright.sync_api import sync_playwright

    found = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        for _ in range(rounds(RUNS) + 1):
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto(path.as_uri())
            mark = """async () => {
                for (;;) {
                    const [found] = performance.getEntriesByName('overview');
                    if (found) return found.startTime;
                    await new Promise(done => setTimeout(done, 10));
                }
            }"""
            found.append(page.evaluate(mark) / 1000)
            page.close()
        browser.close()
    return statistics.median(found[1:])


def text_frame_seconds(path: Path) -> float | None:
    """How long a frame takes, at nine of ten, while a pointer goes from word to word."""
    from tests.viewing import FLAGS, chromium

    executable = chromium()
    if executable is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{path.as_uri()}#view=text&on=0.0,0.1")
        page.wait_for_selector("#text-body button")
        page.evaluate("""() => {
            window.frameTimes = [];
            let last = performance.now();
            requestAnimationFrame(function next(now) {
                frameTimes.push(now - last);
                last = now;
                requestAnimationFrame(next);
            });
        }""")
        for word in page.locator("#text-body button").all()[100 : 100 + HOVERED]:
            word.hover()
            page.wait_for_timeout(50)
        found: list[float] = page.evaluate("frameTimes")
        browser.close()
    return statistics.quantiles(found, n=10)[-1] / 1000


def bertviz_bytes(shown: Capture) -> int | None:
    """How large BertViz' model view of the same maps is, where BertViz is installed."""
    if find_spec("bertviz") is None:
        return None
    import torch
    from bertviz import model_view

    maps: list[Any] = [torch.from_numpy(weights)[None] for weights in shown.maps.values()]
    tokens = list(shown.inputs.sides["encoder"].queries.texts)
    page = model_view(maps, tokens, html_action="return")
    return len(page.data.encode())


def measure(lengths: tuple[int, ...] = (64, 128, 256)) -> list[Row]:
    """Size and time of each length against its target."""
    rows = []
    for length in lengths:
        shown = capture(length)
        start = time.perf_counter()
        page = av.view(shown)
        took = time.perf_counter() - start
        size = len(page.page) / 1e6
        most = MOST_MB.get(length)
        what = f"page, 12 × 12 heads, {length} tokens"
        detail = f"{size:.2f} MB, made in {took:.1f} s"
        if most is not None:
            limit = max(most, EXACT_MB)
            rows.append(Row(what, f"{limit:g} MB", size / limit, 1.0, detail))
            rounded = len(av.view(shown, bits=8).page) / 1e6
            detail = f"{rounded:.2f} MB"
            rows.append(Row(f"in 8 bits, {length}", f"{most:g} MB", rounded / most, 1.0, detail))
        theirs = bertviz_bytes(shown)
        if theirs is not None:
            detail = f"{theirs / 1e6:.1f} MB"
            rows.append(
                Row(f"the same, {length}", "BertViz' page", size * 1e6 / theirs, None, detail)
            )
        with tempfile.TemporaryDirectory() as folder:
            seconds = overview_seconds(page.save(Path(folder) / "page.html"))
        if seconds is not None:
            target = MOST_SECONDS.get(length, 1.0)
            goal = 1.0 if length in MOST_SECONDS else None
            rows.append(
                Row(
                    f"first overview, {length}",
                    f"{target:g} s",
                    seconds / target,
                    goal,
                    f"{seconds:.2f} s",
                )
            )
    with tempfile.TemporaryDirectory() as folder:
        frame = text_frame_seconds(av.view(capture(LONG, 1)).save(Path(folder) / "page.html"))
    for layers, length in COMPARED:
        shown = capture(length, layers)
        start = time.process_time()
        av.view(shown)
        whole = time.process_time() - start
        start = time.process_time()
        alike([shown], [frozenset(shown.layout)])
        took = time.process_time() - start
        what = f"likeness of {len(shown.layout):,} heads, {length} tokens"
        rows.append(Row(what, "making the page", took / whole, None, f"{took:.2f} s"))
    if frame is not None:
        rows.append(
            Row(
                f"a frame of Text, {LONG} tokens",
                f"{1000 * MOST_FRAME_SECONDS:g} ms",
                frame / MOST_FRAME_SECONDS,
                1.0,
                f"{1000 * frame:.0f} ms",
            )
        )
    return rows


if __name__ == "__main__":
    wanted = tuple(map(int, sys.argv[1:])) or (64, 128, 256)
    sys.exit(0 if show("The viewer", measure(wanted)) else 1)
