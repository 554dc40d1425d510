"""Weights taken apart: what queries, keys, scale and bias give is the weight, for every family."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.core.heads import Head, Site
from attnviz.core.prompt import Prompt
from attnviz.core.source import ForwardRequest
from attnviz.errors import ModelError, SelectionError, UsageError
from attnviz.models import pretrained
from attnviz.models.controls import FreshConfig
from attnviz.models.native.weights import NormalDraws
from attnviz.scoring.observe import Recorder
from tests.checkpoints import needs_transformers_5
from tests.models.tiny import EAGER, LONG, SEQ2SEQ, SHORT, WORDLESS, Folders, transformers

TEXT = "The keys to the cabinet are on the table, and the keys are old."
SINGLE_PRECISION = ("mistral", "gemma2", "falcon", "gpt_oss", "deepseek_v3")
"""What transformers cannot run in double, or masks wrongly there."""
OPENED = (
    "gpt2", "opt", "albert", "modernbert", "lfm2", "llama", "qwen3", "phi", "cohere", "granite",
    "gpt_neox", "mistral", "gemma2", "gpt_oss", "deepseek_v3", "bart", "t5", "bloom", "gpt_neo",
    "falcon",
)  # fmt: skip
"""Every kind of scores; that others ask for attention in the same way is shown in test_hooked."""


def rebuilt(capture: Any) -> float:
    """How far the weights computed from what was kept are off, at most."""
    off = 0.0
    for head, terms in capture.terms.items():
        reach = capture.reach[head.site].allowed(*capture[head].shape)
        again = terms.weights(reach[head.index if len(reach) > 1 else 0])
        off = max(off, float(np.abs(again - capture[head]).max()))
    return off


@pytest.mark.parametrize("model", ["demo-gpt2", "demo-bert", "fresh"])
def test_bundled_models(model: str) -> None:
    capture = av.capture(TEXT, model=model, why="*.*")
    assert set(capture.terms) == set(capture.layout)
    assert rebuilt(capture) < 1e-5


def test_minilm_on_both_backends(minilm: str) -> None:
    ours = av.capture(TEXT, model=minilm, why="*.*")
    assert ours.source.backend == "native"
    bert = transformers.AutoModel.from_pretrained(minilm, attn_implementation="sdpa")
    eager = copy.deepcopy(bert).double()
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    theirs = av.capture(TEXT, model=bert, tokenizer=tokenizer, why="*.*")
    assert theirs.source.backend == "hooked"
    for capture in (ours, theirs):
        assert len(capture.terms) == 72
        assert rebuilt(capture) < 1e-5
    eager.set_attn_implementation("eager")
    with torch.no_grad():
        found = eager(**tokenizer(TEXT, return_tensors="pt"), output_attentions=True).attentions
    for head, terms in [*ours.terms.items(), *theirs.terms.items()]:
        everything = np.ones(ours[head].shape, bool)
        exact = found[head.layer][0, head.index].numpy()
        assert np.abs(terms.weights(everything) - exact).max() < 1e-4


def held(family: str, folders: Folders, loaded: Any) -> tuple[Any, dict[Site, Any]]:
    """A capture with all queries and keys, and what eager attention gives, both in double."""
    folder: Path = folders(family, words=family not in WORDLESS)
    kind = "AutoModelForSeq2SeqLM" if family in SEQ2SEQ else "AutoModel"
    load = getattr(transformers, kind).from_pretrained
    dtype = torch.float32 if family in SINGLE_PRECISION else torch.float64
    theirs = load(folder, attn_implementation="eager", dtype=dtype).eval()
    inputs: dict[str, Any] = {"input_ids": torch.tensor([LONG]), "use_cache": False}
    if family in SEQ2SEQ:
        inputs["decoder_input_ids"] = torch.tensor([SHORT])
    if family in ("albert", "modernbert"):
        del inputs["use_cache"]
    with torch.no_grad():
        output = theirs(**inputs, output_attentions=True)
    names = ("encoder", "decoder", "cross") if family in SEQ2SEQ else ("",)
    single = family in SINGLE_PRECISION
    ours = loaded(family) if single else av.load(theirs)
    if family in SEQ2SEQ:
        from attnviz.captures.captured import Asked  # a target of ids has no words
        from attnviz.captures.inputs import _prepared
        from attnviz.captures.settings import KeptSettings, ModelSettings
        from tests.models.tiny import inputs_of

        prepared = inputs_of(ours, LONG, SHORT)
        ours.prepare = lambda prompt: prepared
        prompt = Prompt(ids=LONG)
        made_of = Asked(prompt, ModelSettings(model=ours))
        capture = _prepared(prompt, ours, KeptSettings(why="*.*"), made_of).capture()
    else:
        capture = av.capture(Prompt(ids=LONG), model=ours, why="*.*")
    kinds = {name: name or capture.layout.kinds[0] for name in names}
    found = {
        Site(kinds[name], n): weights[0].numpy()
        for name in names
        for n, weights in enumerate(output[f"{name}_attentions" if name else "attentions"])
        if weights is not None
    }
    return capture, found


@pytest.mark.parametrize("family", OPENED)
def test_every_family_equals_eager_attention_in_double_precision(
    family: str, folders: Folders, loaded: Any
) -> None:
    capture, exact = held(family, folders, loaded)
    assert set(capture.terms) == set(capture.layout)
    sites = sorted({head.site for head in capture.layout})
    if family == "lfm2":  # a layer without attention has no number of its own there
        exact = {site: exact[Site(site.kind, 0)] for site in sites}
    for head, terms in capture.terms.items():
        reach = capture.reach[head.site].allowed(*capture[head].shape)
        again = terms.weights(reach[head.index if len(reach) > 1 else 0])
        close = 1e-4 if family in SINGLE_PRECISION else 1e-6
        assert np.abs(again - exact[head.site][head.index]).max() < close, head
    first = next(iter(capture.terms.values()))
    assert (first.softcap is not None) == (family == "gemma2")
    assert (first.sink is not None) == (family == "gpt_oss")
    assert (first.bias is not None) == (family in ("t5", "bloom"))
    if family in ("t5", "gpt_neo"):
        assert first.scale == 1.0
    if family in ("llama", "mistral", "gpt_neox"):
        assert first.turned
    if family in ("gpt2", "opt"):
        assert first.turned is False


@pytest.mark.parametrize("family", sorted(set(EAGER) - set(OPENED)))
def test_scores_of_several_products_are_refused(family: str, loaded: Any) -> None:
    source = loaded(family)
    with pytest.raises(ModelError, match="cannot be had") as refused:
        av.capture(Prompt(ids=LONG), model=source, why="0.1")
    assert "leave out why" in str(refused.value)


def test_a_reason_by_hand() -> None:
    """One weight of demo-gpt2, step by step, from the matrices themselves."""
    model = av.load("demo-gpt2")
    capture = av.capture(TEXT, model=model, why="2.4")
    why = capture.why("2.4", -2, 3)
    site = Site("decoder", 2)
    head = Head(site, 4)
    length = len(capture.tokens)
    inputs = model.prepare(Prompt(TEXT))
    entered = model.forward([inputs], request=ForwardRequest(states=True)).states[2][0].double()
    read, norm = model.reading(site), model.reading(site).norm
    n = torch.nn.functional.layer_norm(
        entered, entered.shape[-1:], norm.scale.double(), norm.shift.double(), norm.eps
    )
    q = n @ read.query[4].double() + read.query_bias[4].double()
    k = n @ read.key[4].double() + read.key_bias[4].double()
    row = read.scale * (q[length - 2] @ k[: length - 1].T)
    weights = row.softmax(-1)
    assert why.dot == pytest.approx(float(q[length - 2] @ k[3]), abs=1e-4)
    assert why.scaled == pytest.approx(float(row[3]), abs=1e-4)
    assert why.capped == why.scaled
    assert why.score == pytest.approx(why.scaled)
    assert why.weight == pytest.approx(float(weights[3]), abs=1e-6)
    assert why.weight == pytest.approx(why.shown, abs=1e-6)
    assert math.exp(why.score - why.top) / why.total == why.weight
    assert (why.query, why.key, why.head) == (length - 2, 3, "2.4")
    written = av.capture(TEXT, quantity="norm")[head][length - 2, 3]
    assert why.weight * why.norm == pytest.approx(float(written), rel=1e-4)
    records = why.to_records()
    assert sum(one["product"] for one in records) == pytest.approx(why.dot)
    assert [abs(one["product"]) for one in records] == sorted(
        (abs(one["product"]) for one in records), reverse=True
    )
    assert {one["dimension"] for one in records} == set(range(32))
    text = str(why)
    parts = ("q·k", "scaled", "times 0.1768", "softmax", "weight", "‖f(x)‖", f"{why.dot:+.4f}")
    assert all(shown in text for shown in parts)
    assert "capped" not in text
    assert "bias" not in text


def test_a_blocked_key_has_no_weight() -> None:
    why = av.capture(TEXT, why="2.4").why("2.4", 2, 5)
    assert why.weight == why.shown == 0
    assert why.score == -math.inf
    assert "may not attend" in str(why)


def test_heads_that_are_off_write_nothing() -> None:
    without = av.capture(TEXT, without="0.*", why="1.2,0.3")
    plain = av.capture(TEXT, why="1.2")
    assert rebuilt(without) < 1e-6
    assert not np.allclose(without.why("1.2", 5, 3).q, plain.why("1.2", 5, 3).q)
    assert without.why("0.3", 5, 3).norm == 0


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"why": "9.9"}, SelectionError, "9.9"),
        ({"why": "2.4", "select": "0-1.*"}, SelectionError, "leaves out"),
        ({"why": "2.4", "quantity": "norm"}, UsageError, "leave out quantity"),
    ],
)
def test_what_cannot_be_asked(options: dict[str, str], error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        av.capture(TEXT, **options)


def test_captures_without_queries_and_keys_say_so(tmp_path: Path) -> None:
    capture = av.capture(TEXT)
    with pytest.raises(UsageError, match=r"capture the text again with why='2\.4'"):
        capture.why("2.4", 1, 0)
    capture = av.capture(TEXT, why="2.4")
    read = av.read(av.write_capture(capture, tmp_path / "one.npz"))
    with pytest.raises(UsageError, match="recorded attention has none; run the model"):
        read.why("2.4", 1, 0)
    with pytest.raises(UsageError, match="recorded attention has none; run the model"):
        av.capture(read, why="2.4")
    with pytest.raises(UsageError, match="a key is a position from 0 to"):
        capture.why("2.4", 1, 99)
    assert av.capture(capture, why="2.4") is capture


BACKENDS: tuple[Any, ...] = ("native", "hooked")


def maps(source: Any) -> Any:
    inputs = source.prepare(Prompt(ids=LONG))
    recorder = Recorder([inputs], list(source.layout))
    source.forward([inputs], [recorder], ForwardRequest(hidden=False))
    return recorder.maps()


def same(left: Any, right: Any) -> bool:
    return all((left[site] == right[site]).all() for site in left)


@needs_transformers_5
@pytest.mark.parametrize(("name", "backend"), [("demo-gpt2", "native"), ("demo-bert", "hooked")])
def test_the_seed_decides_and_the_tokens_stay(name: str, backend: Any) -> None:
    one, again, other = (
        pretrained.load(name, backend=backend, untrained=seed) for seed in (0, 0, 1)
    )
    trained = pretrained.load(name, backend=backend)
    assert one.info.backend == backend
    assert one.info.model == f"{name}, untrained (seed 0)"
    assert one.info.exactness.startswith("random weights, nothing learned; ")
    assert one.no_logits == "its weights are untrained"
    assert one.layout == trained.layout
    prompt = Prompt("the keys to the cabinet")
    assert one.prepare(prompt) == trained.prepare(prompt)
    assert same(maps(one), maps(again))
    assert not same(maps(one), maps(other))
    assert not same(maps(one), maps(trained))


@pytest.mark.parametrize("seed", [0, 7, (5 << 32) + 3])
def test_normal_numbers_are_those_of_torch(seed: int) -> None:
    """Tensor after tensor, whatever their sizes."""
    generator, draws = torch.Generator().manual_seed(seed), NormalDraws(seed)
    for shape in ((128, 32), (7, 5), (16,), (3, 17), (2, 4, 4)):
        theirs = torch.randn(shape, generator=generator).numpy()
        np.testing.assert_allclose(draws.take(*shape), theirs, atol=1e-6, rtol=1e-6)
    assert draws.take(3, 2).shape == (3, 2)


def test_a_drawn_model_is_the_same_without_torch() -> None:
    source = av.load("demo-gpt2", untrained=2)
    for site in source.layout.sites:
        mine, theirs = source.light.output(site).weight, source.output(site).weight
        assert isinstance(mine, np.ndarray)
        assert (mine == theirs.numpy()).all()


@needs_transformers_5
@pytest.mark.parametrize("backend", BACKENDS)
def test_shuffled_weights_have_the_entries_of_the_trained_ones(
    backend: Any, folders: Folders
) -> None:
    name = "demo-bert" if backend == "native" else str(folders("bert", words=True))
    one, again, other = (
        pretrained.load(name, backend=backend, untrained=seed, scale="trained")
        for seed in (0, 0, 1)
    )
    trained = pretrained.load(name, backend=backend)
    assert one.info.model == f"{Path(name).name}, shuffled weights (seed 0)"
    assert one.no_logits == "its weights are untrained"
    assert same(maps(one), maps(again))
    assert not same(maps(one), maps(other))
    for site in one.layout.sites:
        mine, theirs = (source.output(site).weight for source in (one, trained))
        assert not torch.equal(mine, theirs)
        assert torch.equal(mine.flatten().sort().values, theirs.flatten().sort().values)


@needs_transformers_5
@pytest.mark.parametrize("name", ["demo-gpt2", "demo-bert"])
def test_native_weights_are_spread_as_transformers_draws_them(name: str) -> None:
    from transformers import AutoConfig, AutoModel

    source = pretrained.load(name, backend="native", untrained=3)
    network = source._network
    model = AutoModel.from_config(AutoConfig.from_pretrained(pretrained.locate(name).folder))
    drawn = {key: value.float() for key, value in model.state_dict().items()}
    tensors = network.config.family.tensors
    layer = network.layers[1]
    pairs = {
        "tokens": network.tokens, "positions": network.positions,
        "qkv" if "qkv" in tensors else "query": layer.project[0].weight, "out": layer.out.weight,
        "up": layer.up.weight, "down": layer.down.weight,
    }  # fmt: skip
    for part, mine in pairs.items():
        theirs = drawn[tensors[part].format(1) + ".weight"]
        assert float(mine.std()) == pytest.approx(float(theirs.std()), rel=0.05), part
        assert abs(float(mine.mean())) < 5 * float(mine.std()) / mine.numel() ** 0.5, part
    for affine in (*layer.project, layer.out, layer.up, layer.down):
        assert not affine.bias.any()
    for norm in (network.norm, layer.norm_1, layer.norm_2):
        assert torch.equal(norm.weight, torch.ones_like(norm.weight))
        assert not norm.bias.any()


def test_what_has_no_name_cannot_be_drawn_again() -> None:
    with pytest.raises(UsageError, match="not a fresh layer"):
        av.load(FreshConfig(), untrained=0)
    with pytest.raises(UsageError, match="not a loaded one"):
        av.load(av.load("demo-bert"), untrained=0)


def test_the_random_numbers_of_others_stay_as_they_are() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    for backend in BACKENDS:
        pretrained.load("demo-bert", backend=backend, untrained=0)
    assert torch.equal(torch.rand(3), expected)
