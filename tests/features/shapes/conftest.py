"""What several files of the shapes' tests share."""

import functools
from collections.abc import Iterator

import pytest

from attnviz.features.shapes import worked


@pytest.fixture(scope="session", autouse=True)
def _measured_once() -> Iterator[None]:
    """What 1/√d does is measured by millions of random numbers, and shown by many tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worked, "scaling", functools.cache(worked.scaling))
        yield
