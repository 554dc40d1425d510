"""The pair of tokens to see a head at, against targets counted out by hand."""

from __future__ import annotations

import numpy as np
import pytest

import attnviz as av
from attnviz.core.heads import Head, Site
from attnviz.scoring.arrange import strongest_pair
from tests.viewing import made

TEXTS = ("a", "b", "c", ",", "a", "b", "d", "a", "b", "c", ".", "b")
TOKENS = av.Tokens(TEXTS)


def targets(score: str) -> np.ndarray:
    """Bool [T, T], written from the formulas in docs/roles.md; position 0 is the sink."""
    length = len(TEXTS)
    out = np.zeros((length, length), bool)
    for i in range(length):
        for j in range(i + 1):
            out[i, j] = (
                j > 0
                and {
                    "previous": j == i - 1,
                    "self": j == i,
                    "punctuation": TEXTS[j] in ",." and TEXTS[i] not in ",.",
                    "duplicate": j <= i - 2 and TEXTS[j] == TEXTS[i],
                    "induction": 0 < j <= i - 2 and TEXTS[j - 1] == TEXTS[i],
                }[score.removesuffix("_no_sink")]
            )
    return out


@pytest.mark.parametrize(
    "score", ["previous", "self", "punctuation", "duplicate", "induction", "induction_no_sink"]
)
def test_it_is_the_largest_weight_among_the_targets_of_the_score(score: str) -> None:
    capture = made(3, 1, TOKENS, causal=True, seed=4)
    for index in range(3):
        head = Head(Site("decoder", 0), index)
        weights = np.where(targets(score), capture[head], -1)
        want = np.unravel_index(weights.argmax(), weights.shape)
        assert strongest_pair(capture, head, score) == tuple(map(int, want))


def test_a_score_without_targets_has_no_pair() -> None:
    capture = made(3, 1, TOKENS, causal=True)
    assert strongest_pair(capture, Head(Site("decoder", 0), 0), "entropy_share") is None


def test_a_text_without_a_target_has_no_pair() -> None:
    assert strongest_pair(made(causal=True), Head(Site("decoder", 0), 0), "induction") is None
