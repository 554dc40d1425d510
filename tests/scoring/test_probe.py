"""Repeated random tokens: what they are, and that they tell induction heads from others."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import attnviz as av
from attnviz.core.heads import Layout, Site
from attnviz.core.prompt import Inputs
from attnviz.core.source import Rows
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import UsageError
from attnviz.scoring.observe import ScoreObserver
from attnviz.scoring.probe import probe_prompts, run_probe


@given(
    vocab=st.integers(2, 60),
    lengths=st.lists(st.integers(1, 20), min_size=1, max_size=4),
    seed=st.integers(0, 9),
    room=st.none() | st.integers(1, 60),
    bos=st.none() | st.integers(0, 70),
    avoid=st.frozensets(st.integers(0, 59), max_size=5),
)
def test_every_prompt_repeats_a_random_half(
    vocab: int,
    lengths: list[int],
    seed: int,
    room: int | None,
    bos: int | None,
    avoid: frozenset[int],
) -> None:
    usable = set(range(vocab)) - avoid - {bos}
    longest = max(lengths) if room is None else min(max(lengths), (room - (bos is not None)) // 2)

    def prompts() -> tuple[tuple[int, ...], ...]:
        return probe_prompts(
            vocab, lengths=lengths, seed=seed, max_tokens=room, bos=bos, avoid=avoid
        )

    if len(usable) < 2 or longest < 3:
        with pytest.raises(UsageError) as caught:
            prompts()
        assert "\n" not in str(caught.value)
        return
    found = prompts()
    assert found == prompts()
    assert found
    halves = []
    for ids in found:
        assert room is None or len(ids) <= room
        if bos is not None:
            assert ids[0] == bos
        body = ids[1:] if bos is not None else ids
        half, again = body[: len(body) // 2], body[len(body) // 2 :]
        assert half == again
        assert set(half) <= usable
        if len(half) <= len(usable):
            assert len(set(half)) == len(half)
        halves.append(len(half))
    wanted = {n if room is None else min(n, longest) for n in lengths}
    assert halves == sorted(n for n in wanted if n >= 3)


WRITTEN = ((10, 40, 28, 10, 40, 28), (81, 42, 66, 15, 81, 42, 66, 15))


def test_the_same_seed_is_the_same_everywhere() -> None:
    """Written down: a change here changes every probe ever reported."""
    assert probe_prompts(100, lengths=[4, 3]) == WRITTEN
    assert probe_prompts(100, lengths=[4, 3], seed=1) != WRITTEN
    assert probe_prompts(range(100), lengths=[4, 3]) == WRITTEN


def test_ids_may_be_any_list() -> None:
    (ids,) = probe_prompts([5, 500, 50_000], lengths=[3])
    assert sorted(ids[:3]) == [5, 500, 50_000]


def test_a_small_vocabulary_repeats_within_a_half() -> None:
    (ids,) = probe_prompts(2, lengths=[10])
    assert len(ids) == 20
    assert set(ids) == {0, 1}


def test_a_long_vocabulary_is_not_copied() -> None:
    """A billion ids cost nothing where none is to be avoided."""
    (ids,) = probe_prompts(10**9, lengths=[16])
    assert len(set(ids)) == 16
    assert max(ids) > 10**6


@pytest.mark.parametrize(
    ("vocab", "options", "message"),
    [
        (1, {}, "at least two different tokens, the vocabulary has 1"),
        (0, {}, "the vocabulary has 0"), (3, {"avoid": [0, 1]}, "the vocabulary has 1"),
        (2, {"bos": 1}, "the vocabulary has 1"),
        (9, {"max_tokens": 5}, r"lengths \(8,\) in a model of 5 tokens leave no room"),
        (9, {"max_tokens": 6, "bos": 0}, "leave no room"), (9, {"lengths": []}, "leave no room"),
        (9, {"lengths": [2]}, "leave no room"),
    ],
)  # fmt: skip
def test_errors(vocab: int, options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        probe_prompts(vocab, **{"lengths": [8], **options})  # type: ignore[arg-type]


def test_a_probe_tells_heads_apart() -> None:
    """Induction looks one place after the copy, duplicate at it; a previous-token head has none."""
    prompts = probe_prompts(1000, lengths=[8, 12], bos=999)
    batch = []
    longest = max(map(len, prompts))
    weights = torch.zeros(len(prompts), 3, longest, longest, dtype=torch.float64)
    for n, ids in enumerate(prompts):
        side = Tokens(tuple(map(str, ids)), ids=ids, special=(True,) + (False,) * (len(ids) - 1))
        batch.append(Inputs({"decoder": Sides(side, side)}))
        half = len(ids) // 2
        for i in range(longest):
            again = i > half
            weights[n, 0, i, i - half + 1 if again else 0] = 1
            weights[n, 1, i, i - half if again else 0] = 1
            weights[n, 2, i, max(i - 1, 0)] = 1
    allowed = torch.ones(longest, longest).tril().bool()[None, None]
    observer = ScoreObserver(batch, Layout({"decoder": (3,)}), ["duplicate", "induction"])
    observer.observe(Rows(Site("decoder", 0), 0, 0, weights, allowed))
    found = [
        (head.scores["induction"].mean, head.scores["duplicate"].mean) for head in observer.result()
    ]
    assert found == [(1, 0), (0, 1), (0, 0)]
    assert [[r.name for r in head.roles] for head in observer.result()] == [
        ["induction"],
        ["duplicate"],
        [],
    ]
    assert observer.result()[0].scores["induction"].rows == 8 + 12


def test_an_encoder_decoder_model_is_probed(tmp_path: Path) -> None:
    """None of the scores of a probe means anything in its encoder or between the two stacks."""
    transformers = pytest.importorskip("transformers")
    config = transformers.T5Config(
        vocab_size=60, d_model=16, d_kv=4, d_ff=24, num_layers=1, num_heads=4,
        decoder_start_token_id=0,
    )  # fmt: skip
    transformers.T5ForConditionalGeneration(config).save_pretrained(tmp_path)
    source = av.load(str(tmp_path))
    assert len(run_probe(source)) == len(source.layout)
