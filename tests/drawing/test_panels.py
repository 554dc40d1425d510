"""A sound along its frames: times, peaks, and the waveform beside the map in figures."""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np
import pytest

import attnviz as av
from attnviz.core.capture import Capture
from attnviz.core.heads import Layout, Site
from attnviz.core.media import Sound
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo
from attnviz.core.tokens import Sides, Tokens
from attnviz.drawing.panels import Timeline, timeline

Image = pytest.importorskip("PIL.Image")

FRAMES = 20
HEARD = Tokens(
    tuple(f"{0.02 * n + 0.01:.2f}s" for n in range(FRAMES)) + ("[PAD]",) * 5,
    special=(False,) * FRAMES + (True,) * 5,
    places=tuple((0.02 * n + 0.01,) for n in range(FRAMES + 5)),
)
WORDS = Tokens(("so", " it", " is"))


def sound(loud_from: float, loud_to: float) -> Sound:
    time = np.arange(int(0.4 * 16000)) / 16000
    on = (time >= loud_from) & (time < loud_to)
    return Sound((np.sin(2 * np.pi * 500 * time) * on / 4).astype(np.float32), 16000, "tone.wav")


def capture(kind: Any, sides: Sides, heard: Sound | None) -> Capture:
    rows, columns = len(sides.queries), len(sides.keys)
    maps = {Site(kind, 0): np.full((2, rows, columns), 1 / columns, np.float32)}
    inputs = Inputs({kind: sides}, sound=heard)
    return Capture(SourceInfo("made", "recorded", ""), Layout({kind: (2,)}), inputs, maps)


def test_frames_have_a_start_and_a_length() -> None:
    line = timeline(HEARD)
    assert line is not None
    assert (line.frames, line.start) == (FRAMES, pytest.approx(0, abs=1e-9))
    assert line.step == pytest.approx(0.02)
    assert timeline(WORDS) is None
    assert timeline(Tokens(("0.01s",), places=((0.01,),))) is None


@pytest.mark.parametrize(
    ("line", "most", "ticks"),
    [
        (Timeline(0.0, 0.02, 20), 4, [(0, "0 s"), (5, "0.1 s"), (10, "0.2 s"), (15, "0.3 s")]),
        (Timeline(0.01, 0.02, 20), 2, [(9.5, "0.2 s"), (19.5, "0.4 s")]),
        (Timeline(0.0, 0.02, 1500), 3, [(0, "0 s"), (500, "10 s"), (1000, "20 s"), (1500, "30 s")]),
        (Timeline(-0.01, 0.1, 3), 99, None),
    ],
)
def test_round_times(line: Timeline, most: int, ticks: list[tuple[float, str]] | None) -> None:
    found = line.ticks(most)
    if ticks is None:
        assert len(found) > 20
        assert found[0] == (pytest.approx(0.1), "0 s")
        return
    assert [text for _, text in found][: len(ticks)] == [text for _, text in ticks]
    np.testing.assert_allclose([at for at, _ in found][: len(ticks)], [at for at, _ in ticks])


def test_peaks_are_those_of_the_samples() -> None:
    heard = sound(0.1, 0.2)
    line = timeline(HEARD)
    assert line is not None
    peaks = line.peaks(heard, 2)
    assert peaks.shape == (2 * FRAMES, 2)
    parts = heard.samples.reshape(2 * FRAMES, 160) / np.abs(heard.samples).max()
    np.testing.assert_allclose(peaks[:, 0], parts.min(1), atol=1e-6)
    np.testing.assert_allclose(peaks[:, 1], parts.max(1), atol=1e-6)
    silent = Sound(np.zeros(6400, np.float32), 16000)
    assert not line.peaks(silent, 2).any()


def dark(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)).convert("L")) < 130


@pytest.mark.parametrize("kind", ["encoder", "cross"])
def test_the_waveform_moves_with_the_sound(kind: Any) -> None:
    """Early and late sounds darken other parts of the strips, along both axes or the keys alone."""
    sides = Sides(HEARD if kind == "encoder" else WORDS, HEARD)
    pictures = [
        dark(av.heatmap(capture(kind, sides, sound(*when)), "0.0").to_bytes("png"))
        for when in ((0.0, 0.1), (0.3, 0.4))
    ]
    assert pictures[0].shape == pictures[1].shape
    changed = pictures[0] ^ pictures[1]
    early, late = (np.argwhere(changed & one) for one in pictures)
    last = max(early[:, 0].max(), late[:, 0].max())
    below = [one[one[:, 0] > last - 60] for one in (early, late)]
    assert np.percentile(below[0][:, 1], 95) < np.percentile(below[1][:, 1], 5), "early is left"
    beside = [one[one[:, 0] <= last - 60] for one in (early, late)]
    assert [len(one) > 1000 for one in beside] == [kind == "encoder"] * 2
    if kind == "encoder":
        assert np.percentile(beside[0][:, 0], 95) < np.percentile(beside[1][:, 0], 5), "and above"


@pytest.mark.parametrize("shown", [{}, {"words": True}, {"hide": "sink"}])
def test_seconds_stand_in_place_of_labels(shown: dict[str, bool]) -> None:
    held = capture("encoder", Sides(HEARD, HEARD), sound(0.0, 0.4))
    svg = av.heatmap(held, "0.0", **shown).to_bytes("svg").decode()
    said = set(re.findall(r"<text[^>]*>(.*?)</text>", svg))
    assert {"0.2 s", "0.4 s"} <= said
    assert "0.11s" not in said
    assert any(one.startswith("after the waveform: frames") for one in said)


def test_without_the_sound_its_frames_are_labelled_as_ever() -> None:
    bare = av.heatmap(capture("encoder", Sides(HEARD, HEARD), None), "0.0").to_bytes("svg").decode()
    assert "0.11s" in bare
