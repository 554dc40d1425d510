"""A logit taken apart: against transformers' own tensors, identities, and what is refused."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema_rs
import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.cli import main
from attnviz.core.prompt import Prompt
from attnviz.drawing.labels import visible
from attnviz.errors import InputError, ModelError, UsageError
from attnviz.features.logits.function import run
from attnviz.features.logits.result import Logits, LogitsSettings
from attnviz.models import pretrained
from attnviz.models.demo import DEMOS
from tests.models.tiny import LONG, Blocks, build, hooked_only

transformers = pytest.importorskip("transformers")

SCHEMA = Logits.json_schema()
REPEATED = "Mary gave the old blue clock to Peter, and later Mary gave the old blue"
CLOCK = " clock"


@pytest.fixture(scope="module")
def report() -> Logits:
    return av.logits(REPEATED)


def by_hand(model: Any, ids: list[int], layers: list[tuple[Any, Any]], norm: Any) -> dict[str, Any]:
    """Return every part of an eager model's top logit, float64: of projections, MLPs and norm."""
    kept: dict[Any, np.ndarray] = {}

    def keep(key: Any, take: Any) -> Any:
        return lambda module, args, out: kept.__setitem__(key, take(args, out).double().numpy())

    hooks = [norm.register_forward_hook(keep("final", lambda args, out: args[0][0, -1]))]
    for number, (projection, mlp) in enumerate(layers):
        z = keep(("z", number), lambda args, out: args[0][0, -1])
        hooks += [projection.register_forward_hook(z)]
        hooks += [mlp.register_forward_hook(keep(("mlp", number), lambda args, out: out[0, -1]))]
    with torch.no_grad():
        output = model(torch.tensor([ids]), output_hidden_states=True)
    for hook in hooks:
        hook.remove()
    logits = output.logits[0, -1].double().numpy()
    token = int(logits.argmax())
    row = model.get_output_embeddings().weight.detach().double().numpy()[token]
    gamma, rms = norm.weight.detach().double().numpy(), getattr(norm, "bias", None) is None
    eps = getattr(norm, "eps", None) or norm.variance_epsilon
    x = kept["final"]
    sigma = np.sqrt((np.mean(x**2) if rms else np.var(x)) + eps)

    def value(part: np.ndarray) -> float:
        centred = part if rms else part - part.mean()
        return float((gamma * centred / sigma) @ row)

    heads = model.config.num_attention_heads
    found: dict[str, Any] = {"logit": logits[token], "heads": [], "mlps": []}
    for number, (projection, _) in enumerate(layers):
        w = projection.weight.detach().double().numpy()
        w = w.T if isinstance(projection, torch.nn.Linear) else w  # [in, out]
        z = kept["z", number].reshape(heads, -1)
        slices = w.reshape(heads, -1, w.shape[1])
        found["heads"] += [value(z[h] @ slices[h]) for h in range(heads)]
        found["mlps"].append(value(kept["mlp", number]))
    found["embedding"] = value(output.hidden_states[0][0, -1].double().numpy())
    return found


def of_kind(report: Logits, kind: str) -> list[float]:
    return [part.value for part in report.parts if part.kind == kind]


def check(report: Logits, expected: dict[str, Any]) -> None:
    assert report.logit == pytest.approx(expected["logit"], abs=1e-4)
    assert of_kind(report, "head") == pytest.approx(expected["heads"], abs=1e-4)
    assert of_kind(report, "mlp") == pytest.approx(expected["mlps"], abs=1e-4)
    assert of_kind(report, "embedding") == pytest.approx([expected["embedding"]], abs=1e-4)


def test_gpt2_against_transformers(report: Logits) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(
        DEMOS["demo-gpt2"], attn_implementation="eager", dtype=torch.float32
    )
    ids = list(av.load("demo-gpt2").prepare(Prompt(REPEATED)).sides["decoder"].queries.ids)
    layers = [(layer.attn.c_proj, layer.mlp) for layer in model.transformer.h]
    check(report, by_hand(model.eval(), ids, layers, model.transformer.ln_f))


@pytest.mark.parametrize("position", [-1, 4])
def test_llama_against_transformers(position: int, tmp_path: Path) -> None:
    """Grouped heads, rotary positions, RMS normalization, no biases."""
    build("llama", tmp_path, 3.0, words=True)
    source = pretrained.load(str(tmp_path), backend="hooked")
    hooked_only(source)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager")
    layers = [(layer.self_attn.o_proj, layer.mlp) for layer in model.model.layers]
    ids = LONG if position == -1 else LONG[: position + 1]
    expected = by_hand(model.eval(), list(ids), layers, model.model.norm)
    found = run(
        source, source.prepare(Prompt(ids=LONG)), LogitsSettings(position=position, predictions=41)
    )
    check(found, expected)
    assert sum(one.probability for one in found.predictions) == pytest.approx(1)


def test_votes_through_tokens_add_up_to_the_head(report: Logits) -> None:
    assert set(report.by_token) == set(report.layout)
    for head, value in report.heads().items():
        assert sum(report.by_token[head]) == pytest.approx(value, abs=1e-9)
        assert len(report.by_token[head]) == len(report.tokens)


def test_induction_heads_vote_for_the_word_that_they_copy(report: Logits) -> None:
    """The three that vote most show induction on random tokens too, and copy the word itself."""
    assert report.token == CLOCK
    strongest = {vote.head for vote in report.votes[:3]}
    scored = av.heads(REPEATED, probe=True).probe
    induction = {h.head for h in scored if any(role.name == "induction" for role in h.roles)}
    assert strongest <= induction
    for vote in report.votes[:3]:
        assert vote.seen[0].token == CLOCK
        assert vote.seen[0].value > 0.9 * vote.value > 0
    assert sum(CLOCK in vote.raises for vote in report.votes[:3]) == 3


def test_the_words_that_a_head_raises(report: Logits) -> None:
    """From the head's output by NumPy, through the last normalization and W_U."""
    source = av.load("demo-gpt2")
    inputs = source.prepare(Prompt(REPEATED))
    blocks = Blocks()
    source.forward([inputs], [blocks])
    readout = source.readout()
    for vote in report.votes:
        site, index = vote.head.site, vote.head.index
        written = blocks.outputs(site)[0, index, -1] @ source.output(site).weight[index]
        part = written.double().numpy()
        part = readout.scale.double().numpy() * (part - part.mean())
        order = np.argsort(readout.table.double().numpy() @ part)
        assert vote.lowers == source.tokens(order[:5].tolist()).texts
        assert vote.raises == source.tokens(order[:-6:-1].tolist()).texts


def test_a_difference_is_the_difference_of_the_parts() -> None:
    one, other = (av.logits(REPEATED, answer=word) for word in ("clock", "garden"))
    both = av.logits(REPEATED, answer="clock", against="garden")
    assert both.logit == pytest.approx(one.logit - other.logit, abs=1e-5)
    for a, b, c in zip(one.parts, other.parts, both.parts, strict=True):
        assert c.value == pytest.approx(a.value - b.value, abs=1e-6)
    assert {p.token for p in both.predictions if p.mark == "asked"} == {CLOCK, " garden"}


def test_positions() -> None:
    every = av.logits("one two three one two", position="all", predictions=1)
    assert [p.position for p in every.predictions if p.rank == 1] == list(range(6))
    follows = {p.position: p.token for p in every.predictions if p.mark == "next"}
    assert follows == {0: "one", 1: " two", 2: " three", 3: " one", 4: " two"}
    fourth = av.logits("one two three one two", position=-2)
    assert fourth.position == 4
    assert fourth.predictions[0].logit == pytest.approx(
        av.logits("one two three one").predictions[0].logit, abs=1e-4
    )
    with pytest.raises(UsageError, match="no position 6: the text has 6 tokens"):
        av.logits("one two three one two", position=6)


def test_masked_models_predict_and_say_why_not() -> None:
    found = av.logits("The cat sat on the [MASK].", model="demo-bert")
    assert found.parts == ()
    assert found.sum is None
    assert found.tokens[found.position] == "[MASK]"
    assert any("normalizes the sum" in note and "attnviz ablate" in note for note in found.notes)
    with pytest.raises(InputError, match="no mask"):
        av.logits("The cat sat.", model="demo-bert")
    with pytest.raises(UsageError, match="no parts to draw"):
        found.to_bytes("png")
    assert found._picture_png() is None


def test_what_cannot_be_asked(minilm: str) -> None:
    with pytest.raises(ModelError, match="predicts no words"):
        av.logits("a b", model=minilm)
    with pytest.raises(ModelError, match="no vocabulary"):
        av.logits("a b", model="fresh")
    with pytest.raises(InputError, match="only one token can be compared"):
        av.logits("a b", answer="cabinetmaker")
    with pytest.raises(UsageError, match="compared with itself"):
        av.logits("a b", answer="the", against="the")
    with pytest.raises(UsageError, match="recorded attention holds no logits"):
        av.logits(dataclasses.replace(av.capture("a b"), asked=None))


def test_a_sum_that_is_none_is_not_shown() -> None:
    """With a head taken away, what it looks at is not what it writes."""
    model = av.load("demo-gpt2")
    with model.gated({"3.3": 0}), pytest.raises(ModelError, match="they are not shown"):
        av.logits(REPEATED, model=model)


def test_rows_are_the_parts(report: Logits) -> None:
    lines = report.to_csv().splitlines()
    assert lines[0] == "kind,layer,index,head,value"
    assert len(lines) == 1 + len(report.parts)


def test_results_come_back_equal(report: Logits) -> None:
    for one in (
        av.logits("one two three one two", position="all", against="and"),
        av.logits("The cat sat on the [MASK].", model="demo-bert"),
        replace(report, votes=(), by_token=None, partial=True, notes=()),
    ):
        assert Logits.from_json(one.to_json()) == one
        jsonschema_rs.validate(SCHEMA, one.to_dict())


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logits", REPEATED, "--by", "token"]) == 0
    out = capsys.readouterr().out
    assert "the parts add up to" in " ".join(out.split())
    assert visible(CLOCK) + " (6)" in out
    assert main(["logits", "a b", "--position", "soon"]) == 2
    assert "no token 'soon'; there are" in capsys.readouterr().err
    masks = ["logits", "The cat [MASK] [MASK].", "--model", "demo-bert", "--answer", "dog"]
    assert main(masks) == 0
    assert capsys.readouterr().out.count("asked for: dog") == 2
    assert main(["logits", "a b", "--by", "layer"]) == 2
    assert "--by takes 'head' or 'token', not 'layer'" in capsys.readouterr().err
    assert [main(["logits", "a b", name, "2"]) for name in ("--limit", "--column")] == [2, 2]
