"""One page for all tests of a file that need nothing special; at the end it must be clean."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.viewing import Opened, opened


@pytest.fixture(scope="module")
def shared(browser: Any) -> Iterator[Opened]:
    with opened(browser, color_scheme="light") as found:
        yield found
