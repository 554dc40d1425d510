"""``av.heads``: what it takes, measures and prints."""

from __future__ import annotations

import pytest

import attnviz as av
from tests.cli.calling import SENTENCE


@pytest.fixture(scope="module")
def cap(minilm: str) -> av.Capture:
    return av.capture(SENTENCE, model=minilm)


def test_streamed_scores_equal_scores_of_the_stored_maps(cap, minilm: str) -> None:
    streamed = av.heads(SENTENCE, model=minilm)
    stored = av.heads(cap)
    assert [h.head for h in streamed.heads] == [h.head for h in stored.heads]
    for a, b in zip(streamed.heads, stored.heads, strict=True):
        assert [r.name for r in a.roles] == [r.name for r in b.roles]
        for name, score in a.scores.items():
            assert score.rows == b.scores[name].rows, name
            assert score.mean == pytest.approx(b.scores[name].mean, abs=1e-6), name
            assert score.chance == pytest.approx(b.scores[name].chance, abs=1e-9), name


def test_a_text_says_how_far_it_has_come() -> None:
    told: list[tuple[str, int, int]] = []
    text = "the cat and the dog " * 40
    found = av.heads(text, progress=lambda *so_far: told.append(so_far))
    assert found == av.heads(text)
    done = [number for _, number, _ in told]
    assert done == sorted(done)
    assert len(set(done)) > 2
    assert told[-1] == ("tokens", len(found.tokens["decoder"].queries), done[-1])


def test_a_probe_needs_the_model(cap) -> None:
    with pytest.raises(av.UsageError, match="needs the model itself"):
        av.heads(cap, probe=True)


def test_a_report_prints_its_grid_and_its_evidence() -> None:
    text = str(av.heads("one two three one two three"))
    assert "layer ↓" in text
    assert "role" in text
    assert "chance" in text
    assert "demo-gpt2 · native backend" in text
    assert "\x1b" not in text
