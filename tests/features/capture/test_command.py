"""``attnviz capture``, and what reads its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.calling import SENTENCE, heads_of, ok


def test_capture_and_recorded(capsys, tmp_path: Path, minilm: str) -> None:
    path = tmp_path / "c.npz"
    ok(capsys, "capture", SENTENCE, "-m", minilm, "-o", str(path))
    live = heads_of(capsys, SENTENCE, "-m", minilm)
    stored = heads_of(capsys, "--recorded", str(path))
    assert stored["source"]["backend"] == "recorded"
    assert stored["tokens"] == live["tokens"]
    for a, b in zip(stored["heads"], live["heads"], strict=True):
        assert [role["name"] for role in a["roles"]] == [role["name"] for role in b["roles"]]
        for name in a["scores"]:
            assert a["scores"][name]["mean"] == pytest.approx(b["scores"][name]["mean"], abs=1e-6)
    shown = ok(capsys, "heatmap", "--recorded", str(path), "-s", "0.2", "--words")
    assert "cabinet" in shown
