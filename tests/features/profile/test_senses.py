"""Profiles of pictures and sounds: a file each is a text, and their scores are those of heads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import attnviz as av
from attnviz.errors import InputError
from tests.models.tiny_senses import build

Image = pytest.importorskip("PIL.Image")
soundfile = pytest.importorskip("soundfile")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny models, four pictures and three sounds, all different."""
    found, rng = tmp_path_factory.mktemp("senses"), np.random.default_rng(0)
    for family in ("vit", "clip", "wav2vec2"):
        build(family, found / family)
    (found / "pictures").mkdir()
    (found / "sounds").mkdir()
    for n in range(4):
        pixels = rng.integers(0, 255, (40, 40, 3), np.uint8)
        Image.fromarray(pixels).save(found / "pictures" / f"{n}.png")
    for n in range(3):
        soundfile.write(found / "sounds" / f"{n}.wav", rng.normal(0, 0.1, 8000 + 800 * n), 16000)
    return found


@pytest.mark.parametrize(
    ("family", "files", "given"),
    [("vit", "pictures", "image"), ("clip", "pictures", "image"), ("wav2vec2", "sounds", "audio")],
)
def test_scores_are_the_means_of_single_looks(
    folder: Path, family: str, files: str, given: str
) -> None:
    inputs = sorted((folder / files).iterdir())
    found = av.profile(folder / files, model=folder / family, jobs=1)
    single = [
        {x["head"]: x for x in one.to_records()}
        for path in inputs
        for one in [av.heads(av.Prompt(**{given: path}), model=folder / family)]
    ]
    assert found.texts == len(inputs)
    compared = 0
    for record in found.to_records():
        ours = [one[record["head"]] for one in single]
        rows = [one[f"{record['score']}.rows"] for one in ours]
        assert record["rows"] == sum(rows)
        if sum(rows):
            means = [one[f"{record['score']}.mean"] or 0.0 for one in ours]
            assert record["mean"] == pytest.approx(np.average(means, weights=rows), abs=1e-5)
            compared += 1
    assert compared > 20


@pytest.mark.slow
def test_files_may_be_named_and_run_in_several_processes(folder: Path, tmp_path: Path) -> None:
    one = av.profile(str(folder / "pictures" / "*.png"), model=folder / "vit", jobs=1)
    two = av.profile(folder / "pictures", model=folder / "vit", jobs=2)
    assert one.to_records() == two.to_records()


def test_what_cannot_be_used_is_said_and_passed_over(folder: Path, tmp_path: Path) -> None:
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    for n in (0, 1):
        (mixed / f"{n}.png").write_bytes((folder / "pictures" / f"{n}.png").read_bytes())
    (mixed / "bad.png").write_bytes(b"no picture")
    found = av.profile(mixed, model=folder / "vit", jobs=1)
    assert found.texts == 2
    (mixed / "a.wav").write_bytes((folder / "sounds" / "0.wav").read_bytes())
    with pytest.raises(InputError, match="holds pictures and sounds"):
        av.profile(mixed, model=folder / "vit")
    with pytest.raises(InputError, match="no text could be used"):
        av.profile(folder / "pictures", model="demo-gpt2", jobs=1)
