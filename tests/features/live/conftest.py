"""The live page of demo-gpt2, which no test changes."""

from pathlib import Path

import pytest

from tests.features.live.test_live import live_page
from tests.samples import Samples


@pytest.fixture(scope="module")
def path(samples: Samples) -> Path:
    return live_page(samples)
