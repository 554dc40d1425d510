"""The matrix product in WebAssembly: its binary is its text, and it agrees with JavaScript."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import ROOT
from tests.features.live.test_live import ASK, live_page, maps_of, started, texts
from tests.samples import Samples
from tests.viewing import opened

FOLDER = ROOT / "attnviz" / "features" / "live"
WABT = ROOT / ".venv" / "node" / "node_modules" / "wabt"
ASSEMBLE = """
const [, wabt, source, out] = process.argv;
const { readFileSync, writeFileSync } = require("fs");
require(wabt)().then((tool) => {
    const made = tool.parseWat("product.wat", readFileSync(source, "utf8"), { simd: true });
    made.validate({ simd: true });
    writeFileSync(out, made.toBinary({}).buffer);
});
"""


@pytest.mark.skipif(
    shutil.which("node") is None or not WABT.exists(), reason="needs node and wabt, which assembles"
)
def test_the_binary_is_the_text_assembled(tmp_path: Path) -> None:

    out = tmp_path / "product.wasm"
    source = FOLDER / "product.wat"
    subprocess.run(["node", "-e", ASSEMBLE, str(WABT), str(source), str(out)], check=True)
    assert out.read_bytes() == (FOLDER / "product.wasm").read_bytes()


def engines(page: Path, folder: Path) -> Iterator[Path]:
    """A page as it is, and one without the binary, by what multiplies in it."""
    whole = page.read_text("utf-8")
    assert "'wasm-unsafe-eval'" in whole
    assert "'unsafe-eval'" not in whole
    without, count = re.subn(r'(id="kernel">)[^<]+', r"\1", whole)
    assert count == 1
    for engine, text in (("WebAssembly", whole), ("JavaScript", without)):
        path = folder / f"{engine}.html"
        path.write_text(text, "utf-8")
        yield path


@pytest.mark.parametrize("name", ["demo-gpt2", pytest.param("demo-bert", marks=pytest.mark.slow)])
def test_both_ways_of_multiplying_agree(
    browser: Any, samples: Samples, tmp_path: Path, name: str
) -> None:
    """A page without the binary falls back; weights and predictions are equal to 1e-5."""
    found = []
    for path in engines(live_page(samples, name), tmp_path):
        with opened(browser) as tab:
            started(tab, path)
            assert tab.page.evaluate("document.documentElement.dataset.engine") == path.stem
            found.append([tab.page.evaluate(ASK, [one, ["1.4"], 0]) for one in texts(4)])
    for fast, plain in zip(*found, strict=True):
        assert fast["ids"] == plain["ids"]
        assert np.abs(maps_of(fast) - maps_of(plain)).max() < 1e-5
        for one, other in zip(fast["words"], plain["words"], strict=True):
            assert one["id"] == other["id"]
            assert abs(one["before"] - other["before"]) < 1e-5
            assert abs(one["after"] - other["after"]) < 1e-5


MOVED = """([text, off]) => attnviz.run(text, off).then(({ ids, before, after, changes, words }) =>
    [ids, changes, words, before, after].map(part => JSON.stringify(part)))"""


@pytest.mark.parametrize("name", ["demo-gpt2", pytest.param("demo-bert", marks=pytest.mark.slow)])
def test_a_short_text_after_a_long_one_is_as_in_a_fresh_page(
    browser: Any, samples: Samples, tmp_path: Path, name: str
) -> None:
    """A long text, a short one, heads off: each pass keeps the room of its own longest text."""
    short, off = "the cat sat on the mat", ["1.4"]
    for path in engines(live_page(samples, name), tmp_path):
        found = []
        for before in ((), (("word " * 120, []), (short, [])), (("word " * 120, off), (short, []))):
            with opened(browser) as tab:
                started(tab, path)
                for question in before:
                    tab.page.evaluate(MOVED, list(question))
                found.append(tab.page.evaluate(MOVED, [short, off]))
        fresh, *others = found
        moved = json.loads(fresh[1]).values()
        assert sum(value > 0.001 for value in moved) > 6
        assert all(other == fresh for other in others), path.stem
