"""The native backend against transformers: weights, hidden states, tokens, and odd checkpoints."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from attnviz.core import arrays
from attnviz.core.prompt import Prompt
from attnviz.core.source import ForwardRequest
from attnviz.errors import ModelError
from attnviz.models import native
from attnviz.models.folder import locate
from tests import checkpoints
from tests.models.tiny import Watcher

TOLERANCE = 1e-5
FAMILIES = ("bert", "distilbert", "gpt2", "roberta")


def load(folder, dtype=torch.float32):
    return native.load(locate(str(folder)), "cpu", str(dtype).removeprefix("torch."))


def watch(source, batch):
    """Whole maps [B, H, T, T] of each layer."""
    watcher = Watcher(batch)
    source.forward(batch, [watcher])
    assert list(watcher.weights) == list(source.layout.sites)
    return list(watcher.weights.values())


def hidden_states(source, inputs):
    """What enters each layer, and the final states as the model returns them."""
    output = source.forward([inputs], request=ForwardRequest(states=True))
    return [arrays.to_torch(states) for states in (*output.states[:-1], output.hidden)]


def reference(folder, ids, segments=None):
    """Attentions and hidden states of transformers' eager attention, one item."""
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    given = {"input_ids": torch.tensor([ids])}
    if segments is not None and model.config.model_type == "bert":
        given["token_type_ids"] = torch.tensor([segments])
    with torch.no_grad():
        out = model(**given, output_attentions=True, output_hidden_states=True)
    return out.attentions, out.hidden_states


def check(folder, source=None, prompt=None, tolerance=TOLERANCE):
    """Weights and hidden states of one prompt agree with transformers."""
    source = source or load(folder)
    assert source.light is not source
    inputs = source.prepare(prompt or Prompt(ids=tuple((11 * n) % 280 + 9 for n in range(17))))
    tokens = next(iter(inputs.sides.values())).queries
    attentions, states = reference(folder, tokens.ids, tokens.segments)
    for kind in (source, source.light):  # on torch, and on NumPy
        for ours, theirs in zip(watch(kind, [inputs]), attentions, strict=True):
            assert (ours - theirs).abs().max() <= tolerance
            assert ours.std() > 0.01  # not uniform: a difference would show
        for ours, theirs in zip(hidden_states(kind, inputs), states, strict=True):
            assert (ours - theirs).abs().max() <= tolerance


@pytest.mark.parametrize(
    ("family", "wrapper", "settings"),
    [
        ("bert", "", {}), ("bert", "BertForMaskedLM", {"hidden_act": "gelu_new"}),
        ("bert", "BertForSequenceClassification", {"hidden_act": "relu", "num_labels": 5}),
        ("distilbert", "", {"activation": "relu"}),
        ("distilbert", "DistilBertForMaskedLM", {"sinusoidal_pos_embds": True}), ("gpt2", "", {}),
        ("gpt2", "GPT2LMHeadModel", {"n_inner": None, "activation_function": "relu"}),
        ("gpt2", "GPT2LMHeadModel", {"scale_attn_by_inverse_layer_idx": True}),
        ("gpt2", "", {"scale_attn_weights": False, "reorder_and_upcast_attn": True}),
        ("gpt2", "", {"activation_function": "gelu_pytorch_tanh", "layer_norm_epsilon": 0.1}),
        ("roberta", "", {"layer_norm_eps": 0.1}),
        ("roberta", "RobertaForMaskedLM", {"type_vocab_size": 2}),
    ],
)  # fmt: skip
def test_parity_with_eager(tmp_path, family, wrapper, settings):
    check(checkpoints.write(tmp_path, family, wrapper, **settings))


def test_parity_on_a_real_model_and_its_previous_token_head(minilm):
    source = load(minilm)
    text = "The keys to the cabinet are on the table because nobody put them away."
    check(minilm, source, Prompt(text, pair="Who has seen them?"))
    weights = watch(source, [source.prepare(Prompt(text))])[0][0, 2]
    assert weights.diagonal(-1)[1:].mean() > 0.95


@pytest.mark.parametrize("light", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_padded_batch_equals_one_by_one(models, family, light):
    source = load(models[family])
    source = source.light if light else source
    batch = [source.prepare(Prompt(ids=tuple(range(9, 9 + n)))) for n in (13, 1, 7)]
    together = watch(source, batch)
    for number, item in enumerate(batch):
        n = item.length
        for whole, alone in zip(together, watch(source, [item]), strict=True):
            assert (whole[number, :, :n, :n] - alone[0]).abs().max() <= TOLERANCE
            assert torch.allclose(alone.sum(-1), torch.ones(()))


def test_roberta_counts_positions_from_its_padding(models):
    source = load(models["roberta"])
    assert source.max_tokens == checkpoints.SIZES["positions"] - 5
    check(models["roberta"], source, Prompt(ids=(9, 4, 10, 4, 4, 11)))  # 4 is <pad>
    check(models["roberta"], source, Prompt(ids=tuple(range(9, 9 + source.max_tokens))))


def test_old_names_buffers_and_unused_heads_are_accepted(bert, tmp_path):
    old = {"weight": "gamma", "bias": "beta"}

    def age(state):
        renamed = {}
        for key, value in state.items():
            stem, _, last = key.rpartition(".")
            name = f"{stem}.{old[last]}" if stem.endswith("LayerNorm") else key
            renamed["bert." + name] = value
        extra = {"bert.embeddings.position_ids": torch.arange(47)[None]}
        return renamed | extra | {"cls.seq_relationship.weight": torch.ones(2, 21)}

    inputs = load(bert).prepare(Prompt("The keys are on the table"))
    before = hidden_states(load(bert), inputs)
    checkpoints.edit_weights(bert, age)
    assert (hidden_states(load(bert), inputs)[-1] == before[-1]).all()

    gpt2 = checkpoints.write(tmp_path / "gpt2", "gpt2")
    masks = {f"h.{n}.attn.bias": torch.ones(1, 1, 47, 47).tril().to(torch.uint8) for n in (0, 1)}
    masks |= {"h.0.attn.masked_bias": torch.tensor(-1e4)}
    checkpoints.edit_weights(gpt2, lambda state: state | masks)
    check(gpt2)


def test_shards_and_half_precision(bert):
    before = load(bert)
    inputs = before.prepare(Prompt("The keys are on the table"))
    state = {k: v.to(torch.bfloat16) for k, v in load_file(bert / "model.safetensors").items()}
    names = sorted(state)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, keys in parts.items():
        save_file({key: state[key] for key in keys}, bert / file)
    (bert / "model.safetensors").unlink()
    index = {"weight_map": {key: file for file, keys in parts.items() for key in keys}}
    (bert / "model.safetensors.index.json").write_text(json.dumps(index))

    source = load(bert)
    assert source.info.dtype == "float32"
    rounded = hidden_states(source, inputs)[-1]
    assert 0 < (rounded - hidden_states(before, inputs)[-1]).abs().max() < 0.3
    low = load(bert, torch.bfloat16)
    assert low.info.dtype == "bfloat16"
    assert hidden_states(low, inputs)[-1].dtype == torch.bfloat16
    assert watch(low, [inputs])[0].dtype == torch.float32

    (bert / "b.safetensors").unlink()
    with pytest.raises(ModelError, match=r"lacks b\.safetensors"):
        locate(str(bert))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model_type": "electra"}, "electra"),
        ({"hidden_act": "silu"}, "silu"),
        ({"position_embedding_type": "relative_key"}, "relative_key"),
        ({"is_decoder": True}, "is_decoder"),
        ({"add_cross_attention": True}, "add_cross_attention"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"auto_map": {"AutoModel": "code.Model"}}, "auto_map"),
        ({"num_hidden_layers": 3}, "lack encoder.layer.2"),
        ({"num_hidden_layers": 1}, "have encoder.layer.1"),
    ],
)
def test_unknown_configurations_are_left_to_the_tap(bert, changes, says):
    checkpoints.edit_config(bert, **changes)
    with pytest.raises(native.Unsupported, match=says):
        load(bert)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s: {k: v for k, v in s.items() if "1.output.dense.bias" not in k}, "lack"),
        (lambda s: s | {"encoder.layer.0.adapter.weight": torch.ones(1)}, "adapter"),
        (lambda s: s | {"x.embeddings.word_embeddings.weight": torch.ones(1)}, "2 tensors"),
    ],
)
def test_unknown_weights_are_left_to_the_tap(bert, change, says):
    checkpoints.edit_weights(bert, change)
    with pytest.raises(native.Unsupported, match=says):
        load(bert)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hidden_size": 24}, r"shape \[293, 21\], config.json says \[293, 24\]"),
        ({"num_attention_heads": 4}, "4 heads do not divide"),
        ({"vocab_size": -3}, "vocab_size -3"),
        ({"intermediate_size": "29"}, "intermediate_size '29'"),
        ({"layer_norm_eps": "x"}, "layer_norm_eps 'x'"),
        ({"layer_norm_eps": -1}, "layer_norm_eps -1; it must be a number from 0"),
    ],
)
def test_configurations_that_do_not_fit_are_errors(bert, changes, says):
    checkpoints.edit_config(bert, **changes)
    with pytest.raises(ModelError, match=says) as caught:
        load(bert)
    assert not isinstance(caught.value, native.Unsupported)


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("bert", {}), ("bert", {"do_lower_case": False}),
        ("bert", {"do_lower_case": False, "tokenize_chinese_chars": False}),
        ("bert", {"do_lower_case": True, "strip_accents": False}),
        ("distilbert", {"do_lower_case": False}), ("gpt2", {}),
        ("gpt2", {"add_prefix_space": True}),
        pytest.param("gpt2", {"add_bos_token": True}, marks=checkpoints.needs_transformers_5),
        ("roberta", {}), ("roberta", {"add_prefix_space": True}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("fast", [False, True])
def test_tokens_equal_transformers(models, tmp_path, family, settings, fast):
    """From vocabulary files, and from tokenizer.json with the settings changed afterwards."""
    build = checkpoints.byte_pairs if family in ("gpt2", "roberta") else checkpoints.wordpiece
    for file in ("config.json", "model.safetensors"):
        (tmp_path / file).symlink_to(models[family] / file)
    build(tmp_path, family, **settings)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    if fast:
        written = tmp_path / "plain"
        written.mkdir()
        (written / "config.json").symlink_to(models[family] / "config.json")
        build(written, family)
        AutoTokenizer.from_pretrained(written).save_pretrained(written)
        (tmp_path / "tokenizer.json").write_bytes((written / "tokenizer.json").read_bytes())
        (tmp_path / "vocab.txt").unlink(missing_ok=True)
        (tmp_path / "vocab.json").unlink(missing_ok=True)
        theirs = AutoTokenizer.from_pretrained(tmp_path)
    source = load(tmp_path)
    for text in checkpoints.TEXTS:
        for special in (True, False):
            expected = theirs(text, add_special_tokens=special)["input_ids"]
            if not expected:
                continue
            inputs = source.prepare(Prompt(text, special_tokens=special))
            tokens = next(iter(inputs.sides.values())).queries
            assert list(tokens.ids) == expected
            if not special:
                assert not any(tokens.special)
    if family != "gpt2":
        expected = theirs("the keys", "on the table")
        tokens = source.prepare(Prompt("the keys", pair="on the table")).sides["encoder"].queries
        assert list(tokens.ids) == expected["input_ids"]
        assert list(tokens.segments) == expected.get("token_type_ids", list(tokens.segments))


# --- the LM head --------------------------------------------------------------------------

WITH_WORDS = {
    "bert": "BertForMaskedLM",
    "distilbert": "DistilBertForMaskedLM",
    "gpt2": "GPT2LMHeadModel",
    "roberta": "RobertaForMaskedLM",
}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_equal_those_of_transformers(family, tied, tmp_path):
    wrapper = WITH_WORDS[family]
    checkpoints.write(tmp_path, family, wrapper, tie_word_embeddings=tied)
    model = getattr(transformers, wrapper).from_pretrained(tmp_path).eval()
    source = load(tmp_path)
    ids = tuple((11 * n) % 280 + 9 for n in range(17))
    batch = [source.prepare(Prompt(ids=ids)), source.prepare(Prompt(ids=ids[:9]))]
    logits = source.forward(batch, request=ForwardRequest(logits=True)).logits
    light = source.light.forward(batch, request=ForwardRequest(logits=True)).logits
    assert isinstance(light, np.ndarray)
    assert np.abs(light[0] - logits[0].numpy()).max() < 1e-5
    assert source.no_logits == ""
    for item, one in zip((ids, ids[:9]), logits, strict=True):
        with torch.no_grad():
            theirs = model(torch.tensor([item])).logits[0]
        torch.testing.assert_close(one[: len(item)], theirs, atol=1e-4, rtol=0)
    assert source.forward(batch).logits is None


def test_a_checkpoint_without_a_head_for_words_says_so(minilm):
    source = load(minilm)
    batch = [source.prepare(Prompt("a word"))]
    assert source.forward(batch, request=ForwardRequest(logits=True)).logits is None
    assert source.no_logits == (
        "its checkpoint has no LM head (cls.predictions.transform.dense.weight is not in it)"
    )
