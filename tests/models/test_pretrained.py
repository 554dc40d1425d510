"""From a model's name to a source: folders, the hub, devices, backends, and limits of a prompt."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
import torch
import transformers
from huggingface_hub import constants, errors

from attnviz.core.prompt import Prompt
from attnviz.errors import DeviceError, InputError, ModelError, UsageError
from attnviz.models import device, folder, hub, pretrained
from attnviz.scoring.observe import Recorder
from tests import checkpoints


def tokens_of(inputs):
    return next(iter(inputs.sides.values())).queries


# --- backends -------------------------------------------------------------------------------------


def test_the_lean_road_is_taken_where_it_can_be(models):
    for name, path in models.items():
        info = pretrained.load(str(path), device="cpu").info
        assert (info.backend, info.reason, info.model) == ("native", "", path.name), name
        assert "torch" in info.versions


@checkpoints.needs_transformers_5
def test_the_tap_is_taken_otherwise_and_says_why(bert):
    checkpoints.edit_config(bert, hidden_act="silu")
    info = pretrained.load(str(bert), device="cpu").info
    assert info.backend == "hooked"
    assert "silu" in info.reason
    with pytest.raises(ModelError, match="silu"):
        pretrained.load(str(bert), device="cpu", backend="native")


@checkpoints.needs_transformers_5
def test_both_roads_show_the_same(models):
    for path in models.values():
        maps = []
        for backend in ("native", "hooked"):
            source = pretrained.load(str(path), device="cpu", backend=backend)
            assert source.info.backend == backend
            inputs = source.prepare(Prompt("The keys are on the table."))
            recorder = Recorder([inputs])
            source.forward([inputs], [recorder])
            maps.append((tokens_of(inputs), recorder.maps()))
        (native_tokens, native), (hooked_tokens, hooked) = maps
        assert native_tokens == hooked_tokens
        assert native.keys() == hooked.keys()
        assert all(abs(native[site] - hooked[site]).max() < 1e-5 for site in native)


def test_an_unknown_road(models):
    with pytest.raises(UsageError, match=r"'quick'.*auto, native or hooked"):
        pretrained.load(str(models["bert"]), backend="quick")


@pytest.mark.parametrize("architecture", ["JinaBertModel", None])
def test_code_that_comes_with_a_model_is_never_run(bert, architecture):
    (bert / "code.py").write_text("raise SystemExit('ran')")
    checkpoints.edit_config(
        bert,
        auto_map={"AutoModel": "code.Model", "AutoConfig": "code.Config"},
        architectures=[architecture] if architecture else None,
        model_type="bert" if architecture else "homemade",
    )
    with pytest.raises(ModelError, match=f"{architecture or 'homemade'}.*never runs"):
        pretrained.load(str(bert), device="cpu")


@checkpoints.needs_transformers_5
def test_a_model_that_transformers_has_may_still_carry_auto_map(bert):
    checkpoints.edit_config(bert, auto_map={"AutoModel": "code.Model"})
    assert pretrained.load(str(bert), device="cpu").info.backend == "hooked"


def test_relative_positions_are_not_computed_as_absolute_ones(bert):
    if hasattr(transformers.BertConfig(), "position_embedding_type"):
        pytest.skip("this transformers computes them")
    checkpoints.edit_config(bert, position_embedding_type="relative_key")
    with pytest.raises(ModelError, match="relative_key positions, which transformers"):
        pretrained.load(str(bert), device="cpu")


# --- prompts -----------------------------------------------------------------------------------


def test_long_texts_are_refused_with_both_numbers_or_cut(models):
    source = pretrained.load(str(models["bert"]), device="cpu")
    long = "the keys " * 40
    with pytest.raises(InputError, match=r"82 tokens.*at most 47.*truncate=True"):
        source.prepare(Prompt(long))
    cut = source.prepare(Prompt(long, truncate=True))
    tokens = tokens_of(cut)
    assert (len(tokens), tokens.texts[0], tokens.texts[-1]) == (47, "[CLS]", "[SEP]")
    assert "35 were left out" in cut.notes[0]
    assert source.prepare(Prompt("the keys")).notes == ()
    assert len(tokens_of(source.prepare(Prompt("the " * 45)))) == 47  # just fits, nothing is left


def test_of_a_pair_the_longer_is_cut(models):
    source = pretrained.load(str(models["bert"]), device="cpu")
    inputs = source.prepare(Prompt("the " * 90, pair="on table", truncate=True))
    tokens = tokens_of(inputs)
    assert tokens.texts[-4:] == ("[SEP]", "on", "table", "[SEP]")
    assert (len(tokens), sum(tokens.segments)) == (47, 3)


def test_ids_are_taken_as_they_are(models):
    source = pretrained.load(str(models["bert"]), device="cpu")
    cls, sep = 2, 3
    tokens = tokens_of(source.prepare(Prompt(ids=(cls, 99, 100, sep))))
    assert (tokens.ids, tokens.special) == ((cls, 99, 100, sep), (True, False, False, True))
    cut = source.prepare(Prompt(ids=(cls, *range(99, 160), sep), truncate=True))
    assert tokens_of(cut).ids == (cls, *range(99, 144), sep)
    plain = pretrained.load(str(models["gpt2"]), device="cpu")
    assert tokens_of(plain.prepare(Prompt(ids=tuple(range(60)), truncate=True))).ids[-1] == 46


def test_special_tokens_alone_may_be_too_many(bert):
    checkpoints.edit_config(bert, max_position_embeddings=2)
    rows = "embeddings.position_embeddings.weight"
    checkpoints.edit_weights(bert, lambda state: state | {rows: state[rows][:2]})
    source = pretrained.load(str(bert), device="cpu")
    assert len(tokens_of(source.prepare(Prompt("the keys", truncate=True)))) == 2
    with pytest.raises(InputError, match=r"at most 2 tokens.*special_tokens=False"):
        source.prepare(Prompt("the keys", pair="on", truncate=True))


@pytest.mark.parametrize(
    ("name", "prompt", "kind", "says"),
    [
        ("bert", Prompt(ids=(1, 293)), InputError, "293.*0 to 292"),
        ("bert", Prompt(ids=(-1,)), InputError, "token id -1"),
        ("bert", Prompt("a", target="b"), UsageError, "target needs an encoder-decoder"),
        ("bert", Prompt(ids=(5,), pair="b"), UsageError, "pair goes with a text"),
        ("bert", Prompt("", special_tokens=False), InputError, "no tokens"),
        ("gpt2", Prompt("  ", pair="b"), UsageError, "BERT, DistilBERT and RoBERTa models take"),
        ("gpt2", Prompt(""), InputError, "no tokens"),
    ],
)
def test_prompts_that_a_model_cannot_take(models, name, prompt, kind, says):
    source = pretrained.load(str(models[name]), device="cpu")
    with pytest.raises(kind, match=says):
        source.prepare(prompt)


def test_without_a_tokenizer_only_ids_work(bert):
    for file in ("vocab.txt", "tokenizer_config.json"):
        (bert / file).unlink()
    source = pretrained.load(str(bert), device="cpu")
    assert source.info.backend == "native"
    assert tokens_of(source.prepare(Prompt(ids=(7, 9)))).texts == ("#7", "#9")
    with pytest.raises(ModelError, match=r"no tokenizer.*ids"):
        source.prepare(Prompt("a text"))


def test_tokenizers_that_only_transformers_can_build(bert):
    checkpoints.wordpiece(bert, tokenizer_class="BertJapaneseTokenizer")
    with pytest.raises(ModelError, match="BertJapaneseTokenizer"):
        pretrained.load(str(bert), device="cpu", backend="native")
    (bert / "tokenizer_config.json").write_text("[1]")
    with pytest.raises(ModelError, match=r"tokenizer_config\.json holds no JSON object"):
        pretrained.load(str(bert), device="cpu")
    (bert / "tokenizer_config.json").unlink()
    (bert / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"cannot read .*tokenizer\.json.*download it again"):
        pretrained.load(str(bert), device="cpu")


def test_tokens_beyond_the_vocabulary_file(bert):
    more = {"content": "<new>", "special": True}
    checkpoints.wordpiece(bert, added_tokens_decoder={"140": more})
    count = len((bert / "vocab.txt").read_text(encoding="utf-8").splitlines())
    with pytest.raises(ModelError, match="<new> the id 140"):
        pretrained.load(str(bert), device="cpu", backend="native")
    checkpoints.wordpiece(bert, added_tokens_decoder={str(count): more})
    source = pretrained.load(str(bert), device="cpu")
    assert count in tokens_of(source.prepare(Prompt("the <new> keys"))).ids


# --- folders -----------------------------------------------------------------------------------


def drop_weights(path: Path, *others: str) -> None:
    (path / "model.safetensors").unlink()
    for name in others:
        (path / name).write_bytes(b"x")


def truncate(path: Path, keep: int) -> None:
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda p: (p / "config.json").unlink(), "no config.json in .*save_pretrained"),
        (lambda p: (p / "config.json").write_text("{"), "cannot read .*config.json.*again"),
        (lambda p: (p / "config.json").write_text("[" * 100_000), "cannot read .*config.json"),
        (lambda p: (p / "config.json").write_bytes(b"\xff\xfe"), "cannot read .*config.json"),
        (lambda p: (p / "config.json").write_text("[]"), "no JSON object"),
        (lambda p: (p / "config.json").write_text("{}"), "has no model_type"),
        (drop_weights, "has no weights"),
        (lambda p: drop_weights(p, "pytorch_model.bin"), "pickled weights.*safe_serialization"),
        (lambda p: drop_weights(p, "tf_model.h5"), "tf_model.h5 cannot be read"),
        (lambda p: drop_weights(p, "a.safetensors", "b.safetensors"), "2 safetensors files and no"),
        (lambda p: truncate(p, -1), "truncated or damaged.*download it again"),
        (lambda p: truncate(p, 500), "truncated or damaged"),
        (lambda p: truncate(p, 0), "truncated or damaged"),
        (
            lambda p: (p / "model.safetensors").write_text(
                "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n"
            ),
            "git-lfs pointer.*git lfs pull",
        ),
    ],
)
def test_damaged_folders(bert, damage, says):
    damage(bert)
    with pytest.raises(ModelError, match=says) as caught:
        pretrained.load(str(bert), device="cpu")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("index", "says"),
    [
        ({}, "has no weight_map"),
        ({"weight_map": {"a": 3}}, "has no weight_map"),
        ({"weight_map": {"a": "../secret.safetensors"}}, "not a safetensors file beside it"),
        ({"weight_map": {"a": "x.bin"}}, "not a safetensors file beside it"),
        ({"weight_map": {"a": "x.safetensors"}}, r"lacks x\.safetensors"),
    ],
)
def test_damaged_shards(bert, index, says):
    drop_weights(bert)
    (bert / folder.INDEX).write_text(json.dumps(index))
    with pytest.raises(ModelError, match=says):
        pretrained.load(str(bert), device="cpu")


def test_adapters_and_files_are_named_for_what_they_are(bert, tmp_path):
    file = bert / "model.safetensors"
    with pytest.raises(ModelError, match=f"is a file.*recorded='{file}'"):
        folder.locate(str(file))
    (bert / "config.json").rename(bert / "adapter_config.json")
    with pytest.raises(ModelError, match="an adapter of kind None"):
        folder.locate(str(bert))


@pytest.mark.parametrize("name", ["./no/where", "/no/where", "a/b/c", "~nobody-here/x", "", "a b"])
def test_names_that_are_neither_a_folder_nor_an_id(name):
    with pytest.raises(ModelError, match=r"no folder|neither a folder|no config\.json"):
        folder.locate(name)


def test_a_name_no_system_takes():
    for name in ("x" * 5000, "x/" * 3000):
        with pytest.raises(ModelError, match="neither a folder nor a hub id"):
            folder.locate(name)


def test_a_single_file_of_another_name_will_do(bert):
    (bert / "model.safetensors").rename(bert / "weights.safetensors")
    assert pretrained.load(str(bert), device="cpu").info.backend == "native"


def test_bundled_names_come_first(models, monkeypatch):
    monkeypatch.setitem(folder.DEMOS, "demo-test", models["bert"])
    source = pretrained.load("demo-test", device="cpu")
    assert (source.info.model, source.info.backend) == ("demo-test", "native")
    with pytest.raises(ModelError, match="demo-test"):
        folder.locate("./nothing")


# --- the hub -----------------------------------------------------------------------------------


@pytest.fixture
def online(monkeypatch, models):
    """A hub that has what a test says: ``online.files``, or raises ``online.error``."""
    state = SimpleNamespace(files=[], error=None, asked=None, revision=None)

    def info(model, revision, timeout):
        if state.error:
            raise state.error
        files = [SimpleNamespace(rfilename=f) for f in state.files]
        state.revision = revision
        return SimpleNamespace(siblings=files, sha="0" * 40)

    def fetch(model, *, revision, allow_patterns, local_files_only=False, tqdm_class=None):
        state.asked = allow_patterns
        if local_files_only:
            raise errors.LocalEntryNotFoundError("not here")
        return str(models["bert"])

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "model_info", info)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    return state


def test_a_name_that_the_hub_cannot_have(online):
    online.error = errors.HFValidationError("bad")
    with pytest.raises(ModelError, match="neither a folder nor a valid hub id"):
        folder.locate("some/one")


def test_a_revision_is_named_behind_an_at(online):
    online.files = ["config.json", "model.safetensors"]
    folder.locate("some/one@step1000")
    assert online.revision == "step1000"
    folder.locate("some/one")
    assert online.revision is None
    response = SimpleNamespace(headers={}, request=None)
    online.error = errors.RevisionNotFoundError("from the hub", response=response)
    with pytest.raises(ModelError, match="some/one has no revision step7"):
        folder.locate("some/one@step7")


def test_a_configuration_is_fetched_alone(online):
    online.files = ["config.json", "pytorch_model.bin", "tokenizer.json"]
    config, where = folder.locate_config("some/one")
    assert config["model_type"] == "bert"
    assert (where / "config.json").is_file()
    assert online.asked == ["config.json"]
    online.error = OSError("no route to host")
    with pytest.raises(ModelError, match="cannot be reached and its cache"):
        folder.locate_config("some/one")


def test_a_configuration_alone_may_be_a_file_and_need_no_weights(bert):
    drop_weights(bert)
    assert folder.locate_config(str(bert / "config.json")) == folder.locate_config(str(bert))
    for content, says in (
        (" " * (9 << 20), "too many for a configuration"),
        ("[" * 9999, "cannot read"),
    ):
        (bert / "config.json").write_text(content)
        with pytest.raises(ModelError, match=says) as caught:
            folder.locate_config(str(bert))
        assert "\n" not in str(caught.value)
    for name in ("./nothing.json", "x" * 5000 + ".json", "a b"):
        with pytest.raises(ModelError, match=r"no folder|neither a folder"):
            folder.locate_config(name)


def test_offline_the_cache_is_enough(monkeypatch, tmp_path, models):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match="cannot be reached and its cache does not hold some/one"):
        hub.download("some/one")
    stored = tmp_path / "models--some--one"
    (stored / "refs").mkdir(parents=True)
    (stored / "refs" / "main").write_text("0" * 40)
    shutil.copytree(models["bert"], stored / "snapshots" / ("0" * 40))
    assert pretrained.load("some/one", device="cpu").info.model == "some/one"


# --- devices -----------------------------------------------------------------------------------


def test_devices_and_dtypes(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert device.resolve() == ("cpu", "float32")
    assert device.resolve("CPU", "float16") == ("cpu", "float16")
    for name in ("cuda", "cuda:3", "mps"):
        with pytest.raises(DeviceError, match=r"on this machine; present: cpu$"):
            device.resolve(name)
    for wrong in ("gpu", "cuda:x", ""):
        with pytest.raises(UsageError, match="choose auto, cpu, cuda, cuda:N, mps"):
            device.resolve(wrong)
    with pytest.raises(UsageError, match=r"'int8'.*float32, bfloat16, float16"):
        device.resolve("cpu", "int8")


def test_gpus_come_first(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert device.present() == ("cuda:0", "cuda:1", "mps", "cpu")
    assert device.resolve("auto")[0] == device.resolve("cuda")[0] == "cuda:0"
    assert device.resolve("cuda:1")[0] == "cuda:1"
    with pytest.raises(DeviceError, match=r"cuda:2.*cuda:0, cuda:1, mps, cpu"):
        device.resolve("cuda:2")
