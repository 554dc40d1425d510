"""Cut edges against eager transformers, whose 4-D mask or whose weights are edited by hand.

A pass behind keys and values that were kept is the end of a whole pass.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import attnviz as av
from attnviz.core.heads import Site, SiteKind
from attnviz.core.prompt import Generation, Inputs, Prompt
from attnviz.core.source import Cut, CutMethod, ForwardRequest, Output, Source, Start
from attnviz.models import pretrained
from tests import mostly_slow
from tests.models.tiny import HEADS, SEQ2SEQ, Watcher, hooked_only, inputs_of, ran, transformers

FAMILIES = (
    "gpt2", "bert", "llama", "qwen3", "mistral", "gemma2", "gpt_neox", "phi", "gpt_oss", "bart",
)  # fmt: skip
IDS, TARGET = (7, 21, 30, 4, 18, 11, 5, 27, 33, 14), (2, 14, 8, 39, 26, 5, 7)
METHODS: tuple[CutMethod, ...] = ("mask", "rescale", "zero", "redirect")


def kind_of(family: str) -> SiteKind:
    return "cross" if family in SEQ2SEQ else "encoder" if family == "bert" else "decoder"


def cut_of(family: str, method: CutMethod, heads: int, runs: int = 1) -> Cut:
    """Some heads' edges from some rows to some keys, row 0 and its only key among them."""
    rows, keys = (len(TARGET), len(IDS)) if family in SEQ2SEQ else (len(IDS), len(IDS))
    draw = np.random.default_rng(3)
    chosen = torch.from_numpy(draw.random((runs, heads)) < 0.6)
    chosen[:, 0] = True
    at = torch.zeros(1, rows, dtype=torch.bool)
    at[:, [0, 3, rows - 2, rows - 1]] = True
    lost = torch.zeros(1, keys, dtype=torch.bool)
    lost[:, [0, 1, 5]] = True
    instead = torch.zeros(1, keys, dtype=torch.bool)
    instead[:, [2, 4]] = True
    return Cut(chosen, at, lost, method, instead=instead if method == "redirect" else None)


@pytest.fixture
def load(loaded: Any) -> Callable[[str, str], Any]:
    def source(family: str, backend: str) -> Any:
        found = loaded(family, backend=backend)
        if backend == "hooked":
            hooked_only(found)
        return found

    return source


@cache
def theirs(family: str, folder: Path) -> Any:
    """The model of transformers itself, with eager attention, read once."""
    kind = "Seq2SeqLM" if family in SEQ2SEQ else HEADS.get(family, "CausalLM")
    loader = getattr(transformers, f"AutoModelFor{kind}")
    return loader.from_pretrained(folder, attn_implementation="eager").eval()


@contextmanager
def edited(family: str, cuts: Mapping[int, Cut], kind: SiteKind) -> Iterator[None]:
    """Eager attention whose mask, or whose weights, are edited in some layers."""
    module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    eager = module.eager_attention_forward

    def attention(
        layer: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, *a: Any, **kw: Any
    ) -> Any:
        crosses = kind != "cross" or q.shape[2] != k.shape[2]
        cut = cuts.get(layer.layer_idx) if crosses else None
        if cut is None:
            return eager(layer, q, k, v, mask, *a, **kw)
        size = (len(q), q.shape[1], q.shape[2], k.shape[2])
        whole = torch.zeros(size) if mask is None else mask.expand(size).clone()
        seen = whole > -1e30
        lost = cut.heads[:, :, None, None] & cut.rows[:, None, :, None] & cut.keys[:, None, None]
        lost = lost.expand(size) & seen
        if kind != "cross" and cut.method != "zero":  # a row keeps its own token
            alone = lost.any(-1) & ~(seen & ~lost).any(-1)
            lost = lost & ~(alone[..., None] & torch.eye(size[2], dtype=torch.bool))
        if cut.method == "mask":
            return eager(layer, q, k, v, whole.masked_fill(lost, -torch.inf), *a, **kw)
        _, weights = eager(layer, q, k, v, mask, *a, **kw)
        if cut.method == "redirect":
            target = cut.instead[:, None, None].expand(size) & seen
            lost = lost & target.any(-1, keepdim=True)
            given = torch.where(target, weights, 0)
            share = given / given.sum(-1, keepdim=True).clamp(min=1e-30)
            gone = torch.where(lost, weights, 0).sum(-1, keepdim=True)
            weights = weights.masked_fill(lost, 0) + gone * share
        else:
            total = weights.sum(-1, keepdim=True)
            weights = weights.masked_fill(lost, 0)
            if cut.method == "rescale":
                weights = weights * total / weights.sum(-1, keepdim=True)
        values = v.repeat_interleave(q.shape[1] // v.shape[1], 1)
        return (weights @ values).transpose(1, 2).contiguous(), weights

    module.eager_attention_forward = attention
    try:
        yield
    finally:
        module.eager_attention_forward = eager


def by_eager(family: str, folder: Path, cuts: Mapping[int, Cut]) -> Tensor:
    """The logits [T, V] of transformers itself."""
    inputs = {"input_ids": torch.tensor([IDS]), "use_cache": False}
    if family in SEQ2SEQ:
        inputs["decoder_input_ids"] = torch.tensor([TARGET])
    if family == "bert":
        del inputs["use_cache"]
    with edited(family, cuts, kind_of(family)), torch.no_grad():
        logits: Tensor = theirs(family, folder)(**inputs).logits[0]
    return logits


def logits_of(source: Source, inputs: Inputs, request: ForwardRequest) -> Tensor:
    logits = source.forward([inputs], request=request).logits
    return torch.as_tensor(logits)[0]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", mostly_slow(FAMILIES, "gpt2", "bert", "gemma2", "bart"))
def test_a_cut_equals_an_edited_eager_model(family: str, method: CutMethod, load: Any) -> None:
    source = load(family, "hooked")
    kind = kind_of(family)
    layers = (0, 1)
    heads = [source.layout.heads[kind][layer] for layer in layers]
    cuts = {layer: cut_of(family, method, n) for layer, n in zip(layers, heads, strict=True)}
    inputs = inputs_of(source, IDS, TARGET)
    whole = by_eager(family, source.folder, {})
    want = by_eager(family, source.folder, cuts)
    asked = {Site(kind, layer): cut for layer, cut in cuts.items()}
    got = logits_of(source, inputs, ForwardRequest(hidden=False, logits=True, cuts=asked))
    assert (want - whole).abs().max() > 1e-2, "it changes nothing, and proves nothing"
    torch.testing.assert_close(got, want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", ["gpt2", "bert"])
@pytest.mark.parametrize("light", [True, False])
def test_so_does_the_native_backend(family: str, method: CutMethod, light: bool, load: Any) -> None:
    source = load(family, "native")
    source = source.light if light else source
    kind = kind_of(family)
    cut = cut_of(family, method, source.layout.heads[kind][1])
    inputs = source.prepare(Prompt(ids=IDS))
    want = by_eager(family, load(family, "hooked").folder, {1: cut})
    request = ForwardRequest(hidden=False, logits=True, cuts={Site(kind, 1): cut})
    torch.testing.assert_close(logits_of(source, inputs, request), want, rtol=0, atol=1e-5)


def weights_of(source: Source, inputs: Inputs, site: Site, **request: Any) -> Any:
    """The weights of one layer, as observers see them, in float64."""
    watcher = Watcher([inputs])
    ran(source, [inputs], [watcher], **request)
    return watcher.weights[site][0].double().numpy()


@pytest.mark.parametrize("method", ["mask", "rescale", "zero"])
@pytest.mark.parametrize("light", [True, False])
def test_a_control_takes_as_much_from_other_keys(method: CutMethod, light: bool, load: Any) -> None:
    """By hand, a row at a time, in float64; the cut keys keep their weight."""
    source = load("gpt2", "native")
    source = source.light if light else source
    site, inputs = Site("decoder", 0), source.prepare(Prompt(ids=IDS))
    cut = cut_of("gpt2", method, 4)
    made = []
    order = np.random.default_rng(1).permutation(len(IDS))[None]
    control = Cut(cut.heads, cut.rows, cut.keys, method, order=torch.from_numpy(order))
    before = weights_of(source, inputs, site)
    after = weights_of(source, inputs, site, cuts={site: control})
    lost = cut.keys.numpy()[0]
    for head in range(4):
        for row in range(len(IDS)):
            want = before[head, row].copy()
            if cut.heads[0, head] and cut.rows[0, row]:
                mine = lost.copy()
                if mine[: row + 1].all():
                    mine[row] = False
                mass = left = want[mine].sum()
                others = [key for key in np.argsort(order[0]) if not mine[key] and key <= row]
                enough = sum(want[key] for key in others) > mass and len(others) > 1
                enough = enough or (method == "zero" and sum(want[o] for o in others) >= mass)
                made.append(enough)
                for key in others if enough else ():
                    taken = min(left, want[key])
                    want[key], left = want[key] - taken, left - taken
                    want[key] *= 1 if method == "zero" else (1 - mass) / (1 - 2 * mass)
                if enough and method != "zero":
                    assert want.sum() == pytest.approx(1, abs=1e-5)
            np.testing.assert_allclose(after[head, row], want, atol=1e-5)
    assert {True, False} == set(made)


def test_runs_of_a_batch_have_cuts_of_their_own(load: Any) -> None:
    """Several cuts in one pass, begun in the middle, are those of passes of their own."""
    source = load("llama", "hooked")
    site, inputs = Site("decoder", 1), source.prepare(Prompt(ids=IDS))
    three = cut_of("llama", "mask", 4, runs=3)
    states = ran(source, [inputs], states=True).states
    request = ForwardRequest(
        hidden=False, logits=True, cuts={site: three}, start=Start(1, states[1])
    )
    together = source.forward([inputs] * 3, request=request).logits
    for n in range(3):
        alone = Cut(three.heads[n : n + 1], three.rows, three.keys)
        whole = ForwardRequest(hidden=False, logits=True, cuts={site: alone})
        torch.testing.assert_close(together[n], logits_of(source, inputs, whole))


def test_a_row_without_keys_of_another_text_is_zero(load: Any) -> None:
    source = load("bart", "hooked")
    site = Site("cross", 0)
    heads = source.layout.heads["cross"][0]
    every = Cut(
        torch.ones(1, heads, dtype=torch.bool), torch.ones(1, len(TARGET), dtype=torch.bool),
        torch.ones(1, len(IDS), dtype=torch.bool),
    )  # fmt: skip
    inputs = inputs_of(source, IDS, TARGET)
    assert not weights_of(source, inputs, site, cuts={site: every}).any()


@pytest.mark.parametrize("backend", ["native", "hooked"])
def test_a_model_writes_with_its_edges_cut(backend: str) -> None:
    """Token by token, each a whole pass, as a plain loop would."""
    source: Any = pretrained.load("demo-gpt2", backend=backend)
    text = "the cat river moon stone bread the cat river moon stone"
    tokens = source.prepare(Prompt(text)).sides["decoder"].queries
    rows = torch.zeros(1, len(tokens), dtype=torch.bool)
    rows[0, -1] = True
    keys = torch.zeros(1, len(tokens), dtype=torch.bool)
    keys[0, 6] = True
    every = torch.ones(1, 6, dtype=torch.bool)
    cuts = {site: Cut(every, rows, keys, onward=True) for site in source.layout.sites}
    asked = Prompt(text, generate=Generation(4))
    with source.cutting(cuts):
        got = source.prepare(asked).sides["decoder"].queries
    ids = list(tokens.ids)
    for _ in range(4):
        more = len(ids) - len(tokens)
        wide = Cut(
            every,
            torch.cat([rows, torch.ones(1, more, dtype=torch.bool)], 1),
            torch.cat([keys, torch.zeros(1, more, dtype=torch.bool)], 1),
        )
        inputs = source.prepare(Prompt(ids=tuple(ids)))
        request = ForwardRequest(logits=True, cuts=dict.fromkeys(source.layout.sites, wide))
        output: Output = source.forward([inputs], request=request)
        ids.append(int(output.logits[0, -1].argmax()))
    assert got.ids == tuple(ids)
    assert source.prepare(asked).sides["decoder"].queries.ids != got.ids


HALF = 4


def last(source: Any, items: int = 1, **request: Any) -> Any:
    output = ran(
        source, [source.prepare(Prompt(ids=IDS))] * items, hidden=False, logits=True, **request
    )
    return torch.as_tensor(output.logits)


@pytest.mark.parametrize(
    ("family", "backend"),
    [
        ("gpt2", "light"), ("gpt2", "native"), ("gpt2", "hooked"), ("llama", "hooked"),
        ("mistral", "hooked"), ("gemma2", "hooked"), ("gpt_neox", "hooked"), ("phi", "hooked"),
        ("gpt_oss", "hooked"),
    ],
)  # fmt: skip
def test_the_end_of_a_pass_is_that_of_a_whole_one(family: str, backend: str, load: Any) -> None:
    """With cuts of its own in every item, and without any."""
    source = load(family, "native").light if backend == "light" else load(family, backend)
    assert source.continues
    whole = ran(source, [source.prepare(Prompt(ids=IDS))], hidden=False, logits=True, keep=True)
    assert whole.past.length == len(IDS)
    past = whole.past.first(HALF)
    torch.testing.assert_close(last(source, past=past), last(source)[:, HALF:], rtol=0, atol=1e-5)
    rows, keys = (torch.zeros(2, len(IDS), dtype=torch.bool) for _ in range(2))
    rows[:, HALF:] = keys[0, 1:3] = keys[1, 2:5] = True
    cuts = {
        Site("decoder", layer): Cut(torch.ones(1, count, dtype=torch.bool), rows, keys)
        for layer, count in enumerate(source.layout.heads["decoder"])
    }
    want = last(source, 2, cuts=cuts)
    assert (want[0] - want[1]).abs().max() > 1e-3
    got = last(source, 2, cuts=cuts, past=past)
    torch.testing.assert_close(got, want[:, HALF:], rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", ["bert", "lfm2", "bart"])
def test_who_cannot_says_so(family: str, loaded: Any) -> None:
    """A text read in both directions, layers with a state of their own, two stacks."""
    source = loaded(family)
    assert not source.continues


def test_fresh_layers_do_not() -> None:
    assert not av.load(av.FreshConfig(causal=True)).continues
