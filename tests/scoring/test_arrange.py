"""Which heads a table lists, and in which order."""

from __future__ import annotations

import numpy as np
import pytest

import attnviz as av
from attnviz.core.heads import Head, Layout, Site
from attnviz.core.scores import HeadScores, Score
from attnviz.errors import SelectionError, UsageError
from attnviz.scoring.roles import ROLES, assign
from attnviz.scoring.scores import SCORES
from attnviz.scoring.select import arrange, leading, read_groups, strongest_pair
from tests.viewing import made


def head(layer: int, index: int, **means: float | None) -> HeadScores:
    """A head with these scores, ten times chance, and the roles that they give."""
    scores = {
        name: Score(None, None, None, 0) if mean is None else Score(mean, mean / 10, 10.0, 9)
        for name, mean in means.items()
    }
    return HeadScores(Head(Site("decoder", layer), index), scores, assign(scores))


HEADS = (
    head(0, 0, self=0.6, top=0.6), head(0, 1, top=0.9),
    head(1, 0, previous=0.7, first=0.8, top=0.8), head(1, 1, previous=0.9, top=0.95),
    head(2, 0, induction=0.4, top=None), head(2, 1, entropy_share=0.95),
)  # fmt: skip


def names(**options: object) -> str:
    return " ".join(h.head.name for h in arrange(HEADS, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, "1.0 1.1 2.0"),
        ({"everything": True}, "0.0 0.1 1.0 1.1 2.0 2.1"),
        ({"role": "previous"}, "1.0 1.1"),
        ({"role": "first"}, "1.0"),
        ({"role": "attention sink"}, "1.0"),
        ({"role": "diffuse"}, "2.1"),
        ({"role": "separator"}, ""),
        ({"role": "previous", "everything": True}, "1.0 1.1"),
        ({"sort": "layer"}, "1.0 1.1 2.0"),
        # by what they do, else where they rest: previous (1.0 rests on first), self, ...
        ({"sort": "role"}, "1.1 1.0 2.0"),
        ({"sort": "role", "everything": True}, "1.1 1.0 0.0 2.0 2.1 0.1"),
        ({"sort": "previous"}, "1.1 1.0 2.0"),
        ({"sort": "top", "everything": True}, "1.1 0.1 1.0 0.0 2.0 2.1"),
        ({"top": 2}, "1.0 1.1"),
        ({"top": 99}, "1.0 1.1 2.0"),
        ({"top": 0}, ""),
        ({"sort": "previous", "top": 1}, "1.1"),
        ({"role": "previous", "sort": "previous", "top": 1}, "1.1"),
    ],
    ids=str,
)
def test_filter_sort_and_cut(options: dict[str, object], wanted: str) -> None:
    assert names(**options) == wanted


def test_equal_heads_stay_in_the_order_of_the_layout() -> None:
    twins = [head(layer, 0, previous=0.8, top=0.5) for layer in range(6)]
    for sort in ("layer", "role", "top", "induction"):
        assert list(arrange(twins, sort=sort)) == twins


def test_every_role_and_every_score_is_an_order() -> None:
    for role in ROLES:
        assert all(role in [r.name for r in h.roles] for h in arrange(HEADS, role=role))
    for sort in ("layer", "role", *SCORES):
        found = arrange(HEADS, sort=sort, everything=True)
        assert sorted(found, key=lambda h: h.head) == list(HEADS)


def test_unknown_names_are_told_what_exists() -> None:
    with pytest.raises(UsageError, match=f"unknown role 'prev'; roles are {', '.join(ROLES)}"):
        arrange(HEADS, role="prev")
    orders = f"cannot sort by 'mean'; use layer, role, score, or one of {', '.join(SCORES)}"
    with pytest.raises(UsageError, match=orders):
        arrange(HEADS, sort="mean")


def test_heads_that_do_something_lead() -> None:
    """A sink's lift may be larger: there is less to see in it. Without a role, any score's lift."""
    order = sorted(HEADS, key=leading)
    assert [h.head.name for h in order] == ["1.0", "1.1", "2.0", "0.0", "2.1", "0.1"]
    sharp = HeadScores(
        Head(Site("decoder", 9), 0), {}, assign({"first": Score(0.9, 0.01, 90.0, 9)})
    )
    assert sorted([*HEADS, sharp], key=leading)[3] is sharp
    assert min(HEADS, key=lambda h: leading(h, "first")).head.name == "1.0"


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


LAYOUT = Layout({"decoder": (3, 3)})


@pytest.mark.parametrize(
    ("text", "names", "heads"),
    [
        ("0.1", ["0.1"], ["0.1"]), ("0.*", ["0.0", "0.1", "0.2"], ["0.0", "0.1", "0.2"]),
        ("0.1, 0.1,1.2", ["0.1", "1.2"], ["0.1", "1.2"]), ("0.1+1.2", ["0.1+1.2"], ["0.1 1.2"]),
        ("layer:1", ["layer:1"], ["1.0 1.1 1.2"]),
        ("layer:dec:1", ["layer:dec:1"], ["1.0 1.1 1.2"]),
        ("layer:0+1.0", ["layer:0+1.0"], ["0.0 0.1 0.2 1.0"]),
        ("role:sleeps", ["role:sleeps"], ["0.0 1.1"]),
        ("all-but:0.*", ["all-but:0.*"], ["1.0 1.1 1.2"]),
        ("all-but:0.0+role:sleeps", ["all-but:0.0+role:sleeps"], ["0.1 0.2 1.0 1.2"]),
        ("0.1+1.2, 1.2", ["0.1+1.2", "1.2"], ["0.1 1.2", "1.2"]),
    ],
)  # fmt: skip
def test_groups(text: str, names: list[str], heads: list[str]) -> None:
    sleeping = (Head(Site("decoder", 0), 0), Head(Site("decoder", 1), 1))
    found = read_groups(text, LAYOUT, lambda name: sleeping)
    assert [group.name for group in found] == names
    assert [" ".join(map(LAYOUT.name, group.heads)) for group in found] == heads


@pytest.mark.parametrize("text", ["", "0.7", "layer:9", "layer:x", "all-but:*.*", "0.1+", "role:x"])
def test_groups_that_are_none(text: str) -> None:
    with pytest.raises(SelectionError):
        read_groups(text, LAYOUT, lambda name: ())
