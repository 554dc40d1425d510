"""``av.heads``: what it takes, measures and prints."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from io import StringIO
from typing import Any

import pytest
import torch
from rich.console import Console
from transformers import CONFIG_MAPPING

import attnviz as av
from attnviz.core.heads import Layout
from attnviz.drawing.grid import heads_grid
from attnviz.features.heads.description import chance
from attnviz.features.heads.function import false_names, named
from attnviz.models.configs.families import mixers
from attnviz.scoring.observe import score_batch
from tests.cli.calling import SENTENCE


@pytest.fixture(scope="module")
def cap(minilm: str) -> av.Capture:
    return av.capture(SENTENCE, model=minilm)


def test_streamed_scores_equal_scores_of_the_stored_maps(cap, minilm: str) -> None:
    streamed = av.heads(SENTENCE, model=minilm)
    stored = av.heads(cap)
    assert [h.head for h in streamed.heads] == [h.head for h in stored.heads]
    for a, b in zip(streamed.heads, stored.heads, strict=True):
        assert [r.name for r in a.roles] == [r.name for r in b.roles]
        for name, score in a.scores.items():
            assert score.rows == b.scores[name].rows, name
            assert score.mean == pytest.approx(b.scores[name].mean, abs=1e-6), name
            assert score.chance == pytest.approx(b.scores[name].chance, abs=1e-9), name


def test_a_text_says_how_far_it_has_come() -> None:
    told: list[tuple[str, int, int]] = []
    text = "the cat and the dog " * 40
    found = av.heads(text, progress=lambda *so_far: told.append(so_far))
    assert found == av.heads(text)
    done = [number for _, number, _ in told]
    assert done == sorted(done)
    assert len(set(done)) > 2
    assert told[-1] == ("tokens", len(found.tokens["decoder"].queries), done[-1])


def test_a_probe_needs_the_model(cap) -> None:
    with pytest.raises(av.UsageError, match="needs the model itself"):
        av.heads(cap, probe=True)


HYBRIDS = {
    "qwen3_5_text": ["gated delta rule", "attention", "gated delta rule"],
    "kimi_linear": ["Kimi delta attention", "attention", "Kimi delta attention"],
}


@pytest.mark.parametrize("family", HYBRIDS)
def test_the_grid_names_what_every_layer_of_a_hybrid_is(family: str) -> None:
    from tests.families import built

    model = built(CONFIG_MAPPING[family])
    report = av.heads(av.Prompt(ids=(5, 9, 2, 31, 17, 12, 3)), model=model)
    assert list(report.layout.mixers) == HYBRIDS[family]
    lines = str(report).splitlines()[2:5]
    assert [line.split()[0] for line in lines] == ["0", "1", "2"]
    for line, name in zip(lines, HYBRIDS[family], strict=True):
        assert line.endswith(f" {name}")
    back = type(report).from_json(report.to_json())
    assert back.layout.mixers == report.layout.mixers
    assert str(back) == str(report)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"layers_block_type": ["mamba", "attention", "mlp"]}, ["Mamba", "attention", "MLP alone"]),
        ({"layer_types": ["conv", "full_attention", "mamba2"]}, ["convolution", None, "Mamba-2"]),
        ({"layer_types": ["recurrent", "attention", "rwkv"]}, ["recurrence", None, "no attention"]),
        ({"layer_types": ["linear_attention"] * 3}, ["linear attention", None, "linear attention"]),
        ({"layer_types": ["conv"]}, ["no attention", None, "no attention"]),
        ({}, ["no attention", None, "no attention"]),
    ],
)
def test_layers_without_heads_are_named_by_the_config(
    names: dict[str, Any], said: list[str | None]
) -> None:
    assert list(mixers(names, (0, 4, 0))) == [name or "attention" for name in said]
    assert mixers(names, (4, 4, 4)) == ()


def test_a_grid_without_room_names_kinds_of_layers_below() -> None:
    report = av.heads("the cat and the cat", model="demo-gpt2")
    assert not report.layout.mixers
    named = replace(report.layout, mixers=("attention", "a long name of a kind", "attention", "b"))
    console = Console(width=40, file=StringIO(), color_system=None)
    console.print(heads_grid(replace(report, layout=named)))
    said = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    assert "attention: layers 0, 2; a long name of a kind: layer 1; b: layer 3" in said


transformers = pytest.importorskip("transformers")
REPEATED = "the cat river moon stone bread the cat river moon stone"


@cache
def random_model(seed: int, vocabulary: int) -> Any:
    """128 heads with large weights that have learned nothing."""
    config = transformers.GPT2Config(
        n_layer=8, n_head=16, n_embd=128, n_positions=64, vocab_size=vocabulary,
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
    for seed in range(2):
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
