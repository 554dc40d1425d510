"""Labels of fine-tuned classifiers: logits and heads against transformers and hooks on it."""

from __future__ import annotations

import copy
import functools
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as t
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast
from transformers.modeling_outputs import SequenceClassifierOutput

import attnviz as av
from attnviz.captures.loading import answering
from attnviz.core.heads import Site
from attnviz.core.source import ForwardRequest, Gate
from attnviz.errors import InputError, ModelError, UsageError
from attnviz.features.ablation import fills
from attnviz.models import pretrained
from attnviz.models.hooked import labels

WORDS = ["the", "a", "movie", "film", "was", "is", "good", "bad", "great", "awful", "cat", "sat",
         "on", "mat", "positive", "negative"]  # fmt: skip
TEXT, OTHER = "the movie was good", "the movie was bad"
SIZES: dict[str, Any] = {
    "vocab_size": 21, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 32, "max_position_embeddings": 40, "pad_token_id": 0,
}  # fmt: skip
DISTIL: dict[str, Any] = {
    "vocab_size": 21, "dim": 16, "n_layers": 2, "n_heads": 4, "hidden_dim": 32,
    "max_position_embeddings": 40,
}  # fmt: skip
GPT2: dict[str, Any] = {
    "vocab_size": 21, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 40, "pad_token_id": 0
}  # fmt: skip
KINDS = {
    "bert": ("Bert", SIZES), "roberta": ("Roberta", SIZES), "distilbert": ("DistilBert", DISTIL),
    "electra": ("Electra", {**SIZES, "embedding_size": 16}), "gpt2": ("GPT2", GPT2),
    "llama": ("Llama", {**SIZES, "num_key_value_heads": 2}), "tokens": ("Bert", SIZES),
    "distilbert-tokens": ("DistilBert", DISTIL),
}  # fmt: skip
TEXT_LABELS = ["bert", "roberta", "electra", "distilbert", "gpt2", "llama"]
TOKEN_LABELS = ["tokens", "distilbert-tokens"]
NAMES = {0: "neg", 1: "good", 2: "pos"}  # one of them is also a token
Made = tuple[str, Any]


def _tokenizer(*, pair: bool) -> Any:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    model = models.WordLevel({piece: n for n, piece in enumerate(pieces)}, unk_token="[UNK]")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]"}
    if pair:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
        special |= {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def _saved(folder: Path, kind: str, **more: Any) -> Made:
    """A tiny random classifier in a folder, and the model itself."""
    named = {"id2label": NAMES, "label2id": {v: k for k, v in NAMES.items()}}
    family, sizes = KINDS[kind]
    config = getattr(t, f"{family}Config")(**sizes, **(more or named))
    task = "Token" if kind in TOKEN_LABELS else "Sequence"
    torch.manual_seed(0)
    model = getattr(t, f"{family}For{task}Classification")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    model.save_pretrained(folder)
    _tokenizer(pair=kind not in ("gpt2", "llama")).save_pretrained(folder)
    return str(folder), model


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, read_once: set[str]) -> Callable[[str], Made]:
    @functools.cache
    def make(kind: str) -> Made:
        folder, model = _saved(tmp_path_factory.mktemp(kind), kind)
        read_once.add(folder)
        return folder, model

    return make


@pytest.fixture(scope="module", autouse=True)
def _read_once() -> Iterator[None]:
    """A model that several questions name is read once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretrained, "load", functools.cache(pretrained.load))
        yield


def _own(model: Any, name: str, position: int | None = None) -> torch.Tensor:
    """The logits of transformers itself on the text."""
    prepared = av.load(name).prepare(av.Prompt(TEXT))
    ids = next(iter(prepared.sides.values())).queries.ids
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids])).logits[0]
    return logits if position is None else logits[position]


@pytest.mark.parametrize("kind", [*TEXT_LABELS, *TOKEN_LABELS])
def test_the_parts_add_up_to_the_label_s_logit(made: Callable[[str], Made], kind: str) -> None:
    name, model = made(kind)
    position = 3 if kind in TOKEN_LABELS else None
    own = _own(model, name, position)
    ways = (("pos", 2), ("good", 1), ("#0", 0))  # of naming one
    for label, number in ways if kind in ("bert", "tokens") else ways[:1]:
        result = av.logits(TEXT, model=name, answer=label, position=position)
        assert result.logit == pytest.approx(float(own[number]), abs=2e-5)
        assert sum(part.value for part in result.parts) == pytest.approx(
            float(own[number]), abs=2e-5
        )
    lead = av.logits(TEXT, model=name, answer="pos", against="neg", position=position)
    assert lead.logit == pytest.approx(float(own[2] - own[0]), abs=2e-5)
    assert {word.token for word in lead.predictions} == set(NAMES.values())
    shares = torch.softmax(own, -1)
    for word in lead.predictions:
        assert word.probability == pytest.approx(float(shares[word.id]), abs=1e-5)
    pooled = kind in ("bert", "roberta", "electra", "distilbert")
    assert any("pooler" in note for note in lead.notes) is pooled


def _zeroed(model: Any, kind: str, ids: list[int], head: int, label: int) -> float:
    """The logit without head 0.``head``, by a hook before W_O, and as it is."""
    inner = {
        "bert": lambda: model.bert.encoder.layer[0].attention.output.dense,
        "distilbert": lambda: model.distilbert.transformer.layer[0].attention.out_lin,
        "gpt2": lambda: model.transformer.h[0].attn.c_proj,
        "tokens": lambda: model.bert.encoder.layer[0].attention.output.dense,
    }[kind]()

    def cut(module: Any, args: Any) -> Any:
        state = args[0].clone()
        state[..., 4 * head : 4 * head + 4] = 0
        return (state, *args[1:])

    hook = inner.register_forward_pre_hook(cut)
    try:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0]
    finally:
        hook.remove()
    return float(logits[label] if logits.ndim == 1 else logits[1:-1, label].mean())


@pytest.mark.parametrize("kind", ["bert", "distilbert", "gpt2", "tokens"])
def test_ablating_a_head_is_what_a_hook_on_the_model_does(
    made: Callable[[str], Made], kind: str
) -> None:
    name, model = made(kind)
    prepared = av.load(name).prepare(av.Prompt(TEXT))
    ids = list(next(iter(prepared.sides.values())).queries.ids)
    own = _own(model, name)
    before = float(own[2] if own.ndim == 1 else own[1:-1, 2].mean())
    result = av.ablate(TEXT, model=name, answer="pos", select="0.1", method="zero")
    (effect,) = result.effects
    change = _zeroed(model, kind, ids, 1, 2) - before
    assert result.base == pytest.approx(before, abs=2e-5)
    assert effect.by[0].change == pytest.approx(change, abs=5e-5)


@pytest.mark.parametrize("kind", ["bert", "roberta", "gpt2"])
def test_gradients_to_the_heads_are_autograd_s(made: Callable[[str], Made], kind: str) -> None:
    """The gates' gradient of a label's logit, against a small step of the gate in float64."""
    name, _ = made(kind)
    source = answering(av.load(name, dtype="float32"))
    inputs = source.prepare(av.Prompt(TEXT))
    (kinds,) = source.layout.kinds
    site = Site(kinds, 0)
    place = source.labels.position(next(iter(inputs.sides.values())).queries)
    share = torch.ones(4, requires_grad=True)
    request = ForwardRequest(gates={site: Gate(share)}, hidden=False, logits=True, grad=True)
    logits = source.forward([inputs], request=request).logits
    (gradient,) = torch.autograd.grad(logits[0, place, 2], share)

    def logit(step: float) -> float:
        gate = torch.ones(4)
        gate[1] += step
        asked = ForwardRequest(gates={site: Gate(gate)}, hidden=False, logits=True)
        return float(source.forward([inputs], request=asked).logits[0, place, 2])

    numeric = (logit(5e-3) - logit(-5e-3)) / 1e-2
    assert float(gradient[1]) == pytest.approx(numeric, abs=2e-3)


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_every_command_takes_a_label(
    made: Callable[[str], Made], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = fills.sentences()[:4]
    monkeypatch.setattr(fills, "sentences", lambda: few)
    name, model = made(kind)
    own = _own(model, name)
    read = av.lens(TEXT, model=name, answer="pos")
    assert read.cells[-1].top[0].token == NAMES[int(own.argmax())]
    assert len(read.positions) == 1
    heads = av.lens(TEXT, model=name, by="head")
    assert {word.token for head in heads.heads for word in head.raises} <= set(NAMES.values())
    pair = {"clean": TEXT, "corrupted": OTHER, "answer": "pos", "against": "neg"}
    patched = av.patch(pair, model=name, select="0.*")
    assert patched.effects
    prompt = av.Prompt(TEXT, spans={"subject": "movie", "word": "good"})
    cut = av.knockout(prompt, model=name, answer="pos", against="neg", draws=0)
    assert cut.answer == "pos"
    told = av.explain(TEXT, model=name, answer="pos", against="neg")
    assert (told.answer, told.against) == ("pos", "neg")
    assert told.lead == pytest.approx(float(own[2] - own[0]), abs=2e-5)
    assert bool(told.voters) is bool(told.parts)


def test_a_classifier_in_memory_is_read_and_left_as_it_was(made: Callable[[str], Made]) -> None:
    name, model = made("bert")
    tokenizer = _tokenizer(pair=True)
    model.train()
    source = av.load(model, tokenizer=tokenizer)
    result = av.logits(TEXT, model=source, answer="pos")
    assert model.training
    model.eval()
    assert result.logit == pytest.approx(float(_own(model, name)[2]), abs=2e-5)


def test_labels_of_a_classifier_with_an_adapter(
    made: Callable[[str], Made], tmp_path: Path
) -> None:
    """In a folder, and in memory with the head among what the adapter changed."""
    from tests.models.test_adapters import Added, Peft, adapter, matrices

    name, model = made("bert")
    changed, tensors = copy.deepcopy(model), {}
    part = changed.bert.encoder.layer[0].attention.self.query
    a, b = matrices(part.weight, 1)
    part.weight.data += 3.0 * b @ a
    for key, value in (("A", a), ("B", b)):
        tensors[f"bert.encoder.layer.0.attention.self.query.lora_{key}.weight"] = value
    changed.classifier.weight.data.mul_(2.0)
    tensors["classifier.weight"] = changed.classifier.weight.data
    folder = adapter(tmp_path / "tuned", tensors, base_model_name_or_path=name)
    own = _own(changed, name)
    assert abs(float(own[2] - _own(model, name)[2])) > 1e-2
    result = av.logits(TEXT, model=str(folder), answer="pos")
    assert result.logit == pytest.approx(float(own[2]), abs=2e-5)

    held = copy.deepcopy(model)
    attention = held.bert.encoder.layer[0].attention.self
    attention.query, held.classifier = Added(attention.query), Added(held.classifier)
    own, stored = _own(held, name), held.classifier.base_layer.weight.clone()
    source = av.load(Peft(held), tokenizer=_tokenizer(pair=True))
    result = av.logits(TEXT, model=source, answer="pos")
    assert result.logit == pytest.approx(float(own[2]), abs=2e-5)
    assert torch.equal(held.classifier.base_layer.weight, stored)


def test_regression_several_labels_and_names_that_are_missing(tmp_path: Path) -> None:
    name, model = _saved(tmp_path / "one", "bert", num_labels=1)
    own = _own(model, name)
    result = av.logits(TEXT, model=name)
    assert result.logit == pytest.approx(float(own[0]), abs=2e-5)
    assert result.token == "LABEL_0"
    with pytest.raises(UsageError, match="one output"):
        av.ablate(TEXT, model=name, metric="kl", select="0.1")
    assert av.ablate(TEXT, model=name, select="0.1", method="zero").metric == "logit-diff"
    with pytest.raises(ModelError, match="one output"):
        av.explain(TEXT, model=name)
    problem = "multi_label_classification"
    name, model = _saved(tmp_path / "some", "bert", num_labels=3, problem_type=problem)
    own = torch.sigmoid(_own(model, name))
    for word in av.logits(TEXT, model=name, answer="LABEL_1").predictions:
        assert word.probability == pytest.approx(float(own[word.id]), abs=1e-5)
    with pytest.raises(UsageError, match="on its own"):
        av.ablate(TEXT, model=name, select="0.1")


def test_what_cannot_be_asked_is_said(made: Callable[[str], Made], tmp_path: Path) -> None:
    name, _ = made("bert")
    with pytest.raises(InputError, match="no label of this model; it has 'neg', 'good', 'pos'"):
        av.logits(TEXT, model=name, answer="movie")
    with pytest.raises(UsageError, match="labels the whole text, at token 0"):
        av.logits(TEXT, model=name, position=2)
    tokens, _ = made("tokens")
    with pytest.raises(UsageError, match="labels each token; choose one"):
        av.logits(TEXT, model=tokens)
    with pytest.raises(UsageError, match="labels each token"):
        av.patch({"clean": TEXT, "corrupted": OTHER, "answer": "pos"}, model=tokens)
    with pytest.raises(UsageError, match="labels each token; attnviz logits, lens and ablate"):
        av.explain(TEXT, answer="pos", model=tokens)
    with pytest.raises(UsageError, match="gives labels"):
        av.patch(task="induction", model=name)
    doubled, _ = _saved(tmp_path / "same", "bert", id2label={0: "x", 1: "x", 2: "y"})
    with pytest.raises(InputError, match="2 labels are called 'x'"):
        av.logits(TEXT, model=doubled, answer="x")
    assert av.logits(TEXT, model=doubled, answer="#1").token == "x"


def test_a_head_that_is_not_in_the_weights_is_refused(
    made: Callable[[str], Made], tmp_path: Path
) -> None:
    name, _ = made("bert")
    shutil.copytree(name, tmp_path / "x")
    weights = load_file(tmp_path / "x" / "model.safetensors")
    del weights["bert.pooler.dense.weight"]
    save_file(weights, tmp_path / "x" / "model.safetensors", {"format": "pt"})
    assert json.loads((tmp_path / "x" / "config.json").read_text())["architectures"]
    with pytest.raises(ModelError, match="label head is not in its weights"):
        av.logits(TEXT, model=str(tmp_path / "x"))


def test_a_head_of_another_kind_is_refused_by_name(tmp_path: Path) -> None:
    """A mean over all tokens is no token's state."""

    class Mean(t.BertForSequenceClassification):
        def forward(self, **given: Any) -> Any:
            states = self.bert(**{k: v for k, v in given.items() if k != "labels"})[0]
            return SequenceClassifierOutput(logits=self.classifier(states.mean(1)))

    torch.manual_seed(1)
    model = Mean(t.BertConfig(**SIZES)).eval()
    Mean.__name__ = "BertForSequenceClassification"
    source = av.load(model, tokenizer=_tokenizer(pair=True))
    with pytest.raises(ModelError, match="neither a linear layer nor a pooler"):
        av.logits(TEXT, model=source)
    hidden = av.ablate(TEXT, model=source, select="0.1", method="zero")
    assert hidden.metric == "hidden"


def test_maps_of_a_classifier_stay_with_the_native_backend_and_its_labels_are_read_once(
    made: Callable[[str], Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = pretrained.load.__wrapped__(made("bert")[0])
    assert av.capture(TEXT, model=source).source.backend == "native"
    assert av.logits(TEXT, model=source, answer="pos").source.backend == "hooked"
    monkeypatch.delattr(labels, "load_labels")
    assert av.logits(OTHER, model=source, answer="pos").source.backend == "hooked"
    assert av.ablate(TEXT, model=source, answer="pos", select="0.1", method="zero").effects
