"""What others put around a model is taken off, and adapters are added to its weights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import attnviz as av
from attnviz.core import arrays
from attnviz.core.heads import Site
from attnviz.core.prompt import Prompt
from attnviz.errors import ModelError, UsageError
from attnviz.models.demo import DEMOS
from attnviz.scoring.observe import Recorder
from tests.models.tiny import SHORT, Folders, transformers

RANK, ALPHA, HEADS = 2, 6.0, 4


def maps(model: Any, ids: Sequence[int] = SHORT) -> dict[Site, np.ndarray]:
    source = av.load(model)
    batch = [source.prepare(Prompt(ids=tuple(ids)))]
    recorder = Recorder(batch)
    source.forward(batch, [recorder])
    return recorder.maps()


def eager(model: Any, ids: Sequence[int] = SHORT) -> list[np.ndarray]:
    model.set_attn_implementation("eager")
    with torch.no_grad():
        output = model(torch.tensor([ids]), output_attentions=True)
    return [weights[0].numpy() for weights in output.attentions]


def furthest(ours: dict[Site, np.ndarray], theirs: list[np.ndarray]) -> float:
    return max(float(abs(ours[site] - w).max()) for site, w in zip(ours, theirs, strict=True))


def matrices(weight: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """A [r, in] and B [out, r] of a layer, by the shape of its matrix [out, in]."""
    torch.manual_seed(seed)
    return torch.randn(RANK, weight.shape[1]), torch.randn(weight.shape[0], RANK)


def adapter(folder: Path, tensors: dict[str, Tensor], **settings: Any) -> Path:
    folder.mkdir()
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA} | settings
    (folder / "adapter_config.json").write_text(json.dumps(config))
    stored = {f"base_model.model.{key}": t.clone(memory_format=torch.contiguous_format)
              for key, t in tensors.items()}  # fmt: skip
    save_file(stored, folder / "adapter_model.safetensors")
    return folder


@pytest.mark.parametrize(
    ("family", "root"), [("llama", False), ("llama", True), ("gpt2", True), ("bert", False)]
)
def test_an_adapter_beside_its_base_is_added_to_its_weights(
    family: str, root: bool, folders: Folders, loaded: Any, tmp_path: Path
) -> None:
    base = folders(family)
    model = transformers.AutoModel.from_pretrained(base, attn_implementation="eager")
    turned = family == "gpt2"  # whose matrices are [in, out]
    named = {"llama": "self_attn.q_proj", "gpt2": "attn.c_attn", "bert": "attention.self.query"}
    changed = {n: m for n, m in model.named_modules() if n.endswith(named[family])}
    tensors = {}
    for seed, (name, module) in enumerate(changed.items()):
        weight = module.weight.data
        a, b = matrices(weight.T if turned else weight, seed)
        change = b @ a * (9 / RANK**0.5 if seed else ALPHA / RANK**0.5)
        module.weight.data += change.T if turned else change
        whole = {"llama": "model", "gpt2": "transformer", "bert": "bert"}[family]
        key = f"{whole}.{name}" if root else name
        tensors |= {f"{key}.lora_A.weight": a, f"{key}.lora_B.weight": b}
    tensors |= {"score.weight": torch.ones(3, 16)}  # of a classifier, on which no map depends
    first, module = next(iter(changed.items()))
    if module.bias is not None:  # as peft names one that is trained with A and B
        module.bias.data += 1 + torch.arange(len(module.bias)) / 7
        key = f"{whole}.{first}" if root else first
        tensors |= {f"{key}.base_layer.bias": module.bias.data}
    folder = adapter(
        tmp_path / "tuned", tensors, use_rslora=True, base_model_name_or_path=str(base),
        alpha_pattern={f"{list(changed)[1]}": 9.0},
    )  # fmt: skip
    source = av.load(str(folder))
    assert source.info.model == "tuned"
    assert "with an adapter added to its weights" in source.info.reason
    assert furthest(maps(source), eager(model)) < 1e-5
    assert furthest(maps(loaded(family)), eager(model)) > 1e-3


def test_a_base_is_looked_for_beside_its_adapter(folders: Folders, tmp_path: Path) -> None:
    (tmp_path / "base").symlink_to(folders("llama"))
    a, b = torch.randn(RANK, 16), torch.randn(16, RANK)
    part = "model.layers.0.self_attn.q_proj"
    tensors = {f"{part}.lora_A.weight": a, f"{part}.lora_B.weight": b}
    folder = adapter(tmp_path / "tuned", tensors, base_model_name_or_path="someone/base")
    assert av.load(str(folder)).info.reason.startswith("base with an adapter")


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "kind": ({"peft_type": "IA3"}, "A", "kind IA3"),
    "dora": ({"use_dora": True}, "A", "use_dora=True"),
    "start": ({"init_lora_weights": "pissa"}, "A", "init_lora_weights='pissa'"),
    "no base": ({"base_model_name_or_path": None}, "A", "names no base_model_name_or_path"),
    "elsewhere": ({}, "q_other.lora_A.weight", "belongs to no matrix of its base"),
    "other": ({}, "q_proj.lora_magnitude_vector", "is no matrix A or B"),
    "whole": ({}, "q_proj.scale", "has no place in its base"),
    "size": ({}, "size", "in its base and"),
}


@pytest.mark.parametrize(("settings", "key", "says"), list(WRONG.values()), ids=list(WRONG))
def test_what_is_no_plain_product_is_refused(
    settings: dict[str, Any], key: str, says: str, folders: Folders, tmp_path: Path
) -> None:
    wide = 15 if key == "size" else 16
    before = "model.layers.0.self_attn."
    tensors = {
        f"{before}q_proj.lora_A.weight": torch.randn(RANK, wide),
        f"{before}q_proj.lora_B.weight": torch.randn(16, RANK),
    }
    if key not in ("A", "size"):
        tensors[before + key] = torch.randn(RANK, 16)
        tensors[before + key.replace("A", "B")] = torch.randn(16, RANK)
    settings = {"base_model_name_or_path": str(folders("llama"))} | settings
    with pytest.raises(ModelError, match=says):
        av.load(str(adapter(tmp_path / "tuned", tensors, **settings)))


PROJECTIONS = {
    "llama": [f"layers.1.self_attn.{name}_proj" for name in "qkvo"],
    "gpt2": ["h.1.attn.c_attn", "h.1.attn.c_proj"],
    "bert": [*(f"encoder.layer.1.attention.self.{name}" for name in ("query", "key", "value")),
             "encoder.layer.1.attention.output.dense"],
}  # fmt: skip


@pytest.mark.parametrize("family", list(PROJECTIONS))
def test_norms_by_head_from_the_file_alone_are_those_of_the_weights_that_run(
    family: str, folders: Folders, tmp_path: Path
) -> None:
    """Columns of heads are found by what a model computes, and here by names and sizes."""
    model = transformers.AutoModel.from_pretrained(folders(family))
    tensors, squares = {"score.weight": torch.ones(3, 16)}, 0.0
    for seed, name in enumerate(PROJECTIONS[family]):
        weight = model.get_submodule(name).weight
        a, b = matrices(weight.T if family == "gpt2" else weight, seed)
        tensors |= {f"{name}.lora_A.weight": a, f"{name}.lora_B.weight": b}
        squares += float((ALPHA / RANK * b.double() @ a.double()).square().sum())
    bare = tmp_path / "base"  # a configuration, and no weights
    bare.mkdir()
    (bare / "config.json").write_bytes((folders(family) / "config.json").read_bytes())
    folder = adapter(tmp_path / "tuned", tensors, base_model_name_or_path="base")
    found = av.diff(other_model=str(folder))
    assert (found.kind, found.before, found.after) == ("adapter", "base", "tuned")
    assert found.elsewhere == ("score.weight",)
    added = {(head.name, one.name.removeprefix("added ")): one.change
             for head in found.heads for one in head.moved}  # fmt: skip
    (kind,), reads, writes = found.layout.kinds, [], []
    for name in (str(folders(family)), f"{folders(family)}+{folder}"):
        source = av.load(name)
        reads.append(source.reading(Site(kind, 1)))
        weight = source.output(Site(kind, 1)).weight
        writes.append(arrays.doubles(weight))
    assert source.info.model.endswith("+tuned")
    parts = {name: np.subtract(*(arrays.doubles(getattr(one, name)) for one in reads[::-1]))
             for name in ("query", "key", "value")} | {"output": writes[1] - writes[0]}  # fmt: skip
    total = 0.0
    for part, change in parts.items():
        sizes = np.sqrt((change**2).sum((1, 2)))
        total += float((sizes**2).sum())
        for head in range(HEADS):
            expected = sizes[head * len(sizes) // HEADS]
            assert added[f"1.{head}", part] == pytest.approx(expected, rel=1e-4)
            assert (f"0.{head}", part) not in added
    assert total == pytest.approx(squares, rel=1e-4)


HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "no B": ({"B": None}, "has no matrix lora_B"), "no A": ({"A": None}, "has no matrix lora_A"),
    "not a number": ({"A": torch.full((RANK, 16), torch.nan)}, "numbers that are not finite"),
    "rank": ({"r": 3}, "has 2 rows, and adapter_config.json says r = 3"),
    "rank of a layer": ({"rank_pattern": {"q_proj": 4}}, "says r = 4"),
    "product": ({"B": torch.ones(16, 3)}, "which have no product"),
    "cube": ({"A": torch.ones(RANK, 16, 1)}, "which have no product"),
    "wide": ({"A": torch.ones(RANK, 15)}, r"is \(16, 15\), and \(16, 16\) in its base"),
    "alpha": ({"lora_alpha": "much"}, r"\('much'\) is no number"),
    "pattern": ({"alpha_pattern": {"(": 1}}, "is no number"),
    "elsewhere": ({"part": "layers.0.mlp.up_proj"}, "changes no matrix of attention"),
    "fused": ({"part": "h.0.attn.c_attn"}, "changes no matrix of attention"),
    "twice": ({"also": "tower.layers.0.self_attn.q_proj"}, "two matrices query of 0"),
    "damaged": ({"bytes": b"no tensors"}, "is truncated or damaged"),
    "pickled": ({"bytes": None}, "no adapter_model.safetensors"),
    "kind": ({"peft_type": "VERA"}, "kind VERA"), "dora": ({"use_dora": True}, "use_dora=True"),
}  # fmt: skip


@pytest.mark.parametrize(("wrong", "says"), list(HOSTILE.values()), ids=list(HOSTILE))
def test_a_file_that_is_no_whole_adapter_is_refused_in_a_line(
    wrong: dict[str, Any], says: str, folders: Folders, tmp_path: Path
) -> None:
    part = wrong.get("part", "model.layers.0.self_attn.q_proj")
    pair = {"A": torch.ones(RANK, 16), "B": torch.ones(16, RANK)} | wrong
    tensors = {
        f"{name}.lora_{letter}.weight": pair[letter]
        for name in (part, wrong.get("also", part))
        for letter in "AB"
        if pair[letter] is not None
    }
    settings = {key: value for key, value in wrong.items() if key.islower() and key not in _OWN}
    settings |= {"base_model_name_or_path": str(folders("llama"))}
    folder = adapter(tmp_path / "tuned", tensors, **settings)
    if "bytes" in wrong:
        (folder / "adapter_model.safetensors").unlink()
    if wrong.get("bytes"):
        (folder / "adapter_model.safetensors").write_bytes(wrong["bytes"])
    with pytest.raises(ModelError, match=says) as error:
        av.diff(other_model=str(folder))
    assert "\n" not in error.value.message


_OWN = ("part", "also", "bytes")


def test_a_difference_says_which_heads_an_adapter_changed(folders: Folders, tmp_path: Path) -> None:
    base = str(folders("gpt2", words=True))
    a, b = torch.randn(RANK, 16), torch.zeros(3 * 16, RANK)
    b[8:12] = torch.randn(4, RANK)  # the queries of head 2 alone
    tensors = {f"transformer.h.1.attn.c_attn.lora_{n}.weight": t
               for n, t in zip("AB", (a, b), strict=True)}  # fmt: skip
    folder = adapter(tmp_path / "tuned", tensors, base_model_name_or_path=base)
    report = av.diff(Prompt(ids=SHORT), model=base, other_model=str(folder))
    moved = [head.name for head in report.heads if head.distance and head.largest() > 1e-4]
    assert moved == ["1.2"]


class Added(nn.Module):
    """A layer of an adapter, as peft makes them: the layer inside, and a product beside it."""

    disable_adapters = False

    def __init__(self, base_layer: nn.Linear) -> None:
        super().__init__()
        self.base_layer = base_layer
        a, b = matrices(base_layer.weight, 7)
        self.a, self.b = nn.Parameter(a), nn.Parameter(b)
        self.merged_adapters: list[str] = []

    def merge(self, safe_merge: bool = False) -> None:
        assert safe_merge
        self.base_layer.weight.data = self.base_layer.weight.data + self.b.data @ self.a.data
        self.merged_adapters.append("own")

    def forward(self, x: Tensor) -> Tensor:
        made = self.base_layer(x)
        return made if self.merged_adapters else made + x @ self.a.T @ self.b.T


class Peft(nn.Module):
    """A model with adapters in it."""

    def __init__(self, inner: Any, *, learned_prompt: bool = False) -> None:
        super().__init__()
        self.inner, self.active_adapters = inner, ["own"]
        kind = SimpleNamespace(value="PREFIX_TUNING")
        self.peft_config = {
            "own": SimpleNamespace(is_prompt_learning=learned_prompt, peft_type=kind)
        }

    def get_base_model(self) -> Any:
        return self.inner


def test_adapters_of_a_model_in_memory_are_in_the_weights_while_it_runs(folders: Folders) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(folders("llama"))
    for layer in model.model.layers:
        layer.self_attn.q_proj = Added(layer.self_attn.q_proj)
        layer.self_attn.o_proj = Added(layer.self_attn.o_proj)
    before = {key: (t.data_ptr(), t.clone()) for key, t in model.state_dict().items()}
    source = av.load(Peft(model))
    assert "taken out of a Peft, with 'own' added to its weights" in source.info.reason
    assert furthest(maps(Peft(model)), eager(model)) < 1e-5
    first = model.model.layers[0].self_attn.o_proj
    weight = source.output(Site("decoder", 0)).weight  # [H, d_v, D], of what runs
    whole = first.base_layer.weight + first.b @ first.a
    torch.testing.assert_close(weight.reshape(-1, weight.shape[-1]).T, whole)
    for key, tensor in model.state_dict().items():
        assert tensor.data_ptr() == before[key][0]
        assert torch.equal(tensor, before[key][1])
    assert not first.merged_adapters


def test_vectors_before_the_text_are_refused(folders: Folders) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(folders("llama"))
    with pytest.raises(ModelError, match=r"adapter 'own' \(PREFIX_TUNING\) puts vectors"):
        av.load(Peft(model, learned_prompt=True))


def test_what_stands_around_a_model_is_taken_off(folders: Folders) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(folders("llama"))
    expected = maps(model)
    compiled = torch.compile(model, backend="eager")
    for wrapped, told in (
        (compiled, "taken out of a OptimizedModule, not compiled"),
        (nn.DataParallel(model), "taken out of a DataParallel, on one device"),
        (nn.DataParallel(compiled), "taken out of a OptimizedModule"),
    ):
        assert told in av.load(wrapped).info.reason
        for site, own in maps(wrapped).items():
            assert np.array_equal(own, expected[site])


def test_a_pipeline_and_an_encoder_of_sentences_have_their_tokenizer() -> None:
    folder = DEMOS["demo-bert"]
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    pipe = transformers.pipeline("fill-mask", model=model, tokenizer=tokenizer)
    wholes = [(pipe, "taken out of a FillMaskPipeline")]
    sentences = pytest.importorskip("sentence_transformers")
    encoder = sentences.SentenceTransformer(str(folder), device="cpu",
                                            model_kwargs={"dtype": torch.float32})  # fmt: skip
    wholes.append((encoder, "taken out of a SentenceTransformer, without its pooling"))
    expected = av.capture("The cat sat", model="demo-bert")
    for whole, told in wholes:
        source = av.load(whole)
        assert told in source.info.reason
        found = av.capture("The cat sat", model=source)
        for site, own in found.maps.items():
            np.testing.assert_allclose(own, expected.maps[site], atol=1e-5)


def test_a_transformers_model_at_work_is_watched(folders: Folders) -> None:
    for family in ("bert", "gpt2", "llama"):
        model = transformers.AutoModel.from_pretrained(folders(family)).eval()
        with av.watch(model) as watched, torch.no_grad():
            model(torch.tensor([SHORT]))
        capture, theirs = watched.capture(), eager(model)
        assert len(capture.maps) == len(theirs)
        assert furthest(dict(capture.maps), theirs) < 1e-6


def test_sources_as_long_as_their_targets_are_crossed() -> None:
    """Sources and targets of one length, as batches for training are padded."""
    sizes: dict[str, Any] = {"vocab_size": 41, "d_model": 16, "max_position_embeddings": 64}
    parts = {"layers": 2, "attention_heads": 4, "ffn_dim": 24}
    sizes |= {f"{side}_{n}": v for side in ("encoder", "decoder") for n, v in parts.items()}
    torch.manual_seed(0)
    model = transformers.BartForConditionalGeneration(transformers.BartConfig(**sizes)).eval()
    ids, labels = torch.tensor([SHORT]), torch.tensor([SHORT[::-1]])
    with av.watch(model) as watched, torch.no_grad():
        model(ids, labels=labels)
    capture = watched.capture()
    assert capture.layout.heads == {"encoder": (4, 4), "decoder": (4, 4), "cross": (4, 4)}
    model.set_attn_implementation("eager")
    with torch.no_grad():
        output = model(ids, labels=labels, output_attentions=True)
    for site, own in capture.maps.items():
        theirs = output[f"{site.kind}_attentions"][site.layer][0]
        np.testing.assert_allclose(own, theirs, atol=1e-6)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_steps_with_a_cache_are_rows_of_the_whole(family: str, folders: Folders) -> None:
    """What is written token by token, keys shared by several queries or not."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folders(family)).eval()
    ids = torch.tensor([SHORT])
    with av.watch(model, passes=3) as watched:
        out = model.generate(ids, max_new_tokens=3, do_sample=False, eos_token_id=None)
    theirs = eager(model, out[0, :-1].tolist())
    for back in (1, 2):
        capture, length = watched.capture(index=-back), out.shape[1] - back
        assert capture.layout.kinds == ("decoder",)
        assert len(capture.tokens) == length
        assert not [note for note in capture.inputs.notes if "ot read" in note]
        for site, weights in capture.maps.items():
            whole = theirs[site.layer][:, length - 1, :length]
            np.testing.assert_allclose(weights[:, -1], whole, atol=1e-6)
            assert not weights[:, :-1].any()
    named = watched.capture(["a"])
    assert (named.tokens[0], named.tokens[-1]) == ("prefix 0", "a")


def test_what_is_no_transformers_model_is_refused() -> None:
    with pytest.raises(UsageError, match="takes a transformers PreTrainedModel, not Sequential"):
        av.load(nn.DataParallel(nn.Sequential(nn.Linear(2, 2))))


class Packed(nn.Linear):
    """A layer whose matrix is stored as bytes, as bitsandbytes keeps one."""

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__(plain.in_features, plain.out_features, bias=plain.bias is not None)
        self.scale = plain.weight.detach().abs().max() / 127
        whole = (plain.weight.detach() / self.scale).round().to(torch.int8)
        self.weight = nn.Parameter(whole.reshape(-1, 1), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight.reshape(self.out_features, self.in_features).float() * self.scale
        return nn.functional.linear(x, weight, self.bias)


def test_packed_weights_are_hooked_and_not_taken_for_numbers(folders: Folders) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(folders("llama"))
    for layer in model.model.layers:
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(layer.self_attn, name, Packed(getattr(layer.self_attn, name)))
    source = av.load(model)
    assert source.info.backend == "hooked"
    assert not source.no_gates
    assert "stored in 8 or 4 bits" in source.output(Site("decoder", 0)).reason
    assert source.reading(Site("decoder", 0)).reason
    assert furthest(maps(source), eager(model)) < 1e-5
    prompt = Prompt(ids=SHORT)
    report = av.logits(prompt, position=-1, model=source)
    assert "stored in 8 or 4 bits" in report.reason
