"""Padded batches and masks of others: maps as of each text alone, chance over the keys it has."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

import attnviz as av
from attnviz.attention.layers import attend
from attnviz.core.capture import blocked_by
from attnviz.core.heads import Layout, Site
from attnviz.core.prompt import Inputs
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import AttnvizError, InputError, UsageError
from attnviz.models import pretrained
from attnviz.models.demo import DEMOS
from attnviz.models.folder import locate
from attnviz.scoring.observe import ScoreObserver
from tests.models.test_wrapped_model import fresh
from tests.models.tiny import Folders, same_maps, transformers

SHORT, LONG = [5, 9, 2, 7], [3, 8, 4, 6, 1, 7]
PAD = 0
KINDS = {"gpt2": "decoder", "bert": "encoder"}


def texts(ids: list[int], pad: str = "[PAD]") -> list[str]:
    return [pad if number == PAD else f"w{number}" for number in ids]


def padded(family: str, side: str) -> tuple[Any, list[list[int]], torch.Tensor, Any]:
    """A batch of two texts in eager attention, and the shorter alone."""
    model = fresh(family, "eager").eval()
    fill = [PAD] * (len(LONG) - len(SHORT))
    rows = [fill + SHORT if side == "left" else SHORT + fill, LONG]
    mask = (torch.tensor(rows) != PAD).long()
    places = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        batch = model(input_ids=torch.tensor(rows), attention_mask=mask, position_ids=places,
                      output_attentions=True)  # fmt: skip
        alone = model(input_ids=torch.tensor([SHORT]), output_attentions=True)
    return batch, rows, mask, alone


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_a_padded_text_is_the_text_alone(family: str, side: str, tmp_path: Path) -> None:
    batch, rows, mask, alone = padded(family, side)
    given = [layer.numpy() for layer in batch.attentions]
    expected = av.from_arrays([x[0] for x in alone.attentions], texts(SHORT))
    assert expected.layout.kinds == (KINDS[family],)
    scored = av.heads(expected)
    stack = np.stack(given)
    names = np.array([texts(row) for row in rows])
    fields = {"attentions": stack, "tokens": names}
    np.savez(tmp_path / "told.npz", **fields)
    np.savez(tmp_path / "masked.npz", attentions=stack, attention_mask=mask.numpy(),
             tokens=np.array([texts(row, "x") for row in rows]))  # fmt: skip
    ways = {
        "mask": av.from_arrays(batch, texts(rows[0], "x"), item=0, attention_mask=mask),
        "one mask": av.from_arrays(batch, texts(rows[0], "x"), item=0, attention_mask=mask[0]),
        "tokens without padding": av.from_arrays(
            batch, texts(SHORT), item=0, attention_mask=mask.numpy()
        ),
        "tokens tell": av.from_arrays(batch, [texts(row) for row in rows], item=0),
        "a file": av.read(tmp_path / "told.npz", item=0),
        "a file with a mask": av.read(tmp_path / "masked.npz", item=0),
    }
    for way, found in ways.items():
        assert found.layout == expected.layout, way
        assert found.tokens == tuple(texts(SHORT)), way
        same_maps(found, alone.attentions)
        assert any("2 positions of padding" in note for note in found.inputs.notes), way
        for head, other in zip(av.heads(found).heads, scored.heads, strict=True):
            for name, score in head.scores.items():
                assert score.chance == pytest.approx(other.scores[name].chance), (way, name)
                assert score.mean == pytest.approx(other.scores[name].mean, abs=1e-5), (way, name)
    whole = av.from_arrays(batch, texts(LONG), item=1)
    assert whole.tokens == tuple(texts(LONG))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_padding_that_nothing_tells_is_asked_for(family: str, side: str) -> None:
    batch, rows, mask, _ = padded(family, side)
    with pytest.raises(UsageError, match=r"is there padding\? .*attention_mask"):
        av.from_arrays(batch, texts(rows[0], "x"), item=0)
    whole = av.from_arrays(batch, texts(rows[0], "x"), item=0, attention_mask=mask * 0 + 1)
    assert len(whole.tokens) == len(LONG)


def test_the_end_of_text_as_padding() -> None:
    """GPT-2 has no token for padding; what ends texts stands there, and may also be meant."""
    batch, rows, _, alone = padded("gpt2", "left")
    same_maps(av.from_arrays(batch, texts(rows[0], "<|endoftext|>"), item=0), alone.attentions)
    batch, rows, _, alone = padded("gpt2", "right")
    same_maps(av.from_arrays(batch, texts(rows[0], "<|endoftext|>"), item=0), alone.attentions)
    model = fresh("gpt2", "eager").eval()
    with torch.no_grad():
        unmasked = model(input_ids=torch.tensor(rows[:1]), output_attentions=True)
    with pytest.raises(UsageError, match=r"the last 2 are '<\|endoftext\|>'"):
        av.from_arrays(unmasked, texts(rows[0], "<|endoftext|>"))
    one = [layer[:, :, :5, :5] for layer in unmasked.attentions]
    found = av.from_arrays(one, texts(rows[0][:5], "<|endoftext|>"))
    assert found.tokens[-1] == "<|endoftext|>"
    first = [layer / layer.sum(-1, keepdims=True) for layer in batch.attentions]
    assert av.from_arrays([x[1] for x in first], ["<|endoftext|>", *texts(LONG[1:])]).tokens[0] == (
        "<|endoftext|>"
    )


def test_ids_and_the_padding_of_a_tokenizer() -> None:
    tokenizer = AutoTokenizer.from_pretrained(DEMOS["demo-gpt2"])
    batch, rows, _, alone = padded("bert", "right")
    ids = torch.tensor(rows)
    ids[ids == PAD] = 40
    tokenizer.pad_token = tokenizer.convert_ids_to_tokens(40)
    found = av.from_arrays(batch, ids, tokenizer=tokenizer, item=0)
    assert len(found.tokens) == len(SHORT)
    same_maps(found, alone.attentions)


def test_a_mask_that_the_model_did_not_run_with() -> None:
    batch, rows, mask, _ = padded("bert", "right")
    wrong = mask.clone()
    wrong[0, 1] = 0
    with pytest.raises(InputError, match="query 0 gives weight to position 1, which is padding"):
        av.from_arrays(batch, texts(rows[0], "x"), item=0, attention_mask=wrong)
    for bad, says in (
        (mask[:, :3], "shape"),
        (mask * 2, "1 for tokens and 0"),
        (mask * 0, "1 for"),
    ):
        with pytest.raises(UsageError, match=says):
            av.from_arrays(batch, texts(rows[0], "x"), item=0, attention_mask=bad)
    model = fresh("bert", "eager").eval()
    with torch.no_grad():
        read = model(input_ids=torch.tensor(rows[:1]), output_attentions=True)
    with pytest.raises(UsageError, match="get weight"):
        av.from_arrays(read, texts(rows[0]))


def test_both_sequences_of_an_encoder_decoder() -> None:
    model = fresh("bart", "eager").eval()
    rows = torch.tensor([[*SHORT, PAD, PAD], LONG])
    mask = (rows != PAD).long()
    target = torch.tensor([[5, 9, 3, PAD], [5, 8, 4, 6]])
    target_mask = (target != PAD).long()
    with torch.no_grad():
        batch = model(input_ids=rows, attention_mask=mask, decoder_input_ids=target,
                      decoder_attention_mask=target_mask, output_attentions=True)  # fmt: skip
        alone = model(input_ids=rows[:1, :4], decoder_input_ids=target[:1, :3],
                      output_attentions=True)  # fmt: skip
    for found in (
        av.from_arrays(batch, texts(target[0].tolist(), "x"), item=0, attention_mask=mask,
                       source_tokens=texts(rows[0].tolist(), "x"),
                       decoder_attention_mask=target_mask),
        av.from_arrays(batch, texts(target[0].tolist()), item=0,
                       source_tokens=texts(rows[0].tolist())),
    ):  # fmt: skip
        for kind in ("encoder", "decoder", "cross"):
            same_maps(found, getattr(alone, f"{kind}_attentions"), kind)
        assert (found.tokens, found.source_tokens) == (("w5", "w9", "w3"), tuple(texts(SHORT)))


LOWEST = float(np.finfo(np.float32).min)


@pytest.mark.parametrize("low", [-1e4, -100.0, -1e9, LOWEST, -np.inf])
def test_additive_masks_of_others(low: float) -> None:
    """What lies far below its row's largest is blocked, also with a bias on top of it."""
    rng = np.random.default_rng(0)
    free = np.tril(np.ones((6, 6), bool))
    bias = rng.normal(size=(6, 6)) * 0.3
    mask = np.where(free, bias, low + bias).astype(np.float32)
    assert np.array_equal(blocked_by(mask), ~free)
    assert np.array_equal(blocked_by(torch.tensor(mask)).numpy(), ~free)
    q, k = (torch.tensor(rng.normal(size=(1, 2, 6, 4)), dtype=torch.float32) for _ in range(2))
    weights = (q @ k.mT / 2 + torch.tensor(mask)).softmax(-1)
    for given in (None, free, mask, torch.tensor(mask)[None, None], np.stack([mask, mask])):
        found = av.from_arrays([weights], list("abcdef"), mask=given)
        assert np.array_equal(found.reach[Site("decoder", 0)].allowed(6, 6)[0], free)
        assert found.reach[Site("decoder", 0)].causal
    chances = av.heads(av.from_arrays([weights], list("abcdef"))).heads[0].scores["first"].chance
    assert chances == pytest.approx(np.mean([1 / (n + 1) for n in range(2, 6)]), abs=1e-6)


def test_a_bias_that_falls_with_distance_is_no_mask() -> None:
    back = np.arange(400)[:, None] - np.arange(400)
    alibi = np.where(back >= 0, -0.5 * back, LOWEST).astype(np.float32)
    assert np.array_equal(blocked_by(alibi), back < 0)


def masks(size: int = 12) -> dict[str, np.ndarray]:
    i, j = np.arange(size)[:, None], np.arange(size)
    parents = [0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 6]
    tree = np.eye(size, dtype=bool)
    for node in range(1, size):
        tree[node] |= tree[parents[node]]
    rng = np.random.default_rng(1)
    return {
        "documents": (i // 4 == j // 4) & (j <= i), "documents of an encoder": i // 5 == j // 5,
        "prefix": (j <= i) | (j < 4), "tree": tree, "dilated": ((i - j) % 3 == 0) & (j <= i),
        "random": (rng.random((size, size)) < 0.4) | (i == j),
        "global and window": (abs(i - j) < 2) | (i == 0) | (j == 0),
    }  # fmt: skip


@pytest.mark.parametrize("name", list(masks()))
@pytest.mark.parametrize("low", [False, True])
def test_masks_that_are_neither_causal_nor_a_window(name: str, low: bool, tmp_path: Path) -> None:
    mask = masks()[name]
    torch.manual_seed(0)
    scores = torch.randn(3, 4, 12, 12).masked_fill(~torch.tensor(mask), -1e4)
    weights = list(scores.softmax(-1))
    if low:
        weights = [layer.half() for layer in weights]
    found = av.from_arrays(weights, [f"w{n}" for n in range(12)])
    for number in range(3):
        (reach,) = {found.reach[site] for site in found.layout.sites if site.layer == number}
        assert np.array_equal(reach.allowed(12, 12)[0], mask)
        assert reach.window is None
    np.savez(tmp_path / "a.npz", attentions=np.stack([layer.float().numpy() for layer in weights]),
             tokens=np.array([f"w{n}" for n in range(12)]))  # fmt: skip
    if not low:
        read = av.read(tmp_path / "a.npz")
        assert np.array_equal(next(iter(read.reach.values())).allowed(12, 12)[0], mask)
    assert "sliding" not in str(av.heads(found))
    drawn = av.heatmap(found, "0.0").maps[0][1]
    assert np.array_equal(np.ma.getmaskarray(drawn), ~mask)


def test_rounded_zeros_are_no_mask() -> None:
    """In float16 what is below 3e-8 is 0; zeros that another layer fills were no mask."""
    torch.manual_seed(0)
    scores = 8 * torch.randn(4, 2, 12, 12)
    causal = torch.ones(12, 12).triu(1).bool()
    weights = list(scores.masked_fill(causal, -torch.inf).softmax(-1).half())
    assert any((layer == 0).sum() > causal.sum() for layer in weights)
    found = av.from_arrays(weights, [f"w{n}" for n in range(12)])
    seen = np.logical_or.reduce([head.numpy() > 0 for layer in weights for head in layer])
    for reach in found.reach.values():
        assert np.array_equal(reach.allowed(12, 12)[0], seen)


def test_a_mask_that_is_given() -> None:
    mask = masks()["prefix"]
    weights = torch.randn(2, 3, 12, 12).masked_fill(~torch.tensor(mask), -torch.inf).softmax(-1)
    weights[0, :, :, 2] = 0
    weights /= weights.sum(-1, keepdims=True)
    words = [f"w{n}" for n in range(12)]
    additive = torch.zeros(12, 12).masked_fill(~torch.tensor(mask), -100)
    batch = torch.tensor(mask)[None, None].expand(5, 1, 12, 12)
    for given in (mask, [mask, mask], batch, {"encoder": mask}, additive):
        found = av.from_arrays(list(weights), words, mask=given)
        for reach in found.reach.values():
            assert np.array_equal(reach.allowed(12, 12)[0], mask)
    for given, says in (
        (~mask, "the mask forbids; True is what may be attended to: give ~mask"),
        (np.tril(mask), r"gives weight from query 0 to key 1, which the mask forbids"),
        (mask[:5], r"has shape \[5, 12\]"),
        (mask.astype(int), "of 0 and 1; give booleans"),
        ([mask], "a list of 1, too few"),
        (np.stack([mask] * 2), "2 heads and the layer 3"),
    ):
        with pytest.raises(AttnvizError, match=says):
            av.from_arrays(list(weights), words, mask=given)


IDS = av.Prompt(ids=tuple(range(3, 19)))


@pytest.fixture(scope="module")
def stored(folders: Folders, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One tiny Llama, stored in three precisions."""
    model = transformers.LlamaForCausalLM.from_pretrained(folders("llama", words=True))
    found = {}
    for name in ("float32", "float16", "bfloat16"):
        found[name] = tmp_path_factory.mktemp(name)
        model.to(getattr(torch, name)).save_pretrained(found[name])
    return found


def test_auto_keeps_bfloat16_and_nothing_else(stored: dict[str, Path]) -> None:
    kept = {name: av.load(str(folder)).info.dtype for name, folder in stored.items()}
    assert kept == {"float32": "float32", "float16": "float32", "bfloat16": "bfloat16"}
    assert av.load(str(stored["bfloat16"]), dtype="float32").info.dtype == "float32"
    assert locate(str(stored["bfloat16"])).precision == "bfloat16"


def test_a_device_map_changes_nothing(stored: dict[str, Path]) -> None:
    if find_spec("accelerate") is None:
        with pytest.raises(UsageError, match="pip install accelerate"):
            av.load(str(stored["float32"]), device="balanced")
        return
    plain = av.heads(IDS, model=str(stored["float32"]), device="cpu")
    placed = av.heads(IDS, model=av.load(str(stored["float32"]), device="balanced"))
    if placed.source.device != "cpu":
        pytest.skip("THE DEVICE MAP TOOK ANOTHER DEVICE")
    assert [one.scores for one in placed.heads] == [one.scores for one in plain.heads]


@pytest.mark.parametrize("bits", ["4bit", "8bit"])
def test_quantizing_needs_bitsandbytes(stored: dict[str, Path], bits: str) -> None:
    if find_spec("bitsandbytes") is not None:
        assert len(av.heads(IDS, model=av.load(str(stored["float32"]), dtype=bits)).heads) == 8
        return
    with pytest.raises(UsageError, match="needs bitsandbytes; pip install bitsandbytes"):
        av.load(str(stored["float32"]), dtype=bits)


def test_names_that_are_none() -> None:
    with pytest.raises(UsageError, match="float16, 8bit, 4bit"):
        av.load("demo-gpt2", dtype="3bit")
    with pytest.raises(UsageError, match="go with trained weights"):
        av.load("demo-gpt2", device="balanced", untrained=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_scores_in_half_precision_are_summed_in_float32(dtype: torch.dtype) -> None:
    """Within 2e-6 of float64 on the same queries and keys, which are in half precision."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 4, 200, 16) for _ in range(3))
    query, key, value = ((3 * query).to(dtype), key.to(dtype), value.to(dtype))
    side = Tokens(tuple(f"w{n % 31}" for n in range(200)))
    batch, layout = [Inputs({"decoder": Sides(side, side)})], Layout({"decoder": (4,)})
    observer, double = ScoreObserver(batch, layout), ScoreObserver(batch, layout)
    attend(query, key, value, causal=True, site=Site("decoder", 0), observers=[observer])
    wide = (query.double(), key.double(), value.double())
    attend(*wide, causal=True, site=Site("decoder", 0), observers=[double])
    for ours, theirs in zip(observer.result(), double.result(), strict=True):
        for name, score in ours.scores.items():
            if score.mean is None:
                assert theirs.scores[name].mean is None
            else:
                assert score.mean == pytest.approx(theirs.scores[name].mean, rel=2e-6), name
    exact = query.double() @ key.double().mT / 4
    exact = exact.masked_fill(torch.ones(200, 200).triu(1).bool(), -torch.inf).softmax(-1)
    rows = range(2, 200)  # from the first row whose previous token is not the first
    previous = exact[0][:, rows, [row - 1 for row in rows]].mean(-1)
    found = [head.scores["previous"].mean for head in observer.result()]
    np.testing.assert_allclose(found, previous, rtol=2e-6)
    bits = -(exact * exact.clamp(min=1e-300).log2()).sum(-1)[0, :, 1:].mean(-1)
    found = [head.scores["entropy"].mean for head in observer.result()]
    np.testing.assert_allclose(found, bits, rtol=2e-6)


TEXT = "the keys to the cabinet are on the table"


def load(how: str) -> tuple[Any, Any]:
    """A source, and another one of the same weights in memory where they are borrowed."""
    if how != "in memory":
        source = pretrained.load("demo-gpt2", backend=how)
        return source, source
    model = transformers.AutoModelForCausalLM.from_pretrained(DEMOS["demo-gpt2"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(DEMOS["demo-gpt2"])
    first, second = (av.load(model, tokenizer=tokenizer) for _ in range(2))
    return first, second


@contextmanager
def looking(source: Any) -> Iterator[list[Any]]:
    """Another thread that looks at heads again and again inside the ``with`` block."""
    found: list[Any] = []
    stop = threading.Event()

    def look() -> None:
        try:
            while not stop.is_set():
                found.append(av.heads(TEXT, model=source))
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize(
    "how",
    ["native", *(pytest.param(how, marks=pytest.mark.slow) for how in ("hooked", "in memory"))],
)
def test_what_one_thread_changes_the_other_does_not_see(how: str) -> None:
    one, other = load(how)
    level = logging.getLogger("transformers").level
    plain = av.heads(TEXT, model=other)
    alone = av.ablate(TEXT, model=one, select="1.*", method="zero")
    with one.gated({"0.*": 0.0}):
        without = av.heads(TEXT, model=one)
    assert without != plain
    with looking(other) as seen:
        assert av.ablate(TEXT, model=one, select="1.*", method="zero") == alone
        with one.gated({"0.*": 0.0}):
            for _ in range(5):
                assert av.heads(TEXT, model=one) == without
    assert seen
    assert all(heads == plain for heads in seen)
    assert logging.getLogger("transformers").level == level


def test_gates_are_gone_after_an_error() -> None:
    source, _ = load("native")
    plain = av.heads(TEXT, model=source)
    with pytest.raises(KeyError), source.gated({"0.*": 0.0}), source.gated({"1.*": 0.5}):
        raise KeyError
    assert av.heads(TEXT, model=source) == plain
