"""Which keys were allowed travels with a capture, into files and back; learned sinks too."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import attnviz as av
from attnviz.attention.layers import attend
from attnviz.core.capture import Capture, KeyMask
from attnviz.core.heads import Layout, Site
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import InputError
from attnviz.models.controls import FreshConfig
from attnviz.scoring.observe import Recorder, ScoreObserver, score_capture

SITE = Site("decoder", 0)


@given(
    queries=st.integers(1, 9),
    more=st.integers(0, 4),
    causal=st.booleans(),
    window=st.none() | st.integers(1, 9),
    hole=st.none() | st.integers(0, 8),
)
def test_reach_is_what_it_was_made_of(
    queries: int, more: int, causal: bool, window: int | None, hole: int | None
) -> None:
    keys = queries + more
    back = np.arange(queries)[:, None] + more - np.arange(keys)
    allowed = np.ones((1, queries, keys), bool)
    allowed &= (back >= 0) | (not causal)
    allowed &= (abs(back) < window) if window is not None else True
    if hole is not None:
        allowed[:, :, min(hole, keys - 1)] = False
    reach = KeyMask.of(allowed)
    assert np.array_equal(reach.allowed(queries, keys), allowed)
    assert hole is not None or reach.bits is None


def test_masks_of_single_heads_are_kept() -> None:
    allowed = np.ones((3, 4, 4), bool)
    allowed[1, :, 2] = False
    assert np.array_equal(KeyMask.of(allowed).allowed(4, 4), allowed)


SOURCES = {
    "demo-gpt2": ("demo-gpt2", {}),
    "demo-bert": ("demo-bert", {"pair": "It slept."}),
    "causal": (FreshConfig(64, 4, layers=2, causal=True), {}),
    "full": (FreshConfig(64, 4), {}),
    "cross": (FreshConfig(64, 4, kind="cross"), {"pair": "noch ein Satz"}),
}


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("name", SOURCES)
def test_a_text_a_capture_and_a_file_have_the_same_scores(
    name: str, suffix: str, tmp_path: Path
) -> None:
    model, more = SOURCES[name]
    capture = av.capture("the cat and the dog and the cat", model=model, **more)
    back = av.read(av.write_capture(capture, tmp_path / f"c{suffix}"))
    assert set(back.reach) == set(capture.layout.sites)
    for site, reach in capture.reach.items():
        shape = capture.maps[site].shape[1:]
        assert np.array_equal(back.reach[site].allowed(*shape), reach.allowed(*shape))
    if not more:
        live = av.heads("the cat and the dog and the cat", model=model)
        for a, b, c in zip(live.heads, av.heads(capture).heads, av.heads(back).heads, strict=True):
            assert b.scores == c.scores
            for score, one in a.scores.items():
                other = b.scores[score]
                assert other.rows == one.rows
                if one.rows:
                    assert other.mean == pytest.approx(one.mean, abs=1e-6)
                if one.chance is not None:
                    assert other.chance == pytest.approx(one.chance, rel=1e-6)


def watched(**options: object) -> tuple[Recorder, ScoreObserver, Inputs]:
    tokens = Tokens(tuple(f"t{i % 5}" for i in range(12)))
    inputs = Inputs({"decoder": Sides(tokens, tokens)})
    layout = Layout({"decoder": (3,)})
    q, k, v = torch.randn(3, 1, 3, 12, 8, generator=torch.Generator().manual_seed(5))
    recorder, scorer = Recorder([inputs]), ScoreObserver([inputs], layout)
    attend(q, k, v, site=SITE, observers=[recorder, scorer], block_rows=5, **options)
    return recorder, scorer, inputs


def captured(recorder: Recorder, inputs: Inputs) -> Capture:
    info = SourceInfo("m", "hooked", "exact")
    maps, reach = recorder.maps(), recorder.reach()
    return Capture(info, Layout({"decoder": (3,)}), inputs, maps, 0, reach)


def test_keys_that_no_head_uses_are_still_allowed(tmp_path: Path) -> None:
    """What zeros cannot tell: a key that was allowed and got nothing."""
    far = torch.zeros(12, 12)
    far[:, 4:] = -200.0  # a weight of zero in float32, and no mask
    recorder, scorer, inputs = watched(bias=far)
    capture = captured(recorder, inputs)
    assert not capture.maps[SITE][:, :, 4:].any()
    back = av.read(av.write_capture(capture, tmp_path / "c.npz"))
    assert back.reach[SITE].allowed(12, 12).all()
    for a, b in zip(scorer.result(), score_capture(back).result(), strict=True):
        assert b.scores["top"].chance == pytest.approx(a.scores["top"].chance)


# --- learned sinks -----------------------------------------------------------------------------


def test_rows_with_a_learned_sink_are_softmax_with_one_more_column() -> None:
    sinks = torch.tensor([-1.0, 0.5, 3.0])
    q, k, v = torch.randn(3, 2, 3, 7, 4, generator=torch.Generator().manual_seed(1)).double()
    scores = q @ k.mT / 2 + torch.full((7, 7), -torch.inf).triu(1)
    column = sinks.double()[:, None, None].expand(2, 3, 7, 1)
    expected = torch.cat([scores, column], -1).softmax(-1)[..., :-1] @ v
    got = attend(q, k, v, causal=True, sinks=sinks).output
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_rows_with_a_learned_sink_go_round(suffix: str, tmp_path: Path) -> None:
    recorder, scorer, inputs = watched(causal=True, sinks=torch.tensor([0.0, 1.0, 4.0]))
    capture = captured(recorder, inputs)
    maps = capture.maps[SITE]
    assert (maps.sum(-1) < 0.99).all()
    back = av.read(av.write_capture(capture, tmp_path / f"c{suffix}"))
    assert back.reach[SITE].sink
    assert np.array_equal(back.maps[SITE], maps)
    # entropy counts what the sink took as one more key
    rest = 1 - maps.sum(-1, dtype=np.float64)
    whole = np.concatenate([maps, rest[..., None]], -1).astype(np.float64)
    bits = -(whole * np.log2(np.maximum(whole, 1e-300))).sum(-1)  # [H, T]
    most = np.log2(np.arange(12) + 2)
    for streamed, stored in zip(scorer.result(), score_capture(back).result(), strict=True):
        head = streamed.head.index
        for found in (streamed, stored):
            # rows with two keys or more
            assert found.scores["entropy"].mean == pytest.approx(bits[head, 1:].mean(), abs=1e-5)
            share = (bits[head] / most)[1:].mean()
            assert found.scores["entropy_share"].mean == pytest.approx(share, abs=1e-5)


# --- files that lie ----------------------------------------------------------------------------


def lying(tmp_path: Path, **changes: object) -> Path:
    recorder, _, inputs = watched(causal=True)
    path = av.write_capture(captured(recorder, inputs), tmp_path / "c.npz")
    with np.load(path) as arrays:
        stored = dict(arrays)
    meta = json.loads(str(stored["meta"]))
    meta["reach"][0] |= changes
    stored["meta"] = np.array(json.dumps(meta))
    np.savez(path, **stored)
    return path


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"window": 2}, "weights on keys that were not allowed"),
        ({"window": "wide"}, "a window of 'wide'"), ({"window": -1}, "a window of -1"),
        ({"masks": 1}, "unpackbits|bytes"), ({"masks": 2}, "2 masks for 3 heads"),
        ({"masks": 10**20}, "masks for 3 heads"),
        ({"sites": [["decoder", 5]]}, "differ in size, or are not there"),
        ({"sites": [["moon", 0]]}, "is no layer"), ({"sites": 5}, "int in place of a list"),
    ],
)  # fmt: skip
def test_files_that_say_something_else_are_refused(
    changes: dict[str, object], says: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=f"allowed keys does not fit its maps.*({says})"):
        av.read(lying(tmp_path, **changes))
