"""The recipe in which heads form: what it draws, what is known of it, and its models."""

import itertools
from dataclasses import replace
from math import lgamma

import numpy as np
import pytest
import torch

from training.phases import MARKOV, Phases, build, draw, optimum, words

SMALL = replace(MARKOV, length=6, symbols=3)


def test_repeats_have_a_period_of_their_own() -> None:
    run = Phases()
    rows = draw(run, np.random.default_rng(0), 200)
    assert rows.shape == (200, run.length)
    periods = {next(p for p in range(1, run.length) if (row[p:] == row[:-p]).all()) for row in rows}
    assert min(periods) >= run.length // 8
    assert max(periods) <= run.length // 2
    assert len(periods) > 10


def test_every_chain_has_its_own_transitions() -> None:
    rows = draw(replace(MARKOV, length=2000), np.random.default_rng(0), 30)
    counts = np.zeros((30, 5, 5))
    for chain, row in enumerate(rows):
        np.add.at(counts[chain], (row[:-1], row[1:]), 1)
    shares = counts / counts.sum(-1, keepdims=True)
    assert shares.mean(0) == pytest.approx(np.full((5, 5), 0.2), abs=0.12)  # flat on average
    # a flat Dirichlet over five has entries of variance 0.2 * 0.8 / 6
    assert shares.var() == pytest.approx(0.2 * 0.8 / 6, rel=0.25)


def test_the_bigram_is_the_loss_of_the_mixture_of_all_chains() -> None:
    """Bayes' estimate has the probability of a sequence under a flat prior, a product of betas."""
    k = SMALL.symbols
    for row in itertools.islice(itertools.product(range(k), repeat=SMALL.length), 0, 729, 37):
        transitions = np.zeros((k, k))
        np.add.at(transitions, (np.array(row[:-1]), np.array(row[1:])), 1)

        log = sum(
            lgamma(k) - lgamma(k + counts.sum()) + sum(lgamma(1 + c) for c in counts)
            for counts in transitions
        )
        known = optimum(SMALL, np.array([row]))
        assert known["bigram"] == pytest.approx(-log / (SMALL.length - 1))


def test_no_predictor_is_better_than_the_bigram_on_average() -> None:
    rows = draw(MARKOV, np.random.default_rng(3), 300)
    known = optimum(MARKOV, rows)
    assert known["bigram"] < known["unigram"] < known["uniform"]


@pytest.mark.parametrize("run", [Phases(), MARKOV])
def test_models_have_attention_alone(run: Phases) -> None:
    model = build(run).eval()
    ids = torch.from_numpy(draw(run, np.random.default_rng(0), 2))
    with torch.no_grad():
        whole = model(ids).logits
        for block in model.transformer.h:
            block.mlp.c_fc.weight.normal_()
            block.mlp.c_fc.bias.normal_()
        assert torch.equal(model(ids).logits, whole)
    assert not any(p.requires_grad for b in model.transformer.h for p in b.mlp.parameters())
    assert len(set(words(run))) == run.symbols
    assert 25 <= len(run.saved) <= 40
