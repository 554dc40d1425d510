"""Every feature on every device and in every precision, on devices that pretend to be there."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

import attnviz as av
from attnviz.core.source import Rows, Source
from attnviz.core.threads import WORKER
from attnviz.corpus.executors import Processes
from attnviz.errors import AttnvizError, ModelError
from attnviz.interventions.metrics import KL
from attnviz.interventions.sweep import affordable
from attnviz.models.limits import batch_factor, beyond
from attnviz.scoring.observe import ScoreObserver
from tests.pretending import COUNTS, pretending

TEXT = "The old man read the letter and the old man read."
MANY = [TEXT, "The keys to the cabinet are on the table.", "No one came."]
PAIR: dict[str, Any] = {
    "clean": "The man smiled because", "corrupted": "The woman smiled because",
    "answer": "he", "against": "she",
}  # fmt: skip
TRACE = "The key was upon the table. The old man sat and read. Two men came in. He saw the key."
FEATURES: dict[str, Callable[[Any], Any]] = {
    "heads": lambda m: av.heads(TEXT, model=m),
    "heads --quantity": lambda m: av.heads(TEXT, model=m, quantity="norm"),
    "heads --probe": lambda m: av.heads(TEXT, probe=True, model=m),
    "heads --generate": lambda m: av.heads(av.Prompt("The", generate=av.Generation(3)), model=m),
    "capture": lambda m: av.capture(TEXT, model=m),
    "view": lambda m: av.view(TEXT, model=m, select="1.0"),
    "tiles": lambda m: av.view(av.Prompt(TEXT * 19), model=m, select="1.0"),
    "profile": lambda m: av.profile(texts=MANY, model=m, jobs=1),
    "profile --select": lambda m: av.profile(texts=MANY, model=m, select="1.0", jobs=1),
    "ablate": lambda m: av.ablate(TEXT, model=m, method="zero"),
    "ablate mean": lambda m: av.ablate(TEXT, model=m, draws=1),
    "ablate --estimate": lambda m: av.ablate(MANY, model=m, method="zero", estimate="plain"),
    "patch": lambda m: av.patch([PAIR], model=m),
    "patch --estimate": lambda m: av.patch([PAIR], model=m, estimate=True),
    "patch --edges": lambda m: av.patch([PAIR], model=m, edges=4, steps=1),
    "patch pattern": lambda m: av.patch([PAIR], model=m, component="pattern"),
    "knockout": lambda m: av.knockout(TEXT, rows="last", keys="before", model=m),
    "thoughts": lambda m: av.thoughts(TRACE, apart=1, model=m),
    "spans": lambda m: av.spans(av.Prompt(TEXT, spans={"man": "old man"}), model=m),
    "sinks": lambda m: av.sinks(TEXT, model=m),
    "logits": lambda m: av.logits(TEXT, model=m),
    "lens": lambda m: av.lens(TEXT, model=m),
    "sources": lambda m: av.sources(TEXT, select="1.0", query=8, model=m),
    "flow": lambda m: av.flow(TEXT, model=m),
    "flow rollout": lambda m: av.flow(TEXT, method="rollout", model=m),
    "circuits": lambda m: av.circuits(model=m, edges=4, sample=64),
    "explain": lambda m: av.explain(TEXT, model=m),
    "retrieval": lambda m: av.retrieval(lengths=(60,), depths=(0.5,), count=1, control=0, model=m),
}
FEW = (("heads", "llama"), ("profile", "llama"))  # that are not slow to try
PLACES = ("cuda:0", "mps", "cuda:0 and cuda:1")
CASES = [
    pytest.param(feature, name, place, marks=[pytest.mark.slow][: (feature, name) not in FEW])
    for name in ("llama", "demo-gpt2", "t5")
    for place in (PLACES if name == "llama" else PLACES[:2])
    for feature in FEATURES
]
UNPRETENDED = ("sources", "logits", "explain", "ablate --estimate")  # torch sees through it
APART = {"made", "seconds", "source", "identity", "model", "notes", "checkpoint"}  # of the run


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A tiny Llama, which runs hooked, and a tiny T5, with the tokenizer of a bundled model."""
    import transformers as t

    demo = Path(av.__file__).parent / "models/demo/demo-gpt2"
    sizes = {"vocab_size": 8192, "num_attention_heads": 4, "num_hidden_layers": 2}
    sizes |= {"hidden_size": 32, "intermediate_size": 48, "max_position_embeddings": 256}
    torch.manual_seed(0)
    models = {
        "llama": t.LlamaForCausalLM(t.LlamaConfig(**sizes, num_key_value_heads=2)),
        "t5": t.T5ForConditionalGeneration(t.T5Config(
            vocab_size=8192, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
            decoder_start_token_id=0,
        )),
        "gpt2": t.GPT2LMHeadModel(t.GPT2Config(
            vocab_size=8192, n_positions=256, n_embd=48, n_layer=4, n_head=12,
            bos_token_id=0, eos_token_id=0,
        )),
    }  # fmt: skip
    found = {"demo-gpt2": "demo-gpt2"}
    for name in (*models, "half"):
        model = models.get(name) or models["llama"].half()
        folder = tmp_path_factory.mktemp(name)
        model.save_pretrained(folder)
        for file in demo.glob("tokenizer*"):
            (folder / file.name).write_bytes(file.read_bytes())
        found[name] = str(folder)
    return found


def divided(folder: str) -> Source:
    """A model whose first layer is on one device and whose second on another, by hooks."""
    import transformers as t

    model = t.AutoModelForCausalLM.from_pretrained(folder).to("cuda:0")

    def moving(module: nn.Module, place: str) -> None:
        def move(x: Any) -> Any:
            return x.to(place) if isinstance(x, Tensor) else x

        module.to(place).register_forward_pre_hook(
            lambda _, args, kwargs: tree_map(move, (args, kwargs)), with_kwargs=True
        )

    moving(model.model.layers[1], "cuda:1")
    moving(model.model.norm, "cuda:0")
    return av.load(model, tokenizer=t.AutoTokenizer.from_pretrained(folder))


@pytest.fixture(scope="module")
def sources(folders: dict[str, str]) -> Callable[[str, str], Source]:
    """Each model on each device, loaded once."""
    known: dict[tuple[str, str], Source] = {}

    def source(name: str, place: str) -> Source:
        if (name, place) not in known:
            around = contextlib.nullcontext() if place == "cpu" else pretending()
            with around:
                known[name, place] = (
                    divided(folders[name]) if "and" in place
                    else av.load(folders[name], device=place)
                )  # fmt: skip
        return known[name, place]

    return source


def numbers(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a record, with its place."""
    if isinstance(value, dict):
        for key in value.keys() - APART:
            yield from numbers(value[key], f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for place, part in enumerate(value):
            yield from numbers(part, f"{path}[{place}]")
    elif is_dataclass(value):
        yield from numbers(
            {field.name: getattr(value, field.name) for field in fields(value)}, path
        )
    elif hasattr(value, "tolist"):
        yield from numbers(value.tolist(), path)
    elif isinstance(value, int | float):
        yield path, float(value)


def plain(result: Any) -> dict[str, float]:
    """The numbers of a result, or of the maps of a capture or a page."""
    if hasattr(result, "to_dict"):
        return dict(numbers(result.to_dict()))
    captures = getattr(result, "captures", (result,))
    maps = [{str(key): part for key, part in each.maps.items()} for each in captures]
    return dict(numbers(maps))


def check_alike(found: dict[str, float], expected: dict[str, float]) -> None:
    """The same numbers to 2e-3, and no other."""
    assert found.keys() == expected.keys()
    differing = {place: number for place, number in found.items() if number != expected[place]}
    wanted = {place: expected[place] for place in differing}
    assert differing == pytest.approx(wanted, rel=2e-3, abs=2e-3, nan_ok=True)


@pytest.mark.parametrize(("feature", "name", "place"), CASES)
def test_every_feature_on_every_device(sources: Any, feature: str, name: str, place: str) -> None:
    """What a device gives is what the CPU gives, or refuses."""
    if feature in UNPRETENDED:
        pytest.xfail("it fails on a device that pretends")
    run = FEATURES[feature]
    try:
        expected = plain(run(sources(name, "cpu")))
    except AttnvizError:
        with pretending(), pytest.raises(AttnvizError):
            run(sources(name, place))
        return
    there = sources(name, place)
    with pretending():
        found = plain(run(there))
    check_alike(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["cpu", "cuda:0", "mps"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("feature", FEATURES)
def test_every_feature_in_half_precision(
    folders: dict[str, str], feature: str, dtype: str, place: str
) -> None:
    if place != "cpu" and feature in UNPRETENDED:
        pytest.xfail("it fails on a device that pretends")
    around = contextlib.nullcontext() if place == "cpu" else pretending()
    with around:
        model = av.load(folders["llama"], device=place, dtype=dtype)
        found = plain(FEATURES[feature](model))
    assert found
    assert not any(map(math.isinf, found.values()))


def test_half_precision_is_multiplied_exactly_on_a_device(folders: dict[str, str]) -> None:
    here = plain(av.capture(TEXT, model=av.load(folders["llama"], device="cpu", dtype="bfloat16")))
    with pretending():
        there = av.capture(TEXT, model=av.load(folders["llama"], device="cuda", dtype="bfloat16"))
    check_alike(plain(there), here)


IDS = tuple((n * 7919 + n // 50 * 13) % 4000 + 5 for n in range(128))


@pytest.mark.parametrize(
    ("run", "kernels", "waits"),
    [(lambda m: av.heads(av.Prompt(ids=IDS), model=m), 230, 4), (FEATURES["ablate"], 600, 30),
     (FEATURES["profile"], 1350, 94), (FEATURES["knockout"], 1120, 100)],
)  # fmt: skip
def test_passes_start_few_kernels_and_wait_rarely(
    sources: Any, run: Callable[[Source], Any], kernels: int, waits: int
) -> None:
    source = sources("gpt2", "cuda:0")
    with pretending():
        av.heads("a b", model=source)  # what the first pass moves stays
        COUNTS.clear()
        found = run(source)
    assert COUNTS.kernels.total() <= kernels
    assert COUNTS.waits.total() <= waits
    check_alike(plain(found), plain(run(sources("gpt2", "cpu"))))


@pytest.mark.parametrize(("heads", "sink"), [(1, False), (1, True), (4, True), (4, False)])
def test_layers_alike_are_scored_side_by_side_whatever_their_masks(
    sources: Any, heads: int, sink: bool
) -> None:
    """With a learned sink, or a mask for each head, as without: what is left out is no head."""
    source = sources("llama", "cpu")
    inputs = source.prepare(av.Prompt(TEXT))
    size = len(inputs.sides["decoder"].queries)
    allowed = torch.ones(heads, size, size).tril().bool()
    for head in range(1, heads):  # each sees so many keys at most
        allowed[head] &= ~torch.ones(size, size).tril(-2 * head).bool()
    scores = torch.rand(2, 1, 4, size, size + 1, generator=torch.Generator().manual_seed(0))
    scores[..., :-1].masked_fill_(~allowed, -torch.inf)
    weights = scores.softmax(-1)[..., :-1] if sink else scores[..., :-1].softmax(-1)

    def scored(place: str) -> dict[str, float]:
        observer = ScoreObserver([inputs], source.layout)
        mask, layers = allowed.to(place), weights.to(place)
        for site, layer in zip(source.layout.sites, layers, strict=True):
            observer.observe(Rows(site, 0, 0, layer, mask, sink=sink))
        return dict(numbers(observer.result()))

    with pretending():
        found = scored("cuda:0")
    check_alike(found, scored("cpu"))


def test_numbers_that_are_none_are_refused_on_a_device(folders: dict[str, str]) -> None:
    with pretending():
        source = av.load(folders["llama"], device="cuda")
        assert isinstance(source.body, nn.Module)  # type: ignore[attr-defined]
        weight = source.body.layers[1].self_attn.q_proj.weight  # type: ignore[attr-defined]
        with torch.no_grad():
            weight.inner.fill_(math.nan)
        for run in (FEATURES["heads"], FEATURES["capture"]):
            with pytest.raises(ModelError, match="decoder layer 1 are not numbers"):
                run(source)


def test_auto_takes_a_gpu_for_large_models_alone_and_never_apples(
    folders: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Processes(partial(partial, os.getenv), 2) as running:
        assert {told for _, told in running.run([WORKER] * 9)} <= {"0", "1"}
    with pretending():
        for number in range(3):
            monkeypatch.setenv(WORKER, str(number))
            small = av.load("demo-gpt2", device="cuda").info
            assert (small.device, small.dtype) == (f"cuda:{number % 2}", "float32")
        half = av.load(folders["half"])
        assert (half.info.device, half.info.dtype) == ("cuda:0", "float16")
        assert av.load(folders["half"], device="cpu").info.dtype == "float32"
        assert av.load("demo-gpt2").info.device == "cpu"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attnviz.models.device.present", lambda: ("mps", "cpu"))
        assert av.load(folders["llama"]).info.device == "cpu"


def test_batches_and_room_are_those_of_the_device(sources: Any) -> None:
    here, there = sources("llama", "cpu"), sources("llama", "cuda:0")
    with pretending(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("attnviz.models.limits.physical_memory", lambda: 1 << 20)
        assert [batch_factor(source.info.device) for source in (here, there)] == [1, 8]
        assert affordable(here, KL) == 128 < affordable(there, KL)
        assert "of cuda:0, 17.2 GB" in beyond(1 << 34, device="cuda:0")


class Packed(nn.Linear):
    """A linear layer whose matrix is packed in 8 bits, as bitsandbytes keeps it."""

    @classmethod
    def of(cls, linear: nn.Linear) -> Packed:
        """Pack a layer's matrix, a scale for each row."""
        made = cls(linear.in_features, linear.out_features, linear.bias is not None)
        scale = linear.weight.detach().abs().amax(1, keepdim=True) / 127
        rounded = (linear.weight.detach() / scale).round().to(torch.int8)
        made.weight = nn.Parameter(rounded, requires_grad=False)
        made.scale = scale  # type: ignore[assignment]
        made.bias = linear.bias
        return made

    def forward(self, x: Tensor) -> Tensor:
        """Multiply inputs that are rounded to 8 bits."""
        scale: Any = self.scale
        size = x.abs().amax(-1, keepdim=True).clamp_min(1e-9) / 127
        rounded = (x / size).round() * size
        return nn.functional.linear(rounded, self.weight.to(x.dtype) * scale, self.bias)


@pytest.fixture(scope="module")
def packed(folders: dict[str, str]) -> Source:
    """A Llama whose linear layers, but for the LM head, are packed."""
    import transformers as t

    model = t.AutoModelForCausalLM.from_pretrained(folders["llama"])
    for layer in model.model.layers:
        for part in (layer.self_attn, layer.mlp):
            for name, linear in list(part.named_children()):
                if isinstance(linear, nn.Linear):
                    setattr(part, name, Packed.of(linear))
    model.config.quantization_config = t.BitsAndBytesConfig(load_in_8bit=True)
    return av.load(model, tokenizer=t.AutoTokenizer.from_pretrained(folders["llama"]))


@pytest.mark.parametrize("feature", ["heads", "ablate", "patch", "knockout", "lens", "logits"])
def test_packed_weights_are_hooked(packed: Source, feature: str) -> None:
    assert packed.info.backend == "hooked"
    assert plain(FEATURES[feature](packed))
