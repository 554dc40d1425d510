"""What the examples of the first minute show is what they are there to show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import attnviz as av

ROOT = Path(__file__).parents[1]
RIVER = "the cat river moon stone bread the cat river moon stone"
CLOCK = "Mary gave the old blue clock to Peter, and later Mary gave the old blue"


@pytest.mark.parametrize(("text", "word"), [(RIVER, " bread"), (CLOCK, " clock")])
def test_the_repeated_word_is_predicted(text: str, word: str) -> None:
    first = av.logits(text).predictions[0]
    assert (first.token, first.rank) == (word, 1)


def test_heads_of_the_repeated_text_are_induction_heads() -> None:
    named = {head.head.name for head in av.heads(RIVER).heads
             if any(role.name == "induction" for role in head.roles)}  # fmt: skip
    assert {"2.0", "3.0", "3.3"} <= named


def test_no_example_repeats_what_the_model_does_not_continue() -> None:
    """On counted words demo-gpt2 predicts a comma."""
    for file in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"),
                 *(ROOT / "attnviz").glob("features/*/command.py")]:  # fmt: skip
        assert not re.search(r"one two three one two", file.read_text(encoding="utf-8")), file


def test_a_capture_as_a_tidy_frame() -> None:
    pandas = pytest.importorskip("pandas")
    capture = av.capture("The cat sat", select="2.0, 1.4")
    found = capture.to_pandas()
    assert isinstance(found, pandas.DataFrame)
    assert list(found.columns) == [
        "layer", "index", "head", "query", "key", "query_token", "key_token", "weight"
    ]  # fmt: skip
    assert len(found) == 2 * 4 * 5 // 2  # two heads, four tokens, causal
    sums = found.groupby(["head", "query"])["weight"].sum()
    assert sums.to_numpy() == pytest.approx(1, abs=1e-5)
    row = found[(found["head"] == "2.0") & (found["query"] == 3) & (found["key"] == 1)].iloc[0]
    assert row["weight"] == capture["2.0"][3, 1]
    assert (row["query_token"], row["key_token"]) == (capture.tokens[3], capture.tokens[1])


def test_no_cell_of_a_csv_is_a_formula() -> None:
    import csv
    import io

    found = list(csv.reader(io.StringIO(av.logits("=1 + 2 @ a - b", predictions=3).to_csv())))
    cells = [cell for row in found for cell in row]
    assert not [cell for cell in cells if cell[:1] in ("=", "+", "@")]
    assert all(float(cell) < 0 for cell in cells if cell.startswith("-"))
