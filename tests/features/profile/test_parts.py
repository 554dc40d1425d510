"""The parts of a profile: tasks, windows, kinds of tokens, what passes, likeness."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.core.heads import Layout, Site
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.source import Rows
from attnviz.core.tokens import Sides, Tokens
from attnviz.corpus import texts
from attnviz.corpus.texts import InvalidRecord, Text
from attnviz.errors import InputError, UsageError
from attnviz.features.profile import work
from attnviz.features.profile.likeness import (
    Comparing,
    Divergences,
    distances,
    nearest,
    plane,
    related,
)
from attnviz.features.profile.sampled.sample import Threshold
from attnviz.features.profile.tally import DISTANCES, Passing
from attnviz.features.profile.tasks import SEGMENT, key_of, mixed, tasks
from attnviz.features.profile.work import limit, windows
from attnviz.scoring.axes import KINDS, kinds
from tests.features.profile.corpus import lines, sentences


def test_tasks_end_with_their_file(tmp_path: Path) -> None:
    a = lines(tmp_path / "a.txt", sentences(70))
    b = lines(tmp_path / "b.txt", sentences(3, 1))
    both = list(tasks(texts.read([str(a), str(b)])))
    assert [len(task.pieces) for task in both] == [64, 6, 3]
    held = tasks(texts.in_memory(sentences(70)))
    assert [len(task.pieces) for task in held] == [64, 6]  # as if they were of one file
    assert [task.digest for task in tasks(texts.read([str(a)]))] == [t.digest for t in both[:2]]
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    again = list(texts.read([str(lines(moved / "b.txt", sentences(3, 1)))]))
    found = [text for text in again if isinstance(text, Text)]
    assert [key_of(text) for text in found] == [piece.key for piece in both[2].pieces]
    same = [Text(n, f"x.txt:{n}", Prompt("the same")) for n in (1, 2)]
    assert key_of(same[0]) != key_of(same[1])


def test_bad_lines_stay_with_their_task() -> None:
    items = [
        InvalidRecord(1, "x:1", "no"),
        Text(2, "x:2", Prompt("a b")),
        InvalidRecord(3, "y:1", "no"),
    ]
    found = list(tasks(items))
    assert [(len(task.pieces), len(task.bad)) for task in found] == [(1, 1), (0, 1)]
    assert found[0].digest != found[1].digest


def test_long_texts_are_cut_between_words() -> None:
    words = " ".join(f"word{n}" for n in range(30_000))
    found = list(tasks([Text(1, "book.txt", Prompt(words)), Text(2, "book.txt", Prompt("end"))]))
    pieces = [piece for task in found for piece in task.pieces]
    assert all(len(piece.text.text) <= SEGMENT for piece in pieces)
    assert "".join(piece.text.text for piece in pieces[:-1]) == words
    assert [piece.part for piece in pieces] == [*range(len(pieces) - 1), 0]
    assert len({piece.cluster for piece in pieces}) == 2


def test_windows_hold_as_many_words_as_fit() -> None:
    source = av.load("demo-gpt2")
    text = " ".join(sentences(60))
    found = list(windows(Prompt(text), source))
    assert " ".join(inputs.texts[0] for inputs in found).split() == text.split()
    assert all(inputs.length <= limit(source) for inputs in found)
    assert all(inputs.length >= 0.9 * limit(source) for inputs in found[:-1])
    half = list(windows(Prompt(text), source, limit(source) // 2))
    assert len(half) == pytest.approx(2 * len(found), abs=2)
    assert set(half[1].texts[0].split()) & set(half[0].texts[0].split())
    unspaced = list(windows(Prompt("unbelievable" * 400), source))
    assert "".join(inputs.texts[0] for inputs in unspaced) == "unbelievable" * 400
    (short,) = windows(Prompt("the cat"), source)
    assert replace(short, texts=()) == source.prepare(Prompt("the cat"))
    with pytest.raises(InputError):  # two texts are never cut
        list(windows(Prompt(text, pair=text), av.load("demo-bert")))


@pytest.mark.parametrize("window", [4, 9, 32])
def test_a_word_that_no_window_holds_is_cut(window: int) -> None:
    word = "字" * 40
    source = av.load("demo-gpt2")
    assert source.prepare(Prompt(word)).length > 32
    pieces = list(windows(Prompt(f"a {word} b"), source, window=window))
    assert all(piece.length <= window for piece in pieces)
    assert "".join(text for piece in pieces for text in piece.texts).replace(" ", "") == (
        f"a{word}b"
    )


def test_a_character_that_no_window_holds_is_refused() -> None:
    with pytest.raises(UsageError, match="window=1 is too few for the tokens of '字'"):
        list(windows(Prompt("字"), av.load("demo-gpt2"), window=1))


def test_kinds_of_tokens() -> None:
    tokens = Tokens(
        ("[CLS]", "play", "##ing", ",", "42", "##7", "play", "[SEP]"),
        ids=(1, 2, 3, 4, 5, 6, 2, 7),
        special=(True, *[False] * 6, True),
        words=(-1, 0, 0, 1, 2, 2, 3, -1),
    )
    found = kinds(tokens)
    assert [KINDS[column.argmax()] for column in found[:5].T] == [
        "special", "initial", "continuation", "punctuation", "digit", "digit", "initial", "special"
    ]  # fmt: skip
    assert (found[:5].sum(0) == 1).all()
    assert found[5].tolist() == [0, 0, 0, 0, 0, 0, 1, 0]


def items(*lengths: int) -> list[Inputs]:
    found = []
    for n in lengths:
        side = Tokens(tuple(f"t{i}" for i in range(n)), special=(True,) + (False,) * (n - 1))
        found.append(Inputs({"decoder": Sides(side, side)}))
    return found


def attention(heads: int, length: int, seed: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    scores = torch.randn(heads, length, length, generator=draw, dtype=torch.float64)
    blocked = ~torch.ones(length, length, dtype=torch.bool).tril()
    return scores.masked_fill(blocked, -torch.inf).softmax(-1)


def watched(observer, batch: list[Inputs], block: int) -> list[torch.Tensor]:  # type: ignore[no-untyped-def]
    """Show an observer two causal layers of two heads, in blocks of rows; the maps by item."""
    width = max(item.length for item in batch)
    maps = []
    for number, item in enumerate(batch):
        n = item.length
        padded = torch.rand(4, width, width, dtype=torch.float64)  # padding rows hold anything
        padded[..., n:] = 0
        padded[:, :n, :n] = attention(4, n, number)
        maps.append(padded)
    stacked = torch.stack(maps)
    for layer in range(2):
        for start in range(0, width, block):
            rows, stop = slice(start, start + block), min(start + block, width)
            seen = torch.ones(width, width, dtype=torch.bool).tril()[rows, :stop]
            weights = stacked[:, 2 * layer : 2 * layer + 2, rows, :stop]
            observer.observe(Rows(Site("decoder", layer), start, 0, weights, seen))
    return maps


LAYOUT = Layout({"decoder": (2, 2)})


@pytest.mark.parametrize("block", [1, 7, 100])
def test_what_passes_does_not_depend_on_blocks_or_padding(block: int) -> None:
    batch = items(5, 40, 90)
    passing = Passing(batch, LAYOUT)
    maps = watched(passing, batch, block)
    for number, item in enumerate(batch):
        n = item.length
        found = passing.passed(number)
        weights = maps[number][:, :n, :n].numpy().copy()
        uniform = np.tri(n) / np.arange(1, n + 1)[:, None]
        weights[:, 0] = uniform[0] = 0  # the first token is special
        for layer in range(2):
            mine = found[Site("decoder", layer)]
            own = weights[2 * layer : 2 * layer + 2]
            np.testing.assert_allclose(mine.keys, own.sum(1), atol=1e-12)
            np.testing.assert_allclose(mine.uniform_keys, uniform.sum(0), atol=1e-12)
            for far, table in (
                *zip(mine.distances, own, strict=True),
                (mine.uniform_distances, uniform),
            ):
                expected = np.zeros(DISTANCES)
                for d in range(-n + 1, 1):
                    expected[max(d, -33) + 33] += np.trace(table, offset=d)
                np.testing.assert_allclose(far, expected, atol=1e-12)


@pytest.mark.parametrize("block", [1, 7, 100])
def test_rows_are_compared_whatever_the_blocks(block: int) -> None:
    batch = items(9, 60)
    comparing = Comparing(batch, {1: 77}, LAYOUT)
    maps = watched(comparing, batch, block)
    found = comparing.divergences(1)
    chosen = sorted((1 + np.argsort(mixed(77, np.arange(1, 60)), kind="stable")[:16]).tolist())
    weights = maps[1][:, chosen, :60].numpy()

    def bits(w: np.ndarray) -> np.ndarray:
        return -(w * np.log2(np.where(w > 0, w, 1))).sum(-1)

    expected = [
        (bits((weights[i] + weights[j]) / 2) - (bits(weights[i]) + bits(weights[j])) / 2).sum()
        for i in range(4)
        for j in range(i + 1, 4)
    ]
    assert (found.key, found.rows) == (77, {"decoder": 16})
    np.testing.assert_allclose(found.sums["decoder"], expected, rtol=1e-5)


def test_only_the_smallest_keys_can_come_into_the_sample() -> None:
    smallest, keys = Threshold(2), np.arange(11, dtype=np.uint64)
    for _ in range(3):
        smallest.add([keys[9:10]])  # a text that comes again is one text
        assert smallest.may_have(keys).all()
    smallest.add([keys[5:6]])
    assert np.flatnonzero(smallest.may_have(keys)).tolist() == [*range(10)]
    smallest.add([keys[7:8]])
    assert np.flatnonzero(smallest.may_have(keys)).tolist() == [*range(8)]
    assert not Threshold(0).may_have(keys).any()


def test_every_worker_leaves_out_what_cannot_come_into_the_sample(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(work, "sample_size", lambda layout: 3)
    monkeypatch.setattr("attnviz.features.profile.tasks.WINDOW", 8)
    source = av.load("demo-gpt2")
    parts = list(tasks(texts.read([str(lines(tmp_path / "t.txt", sentences(48)))])))
    keys = sorted(piece.key for task in parts for piece in task.pieces)
    one, two, three = (work.Worker(source, work.ProfileSettings()) for _ in range(3))
    for workers in ([one] * 6, [two, three] * 3):
        found = [
            text.key
            for do, task in zip(workers, parts, strict=True)
            for text in do(task).tally.alike
        ]
        assert sorted(found)[:3] == keys[:3]
        assert len(found) < 24


def test_the_sample_is_pooled_by_rows() -> None:
    texts_ = [
        Divergences(5, {"decoder": 4}, {"decoder": np.array([1.0, 2, 4], np.float32)}),
        Divergences(3, {"decoder": 6}, {"decoder": np.array([0.6, 3, 6], np.float32)}),
    ]
    found, errors = distances(texts_, "decoder", 3)
    np.testing.assert_allclose(found[0], [0, np.sqrt(0.16), np.sqrt(0.5)], rtol=1e-6)
    assert found[1, 2] == 1
    # of the first pair: m = 1.6 / 10, residuals 1 - 4m and 0.6 - 6m; the root's error is v / 2√m
    m = 0.16
    error = np.sqrt(2 * ((1 - 4 * m) ** 2 + (0.6 - 6 * m) ** 2)) / 10 / (2 * np.sqrt(m))
    assert errors[0, 1] == pytest.approx(error, rel=1e-5)
    for one, other in zip((found, errors), distances(texts_[::-1], "decoder", 3), strict=True):
        assert (one == other).all()
    twice, _ = distances(texts_, "decoder", 3, {5: 2, 3: 0})
    np.testing.assert_allclose(twice[0], np.sqrt([0, 1 / 4, 2 / 4]))
    assert np.isnan(distances([], "decoder", 2)[0][0, 1])
    assert np.isnan(distances(texts_[:1], "decoder", 3)[1][0, 1])


def test_only_heads_that_have_something_in_common_are_alike() -> None:
    """One near pair among many far ones; where all are as far apart as any, none is alike."""
    apart = np.full((6, 6), 0.8) - 0.8 * np.eye(6)
    apart[0, 1] = apart[1, 0] = 0.78  # the nearest, and still nothing in common
    errors = np.full((6, 6), 0.002)
    assert not related(apart, errors, 40).any()
    apart[2, 3] = apart[3, 2] = 0.3
    found = related(apart, errors, 40)
    assert np.argwhere(found).tolist() == [[2, 3], [3, 2]]
    assert not related(apart, errors * 100, 40).any()  # not surely
    assert not related(apart, errors, 3).any()  # from too few texts
    limit = (np.sqrt(np.median(apart[np.triu_indices(6, 1)] ** 2) / 2) - 0.3) / 2.8660
    assert related(apart, np.full((6, 6), 0.999 * limit), 40).any()  # t(39) of 0.05 / 15 pairs
    assert not related(apart, np.full((6, 6), 1.001 * limit), 40).any()
    assert nearest(apart, 2, 5, found) == ((3, 0.3),)
    assert nearest(apart, 0, 5, found) == ()


def test_a_plane_keeps_the_distances_of_points_in_it() -> None:
    points = np.random.default_rng(0).normal(size=(30, 2)) * (3, 1)
    apart = np.linalg.norm(points[:, None] - points, axis=-1)
    found = plane(apart)
    again = np.linalg.norm(found[:, None] - found, axis=-1)
    np.testing.assert_allclose(again, apart, atol=1e-9)
    assert found[:, 0].std() > found[:, 1].std()
