"""Windows of any length that a model takes."""

from __future__ import annotations

from pathlib import Path

import pytest

import attnviz as av
from attnviz.errors import UsageError
from attnviz.features.profile.run import Progress
from attnviz.models.controls import FreshConfig

MODEL = FreshConfig(heads=2, causal=True, d_model=16)
TEXT = " ".join(f"w{n % 211}" for n in range(2300))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("long") / "long.txt"
    path.write_text(TEXT, "utf-8")
    return path


def test_one_window_holds_the_whole_text(file: Path) -> None:
    """Its scores are those of the text in one piece, and its progress is told."""
    told: list[Progress] = []
    found = av.profile(file, model=MODEL, whole=True, window=4000, progress=told.append)
    assert not any("windows" in note for note in found.notes)
    alone = av.heads(TEXT, model=MODEL)
    for head, single in zip(found.heads, alone.heads, strict=True):
        for name in ("previous", "entropy", "distance"):
            assert head.scores.scores[name].mean == pytest.approx(
                single.scores[name].mean, rel=1e-6
            )
    inside = [one.inside for one in told if one.inside is not None]
    assert len(inside) > 5
    assert inside == sorted(inside)
    assert inside[-1] == pytest.approx(1)


def test_shorter_windows_and_strides_are_said(file: Path) -> None:
    found = av.profile(file, model=MODEL, whole=True, window=600, stride=300)
    said = "at most 600 tokens, one about every 300 tokens: successive windows share about 300"
    assert any(said in note for note in found.notes)
    found = av.profile(file, model=MODEL, whole=True, window=600, stride=600)
    assert any("at most 600 tokens, which do not overlap" in note for note in found.notes)
    found = av.profile(file, model=MODEL, whole=True)
    assert any("at most 1,024 tokens, which do not overlap" in note for note in found.notes)


def test_more_than_the_model_takes(file: Path) -> None:
    with pytest.raises(UsageError, match="is no window of this model, which takes 1 to"):
        av.profile(file, model="demo-gpt2", window=99_999)


def test_a_window_no_text_fills_changes_nothing() -> None:
    """Nor does a stride: there is nothing to overlap, and nothing is said of windows."""
    texts = ["The cat sat on the mat.", "the mat and the cat and the mat and the cat"]
    plain, asked = (
        av.profile(texts=texts, model=MODEL, **more) for more in ({}, {"window": 64, "stride": 8})
    )
    assert asked.to_json() == plain.to_json()
    assert not any("window" in note for note in asked.notes)


def test_windows_of_a_short_model_are_as_long_as_it_takes() -> None:
    found = av.profile(texts=[TEXT[:900]], model="demo-gpt2")
    assert any("at most 256 tokens, which do not overlap" in note for note in found.notes)
