"""The page that runs the model: its size, its start, and how long a pass takes in a browser.

Times are the best of several, in milliseconds of the machine that this runs on; beside them stands
a plain matrix product with as many multiplications in the same browser, which says how fast that
machine's JavaScript is. What WebAssembly gains is a ratio: the same page of all-MiniLM-L6-v2 with
and without its binary, in turn.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import attnviz as av
from benchmarks.startup import minilm
from benchmarks.table import Row

MOST_MB = 8.0
MOST_START = 500.0
MOST_PASS = {64: 120.0, 256: 450.0}
MOST_OF_PLAIN = 0.25
MINILM_TOKENS = (62, 235)
RUNS = 5

_PASS = """async ([words, runs]) => {
    let best = Infinity;
    for (let run = 0; run < runs; run++) {
        await attnviz.run(`x${run}`);
        const found = await attnviz.run(words);
        best = Math.min(best, found.milliseconds);
        globalThis.tokens = found.ids.length;
    }
    return [best, globalThis.tokens];
}"""

_PRODUCT = """size => {
    const [a, b, c] = [0, 1, 2].map(() => new Float32Array(size * size).fill(0.5));
    let best = Infinity;
    for (let run = 0; run < 4; run++) {
        const start = performance.now();
        for (let i = 0; i < size; i++) for (let j = 0; j < size; j++) {
            let sum = 0;
            for (let k = 0; k < size; k++) sum += a[i * size + k] * b[j * size + k];
            c[i * size + j] = sum;
        }
        best = Math.min(best, performance.now() - start);
    }
    return best;
}"""


def measure() -> list[Row]:
    """All rows; those of the browser only where there is one."""
    from tests.viewing import FLAGS, chromium

    page = av.live()
    rows = [Row("demo-gpt2", f"{MOST_MB:g} MB", len(page.page) / 1e6 / MOST_MB, 1.0, page.size)]
    executable = chromium()
    if executable is None:
        return rows
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = page.save(Path(folder) / "live.html")
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        tab = browser.new_page()
        tab.goto(path.as_uri())
        tab.wait_for_selector('html[data-busy="0"]')
        start = float(tab.evaluate("document.documentElement.dataset.ready"))
        rows.append(
            Row("unpacking", f"{MOST_START:g} ms", start / MOST_START, 1.0, f"{start:.0f} ms")
        )
        for length, most in MOST_PASS.items():
            words = "cat " * (length - 1)
            best, tokens = tab.evaluate(_PASS, [words.strip(), RUNS])
            size = round((4 * 12 * 192 * 192 * tokens) ** (1 / 3))
            plain = tab.evaluate(_PRODUCT, size)
            detail = f"{best:.0f} ms, {tokens} tokens; plain product {plain:.0f} ms"
            rows.append(Row(f"a pass of {length}", f"{most:g} ms", best / most, 1.0, detail))
        tab.close()
        rows += _against_plain(browser, Path(folder))
        browser.close()
    return rows


def _against_plain(browser: Any, folder: Path) -> list[Row]:
    """Return a pass of a BERT in WebAssembly as a share of one in plain JavaScript."""
    whole = av.live(model=minilm(), max_mb=200).page.decode("utf-8")
    pages = {"fast": whole, "plain": re.sub(r'(id="kernel">)[^<]+', r"\1", whole)}
    tabs = {}
    for name, text in pages.items():
        path = folder / f"{name}.html"
        path.write_text(text, "utf-8")
        tabs[name] = browser.new_page()
        tabs[name].goto(path.as_uri())
        tabs[name].wait_for_selector('html[data-busy="0"]')
    rows = []
    for length in MINILM_TOKENS:
        words = ("cat " * (length - 2)).strip()
        best = {name: tab.evaluate(_PASS, [words, RUNS])[0] for name, tab in tabs.items()}
        detail = f"{best['fast']:.0f} ms of {best['plain']:.0f} ms"
        share = best["fast"] / best["plain"]
        rows.append(
            Row(f"MiniLM, {length} tokens", "plain JavaScript", share, MOST_OF_PLAIN, detail)
        )
    return rows
