"""Scores of patches and frames, and of cross-attention that walks, against float64 NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from attnviz.core.heads import Layout, Site, SiteKind
from attnviz.core.media import Place
from attnviz.core.prompt import Inputs
from attnviz.core.scores import Score
from attnviz.core.source import Rows
from attnviz.core.tokens import Sides, Tokens
from attnviz.scoring.observe import ScoreObserver
from attnviz.scoring.roles import ROLES
from attnviz.scoring.scores import SCORES
from tests import reference_scores

Array = NDArray[np.float64]


def patches(rows: int, columns: int, front: tuple[str, ...] = ("[CLS]",)) -> Tokens:
    places: list[Place] = [()] * len(front)
    places += [(r, c) for r in range(rows) for c in range(columns)]
    texts = (*front, *(f"{r},{c}" for r in range(rows) for c in range(columns)))
    return Tokens(texts, special=tuple(not place for place in places), places=tuple(places))


def frames(count: int, silent: int = 0) -> Tokens:
    texts = tuple(f"{n * 0.02:.2f}s" for n in range(count))
    special = tuple(n >= count - silent for n in range(count))
    return Tokens(texts, special=special, places=tuple((n * 0.02 + 0.01,) for n in range(count)))


def words(count: int, special: int = 1) -> Tokens:
    return Tokens(
        tuple(f"w{n}" for n in range(count)), special=tuple(n < special for n in range(count))
    )


def random(heads: int, sides: Sides, seed: int, sharp: float = 3.0) -> Array:
    draw = np.random.default_rng(seed).normal(size=(heads, len(sides.queries), len(sides.keys)))
    made = np.exp(sharp * draw)
    return np.asarray(made / made.sum(-1, keepdims=True))


def observe(
    maps: list[Array], sides: list[Sides], kind: SiteKind, block: int = 100
) -> ScoreObserver:
    """Scores of a batch, in blocks of so many rows."""
    batch = [Inputs({kind: one}) for one in sides]
    longest = max(w.shape[1] for w in maps), max(w.shape[2] for w in maps)
    whole = torch.zeros(len(maps), len(maps[0]), *longest, dtype=torch.float64)
    allowed = torch.zeros(len(maps), 1, *longest, dtype=torch.bool)
    for number, weights in enumerate(maps):
        _, rows, keys = weights.shape
        whole[number, :, :rows, :keys] = torch.from_numpy(weights)
        allowed[number, :, :rows, :keys] = True
    observer = ScoreObserver(batch, Layout({kind: (len(maps[0]),)}))
    for start in range(0, longest[0], block):
        rows = slice(start, start + block)
        observer.observe(Rows(Site(kind, 0), start, 0, whole[:, :, rows], allowed[:, :, rows]))
    return observer


CASES: dict[str, tuple[SiteKind, list[Sides]]] = {
    "vit": ("encoder", [Sides(t, t) for t in [patches(3, 5)]]),
    "registers": (
        "encoder",
        [Sides(t, t) for t in [patches(4, 4, ("[CLS]", "[REG1]", "[REG2]"))] * 2],
    ),
    "siglip": ("encoder", [Sides(t, t) for t in [patches(4, 3, ())]]),
    "wav2vec2": ("encoder", [Sides(t, t) for t in [frames(9), frames(6)]]),
    "whisper encoder": ("encoder", [Sides(t, t) for t in [frames(12, 5)]]),
    "whisper": ("cross", [Sides(words(7), frames(12, 5)), Sides(words(4), frames(12, 8))]),
    "marian": ("cross", [Sides(words(6), words(8, 0)), Sides(words(9), words(3, 2))]),
}


@pytest.mark.parametrize("block", [1, 2, 5, 100])
@pytest.mark.parametrize("case", CASES)
def test_scores_are_the_formulas(case: str, block: int) -> None:
    kind, sides = CASES[case]
    maps = [random(3, one, seed) for seed, one in enumerate(sides)]
    masks = [np.ones(w.shape, bool) for w in maps]
    result = observe(maps, sides, kind, block).result()
    measured = set()
    for name in SCORES:
        wanted = reference_scores.score(name, maps, masks, sides, kind == "cross")
        for head, (mean, chance, rows) in zip(result, wanted, strict=True):
            got = head.scores[name]
            assert got.rows == rows, name
            if mean is None or chance is None:
                assert got == Score(None, None, None, 0), name
                continue
            measured.add(name)
            assert got.mean == pytest.approx(mean, rel=1e-9), name
            assert got.chance == pytest.approx(chance, rel=1e-9), name
    textual = {"previous", "next", "duplicate", "induction", "punctuation", "separator"}
    if sides[0].keys.space == "patches":
        assert not measured & textual
    assert ("registers" in measured) == (case == "registers")
    assert ("diagonal" in measured) == (kind == "cross")
    assert ("distance" in measured) == (kind != "cross")


def one(weights: Any, sides: Sides, kind: SiteKind) -> Any:
    (head,) = observe([np.asarray(weights, float)[None]], [sides], kind).result()
    return head


def test_distance_in_patches_and_in_seconds() -> None:
    tokens = patches(2, 3)
    weights = np.zeros((7, 7))
    weights[:, 0] = 0.75  # [CLS] has no place
    weights[np.arange(1, 7), [6, 6, 6, 6, 6, 6]] = 0.25
    weights[0] = 1 / 7
    head = one(weights, Sides(tokens, tokens), "encoder")
    far = [np.hypot(1, 2), np.hypot(1, 1), 1, 2, 1, 0]
    assert head.scores["distance"].mean == pytest.approx(np.mean(far))
    heard = frames(5)
    head = one(np.eye(5)[[4, 4, 4, 4, 4]], Sides(heard, heard), "encoder")
    assert head.scores["distance"].mean == pytest.approx(np.mean([0.08, 0.06, 0.04, 0.02, 0]))


def test_a_head_that_rests_on_registers() -> None:
    tokens = patches(3, 3, ("[CLS]", "[REG1]", "[REG2]"))
    weights = np.full((12, 12), 0.2 / 9)
    weights[:, :3] = [0.0, 0.5, 0.3]
    head = one(weights, Sides(tokens, tokens), "encoder")
    assert [role.name for role in head.roles] == ["registers"]
    assert head.scores["registers"].mean == pytest.approx(0.8)
    assert head.scores["registers"].chance == pytest.approx(2 / 12)


PATHS = {"forward": (1.0, ["monotonic"]), "backward": (0.0, []), "still": (0.5, [])}


@pytest.mark.parametrize("path", PATHS)
def test_cross_attention_that_walks(path: str) -> None:
    """At whatever pace: nothing is said about where the way begins and ends."""
    keys = {"forward": [2, 3, 7, 8, 9], "backward": [9, 8, 5, 3, 2], "still": [4, 4, 4, 4, 4]}[path]
    weights = np.eye(12)[[0, *keys]]  # the first query is a special token
    head = one(weights, Sides(words(6), frames(12)), "cross")
    score, roles = PATHS[path]
    assert head.scores["diagonal"].mean == pytest.approx(score)
    assert head.scores["diagonal"].chance == pytest.approx(0.5)
    assert head.scores["diagonal"].rows == 4
    assert [role.name for role in head.roles] == roles


def test_untrained_attention_does_not_walk() -> None:
    sides = Sides(words(40), frames(100, 30))
    result = observe([random(50, sides, 3)], [sides], "cross").result()
    assert not any(role.name == "monotonic" for head in result for role in head.roles)
    means = [head.scores["diagonal"].mean or 0 for head in result]
    assert np.mean(means) == pytest.approx(0.5, abs=0.02)


def test_roles_of_text_are_not_claimed_on_patches() -> None:
    """A head that looks at the patch before is no previous-token head; it may be local."""
    tokens = patches(14, 14, ())
    weights = np.eye(196)[[0, *range(195)]]
    head = one(weights, Sides(tokens, tokens), "encoder")
    assert not {role.name for role in head.roles} & {"previous", "next", "induction", "duplicate"}
    assert [role.name for role in head.roles] == ["local"]
    assert set(ROLES) >= {"local"}
