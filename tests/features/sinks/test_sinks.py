"""Sinks: every figure by another program, a massive activation made by hand, costs by ablation."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from typer.testing import CliRunner

import attnviz as av
from attnviz.cli import app
from attnviz.core.heads import Site
from attnviz.core.source import Rows
from attnviz.core.tokens import Tokens
from attnviz.errors import InputError, UsageError
from attnviz.features.sinks.measure import SinkObserver, _without_key, classed, largest, mean
from attnviz.features.sinks.result import GATE_CLASSES, Sinks
from attnviz.models.folder import locate
from tests.models import tiny

TEXT = (
    "The keys to the cabinet are on the table because the keys to the cabinet were lost by the old "
    "man who lived near the river."
)
GATED: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
GATED |= {"num_key_value_heads": 1, "head_dim": 8, "intermediate_size": 24, "vocab_size": 24}
GATED |= {"layer_types": ["full_attention"] * 2, "pad_token_id": None, "bos_token_id": 0}
OTHERS = ("A small boat waited at the quay.", "Nobody knew why.", "Two horses stood by the gate.")


@pytest.fixture(scope="module")
def found() -> Sinks:
    return av.sinks(TEXT, ablate=True)


@pytest.fixture(scope="module")
def theirs() -> dict[str, np.ndarray]:
    """The same of demo-gpt2 by transformers' eager attention in float64, with its own formulas."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        locate("demo-gpt2").folder, attn_implementation="eager", dtype=torch.float64
    ).eval()
    ids = av.capture(TEXT).inputs.sides["decoder"].queries.ids
    kept: list[torch.Tensor] = []
    for block in model.transformer.h:
        block.attn.c_attn.register_forward_hook(lambda _, __, out: kept.append(out[0]))
    with torch.no_grad():
        out = model(
            input_ids=torch.tensor([ids]), output_attentions=True, output_hidden_states=True
        )
    found: dict[str, list[Any]] = {name: [] for name in ("place", "share", "norm", "written")}
    found |= {"output": [], "chance": [], "weight": []}
    for layer, (weights, qkv) in enumerate(zip(out.attentions, kept, strict=True)):
        project = model.transformer.h[layer].attn.c_proj.weight.detach()
        outputs = []
        for head, map_ in enumerate(weights[0]):
            width = qkv.shape[1] // 3
            size = width // len(weights[0])
            part = slice(2 * width + head * size, 2 * width + (head + 1) * size)
            value = qkv[:, part]
            writes = value @ project[head * size : (head + 1) * size]
            norm = writes.norm(dim=1).numpy()
            weight = map_.numpy()
            column = weight.sum(0)
            place = int(column.argmax())
            count = len(ids)
            found["place"].append(place)
            found["share"].append(column[place] / (count - place))
            found["chance"].append(np.mean([1 / (row + 1) for row in range(place, count)]))
            found["weight"].append(column[place] / count)
            others = np.delete(norm, place)
            found["norm"].append(norm[place] / others.mean())
            found["written"].append(column[place] * norm[place] / (column @ norm))
            outputs.append((map_ @ value).norm(dim=1).mean().item())
        found["output"] += [one / np.mean(outputs) for one in outputs]
    made = {name: np.array(values) for name, values in found.items()}
    return {**made, "states": [state[0].numpy() for state in out.hidden_states]}


def test_every_figure_is_that_of_an_independent_script(
    found: Sinks, theirs: dict[str, Any]
) -> None:
    assert [one.position for one in found.heads] == theirs["place"].tolist()
    for name in ("share", "norm", "written", "output", "weight"):
        ours = [getattr(one, name).value for one in found.heads]
        np.testing.assert_allclose(ours, theirs[name], rtol=2e-4, atol=1e-6, err_msg=name)
    np.testing.assert_allclose([one.chance for one in found.heads], theirs["chance"], rtol=1e-9)
    # the last state of transformers is normalized
    for one, state in list(zip(found.layers, theirs["states"], strict=True))[:-1]:
        place = np.unravel_index(np.abs(state).argmax(), state.shape)
        assert (one.position, one.dimension) == place
        assert one.value == pytest.approx(state[place], rel=1e-4)
        assert one.median == pytest.approx(np.median(np.abs(state)), rel=1e-3)


def test_a_dormant_head_is_one_whose_output_is_small_for_its_layer(
    found: Sinks, theirs: dict[str, Any]
) -> None:
    below = {n for n, value in enumerate(theirs["output"]) if value < 0.6}
    assert 0 < len(below) < len(theirs["output"]) / 2
    quiet = av.sinks(TEXT, dormant=0.6)
    assert {quiet.heads.index(head) for head in quiet.dormant} == below
    assert {n for n, value in enumerate(theirs["output"]) if value < 0.5} == {
        found.heads.index(head) for head in found.dormant
    }
    assert av.sinks(TEXT, dormant=0.0).dormant == ()


def test_what_a_head_costs_is_what_ablating_it_costs(found: Sinks) -> None:
    named = [found.layout.name(one.head) for one in found.sinks[:3]]
    ablation = av.ablate([TEXT], select=", ".join(named), method="zero")
    assert found.base == pytest.approx(ablation.base, abs=1e-4)
    by_name = {found.layout.name(one.head): one for one in found.heads}
    for effect in ablation.effects:
        one = by_name[found.layout.name(effect.heads[0])]
        assert one.without.value == pytest.approx(effect.change, abs=1e-4)
        assert one.without_sink is not None
    assert all(one.without is None for one in found.heads if not found.has_sink(one))


def test_a_row_goes_round_its_sink() -> None:
    maps = np.array([[[[1.0, 0, 0], [0.5, 0.5, 0], [0.8, 0.15, 0.05]]]])
    np.testing.assert_allclose(
        _without_key(maps, 0)[0, 0], [[1, 0, 0], [0, 1, 0], [0, 0.75, 0.25]], rtol=1e-6
    )
    sunk = maps * 0.5  # half of every row is on a learned sink, and stays there
    np.testing.assert_allclose(_without_key(sunk, 0)[0, 0].sum(-1), [0.5, 0.5, 0.5], rtol=1e-6)


def test_every_token_is_of_one_class() -> None:
    texts = ("the", ".", "the", ",", "cat", ".", "cat")
    names = [GATE_CLASSES[place] for place in classed(Tokens(texts))]
    assert names == [
        "first", "punctuation", "repeated", "punctuation", "other", "punctuation", "repeated"
    ]  # fmt: skip
    assert GATE_CLASSES[classed(Tokens((".", "a")))[0]] == "first"


def test_gates_by_token_are_those_of_the_model_s_own_projections() -> None:
    """Qwen3-Next: sigmoid of the gate's half of W_Q, averaged by hand over each class of rows."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model("qwen3_5_text", **GATED)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    ids = [(3, 9, 7, 9, 4), (5, 6, 5, 6, 5, 6), (8, 1)]
    found = av.sinks([av.Prompt(ids=some) for some in ids], model=model)
    opened: dict[tuple[int, str], list[float]] = {}
    for some in ids:
        seen: list[torch.Tensor] = []
        handles = [
            layer.self_attn.q_proj.register_forward_hook(
                lambda _, __, out, seen=seen: seen.append(out[0])
            )
            for layer in model.model.layers
        ]
        with torch.no_grad():
            model(torch.tensor([some]))
        for handle in handles:
            handle.remove()
        kinds = ["first", *("repeated" if n in some[:i] else "other" for i, n in enumerate(some))]
        kinds = [kinds[0], *kinds[2:]]
        for layer, out in enumerate(seen):
            gate = out.view(len(some), 2, 2, 8)[:, :, 1].sigmoid().mean(-1)  # [T, H]
            for head in range(2):
                for kind in set(kinds):
                    own = [float(gate[i, head]) for i, name in enumerate(kinds) if name == kind]
                    opened.setdefault((2 * layer + head, kind), []).append(float(np.mean(own)))
    for number, head in enumerate(found.heads):
        assert head.gates is not None
        for kind in ("first", "repeated", "other"):
            mean_ = getattr(head.gates, kind).value
            assert mean_ == pytest.approx(np.mean(opened[number, kind]), abs=1e-5)
        assert head.gates.punctuation.value is None
    shut = [head.gates.first.value - head.gates.other.value for head in found.gated if head.gates]
    assert shut == sorted(shut)
    assert "most shut at the first" in str(found)
    rows = found.to_records()
    assert rows[0]["gate_first"] == found.heads[0].gates.first.value  # type: ignore[union-attr]


def test_models_without_a_gate_have_none_by_token(found: Sinks) -> None:
    assert not found.gated
    assert all(head.gates is None for head in found.heads)
    assert "gate" not in str(found)
    assert found.to_records()[0]["gate_other"] is None


def test_a_sink_may_stand_anywhere() -> None:
    """Head 0 rests on key 2 with values of nothing, head 1 is uniform; in blocks of two rows."""
    length = 6
    causal = torch.tril(torch.ones(length, length, dtype=torch.bool))
    weights = torch.stack([torch.eye(length), causal.double()])
    weights[0, 3:] = 0
    weights[0, 3:, 2] = 1
    weights = (weights / weights.sum(-1, keepdim=True))[None].float()
    values = torch.ones(1, 2, length, 4)
    values[0, 0, 2] = 0
    texts = tuple("abcdef")
    observer = SinkObserver(Tokens(texts), lambda site: None)
    site = Site("decoder", 0)
    for first in range(0, length, 2):
        rows = slice(first, first + 2)
        end = first + 2
        observer.observe(
            Rows(site, first, 0, weights[:, :, rows, :end], causal[None, None, rows, :end],
                 values=values[:, :, :end])
        )  # fmt: skip
    sums = observer.layers[site]
    assert sums.weight[0].tolist() == [1, 1, 4, 0, 0, 0]
    assert sums.rows[0].tolist() == [6, 5, 4, 3, 2, 1]
    assert sums.norms[0].tolist() == [2, 2, 0, 2, 2, 2]
    assert sums.output.tolist() == pytest.approx([2 * 2, 6 * 2])
    assert sums.chance[0, 0].item() == pytest.approx(sum(1 / n for n in range(1, 7)))


def test_an_activation_is_massive_by_both_bounds() -> None:
    state = torch.full((1, 5, 200), 0.05)
    (plain,) = largest([state])
    assert not plain.massive
    state[0, 3, 7] = -101.0
    (one,) = largest([state])
    assert (one.value, one.position, one.dimension, one.massive) == (-101.0, 3, 7, True)
    assert not largest([state * 0.9])[0].massive  # 90.9 is below 100
    state[0, :, :150] = 0.2
    state[0, 3, 7] = 150.0
    assert not largest([state])[0].massive  # 750 times the median


def test_learned_sinks_are_no_keys(tmp_path: Path) -> None:
    tiny.build("gpt_oss", tmp_path, words=True)
    changed = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    with torch.no_grad():
        for name, parameter in changed.named_parameters():
            if "sinks" in name:
                parameter.add_(torch.arange(len(parameter)) * 10.0)  # the last head's is large
    changed.save_pretrained(tmp_path)
    source = av.load(str(tmp_path))
    tiny.hooked_only(source)
    prompt = av.Prompt(ids=tiny.LONG)
    eager = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager")
    with torch.no_grad():
        out = eager(input_ids=torch.tensor([tiny.LONG]), output_attentions=True)
    left = np.concatenate([1 - one[0].sum(-1).mean(-1).numpy() for one in out.attentions])
    found = av.sinks(prompt, model=source, threshold=0.05)
    np.testing.assert_allclose([one.learned.value for one in found.heads], left, atol=1e-5)
    resting = [one for one in found.heads if found.rests_on_learned(one)]
    assert resting
    assert "learned" in str(found)


def test_texts_count_once_each() -> None:
    values = [0.1, 0.2, 0.3, 0.4, 0.5, float("nan")]
    one = mean(values)
    assert one.value == pytest.approx(0.3)
    error = np.std(values[:5], ddof=1) / np.sqrt(5)
    assert (one.high or 0) - 0.3 == pytest.approx(2.7764451 * error, rel=1e-6)
    assert mean([0.5]).low is None
    assert mean([float("nan")]).value is None


def test_an_encoder_has_its_sinks_too(minilm: str) -> None:
    found = av.sinks([TEXT, *OTHERS[:1]], model=minilm, ablate=True, threshold=0.65)
    first = found.sinks[0]
    assert first.token in ("[CLS]", "[SEP]")
    assert (first.norm.value or 1) < 0.3
    assert (first.written.value or 1) < (first.weight.value or 0) / 2
    assert found.unit == "1 - cosine"
    assert found.base is None
    assert first.without.value > 0
    assert len(found.layers) == 7
    assert found.texts == 2
    assert "No intervals" in " ".join(found.notes)


def test_wrong_inputs_are_named() -> None:
    with pytest.raises(UsageError, match="no values"):
        av.sinks(dataclasses.replace(av.capture("The cat sat"), asked=None))
    with pytest.raises(InputError, match="no text"):
        av.sinks([])
    with pytest.raises(UsageError, match="at least 0"):
        av.sinks("The cat", threshold=-1.0)


def test_the_command_and_what_it_says_of_heads(found: Sinks) -> None:
    out = CliRunner().invoke(app, ["sinks", TEXT])
    assert out.exit_code == 0, out.output
    assert "no massive activation" in " ".join(out.output.split())
    told = found.finding("s.json")
    assert told is not None
    assert {measure.name for measure in told.measures} == {"share", "output", "cost"}
    assert 0 < len(told.said) < 24  # heads without a sink have nothing to say
    assert "of what is written" in " ".join(map(" ".join, told.said.values()))
    dormant = av.sinks(TEXT, dormant=0.6).finding("s.json")
    assert dormant is not None
    assert any("dormant" in line for lines in dormant.said.values() for line in lines)


@pytest.mark.parametrize("model", ["demo-gpt2", "demo-bert", "minilm"])
def test_heads_name_the_same_sinks(model: str, minilm: str) -> None:
    """As a score, a place and a token, in every form; the figures are checked above."""
    path = minilm if model == "minilm" else model
    ours, theirs = av.heads(TEXT, model=path), av.sinks(TEXT, model=path)
    rows = ours.to_pandas()
    for place, (one, other) in enumerate(zip(ours.heads, theirs.heads, strict=True)):
        score = one.scores["sink"]
        assert one.head == other.head
        assert one.sink == other.position == rows["sink.position"][place]
        assert rows["sink.token"][place] == other.token
        assert score.mean == pytest.approx(other.share.value, rel=1e-6)
        assert score.chance == pytest.approx(other.chance, rel=1e-6)


def test_the_table_of_heads_names_sinks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Head 2.2 rests in the middle of the text; a narrow terminal has no room for it."""
    for columns, shown in (("100", True), ("80", False)):
        monkeypatch.setenv("COLUMNS", columns)
        result = CliRunner().invoke(app, ["heads", TEXT, "--top", "all", "-q"])
        assert result.exit_code == 0
        assert ("\u00b7are (6) 0.40" in result.stdout) is shown
    result = CliRunner().invoke(app, ["heads", TEXT, "--sort", "sink", "--json"])
    means = [one["scores"]["sink"]["mean"] for one in json.loads(result.stdout)["heads"]]
    assert means == sorted(means, reverse=True)
