"""No colours and no width but those that a test asks for."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "CLICOLOR_FORCE", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
