"""What layers read: matrices found on a model, against the scores and values it computes."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor

import attnviz as av
from attnviz.core.heads import Site
from attnviz.core.prompt import Prompt
from attnviz.core.source import Rows, Source
from attnviz.models.controls import FreshConfig
from tests.models.test_residual import normalized
from tests.models.tiny import LONG, ran, tiny

LEARNED = ("gpt2", "opt")
PLAIN = (*LEARNED, "bert", "electra", "distilbert", "roberta")
TURNED = ("llama", "qwen2", "mistral", "granite", "gpt_neox", "phi", "cohere")
VALUES_ONLY = ("qwen3", "lfm2", "gpt_oss")
"""Queries and keys are normalized, or longer than the matrices make them (YaRN)."""
NOTHING = {
    "deepseek_v3": "its values are not",
    "t5": "no plain list of layers",
    "albert": "no plain list of layers",
}


class Keeper:
    """Keeps scores [H, T, S] and values [G, S, d_v] of every layer."""

    def __init__(self) -> None:
        self.scores: dict[Site, Tensor] = {}
        self.values: dict[Site, Tensor] = {}

    def observe(self, rows: Rows) -> None:
        self.scores[rows.site] = rows.logits[0].clone()
        self.values[rows.site] = rows.values[0].clone()


def check(source: Source, prompt: Prompt, *, turned: bool = False, scores: bool = True) -> None:
    """Scores (turned ones at distance 0) and differences of values follow from the matrices."""
    keeper = Keeper()
    states = ran(source, [source.prepare(prompt)], [keeper], states=True).states
    for site, theirs in keeper.scores.items():
        reading = source.reading(site)
        x = states[site.layer][0]
        n = x if reading.norm is None else normalized(reading.norm, x)
        values = n @ reading.value
        made = values - values[:, :1]
        assert made.abs().max() > 0
        values = keeper.values[site] - keeper.values[site][:, :1]
        torch.testing.assert_close(made, values, rtol=1e-4, atol=1e-4)
        assert (reading.query is None) != scores
        if not scores:
            continue
        assert reading.turned == turned
        q, k = n @ reading.query, n @ reading.key
        q = q if reading.query_bias is None else q + reading.query_bias[:, None]
        k = k if reading.key_bias is None else k + reading.key_bias[:, None]
        k = k.repeat_interleave(len(q) // len(k), 0)
        made = reading.scale * (q @ k.mT)
        length = made.shape[1]
        known = torch.eye(length) if turned else torch.ones(length, length)
        known = known.tril() if reading.causal else known
        torch.testing.assert_close(made * known, theirs * known, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("model", ["demo-gpt2", "demo-bert"])
def test_native(model: str) -> None:
    source = av.load(model)
    check(source, Prompt("The keys to the cabinet"))
    ids = list(source.prepare(Prompt("The keys to")).sides[source.layout.kinds[0]].queries.ids)
    embedding = source.embedding()
    x = embedding.tokens[ids] + embedding.positions[: len(ids)]
    if model == "demo-gpt2":
        entered = ran(source, [source.prepare(Prompt("The keys to"))], states=True).states[0]
        torch.testing.assert_close(x, entered[0])
    assert len(embedding.positions) == source.max_tokens


@pytest.mark.parametrize("kind", ["mha", "gqa", "mqa"])
def test_fresh(kind: str) -> None:
    check(av.load(FreshConfig(kind=kind, layers=2, causal=True)), Prompt("a b c d"))
    assert "two steps" in av.load(FreshConfig(kind="mla")).reading(Site("encoder", 0)).reason


@pytest.mark.parametrize("name", PLAIN)
def test_hooked(name: str, loaded: Any) -> None:
    source = tiny(name, loaded)
    check(source, Prompt(ids=LONG))
    embedding = source.embedding()
    if name in LEARNED:
        entered = ran(source, [source.prepare(Prompt(ids=LONG))], states=True).states[0]
        made = embedding.tokens[list(LONG)] + embedding.positions[: len(LONG)]
        torch.testing.assert_close(made, entered[0])
    else:
        assert "not tokens and learned positions" in embedding.reason


@pytest.mark.parametrize("name", TURNED)
def test_rotary(name: str, loaded: Any) -> None:
    source = tiny(name, loaded)
    check(source, Prompt(ids=LONG), turned=True)
    assert source.embedding().positions is None
    if name != "granite":  # which multiplies its embeddings
        entered = ran(source, [source.prepare(Prompt(ids=LONG))], states=True).states[0]
        torch.testing.assert_close(source.embedding().tokens[list(LONG)], entered[0])


@pytest.mark.parametrize("name", VALUES_ONLY)
def test_normalized_queries_leave_the_values(name: str, loaded: Any) -> None:
    source = tiny(name, loaded)
    check(source, Prompt(ids=LONG), scores=False)
    assert "queries and keys" in source.reading(source.layout.sites[-1]).reason


@pytest.mark.parametrize("name", NOTHING)
def test_nothing_is_made_up(name: str, loaded: Any) -> None:
    source = tiny(name, loaded)
    reading = source.reading(source.layout.sites[0])
    assert reading.value is None
    assert re.search(NOTHING[name], reading.reason)


def test_sums(loaded: Any) -> None:
    assert av.load("demo-gpt2").no_sum == av.load("demo-bert").no_sum == ""
    names = ("llama", "cohere", "qwen3", "bert", "gemma2", "lfm2")
    assert [tiny(name, loaded).no_sum for name in names] == [""] * len(names)
    assert "no plain list of layers" in tiny("t5", loaded).no_sum
