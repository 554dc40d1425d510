"""Tiles of long texts against whole maps."""

from __future__ import annotations

import numpy as np
import pytest

import attnviz as av
from attnviz.captures.tiled import prepared, tiled
from attnviz.core.heads import Head
from attnviz.models.untrained import FreshConfig

WORDS = " ".join(f"w{n % 37}" for n in range(150))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("rows", "keys"), [(None, None), ("20-99", "3-60")])
def test_tiles_are_those_of_the_whole_map(causal: bool, rows: str | None, keys: str | None) -> None:
    model = FreshConfig(heads=4, layers=2, causal=causal)
    whole = av.capture(WORDS, model=model)
    source, inputs = prepared(WORDS, model, "cpu", "auto")
    found, layout = tiled(
        source, inputs, lambda *_: (7, 4), select="0.1, 1.*", rows=rows, keys=keys
    )
    length = len(whole.tokens)
    down = range(20, 100) if rows else range(length)
    across = range(3, 61) if keys else range(length)
    assert [layout.name(head) for head in found.maps] == ["0.1", "1.0", "1.1", "1.2", "1.3"]
    for head, one in found.maps.items():
        weights = whole[head].astype(np.float64)[down.start : down.stop, across.start : across.stop]
        high, wide = one.largest.shape
        assert (high, wide) == (-(-len(down) // 7), -(-len(across) // 7))
        for r in range(high):
            for c in range(wide):
                part = weights[7 * r : 7 * r + 7, 7 * c : 7 * c + 7]
                assert one.largest[r, c] == pytest.approx(part.max(), abs=1e-6)
                assert one.sums[r, c] == pytest.approx(part.sum(), abs=1e-5)
        for row, (places, kept) in enumerate(zip(one.keys, one.weights, strict=True)):
            there = places >= 0
            assert list(places[there]) == sorted(places[there])
            best = np.sort(weights[row][weights[row] > 0])[::-1][:4]
            np.testing.assert_allclose(np.sort(kept[there])[::-1], best, atol=1e-6)
            np.testing.assert_allclose(
                kept[there], weights[row][places[there] - across.start], atol=1e-6
            )


def test_what_is_drawn() -> None:
    source, inputs = prepared(WORDS, FreshConfig(heads=1, causal=True), "cpu", "auto")
    found, _ = tiled(source, inputs, lambda *_: (16, 0))
    head = Head(next(iter(found.allowed)), 0)
    shares = found.shown(head, "sum")
    assert shares.mask[0, 1]
    assert not shares.mask[1, 0]
    np.testing.assert_allclose(shares.filled(0).sum(1), 1, atol=1e-5)
    assert found.shown(head, "max").max() == 1  # the first row has one key
