"""How much memory a process may have, where a container gives it less than the machine has."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnviz.models import limits


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/", {"memory.max": "2000\n"}, [2000]),
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "300\n"}, [300]),
        ("0::/not/seen/here", {"memory.max": "512\n"}, [512]),
        (
            "9:cpu:/\n4:memory:/job\n0::/\n",
            {"memory/job/memory.limit_in_bytes": "700", "memory/memory.limit_in_bytes": str(2**63)},
            [700, 2**63],
        ),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": "junk"}, []),
        ("0::/", {}, []),
    ],
)
def test_limits_of_control_groups(tmp_path: Path, own, files, expected) -> None:
    for name, text in files.items():
        write(tmp_path / "groups" / name, text)
    found = limits.group_limits(tmp_path / "groups", write(tmp_path / "own", own))
    assert list(found) == expected


def test_a_system_without_control_groups(tmp_path: Path) -> None:
    assert list(limits.group_limits(tmp_path, tmp_path / "none")) == []


def test_the_smaller_one_counts(monkeypatch) -> None:
    machine = limits.physical_memory()
    monkeypatch.setattr(limits, "group_limits", lambda: iter([1 << 20, 1 << 60]))
    assert limits.physical_memory() == 1 << 20 < machine
