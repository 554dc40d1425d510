"""Model folders that are damaged, pruned, or made to do harm; and configurations with two names."""

from __future__ import annotations

import json
import os
import shutil
from itertools import product
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig

from attnviz.cli import main
from attnviz.core.prompt import Prompt
from attnviz.core.source import ForwardRequest
from attnviz.errors import ModelError
from attnviz.features.models.catalog import inspect
from attnviz.models import native, pretrained
from attnviz.models.folder import locate
from attnviz.models.native import config as native_config
from attnviz.models.native.config import FAMILIES
from attnviz.models.native.network import ACTIVATIONS
from attnviz.scoring.observe import ScoreObserver
from tests import checkpoints
from tests.models.test_native import check

TEXT = Prompt("the keys are on the table")


@pytest.fixture
def folder(models, tmp_path):
    """A copy of a family's model."""
    return lambda family: Path(shutil.copytree(models[family], tmp_path / family))


def load(path: Path, **options):
    return pretrained.load(str(path), device="cpu", **options)


# --- what may be opened --------------------------------------------------------------------------


def dangling(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(path.parent.parent / "blobs" / "pruned")


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def device(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/urandom")


@pytest.mark.parametrize(
    ("put", "says"),
    [
        (dangling, "a link to a file that is gone"),
        (pipe, "a pipe or a device"),
        (device, "a pipe or a device"),
        (directory, "a folder"),
    ],
)
@pytest.mark.parametrize(
    "name",
    ["config.json", "model.safetensors", "tokenizer_config.json", "vocab.txt", "tokenizer.json"],
)
def test_only_regular_files_are_opened(bert, put, says, name):
    put(bert / name)
    with pytest.raises(ModelError, match=f"{name} is {says}; download") as caught:
        load(bert)
    assert "\n" not in str(caught.value)
    assert not inspect("x", bert, "hub cache").usable


def test_a_pruned_repository_does_not_break_the_list(models, tmp_path, monkeypatch, capsys):
    hub = tmp_path / "hub"
    for name, damage in {
        "good": lambda snapshot: None,
        "pruned": lambda snapshot: dangling(snapshot / "model.safetensors"),
        "piped": lambda snapshot: pipe(snapshot / "model.safetensors"),
        "odd": lambda snapshot: checkpoints.edit_config(snapshot, num_hidden_layers=["x"]),
        "gone": shutil.rmtree,
    }.items():
        repo = hub / f"models--org--{name}"
        snapshot = repo / "snapshots" / ("a" * 40)
        shutil.copytree(models["bert"], snapshot)
        (repo / "refs").mkdir()
        (repo / "refs" / "main").write_text("a" * 40)
        damage(snapshot)
    (hub / "models--org--empty").mkdir()
    (hub / "models--org--file").write_text("")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(hub))
    assert main(["models", "--json"]) == 0
    found = {m["name"]: m for m in json.loads(capsys.readouterr().out)["models"]}
    assert found["org/good"]["usable"]
    for name, says in {"pruned": "gone", "piped": "pipe"}.items():
        assert not found[f"org/{name}"]["usable"]
        assert says in found[f"org/{name}"]["note"]
    assert not {"org/gone", "org/empty", "org/file"} & found.keys()


# --- what a configuration may say ----------------------------------------------------------------


@pytest.mark.parametrize("named", [5, "BertModel", [5], {"a": "b"}])
def test_architectures_are_a_list_of_names(bert, named):
    checkpoints.edit_config(bert, architectures=named, hidden_act="silu")
    with pytest.raises(ModelError, match=r"config\.json has architectures .*list of names"):
        load(bert)


STRAY = {
    "hidden_size": 42, "n_embd": 63, "dim": 84,
    "num_hidden_layers": 1, "n_layer": 3, "n_layers": 4,
    "num_attention_heads": 7, "n_head": 21, "n_heads": 1,
    "intermediate_size": 5, "n_inner": 6, "hidden_dim": 7,
    "max_position_embeddings": 48, "n_positions": 49, "n_ctx": 50,
    "type_vocab_size": 3, "layer_norm_eps": 0.5, "layer_norm_epsilon": 0.25,
    "hidden_act": "relu", "activation_function": "gelu_new", "activation": "gelu",
    "scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True, "pad_token_id": 3,
}  # fmt: skip
"""What all families call their settings, each with a value of its own."""

FIELDS = {
    "width": ("hidden_size",), "layers": ("num_hidden_layers",), "heads": ("num_attention_heads",),
    "inner": ("intermediate_size", "n_inner", "hidden_dim"),
    "positions": ("max_position_embeddings",),
    "eps": ("layer_norm_eps", "layer_norm_epsilon"), "pad": ("pad_token_id",),
    "activation": ("hidden_act", "activation_function", "activation"),
}  # fmt: skip
"""Our field -> what transformers' configuration of some family calls it."""


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("backwards", [False, True])
def test_of_two_names_the_one_counts_that_counts_in_transformers(tmp_path, family, backwards):
    own = set(AutoConfig.for_model(family).to_dict())
    names = sorted(STRAY, reverse=backwards)
    stray = {name: STRAY[name] for name in names}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family} | stray))
    theirs = AutoConfig.from_pretrained(tmp_path)
    ours = native_config.read({"model_type": family} | stray)
    for field, names in FIELDS.items():
        real = [name for name in names if name in own or name in type(theirs).attribute_map]
        if real:
            assert getattr(ours, field) == getattr(theirs, real[0]), field
    assert (ours.scaled, ours.scaled_by_layer) == (
        (False, True) if family == "gpt2" else (True, False)
    )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_setting_that_is_claimed_is_checked(tmp_path, family, activation):
    """What ``info.exactness`` says of a model, for all that it can say."""
    key = {"gpt2": "activation_function", "distilbert": "activation"}.get(family, "hidden_act")
    scales = [{}]
    if family == "gpt2" and activation == "gelu_new":
        flags = ("scale_attn_weights", "scale_attn_by_inverse_layer_idx")
        scales = [dict(zip(flags, on, strict=True)) for on in product((True, False), repeat=2)]
    for number, scale in enumerate(scales):
        path = checkpoints.write(tmp_path / str(number), family, **scale, **{key: activation})
        source = load(path, backend="native")
        claim = f"checked against transformers to 1e-5 on small {family} models with {activation}"
        if not scale.get("scale_attn_weights", True):
            claim += ", scores not scaled by width"
        if scale.get("scale_attn_by_inverse_layer_idx"):
            claim += ", scores scaled by layer"
        assert source.info.exactness == f"attnviz's own forward pass, {claim}"
        check(path, source)
    half = load(path, backend="native", dtype="bfloat16")
    assert half.info.dtype == "bfloat16"
    assert "bfloat16" in half.info.exactness
    assert "1e-5" not in half.info.exactness


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_more_layers_than_weights_are_not_built(folder, family):
    path = folder(family)
    key = {"bert": "num_hidden_layers", "gpt2": "n_layer"}[family]
    checkpoints.edit_config(path, **{key: 1_000_000})
    with pytest.raises(ModelError, match=r"1,000,000 layers.*\d+ tensors; the two files"):
        load(path)
    checkpoints.edit_config(path, **{key: 2}, text_config={"num_hidden_layers": 10**9})
    with pytest.raises(ModelError, match=r"1,000,000,000 layers"):
        load(path, backend="hooked")


# --- what weights may be -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn]
)
@pytest.mark.parametrize(
    "name", ["encoder.layer.0.output.dense.weight", "embeddings.LayerNorm.bias"]
)
def test_weights_that_are_no_numbers_as_they_stand(bert, dtype, name):
    checkpoints.edit_weights(bert, lambda state: state | {name: state[name].to(dtype)})
    for backend in ("auto", "hooked"):
        with pytest.raises(
            ModelError, match=rf"stores {name} as \w+, and config.json has no quant"
        ):
            load(bert, backend=backend)
    assert not inspect("x", bert, "hub cache").usable


def test_masks_and_positions_are_stored_as_they_like(folder):
    for family, extra in {
        "gpt2": {"h.0.attn.bias": torch.ones(1, 1, 47, 47, dtype=torch.bool)},
        "bert": {"embeddings.position_ids": torch.arange(47)[None]},
    }.items():
        path = folder(family)
        checkpoints.edit_weights(path, lambda state, extra=extra: state | extra)
        assert load(path).info.backend == "native"


def score(path: Path, backend: str) -> None:
    source = load(path, backend=backend)
    batch = [source.prepare(Prompt(ids=(5, 9, 120, 7, 11)))]
    source.forward(batch, [ScoreObserver(batch, source.layout)])


@pytest.mark.parametrize("family", ["bert", "gpt2"])
@pytest.mark.parametrize("where", ["all", "one token", "last layer's keys"])
def test_a_model_of_nan_is_refused(folder, capsys, tmp_path, family, where):
    path = folder(family)
    state = load_file(path / "model.safetensors")
    tokens, keys = {
        "bert": ("embeddings.word_embeddings.weight", "encoder.layer.1.attention.self.key.weight"),
        "gpt2": ("wte.weight", "h.1.attn.c_attn.weight"),
    }[family]
    if where == "one token":
        state[tokens][120] = torch.nan  # not among those that the hooks are tried on
    else:
        state[keys if where.startswith("last") else tokens][:] = torch.nan
    save_file(state, path / "model.safetensors")
    for backend in ("native", "hooked"):
        with pytest.raises(ModelError, match=r"not numbers|not finite"):
            score(path, backend)
    out = tmp_path / "x.npz"
    for command in (["heads"], ["capture", "-o", str(out)]):
        assert main([*command, "--ids", "5,9,120,7,11", "-m", str(path)]) == 1
        said = capsys.readouterr()
        assert said.out == ""
        assert len(said.err.splitlines()) <= 2
        assert "NaN" in said.err
    assert not out.exists()


# --- tokenizers ----------------------------------------------------------------------------------


def drop_unknown(path: Path) -> None:
    vocabulary = path / "vocab.txt"
    vocabulary.write_text(vocabulary.read_text("utf-8").replace("[UNK]\n", "[unused]\n"), "utf-8")


def test_a_text_that_needs_a_missing_unknown_token(bert):
    drop_unknown(bert)
    source = load(bert, backend="native")
    source.prepare(TEXT)  # has no need of it
    with pytest.raises(ModelError, match=r"tokenizer .*cannot read this text.*UNK.*; give .*ids"):
        source.prepare(Prompt("the ☃ is on the table"))


@pytest.mark.parametrize(
    "change",
    [
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
        {
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "X", "type_id": 0}}],
                "pair": [],
                "special_tokens": {},
            }
        },
    ],
)
@pytest.mark.parametrize("backend", ["native", "hooked"])
def test_a_tokenizer_that_panics_is_one_line(folder, capfd, change, backend):
    path = folder("gpt2")
    written = json.loads((pretrained.locate("demo-gpt2").folder / "tokenizer.json").read_text())
    (path / "tokenizer.json").write_text(json.dumps(written | change))
    capfd.readouterr()
    with pytest.raises(ModelError, match="token") as caught:
        load(path, backend=backend).prepare(TEXT)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "wrong",
    [
        [1, 2], "x", {"abc": {"content": "x"}}, {"3": 5}, {"3": {}}, {"3": {"content": 7}},
        {"3": None},
    ],
)  # fmt: skip
def test_added_tokens_that_are_none(bert, wrong):
    checkpoints.wordpiece(bert, added_tokens_decoder=wrong)
    with pytest.raises(
        ModelError, match=r"tokenizer_config\.json has added_tokens_decoder .*again"
    ):
        native.load(locate(str(bert)), "cpu", "float32")


# --- tensors under two names ---------------------------------------------------------------------

DOUBLED = {
    "bert": [
        ("bert.embeddings.LayerNorm.gamma", "bert.embeddings.LayerNorm.weight"),
        (
            "bert.encoder.layer.0.output.LayerNorm.beta",
            "bert.encoder.layer.0.output.LayerNorm.bias",
        ),
        ("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
        ("cls.predictions.decoder.bias", "cls.predictions.bias"),
    ],
    "gpt2": [
        ("transformer.ln_f.gamma", "transformer.ln_f.weight"),
        ("transformer.h.0.ln_1.beta", "transformer.h.0.ln_1.bias"),
        ("lm_head.weight", "transformer.wte.weight"),
    ],
}
WRAPPERS = {"bert": "BertForMaskedLM", "gpt2": "GPT2LMHeadModel"}
PAIRS = [(family, *pair) for family, pairs in DOUBLED.items() for pair in pairs]


@pytest.mark.parametrize("where", ["one file", "two files"])
@pytest.mark.parametrize(("family", "again", "name"), PAIRS)
def test_a_tensor_under_two_names_is_refused(tmp_path, family, again, name, where) -> None:
    """One backend would take the one and transformers the other, and neither would say so."""
    path = checkpoints.write(tmp_path, family, WRAPPERS[family])
    tensors = load_file(path / "model.safetensors")
    assert name in tensors
    other = {again: tensors[name] + 1.0}
    if where == "one file":
        save_file(tensors | other, path / "model.safetensors", {"format": "pt"})
    else:
        (path / "model.safetensors").unlink()
        files = {"a.safetensors": tensors, "b.safetensors": other}
        for file, part in files.items():
            save_file(part, path / file, {"format": "pt"})
        index = {key: file for file, part in files.items() for key in part}
        (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    with pytest.raises(ModelError, match=r"twice|the two differ") as caught:
        load(path)
    assert "\n" not in str(caught.value)
    assert again in str(caught.value)


@pytest.mark.parametrize(
    ("family", "again", "name"), [p for p in PAIRS if p[1][:3] in ("lm_", "cls")]
)
def test_a_tied_copy_with_the_same_numbers_is_no_second_tensor(
    tmp_path, family, again, name
) -> None:
    path = checkpoints.write(tmp_path, family, WRAPPERS[family])
    before = _logits(path)
    tensors = load_file(path / "model.safetensors")
    save_file(
        tensors | {again: tensors[name].clone()}, path / "model.safetensors", {"format": "pt"}
    )
    assert torch.equal(_logits(path), before)


def _logits(path: Path) -> torch.Tensor:
    source = load(path)
    return source.forward([source.prepare(TEXT)], (), ForwardRequest(logits=True)).logits
