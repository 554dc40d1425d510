"""Likeness of heads from captures, recomputed from whole maps in float64."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import attnviz as av
from attnviz.core.capture import Capture
from attnviz.core.heads import Head
from attnviz.features.profile import alike as module
from attnviz.features.profile.alike import alike
from tests.viewing import encoder_decoder, made, pair, words


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """Mean Jensen-Shannon divergence in bits of rows [r, S]."""

    def entropy(share: np.ndarray) -> np.ndarray:
        return -(share * np.log2(np.where(share > 0, share, 1))).sum(-1)

    middle = entropy((one + other) / 2) - (entropy(one) + entropy(other)) / 2
    return float(middle.mean())


def rows(capture: Capture, head: Head) -> np.ndarray:
    special = np.array(capture.sides(head).queries.special)
    return capture[head].astype(np.float64)[~special]


@pytest.mark.parametrize("captures", [[made()], [pair()], [made(seed=1), made(seed=2)]])
def test_distances_are_those_of_whole_maps(captures: list[Capture]) -> None:
    found = alike(captures, [frozenset(one.layout) for one in captures])
    (plane,) = found[0].values()
    assert all(one["encoder"] is plane for one in found)
    heads = list(captures[0].layout)
    assert plane.heads == tuple(heads)
    assert plane.texts == len(captures)
    assert plane.rows == sum(len(rows(one, heads[0])) for one in captures)
    stacked = {head: np.stack([rows(one, head) for one in captures]) for head in heads}
    want = np.sqrt([[apart(stacked[a], stacked[b]) for b in heads] for a in heads])
    for number, near in enumerate(plane.nearest):
        others = sorted((want[number, n], n) for n in range(len(heads)) if n != number)
        assert [heads.index(head) for head, _ in near] == [n for _, n in others[:3]]
        np.testing.assert_allclose([far for _, far in near], [d for d, _ in others[:3]], atol=1e-5)
    flat = np.linalg.norm(plane.places[:, None] - plane.places[None], axis=-1)
    assert (flat <= want + 1e-5).all()  # a projection brings points closer, never apart
    assert plane.kept == pytest.approx((flat**2).sum() / (want**2).sum(), abs=1e-4)


def test_a_plane_of_three_heads_keeps_everything() -> None:
    capture = made(3, 1)
    ((plane,),) = (one.values() for one in alike([capture], [frozenset(capture.layout)]))
    assert plane.kept == pytest.approx(1)


def test_kinds_are_apart_and_only_shown_heads_are_compared() -> None:
    capture = encoder_decoder()
    (found,) = alike([capture], [frozenset(capture.layout)])
    assert {kind: len(plane.heads) for kind, plane in found.items()} == {
        "encoder": 6,
        "decoder": 6,
        "cross": 4,
    }
    assert all(head.site.kind == kind for kind, plane in found.items() for head in plane.heads)
    some = frozenset(h for h in capture.layout if h.site.kind == "encoder" and h.index != 1)
    (found,) = alike([capture], [some])
    assert {head.name for head in found["encoder"].heads} == {"0.0", "0.2", "1.0", "1.2"}
    assert list(found) == ["encoder"]


def test_other_models_heads_are_not_mixed() -> None:
    captures = [made(seed=1), made(seed=2, model="another"), made(seed=3)]
    one, other, third = alike(captures, [frozenset(c.layout) for c in captures])
    assert one["encoder"] is third["encoder"]
    assert one["encoder"] is not other["encoder"]
    assert (one["encoder"].texts, other["encoder"].texts) == (2, 1)


def test_two_runs_of_one_model_are_not_mixed() -> None:
    before, after = made(seed=1), made(seed=2)
    page = av.view(before, other_model=after).page.decode()
    planes = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])["planes"]
    for plane, run in zip(planes, (before, after), strict=True):
        (own,) = alike([run], [frozenset(run.layout)])
        first = own["encoder"].nearest[0][0]
        assert plane["texts"] == 1
        assert plane["heads"]["0.0"][2] == [first[0].name, pytest.approx(first[1], abs=1e-4)]


def test_long_texts_give_some_rows_and_too_many_heads_none(monkeypatch) -> None:
    capture = made(tokens=words(80))
    (found,) = alike([capture], [frozenset(capture.layout)])
    assert found["encoder"].rows == module.ROWS
    assert alike([capture], [frozenset(list(capture.layout)[:2])]) == [{}]
    monkeypatch.setattr(module.likeness, "MOST", 5)
    assert alike([capture], [frozenset(capture.layout)]) == [{}]
