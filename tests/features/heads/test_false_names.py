"""How many heads that attend at random would have a role on a text."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch

import attnviz as av
from attnviz.core.heads import Layout
from attnviz.features.heads.description import chance
from attnviz.features.heads.function import false_names, named
from attnviz.scoring.passes import score_batch

transformers = pytest.importorskip("transformers")
REPEATED = "the cat river moon stone bread the cat river moon stone"


@cache
def random_model(seed: int, vocabulary: int) -> Any:
    """256 heads with large weights that have learned nothing."""
    config = transformers.GPT2Config(
        n_layer=16, n_head=16, n_embd=128, n_positions=64, vocab_size=vocabulary,
        initializer_range=0.3, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(seed)
    return av.load(transformers.GPT2LMHeadModel(config).eval())


@pytest.mark.parametrize("text", [REPEATED, "The cat sat on the mat"])
def test_a_model_that_has_learned_nothing_has_as_many_names(text: str) -> None:
    """The draws know nothing of its depth, width and norms: within three times of the mean."""
    source = av.load("demo-gpt2")
    ids = av.heads(text, model=source).tokens["decoder"].queries.ids
    names = []
    for seed in range(3):
        model = random_model(seed, source.vocab_size or 0)
        result = av.heads(av.Prompt(ids=tuple(ids)), model=model)
        names.append(sum(any(not role.rests for role in head.roles) for head in result.heads))
    assert result.false_names is not None
    mean = sum(names) / len(names)
    assert mean > 0
    assert mean / 3 < result.false_names < 3 * mean


def test_more_heads_have_more_names_and_long_texts_no_estimate() -> None:
    result = av.heads(REPEATED)
    expected = result.false_names
    assert expected is not None
    assert expected == false_names(result.inputs, result.layout)
    twice = Layout({"decoder": (6,) * 8})
    assert false_names(result.inputs, twice) == pytest.approx(2 * expected)
    long = av.heads(" ".join(f"word {n}" for n in range(55)))
    assert named(long.inputs, "decoder") is None
    assert long.false_names is None


def test_it_stands_below_the_table() -> None:
    said = " ".join(str(av.heads(REPEATED)).split())
    assert "of 24 heads that attend at random, " in said
    assert chance(0.4, 24).endswith("fewer than one would do something on this text")
    assert "1,024 heads that attend at random, about 92 would" in chance(92.2, 1024)


@pytest.mark.parametrize("model", ["demo-gpt2", "demo-bert"])
def test_only_heads_whose_scores_reach_a_role_are_looked_at(model: str) -> None:
    source = av.load(model)
    inputs = source.prepare(av.Prompt(REPEATED))
    total = score_batch(source, [inputs]).total()
    acts = [any(not role.rests for role in total.roles(n)) for n in range(len(source.layout))]
    may = total.may_act()
    assert any(acts)
    assert not may.all()
    assert all(may[n] for n, act in enumerate(acts) if act)
