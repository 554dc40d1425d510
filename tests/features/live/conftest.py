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


@pytest.fixture
def page(browser: Any, request: pytest.FixtureRequest) -> Iterator[Opened]:
    """A window in which nothing moves, as large as the module's ``SIZE``."""
    size = getattr(request.module, "SIZE", {"width": 1280, "height": 800})
    with opened(browser, viewport=size, reduced_motion="reduce") as tab:
        yield tab
