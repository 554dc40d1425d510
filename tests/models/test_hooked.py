"""The hooks against transformers' own eager attention, on tiny random models of every kind."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers.models.llama import modeling_llama
from transformers.utils import logging as hf_logging

import attnviz as av
import attnviz.models.hooked.interface as interface
from attnviz.core.heads import Site
from attnviz.core.prompt import Prompt
from attnviz.core.source import Rows
from attnviz.errors import InputError, ModelError, UsageError
from attnviz.models import hooked
from attnviz.models.controls import Control
from attnviz.models.hooked import checkpoint
from attnviz.models.hooked.network import Item
from attnviz.models.hooked.survey import Trace, compare
from attnviz.models.hooked.trace import ModuleCall, calls_of
from tests import mostly_slow
from tests.checkpoints import edit_config
from tests.models.tiny import (
    FAMILIES,
    HEADS,
    HOOKED,
    LONG,
    LONGEST,
    SEQ2SEQ,
    SHORT,
    SIZES,
    TWO_STACKS,
    VOCABULARY,
    WORDLESS,
    Blocks,
    Folders,
    Watcher,
    build,
    inputs_of,
    ran,
    transformers,
)

VERSION = tuple(int(part) for part in transformers.__version__.split(".")[:2])
newer = pytest.mark.skipif(VERSION < (5, 5), reason="transformers could not save or build these")
CPU = torch.device("cpu")


def load(folder: Path, dtype: torch.dtype = torch.float32) -> hooked.Hooked:
    return hooked.load(folder, folder.name, CPU, dtype)


def watch(source: hooked.Hooked, batch: Sequence[Any]) -> Watcher:
    watcher = Watcher(batch)
    source.forward(batch, [watcher])
    return watcher


def eager_pass(model: Any, family: str, **inputs: Any) -> Any:
    """What transformers returns for one input."""
    tensors = {name: torch.tensor([value]) for name, value in inputs.items()}
    cache = {"use_cache": False} if family in SEQ2SEQ else {}
    with torch.no_grad():
        return model(**tensors, **cache, output_attentions=True)


def eager_maps(model: Any, family: str, **inputs: Any) -> dict[Site, torch.Tensor]:
    """Its weights, [H, T, S] by site; gaps are not numbered."""
    return maps_of(eager_pass(model, family, **inputs), family)


def maps_of(output: Any, family: str) -> dict[Site, torch.Tensor]:
    if family in SEQ2SEQ:
        kinds = ("encoder", "decoder", "cross")
        return {
            Site(kind, n): w[0]
            for kind in kinds
            for n, w in enumerate(output[f"{kind}_attentions"])
        }
    seen = torch.stack([w[0].triu(1).amax() for w in output.attentions])
    kind = "encoder" if bool(seen.any()) else "decoder"
    return {Site(kind, n): w[0] for n, w in enumerate(output.attentions)}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_equals_its_own_eager_attention(family: str, loaded: Any, eager: Any) -> None:
    """Weights, what they were allowed to be, and logits."""
    source, words = loaded(family), family not in WORDLESS
    kind = "Seq2SeqLM" if family in SEQ2SEQ else HEADS.get(family, "CausalLM")
    theirs = eager(source.folder, f"AutoModelFor{kind}" if words else "AutoModel")
    assert bool(source.no_logits) != words
    hooked = source.info.backend == "hooked"
    if VERSION >= (5, 23):  # the version this was written with; fewer families asked before
        assert hooked == (family in HOOKED), source.info
    assert source.info.exactness.startswith("hooked, max |Δ| " if hooked else "eager")
    assert bool(source.info.reason) != hooked
    batch = [inputs_of(source, *both) for both in ((SHORT, (0, *LONG[:8])), (LONG, SHORT))]
    watcher = watch(source, batch)  # blocks of a padded batch
    output, plain = ran(source, batch, logits=words), source.forward(batch)
    assert plain.logits is None
    sites = [site for site in source.layout.sites if source.layout.heads[site.kind][site.layer]]
    assert sorted(watcher.weights) == sorted(sites)
    for item, ids in enumerate((SHORT, LONG)):
        inputs = {"input_ids": ids}
        if family in SEQ2SEQ:
            inputs["decoder_input_ids"] = batch[item].sides["decoder"].queries.ids
        made = eager_pass(theirs, family, **inputs)
        if words:
            expected, length = made.logits[0], made.logits.shape[1]
            assert expected.std() > 1e-3, "too even to prove anything"
            torch.testing.assert_close(output.logits[item, :length], expected, atol=1e-4, rtol=1e-5)
            torch.testing.assert_close(output.hidden[item, :length], plain.hidden[item, :length])
        alone = maps_of(made, family)
        assert len(alone) == len(sites)
        for site, native in zip(sites, (alone[s] for s in sorted(alone, key=by_kind)), strict=True):
            heads, queries, keys = native.shape
            assert heads == source.layout.heads[site.kind][site.layer]
            ours = watcher.weights[site][item, :, :queries, :keys]
            torch.testing.assert_close(ours, native, rtol=0, atol=1e-5)
            seen = native > 0
            uneven = (native - seen / seen.sum(-1, keepdim=True)).abs().max()
            assert uneven > 0.02, "too even to prove anything"
            allowed = watcher.allowed[site][item, :, :queries]
            assert torch.equal(allowed[:, :, :keys], seen)
            assert not allowed[:, :, keys:].any(), "padding is never allowed"


def by_kind(site: Site) -> tuple[int, int]:
    return ("encoder", "decoder", "cross").index(site.kind), site.layer


@pytest.mark.parametrize("family", ["gpt2", "gpt_neo"])
def test_the_blocks_do_not_matter(
    family: str, loaded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = loaded(family)
    batch = [source.prepare(Prompt(ids=ids)) for ids in (SHORT, LONG)]
    whole = watch(source, batch)
    monkeypatch.setattr("attnviz.models.hooked.eager.BLOCK_ELEMENTS", 512)
    monkeypatch.setattr("attnviz.attention.blocks.BLOCK_ROWS", 1)
    monkeypatch.setattr("attnviz.attention.blocks.BLOCK_ELEMENTS", 512)
    blocks = watch(source, batch)
    assert blocks.count > whole.count == 2
    for site, weights in whole.weights.items():
        torch.testing.assert_close(blocks.weights[site], weights)
        assert torch.equal(blocks.allowed[site], whole.allowed[site])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_tapped_too(dtype: torch.dtype, folders: Folders, eager: Any) -> None:
    source = load(folders("llama"), dtype)
    assert (source.info.backend, source.info.dtype) == ("hooked", str(dtype).removeprefix("torch."))
    weights = watch(source, [source.prepare(Prompt(ids=LONG))]).weights[Site("decoder", 1)]
    assert weights.dtype == torch.float32
    exact = eager_maps(eager(folders("llama")), "llama", input_ids=LONG)[Site("decoder", 1)]
    torch.testing.assert_close(weights[0], exact, rtol=0, atol=0.1)


def test_a_tap_that_shows_something_else_is_not_used(
    folders: Folders, eager: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = modeling_llama.eager_attention_forward

    def sharper(*args: Any, scaling: float, **kwargs: Any) -> Any:
        return native(*args, scaling=1.5 * scaling, **kwargs)

    monkeypatch.setattr(modeling_llama, "eager_attention_forward", sharper)
    source = load(folders("llama"))
    assert source.info.backend == "eager"
    assert "differ from eager by up to" in source.info.reason
    measured = float(source.info.exactness.split("|Δ| ")[1].rstrip(")"))
    assert 1e-4 < measured < 1
    weights = watch(source, [source.prepare(Prompt(ids=LONG))]).weights
    theirs = eager_maps(eager(folders("llama")), "llama", input_ids=LONG)
    for site, expected in theirs.items():
        torch.testing.assert_close(weights[site][0], expected, rtol=0, atol=1e-5)


def test_reasons_say_why_the_tap_was_left(folders: Folders, loaded: Any) -> None:
    assert "gpt_neo layers do not ask" in loaded("gpt_neo").info.reason
    source = hooked.load(folders("gpt_neo"), "x", CPU, torch.float32, reason="no native backend")
    assert source.info.reason.startswith("no native backend; ")


def test_without_native_weights_the_outputs_decide(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnviz.models.hooked.survey.returned", lambda output, kind: {})
    source = load(folders("llama"))
    assert source.info.backend == "hooked"
    assert "eager's, which returns no weights" in source.info.exactness
    assert source.layout.heads == {"decoder": (4, 4)}
    native = modeling_llama.eager_attention_forward

    def sharper(*args: Any, scaling: float, **kwargs: Any) -> Any:
        return native(*args, scaling=1.5 * scaling, **kwargs)

    monkeypatch.setattr(modeling_llama, "eager_attention_forward", sharper)
    with pytest.raises(ModelError, match=r"gives no attention weights: .*its outputs change by"):
        load(folders("llama"))


def test_scores_that_a_model_returns_as_its_weights_are_refused() -> None:
    """Transformers' SqueezeBERT returns them from before softmax."""
    sizes = {name: size for name, size in SIZES.items() if name != "num_key_value_heads"}
    config = transformers.SqueezeBertConfig(**sizes, embedding_size=sizes["hidden_size"])
    model = transformers.SqueezeBertModel(config).eval()
    with pytest.raises(ModelError, match=r"scores before softmax .* attnviz\.watch\(model\)"):
        av.load(model)
    ids = torch.tensor([[5, 9, 7, 5]])
    with torch.no_grad(), av.watch(model) as watched:
        scores = model(ids, output_attentions=True).attentions
    maps = watched.capture().maps
    for layer, returned in enumerate(scores):
        expected = returned[0].softmax(-1)
        torch.testing.assert_close(torch.tensor(maps[Site("encoder", layer)]), expected)


@newer
def test_stacks_are_told_apart_by_what_they_attend_to(tmp_path: Path) -> None:
    berts = [transformers.BertConfig(**SIZES) for _ in range(2)]
    both = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(*berts)
    both.decoder_start_token_id, both.pad_token_id = 1, 0
    models = {
        "two": transformers.EncoderDecoderModel(both),
        "encoder": transformers.T5EncoderModel(transformers.T5Config(**HOOKED["t5"][1])),
        "decoder": transformers.BertLMHeadModel(transformers.BertConfig(**SIZES, is_decoder=True)),
    }
    for name, model in models.items():
        model.save_pretrained(tmp_path / name)
    layouts = {name: load(tmp_path / name).layout.heads for name in models}
    assert layouts["two"] == {"encoder": (4, 4), "decoder": (4, 4), "cross": (4, 4)}
    assert layouts["encoder"] == {"encoder": (4, 4)}
    assert layouts["decoder"] == {"decoder": (4, 4)}


def test_the_attention_function_reads_masks_as_transformers_means_them() -> None:
    torch.manual_seed(0)
    module = torch.nn.Module()
    query, key, value = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 7, 8), torch.randn(2, 2, 7, 6)
    full = {"enable_gqa": True}
    sdpa = torch.nn.functional.scaled_dot_product_attention
    blocked = torch.rand(2, 1, 5, 7) < 0.3
    for low in (torch.finfo(torch.float32).min, -torch.inf, -10000.0):
        additive = torch.zeros(2, 1, 5, 7).masked_fill(blocked, low)
        padded = torch.nn.functional.pad(additive, (0, 3))  # masks may be longer than the keys
        run = interface.WatchedPass([watcher := Allowed()])
        with interface.hooking(run):
            output, nothing = interface.attention(module, query, key, value, padded)
        assert nothing is None
        expected = sdpa(query, key, value, attn_mask=~blocked, **full).transpose(1, 2)
        torch.testing.assert_close(output, expected)
        assert torch.equal(watcher.allowed, ~blocked)
    bias = torch.randn(2, 1, 5, 7)
    output, _ = interface.attention(module, query, key, value, bias)
    expected = sdpa(query, key, value, attn_mask=bias, **full).transpose(1, 2)
    torch.testing.assert_close(output, expected)
    expected = sdpa(query, key, value, is_causal=True, **full).transpose(1, 2)
    output, _ = interface.attention(module, query, key, value, is_causal=True)
    torch.testing.assert_close(output, expected)  # the first query is the first token
    whole = sdpa(query, key, value, **full).transpose(1, 2)
    output, _ = interface.attention(module, query, key, value, is_causal=False)
    torch.testing.assert_close(output, whole)
    # a module that does not say so is causal where the mask of its configuration was left out
    module.config = transformers.LlamaConfig(attn_implementation=interface.NAME)
    create, embeds = transformers.masking_utils.create_causal_mask, torch.zeros(2, 7, 16)
    interface.register()
    output, _ = interface.attention(module, query, key, value)
    torch.testing.assert_close(output, whole)
    with interface.masks_forgotten():
        assert create(module.config, embeds, None, None) is None
        output, _ = interface.attention(module, query, key, value)
        torch.testing.assert_close(output, expected)
    output, _ = interface.attention(module, query, key, value)
    torch.testing.assert_close(output, whole)


class Allowed:
    def observe(self, rows: Rows) -> None:
        self.allowed = rows.allowed


def test_layers_in_another_order_are_an_error(folders: Folders) -> None:
    source = load(folders("gpt2"))
    inputs = source.prepare(Prompt(ids=LONG))
    plan = source._survey.plan
    for wrong in (plan[::-1], plan[:1], (*plan, plan[0])):
        object.__setattr__(source._survey, "plan", wrong)
        with pytest.raises(ModelError, match="depends on the text and cannot be hooked"):
            source.forward([inputs], [])


def test_nothing_is_left_behind(loaded: Any, capfd: pytest.CaptureFixture[str]) -> None:
    source = loaded("gpt2")
    batch = [source.prepare(Prompt(ids=LONG))]
    capfd.readouterr()  # where no test before this one wrote the folder, that it is written

    class Stopped(Exception):
        pass

    class Stopper:
        def observe(self, rows: Rows) -> None:
            raise Stopped

    bars = hf_logging.is_progress_bar_enabled()
    hf_logging.set_verbosity(logging.INFO)
    with pytest.raises(Stopped):
        source.forward(batch, [Stopper()])
    assert interface._RUN.get() is None
    assert hf_logging.get_verbosity() == logging.INFO
    assert hf_logging.is_progress_bar_enabled() == bars
    hf_logging.set_verbosity_warning()
    watcher = watch(source, batch)
    assert len(watcher.weights) == 2
    source.forward(batch, [])
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


# text


def tokenizer(folder: Path, family: str) -> Any:
    """A tiny tokenizer of words in BERT's or T5's manner, saved into the folder."""
    names = ["[PAD]", "</s>", "[CLS]", "[SEP]", "[UNK]"]
    names += ["the", "keys", "to", "cabinet", "are", "on", "table", "old", ".", "das", "haus"]
    words = Tokenizer(models.WordLevel({w: n for n, w in enumerate(names)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    bert = family == "bert"
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]" if bert else "$A </s>",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1" if bert else "$A </s> $B </s>",
        special_tokens=[(name, names.index(name)) for name in ("[CLS]", "[SEP]", "</s>")],
    )
    ends = {"cls_token": "[CLS]", "sep_token": "[SEP]"} if bert else {"eos_token": "</s>"}
    inputs = ["input_ids", "attention_mask"] + ["token_type_ids"] * bert
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", model_max_length=12,
        model_input_names=inputs, **ends,
    )  # fmt: skip
    fast.save_pretrained(folder)
    return fast


def test_text_pairs_and_truncation(tmp_path: Path, eager: Any) -> None:
    build("bert", tmp_path)
    theirs = eager(tmp_path)
    fast = tokenizer(tmp_path, "bert")
    source = load(tmp_path)
    inputs = source.prepare(Prompt("the keys to the cabinet", pair="are on the table"))
    tokens = inputs.sides["encoder"].queries
    words = "[CLS] the keys to the cabinet [SEP] are on the table [SEP]"
    assert " ".join(tokens.texts) == words
    assert tokens.segments == (0,) * 7 + (1,) * 5
    assert [n for n, special in enumerate(tokens.special) if special] == [0, 6, 11]
    call = fast("the keys to the cabinet", "are on the table")
    native = eager_maps(theirs, "bert", **call)
    zeros = eager_maps(theirs, "bert", input_ids=call["input_ids"])
    site = Site("encoder", 1)
    assert (native[site] - zeros[site]).abs().max() > 1e-3, "segments must matter here"
    weights = watch(source, [inputs]).weights
    torch.testing.assert_close(weights[site][0], native[site], rtol=0, atol=1e-5)

    long = "the keys to the old cabinet are on the old table ."
    assert source.max_tokens == 32  # of the configuration; the tokenizer says 12
    with pytest.raises(InputError, match=r"the text has 14 tokens, the model takes at most 12"):
        source.prepare(Prompt(long, max_tokens=12))
    cut = source.prepare(Prompt(long, truncate=True, max_tokens=12))
    assert cut.sides["encoder"].queries.texts[-2:] == ("old", "[SEP]")
    assert cut.notes == ("The text was truncated to the model's 12 tokens; 2 were left out.",)
    given = source.prepare(Prompt(ids=(2, *range(5, 17), 3), truncate=True, max_tokens=12))
    assert given.sides["encoder"].queries.ids == (2, *range(5, 15), 3)  # the separator stays
    bare = source.prepare(Prompt("the keys", special_tokens=False))
    assert bare.sides["encoder"].queries.texts == ("the", "keys")


def test_the_decoders_text_is_given_or_generated(tmp_path: Path) -> None:
    build("t5", tmp_path, gain=3)
    tokenizer(tmp_path, "t5")
    source = load(tmp_path)
    given = source.prepare(Prompt("the old keys", target="das haus"))
    assert given.sides["decoder"].queries.texts == (
        "[PAD]",
        "das",
        "haus",
    )  # T5 starts with padding
    assert given.sides["cross"].keys.texts == ("the", "old", "keys", "</s>")
    assert not given.notes

    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    ids = given.sides["cross"].keys.ids
    written = model.generate(
        torch.tensor([ids]), do_sample=False, num_beams=1, max_new_tokens=11, use_cache=False
    )[0].tolist()
    made = source.prepare(Prompt("the old keys"))
    assert made.sides["decoder"].queries.ids == tuple(written[:-1] if written[-1] == 1 else written)
    assert len(made.notes) == 1
    assert made.notes[0].startswith("Decoder text generated greedily: ")


@newer
def test_a_model_that_cannot_write_asks_for_the_decoders_text(tmp_path: Path) -> None:
    sizes = {**TWO_STACKS, "eos_token_id": 1, "tie_word_embeddings": False}
    config = transformers.BartConfig(**sizes)
    transformers.BartModel(config).save_pretrained(tmp_path)  # without its output layer
    tokenizer(tmp_path, "t5")
    source = load(tmp_path)
    with pytest.raises(UsageError, match="no weights to generate text with"):
        source.prepare(Prompt("the old keys"))
    assert len(source.prepare(Prompt("the old keys", target="das")).sides["decoder"].queries) == 2


def test_a_decoder_that_has_no_start_is_refused_with_that_reason(tmp_path: Path) -> None:
    """Without a target it was asked for one, and with one it ended in transformers' ValueError."""
    build("t5", tmp_path, gain=3)
    tokenizer(tmp_path, "t5")
    for name in ("config", "generation_config"):
        path = tmp_path / f"{name}.json"
        settings = json.loads(path.read_text())
        settings.pop("decoder_start_token_id")
        path.write_text(json.dumps(settings))
    source = load(tmp_path)
    for prompt in (Prompt("the old keys"), Prompt("the old keys", target="das haus")):
        with pytest.raises(ModelError, match="names no decoder_start_token_id"):
            source.prepare(prompt)


# what cannot work


def damaged(folders: Folders, tmp_path: Path, family: str, change: Callable[[Any], None]) -> Path:
    """A copy of a model's folder with other weights."""
    source = folders(family)
    weights = load_file(source / "model.safetensors")
    change(weights)
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_bytes((source / "config.json").read_bytes())
    return tmp_path


def test_weights_are_never_made_up(folders: Folders, tmp_path: Path) -> None:
    key = "encoder.layer.1.attention.self.query.weight"
    with pytest.raises(ModelError, match=rf"its weights lack {key}; the checkpoint is incomplete"):
        load(damaged(folders, tmp_path, "bert", lambda weights: weights.pop(key)))
    with pytest.raises(ModelError, match=rf"{key} has (shape \(7, 16\)|another shape)"):
        load(damaged(folders, tmp_path, "bert", lambda w: w.update({key: torch.zeros(7, 16)})))
    with pytest.raises(ModelError, match="not finite"):
        load(damaged(folders, tmp_path, "bert", lambda w: w[key].fill_(torch.nan)))
    (tmp_path / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{garbage")
    with pytest.raises(ModelError, match="cannot load this bert model"):
        load(tmp_path)


def test_a_configuration_of_another_family_is_refused_before_it_is_built(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = damaged(folders, tmp_path, "bert", lambda weights: None)
    edit_config(model, model_type="megatron-bert", hidden_size=None, num_hidden_layers=None)
    edit_config(model, num_attention_heads=None, intermediate_size=None, architectures=None)

    def build(*args: object, **kwargs: object) -> None:
        raise AssertionError("it was built")

    monkeypatch.setattr(transformers.MegatronBertForMaskedLM, "from_pretrained", build)
    said = r"megatron-bert model of this config.json has 303,\d{3},\d{3} parameters, its weights"
    with pytest.raises(ModelError, match=said) as refused:
        load(model)
    assert "\n" not in str(refused.value)
    control = Control(0, "default")
    with pytest.raises(ModelError, match=said):
        hooked.load(model, "x", CPU, torch.float32, control=control)


@pytest.mark.parametrize("family", mostly_slow(FAMILIES, "gpt2", "t5", "llama", "gpt_oss"))
def test_no_model_is_much_larger_than_its_own_files(
    family: str, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "_FEW_PARAMETERS", 0)
    assert load(folders(family)).layout
    monkeypatch.delattr(checkpoint, "_fresh")  # its parameters are counted, and not again
    assert load(folders(family)).layout


def test_a_head_is_not_needed_nor_a_pooler(
    folders: Folders, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = transformers.AutoConfig.from_pretrained(folders("bert"))
    transformers.AutoModelForMaskedLM.from_config(config).save_pretrained(tmp_path)
    assert not any("pooler" in key for key in load_file(tmp_path / "model.safetensors"))
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append
    logger = logging.getLogger("transformers")
    logger.addHandler(handler)
    capfd.readouterr()
    try:
        assert len(load(tmp_path).layout) == 8
        assert not records
        assert capfd.readouterr() == ("", "")
        transformers.AutoModel.from_pretrained(tmp_path)
        assert records, "transformers itself has a long warning about this"
    finally:
        logger.removeHandler(handler)


def test_an_unknown_architecture_is_refused(folders: Folders, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "never_heard_of"}')
    with pytest.raises(ModelError, match="transformers does not know this model") as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("prompt", "error", "message"),
    [
        (Prompt("a text"), ModelError, "its folder has no tokenizer"),
        (Prompt(ids=(3, VOCABULARY)), InputError, f"id {VOCABULARY} is not in .* 0 to 40"),
        (Prompt(ids=(3, -1)), InputError, "token id -1 is not in"),
        (Prompt(ids=(3,) * 33), InputError, "33 tokens, the model takes at most 32"),
        (Prompt(ids=(3,), pair="x"), UsageError, "pair goes with a text"),
        (Prompt(ids=(3,), target="x"), UsageError, "target needs an encoder-decoder model"),
    ],
)
def test_bad_prompts(prompt: Prompt, error: type[Exception], message: str, loaded: Any) -> None:
    with pytest.raises(error, match=message):
        loaded("bert").prepare(prompt)


def test_limits_come_from_the_model(loaded: Any) -> None:
    assert loaded("bert").max_tokens == LONGEST
    behind_padding = loaded("roberta")  # whose positions start there
    assert behind_padding.max_tokens == LONGEST - 1
    assert loaded("bloom").max_tokens is None
    cut = loaded("gpt2").prepare(Prompt(ids=(3,) * 40, truncate=True))
    assert len(cut.sides["decoder"].queries) == LONGEST


def test_half_precision_may_be_as_far_off_as_fused_attention() -> None:
    weights, states = {Site("encoder", 0): torch.eye(3)[None, None]}, torch.ones(1, 3, 8)
    items, asked = [Item((1, 2, 3))], []
    eager, ours = Trace(items, weights, states), Trace(items, weights, states * 1.05)

    def judged(dtype: torch.dtype, fused: float | None) -> str:
        def run(_: object) -> torch.Tensor | None:
            asked.append(fused)
            return None if fused is None else states * fused

        return compare([(eager, ours)], dtype, run)[0]

    assert judged(torch.bfloat16, 1.03) == ""
    for fused in (1.0, 1.02, None):
        assert "outputs change by 5.0e-02" in judged(torch.bfloat16, fused)
    assert judged(torch.float32, 1.03)
    assert asked == [1.03, 1.0, 1.02, None]  # float32 has no such excuse
    far = Trace(items, weights, states * 1.5)
    assert compare([(eager, far)], torch.bfloat16, lambda _: states * 1.5)[0]


def test_rows_that_leave_learned_sinks_out_are_compared_without_them() -> None:
    items, site = [Item((5, 6, 7))], Site("encoder", 0)
    theirs = torch.randn(1, 2, 3, 3).softmax(-1)
    states = torch.randn(1, 3, 4)
    left = torch.rand(1, 2, 3, 1)  # of each row, beside a sink
    eager = Trace(items, {site: theirs}, states)

    def reason(weights: torch.Tensor, ended: torch.Tensor = states) -> str:
        return compare([(eager, Trace(items, {site: weights}, ended))], torch.float32)[0]

    assert reason(theirs * left) == ""
    assert "differ" in reason(theirs * left, states + 0.1)
    assert "differ" in reason(theirs.flip(-1) * left)
    assert "differ" in reason(theirs * left * torch.tensor([0.0, 1, 1]))


@pytest.mark.parametrize("family", ["granite_swa", "granitemoe_swa"])
def test_granites_weights_are_those_that_its_outputs_are_made_of(family: str) -> None:
    """Its eager attention returns them as they were before it multiplies with what sinks leave."""
    from tests.families import IDS, built

    if family not in transformers.CONFIG_MAPPING:
        pytest.skip(f"transformers {transformers.__version__} has no {family}")
    model = built(transformers.CONFIG_MAPPING[family])
    model.set_attn_implementation("eager")
    calls: list[ModuleCall] = []
    with calls_of([layer.self_attn.o_proj for layer in model.model.layers], calls.append):
        plain = model(torch.tensor([IDS]), output_attentions=True).attentions
    source = av.load(model)
    assert source.info.backend == "hooked"
    blocks = Blocks()
    source.forward([source.prepare(Prompt(ids=IDS))], [blocks])
    for site, call, maps in zip(source.layout.sites, calls, plain, strict=True):
        (rows,) = blocks.by_site[site]
        shares = rows.weights.sum(-1, keepdim=True)
        assert float(shares.min()) < 0.9
        torch.testing.assert_close(rows.weights / shares, maps, rtol=1e-4, atol=1e-5)
        outputs = blocks.outputs(site).transpose(1, 2).flatten(2)
        torch.testing.assert_close(outputs, call.entered, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("fails", "ran", "failed"),
    [
        (
            lambda n: n > 20,
            "16 and 7 tokens in a batch, 7 tokens, 1 token",
            "32 and 7 tokens in a batch",
        ),
        (lambda n: n == 1, "32 and 7 tokens in a batch, 7 tokens", "1 token"),
        (lambda n: n == 7, "32 and 7 tokens in a batch, 1 token", "7 tokens"),
    ],
)
def test_a_model_that_fails_on_some_texts_is_proved_on_the_others(
    fails: Callable[[int], bool],
    ran: str,
    failed: str,
    folders: Folders,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its own eager attention cannot run them either, and what it was compared on is said."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folders("gpt_neox"))
    plain = type(model.base_model).forward

    def forward(self: Any, input_ids: torch.Tensor, **others: Any) -> Any:
        if fails(input_ids.shape[1]):
            raise IndexError("index out of range in self")
        return plain(self, input_ids, **others)

    forward.__signature__ = inspect.signature(plain)
    monkeypatch.setattr(type(model.base_model), "forward", forward)
    info = hooked.borrow(model, None).info
    assert info.backend == "hooked"
    said = f"; tried on {ran}, since its own eager attention fails on {failed} (index out of range"
    assert said in info.exactness
