"""Models that somebody else has loaded: what they show, and that they stay as they were."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

import attnviz as av
from attnviz.core.prompt import Prompt
from attnviz.core.source import ForwardRequest, Start
from attnviz.drawing.labels import origin
from attnviz.errors import InputError, ModelError, UsageError
from attnviz.features.ablation import fills
from attnviz.models.demo import DEMOS
from tests.models.tiny import FAMILIES, SEQ2SEQ, SHORT, transformers

TEXT = "the keys to the cabinet are on the table"


def fresh(family: str, implementation: str = "sdpa") -> Any:
    """A random model of a family with its LM head, in training mode."""
    name, sizes = FAMILIES[family]
    config = getattr(transformers, f"{name}Config")(**sizes)
    torch.manual_seed(0)
    kind = "Seq2SeqLM" if family in SEQ2SEQ else "MaskedLM" if family == "bert" else "CausalLM"
    auto = getattr(transformers, f"AutoModelFor{kind}")
    return auto.from_config(config, attn_implementation=implementation).train()


def described(model: Any) -> dict[str, Any]:
    """All that a capture could have changed."""
    return {
        "modes": [module.training for module in model.modules()],
        "trained": [one.requires_grad for one in model.parameters()],
        "choices": [
            {k: v for k, v in vars(m.config).items() if k.startswith("_attn")}
            for m in model.modules()
            if hasattr(m, "config")
        ],
        "config": copy.deepcopy(model.config.to_dict()),
        "hooks": [
            (len(m._forward_hooks), len(m._forward_pre_hooks), "forward" in vars(m))
            for m in model.modules()
        ],
        "weights": {name: one.clone() for name, one in model.state_dict().items()},
    }


def same(before: dict[str, Any], after: dict[str, Any]) -> None:
    weights = before.pop("weights"), after.pop("weights")
    assert before == after
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.fixture
def gpt2() -> Any:
    model = transformers.AutoModelForCausalLM.from_pretrained(
        DEMOS["demo-gpt2"], attn_implementation="sdpa", dtype=torch.float32
    )
    model.transformer.h[1].attn.attn_dropout.p = 0.5
    model.train()
    model.transformer.h[2].eval()  # as somebody may freeze a layer
    model.transformer.wte.weight.requires_grad_(False)
    return model


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return transformers.AutoTokenizer.from_pretrained(DEMOS["demo-gpt2"])


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2", "bert", "bart", "t5"])
def test_maps_are_those_of_eager_attention_and_the_model_stays_as_it_was(family: str) -> None:
    model = fresh(family, "eager" if family == "gemma2" else "sdpa")
    before = described(model)
    source = av.load(model)
    if source.info.backend != "hooked":
        pytest.skip(source.info.reason)
    target = "x" if family in SEQ2SEQ else None
    inputs = source.prepare(Prompt(ids=SHORT))
    capture = av.capture(Prompt(ids=SHORT), model=source)
    same(before, described(model))
    theirs = copy.deepcopy(model).eval()
    theirs.set_attn_implementation("eager")
    arguments: dict[str, Any] = {"input_ids": torch.tensor([SHORT])}
    if target:
        arguments["decoder_input_ids"] = torch.tensor([inputs.sides["decoder"].queries.ids])
    with torch.no_grad():
        found = theirs(**arguments, output_attentions=True, return_dict=True)
    kinds = capture.layout.kinds
    for kind in kinds:
        name = {"cross": "cross_attentions"}.get(kind, f"{kind}_attentions")
        expected = found[name if target else "attentions"]
        for site in (site for site in capture.layout.sites if site.kind == kind):
            ours = torch.from_numpy(capture.maps[site])
            torch.testing.assert_close(ours, expected[site.layer][0], atol=1e-5, rtol=0)


def test_a_class_that_cannot_be_switched_is_eager_all_the_same() -> None:
    """Falcon returns weights without a mask where its configuration says sdpa."""
    model = fresh("falcon", "sdpa")
    before = described(model)
    capture = av.capture(Prompt(ids=SHORT), model=av.load(model))
    same(before, described(model))
    theirs = fresh("falcon", "eager").eval()
    theirs.load_state_dict(model.state_dict())
    with torch.no_grad():
        found = theirs(torch.tensor([SHORT]), output_attentions=True, use_cache=False).attentions
    assert capture.layout.kinds == ("decoder",)
    for site, maps in capture.maps.items():
        torch.testing.assert_close(torch.from_numpy(maps), found[site.layer][0], atol=1e-6, rtol=0)


def test_everything_that_runs_a_model_runs_on_it(
    gpt2: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = fills.sentences()[:4]
    monkeypatch.setattr(fills, "sentences", lambda: few)
    before = described(gpt2)
    source = av.load(gpt2, tokenizer=tokenizer)
    plain = av.capture(TEXT, model="demo-gpt2")
    capture = av.capture(TEXT, model=gpt2, tokenizer=tokenizer)
    assert " · hooked backend · checked against eager · " in origin(capture)
    assert capture.inputs.sides["decoder"].queries == plain.inputs.sides["decoder"].queries
    for site, maps in plain.maps.items():
        torch.testing.assert_close(capture.maps[site], maps, atol=1e-5, rtol=0)
    named = [[role.name for role in head.roles] for head in av.heads(TEXT, model=source).heads]
    assert named == [[r.name for r in head.roles] for head in av.heads(plain).heads]
    assert av.view(TEXT, model=source).page
    ours = av.ablate(TEXT, model=source, select="0.5,2.4", estimate="plain")
    theirs = av.ablate(TEXT, model="demo-gpt2", select="0.5,2.4", estimate="plain")
    for one, other in zip(ours.effects, theirs.effects, strict=True):
        assert one.change == pytest.approx(other.change, abs=1e-4)
        assert one.gradient == pytest.approx(other.gradient, abs=1e-4)
    one, other = (av.logits(TEXT, model=m) for m in (source, "demo-gpt2"))
    assert one.token == other.token
    assert one.logit == pytest.approx(other.logit, abs=1e-3)
    with source.gated({"0.*": 0.0}):
        gone = av.capture(TEXT, model=source)
    assert not (gone.maps[max(gone.maps)] == capture.maps[max(capture.maps)]).all()
    same(before, described(gpt2))


def test_a_profile_of_a_model_in_memory(gpt2: Any, tokenizer: Any, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text(f"{TEXT}\na b c a b c\n")
    before = described(gpt2)
    found = av.profile(tmp_path / "texts.txt", model=av.load(gpt2, tokenizer=tokenizer))
    assert found.texts == 2
    same(before, described(gpt2))


def test_training_goes_on_as_if_nothing_had_happened(tokenizer: Any) -> None:
    """The loss and the gradients of a step after a capture are those of one without, to the bit."""
    found = []
    for looks in (False, True):
        model = fresh("llama")
        if looks:
            source = av.load(model)
            av.ablate(
                Prompt(ids=SHORT), model=source, select="0.0", method="zero", estimate="plain"
            )
        torch.manual_seed(1)
        ids = torch.tensor([SHORT])
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        found.append([loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
    assert len(found[0]) == len(found[1]) > 5
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_a_pass_that_fails_leaves_no_trace(gpt2: Any, tokenizer: Any) -> None:
    class Breaks:
        def observe(self, rows: Any) -> None:
            raise KeyboardInterrupt

    source = av.load(gpt2, tokenizer=tokenizer)
    states = source.forward(
        [source.prepare(Prompt(TEXT))], request=ForwardRequest(states=True)
    ).states
    gpt2.transformer.h[0].forward = gpt2.transformer.h[0].forward  # as libraries that offload do
    before = described(gpt2)
    inputs = source.prepare(Prompt(TEXT))
    with pytest.raises(KeyboardInterrupt):
        source.forward([inputs], [Breaks()])
    with pytest.raises(KeyboardInterrupt):
        source.forward([inputs], [Breaks()], ForwardRequest(start=Start(2, states[2]), states=True))
    same(before, described(gpt2))


def test_what_a_model_without_a_head_for_words_says() -> None:
    model = transformers.BertForSequenceClassification(transformers.BertConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24,
        vocab_size=41))  # fmt: skip
    source = av.load(model)
    assert source.no_logits == "BertForSequenceClassification has no LM head"
    found = av.ablate(Prompt(ids=SHORT), model=source, select="0.0", method="zero")
    assert found.metric == "kl"  # of its labels
    bare = av.ablate(Prompt(ids=SHORT), model=model.bert, select="0.0", method="zero")
    assert bare.metric == "hidden"


def test_models_and_tokenizers_of_other_kinds(gpt2: Any, tokenizer: Any) -> None:
    with pytest.raises(UsageError, match="takes a transformers PreTrainedModel, not Linear"):
        av.load(torch.nn.Linear(2, 2))
    with pytest.raises(UsageError, match="tokenizer takes a transformers tokenizer, not int"):
        av.load(gpt2, tokenizer=3)
    with pytest.raises(UsageError, match="tokenizer goes with a transformers model in memory"):
        av.load("demo-gpt2", tokenizer=tokenizer)
    with pytest.raises(UsageError, match="stays on cpu in float32; move it yourself"):
        av.load(gpt2, device="meta")
    with pytest.raises(
        ModelError, match=r"given without its tokenizer; .* give token ids with ids"
    ):
        av.capture(TEXT, model=gpt2)
    with pytest.raises(InputError):
        av.capture(Prompt(ids=(10**9,)), model=gpt2)
    with torch.device("meta"):
        nowhere = transformers.GPT2LMHeadModel(gpt2.config)
    with pytest.raises(ModelError, match="no weights in memory"):
        av.load(nowhere)


def test_what_it_writes_is_written_without_the_heads_that_are_closed(
    gpt2: Any, tokenizer: Any
) -> None:
    prompt = av.Prompt(TEXT, generate=av.Generation(8))
    written = {}
    for source in (av.load(gpt2, tokenizer=tokenizer), av.load("demo-gpt2")):
        whole = source.prepare(prompt).output
        with source.gated({"2.*": 0.0}):
            written[source.info.backend] = source.prepare(prompt).output
        assert source.prepare(prompt).output == whole != written[source.info.backend]
    assert written["hooked"] == written["native"]
