"""The live page of demo-gpt2, which no test changes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.features.live.test_live import live_page
from tests.samples import Samples
from tests.viewing import Opened, opened


@pytest.fixture(scope="module")
def path(samples: Samples) -> Path:
    return live_page(samples)


@pytest.fixture(scope="session")
def _tab(browser: Any) -> Iterator[Opened]:
    with opened(browser) as tab:
        yield tab


@pytest.fixture
def page(_tab: Opened, request: pytest.FixtureRequest) -> Iterator[Opened]:
    """A window as large as the module's ``SIZE``, with motion if its ``MOTION`` says so.

    It is the same for all tests: one that shows the same page in another state does not load it.
    """
    _tab.page.set_viewport_size(getattr(request.module, "SIZE", {"width": 1280, "height": 800}))
    _tab.page.emulate_media(
        media="screen",
        color_scheme="light",
        reduced_motion=getattr(request.module, "MOTION", "reduce"),
    )
    yield _tab
    _tab.clean()
