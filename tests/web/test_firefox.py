"""Every page opens in Firefox as well: it settles without a failure, and draws something.

Needs Firefox (the system's, or the one that $ATTNVIZ_FIREFOX names), and is skipped without it.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import attnviz as av
from tests.firefox import Firefox, firefox, running
from tests.samples import Samples
from tests.web.family import MAKE, STATES

SLOW = pytest.mark.slow
QUICK = ("view", "live", "lens")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    path = firefox()
    if path is None:
        pytest.skip("no Firefox, so pages are not opened in it")
    with running(path, tmp_path_factory.mktemp("firefox")) as found:
        yield found


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else SLOW)
        for name in MAKE
        if name != "sheet"  # which shows a failure
    ],
)
def test_a_page_opens(browser: Firefox, samples: Samples, name: str) -> None:
    path = samples(name, MAKE[name])
    browser.open(f"{path.as_uri()}#{STATES.get(name, '')}")
    failure = "const one = document.getElementById('failure'); return one ? one.textContent : '';"
    assert browser.run(failure) == ""
    assert browser.run("return document.querySelector('h1').textContent")
    picture = np.asarray(Image.open(io.BytesIO(browser.picture())).convert("RGB")).astype(int)
    assert picture.shape[1] > 1000
    ground = picture[-5, 5]
    drawn = np.abs(picture - ground).max(-1) > 16
    assert 0.01 < drawn.mean() < 0.99
    assert picture.std() > 10


def test_a_failure_would_be_seen(browser: Firefox, samples: Samples) -> None:
    path = samples("lens", MAKE["lens"])
    browser.open(path.as_uri())
    browser.run("dispatchEvent(new ErrorEvent('error', { message: 'as a test' }));")
    said = browser.run("return document.getElementById('failure').textContent")
    assert "as a test" in said


def test_the_model_runs_in_it(browser: Firefox, tmp_path: Path) -> None:
    """The page that runs the model says what comes next, in WebAssembly."""
    browser.open(av.live().save(tmp_path / "live.html").as_uri())
    assert browser.run("return document.getElementById('stage-word').textContent") == "bread"
    assert browser.run("return document.documentElement.dataset.engine") == "WebAssembly"
    browser.run(
        "window.made = 0; const make = URL.createObjectURL;"
        "URL.createObjectURL = blob => { window.made = blob.size; return make(blob); };"
        "document.getElementById('save-card').click();"
    )
    for _ in range(200):
        size = browser.run("return window.made")
        if size:
            break
    assert size > 5000, "a share card"
