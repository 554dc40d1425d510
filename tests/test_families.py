"""The page of families is what its command prints."""

from __future__ import annotations

from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "families.md"


@pytest.mark.parametrize("name", ["llama", "olmo2", "gemma2", "qwen3_next", "bloom"])
def test_a_line_of_the_page_is_what_is_found(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    page = PAGE.read_text(encoding="utf-8")
    if f"of transformers {transformers.__version__} " not in page:
        pytest.skip("the page is of another version of transformers")
    from tests.families import families, row

    config = dict(families())[name]
    made = row(name, config)
    line = next(line for line in page.splitlines() if line.startswith(f"| {name} |"))
    cells = [cell.strip() for cell in line.replace("\\|", "¦").strip("|").split("|")]
    assert cells[:1] + cells[2:3] == made[:1] + made[2:3]
    assert cells[1].partition(":")[0] == made[1].partition(":")[0]
    split = made[3].replace("e-", "").isdigit()
    assert cells[3] == made[3] or (split and float(cells[3]) < 1e-4 and float(made[3]) < 1e-4)
    for cell, own in zip(cells[4:], made[4:], strict=True):
        assert bool(cell) == bool(own)
        assert own in ("", "–") or float(own) < 1e-4
