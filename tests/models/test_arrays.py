"""Attention from elsewhere: believed where it fits, refused by name where it does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.core.heads import Site
from attnviz.errors import AttnvizError, InputError, UsageError
from attnviz.models.demo import DEMOS

L, B, H, T, S = 2, 3, 4, 5, 6
WORDS = ["the", "cat", "sat", "on", "mats"]
SOURCE = ["die", "Katze", "saß", "auf", "den", "Matten"]


def layers(queries: int = T, keys: int = T, *, causal: bool = False) -> list[torch.Tensor]:
    torch.manual_seed(0)
    scores = torch.randn(L, B, H, queries, keys)
    if causal:
        scores = scores.masked_fill(torch.ones(queries, keys).triu(1).bool(), -torch.inf)
    return list(scores.softmax(-1))


@pytest.mark.parametrize("causal", [True, False])
def test_torch_and_numpy_batched_or_not(causal: bool) -> None:
    given = layers(causal=causal)
    kind = "decoder" if causal else "encoder"
    expected = av.from_arrays(given, WORDS, item=1)
    assert expected.layout.kinds == (kind,)
    assert expected.tokens == tuple(WORDS)
    assert expected.source.backend == "recorded"
    ways = {
        "numpy": av.from_arrays([layer.numpy() for layer in given], WORDS, item=1),
        "an output": av.from_arrays({"attentions": tuple(given), "logits": 3}, WORDS, item=1),
        "gradients": av.from_arrays([x.clone().requires_grad_() for x in given], WORDS, item=1),
    }
    for way, found in ways.items():
        assert found.layout == expected.layout, way
        for number, layer in enumerate(given):
            assert (found.maps[Site(kind, number)] == layer[1].numpy()).all(), way
    assert (expected["1.2"] == given[1][1, 2].numpy()).all()
    assert av.heads(expected).heads
    assert av.view(expected).page


def test_nothing_of_the_callers_is_kept() -> None:
    given = [layer.numpy() for layer in layers()]
    found = av.from_arrays(given, WORDS, item=0)
    before = found["0.0"].copy()
    given[0][:] = 7
    assert (found["0.0"] == before).all()


def test_cross_attention_and_other_kinds() -> None:
    found = av.from_arrays(layers(T, S), WORDS, source_tokens=SOURCE, item=0)
    assert found.layout.kinds == ("cross",)
    assert (found.tokens, found.source_tokens) == (tuple(WORDS), tuple(SOURCE))
    assert av.from_arrays(layers(), WORDS, item=0, kind="decoder").layout.kinds == ("decoder",)


def test_half_precision_sinks_and_masked_rows() -> None:
    for low in (torch.bfloat16, torch.float16):
        found = av.from_arrays([layer.to(low) for layer in layers()], WORDS, item=0)
        assert found["0.0"].dtype == np.float32
        assert found.source.dtype == "half precision"
    given = [layer.clone() for layer in layers()]
    given[0][0, :, 3] = 0
    assert av.from_arrays(given, WORDS, item=0).empty_rows == 1
    less = [0.6 * layer for layer in layers(causal=True)]
    with pytest.raises(InputError, match=r"decoder layer 0\[0, 0\]: .*sinks=True.*found 0.6"):
        av.from_arrays(less, WORDS, item=0)
    found = av.from_arrays(less, WORDS, item=0, sinks=True)
    assert found.reach[Site("decoder", 0)].sink
    assert av.heads(found).heads


def test_ids_with_a_tokenizer() -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(DEMOS["demo-gpt2"])
    ids = tokenizer("the cats", return_tensors="pt").input_ids
    size = ids.shape[1]
    found = av.from_arrays([torch.eye(size)[None]], ids, tokenizer=tokenizer)
    assert "".join(found.tokens[1:]).strip() == "the cats"
    assert found.inputs.sides["decoder"].queries.special[0]
    with pytest.raises(UsageError, match="with a tokenizer, tokens are a list of ids"):
        av.from_arrays([torch.eye(size)[None]], ["the"], tokenizer=tokenizer)


def worse(change: Any) -> list[torch.Tensor]:
    given = [layer.clone() for layer in layers()]
    change(given)
    return given


def put(layer: int, value: float) -> Any:
    def change(given: list[torch.Tensor]) -> None:
        given[layer][0, 2, 1, 0] = value

    return change


@pytest.mark.parametrize(
    ("attentions", "options", "message"),
    [
        (layers(), {}, "layer 0 is a batch|this is a batch of 3; choose one with item from 0 to 2"),
        (layers(), {"item": 3}, "batch of 3; there is no item=3"),
        (layers(), {"item": -1}, "batch of 3; there is no item=-1"),
        (layers(T, S), {"item": 0}, "5 queries attend to 6 keys; give source_tokens"),
        (layers(S, S), {"item": 0}, "expected 5 queries, one for each token, found 6"),
        (
            worse(put(1, torch.nan)),
            {"item": 0},
            r"layer 1\[2, 1, 0\]: expected finite weights, found nan",
        ),
        (
            worse(put(0, -0.5)),
            {"item": 0},
            r"layer 0\[2, 1, 0\]: expected weights after softmax, 0 or more, found -0.5",
        ),
        (
            worse(put(1, 0.9)),
            {"item": 0},
            r"encoder layer 1\[2, 1\]: expected a row that sums to 1",
        ),
        ([x.long() for x in layers()], {"item": 0}, "holds int64, not floating-point weights"),
        ([x[0, 0] for x in layers()], {}, r"has shape \[5, 5\]; it must be \[heads, queries"),
        (layers()[0][0, 0], {}, r"an array \[5, 5\] has no axis for heads; .* layout=.qk."),
        ([], {}, "no layers in these attentions"),
        ([None], {}, "no layers in these attentions"),
        ("attentions", {}, "an array for each layer, or a model's output, not str"),
        (3, {}, "an array for each layer, or a model's output, not int"),
        ([3], {}, "layer 0 must be a torch or NumPy array, not int"),
        ([[[1.0]]], {}, "layer 0 is a list itself; give one array for each layer"),
        ({"logits": 3}, {}, "none of attentions, encoder_attentions.* output_attentions=True"),
        ({"attentions": layers(), "cross_attentions": layers()}, {"item": 0}, "add source_tokens"),
        (layers(), {"kind": "sideways"}, "no kind='sideways'; choose 'encoder' or"),
        ({"encoder_attentions": layers()}, {"kind": "decoder"}, "kind is for a single list"),
        (np.zeros((2, 3, T, 0), np.float32), {}, r"shape \[3, 5, 0\], which holds no weights"),
        ([torch.zeros(0, T, T)], {}, r"layer 0 has shape \[0, 5, 5\], which holds no weights"),
    ],
)
def test_what_is_refused(attentions: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(AttnvizError, match=message):
        av.from_arrays(attentions, WORDS, **options)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ("words", "not str; ids need tokenizer"), ([1, 2], "not list of int; ids need tokenizer"),
        ([], "the list of tokens is empty"), (3, "tokens are a list of strings, .*, not int"),
        (None, "tokens are a list of strings, one for each position, not NoneType"),
    ],
)  # fmt: skip
def test_tokens_of_the_wrong_type(tokens: Any, message: str) -> None:
    with pytest.raises(AttnvizError, match=message):
        av.from_arrays([torch.eye(2)[None]], tokens)


def test_what_a_mask_hides_is_no_weight() -> None:
    weights = np.array([[[1.0, 7.0], [0.5, 0.5]]])
    masked = np.ma.array(weights, mask=weights == 7)
    found = av.from_arrays([masked], ["a", "b"])
    np.testing.assert_array_equal(found.maps[Site("decoder", 0)], [[[1.0, 0.0], [0.5, 0.5]]])


def test_two_lists_for_the_decoder_are_refused() -> None:
    layer = np.ones((1, 1, 1, 1))
    given = {"attentions": [layer], "decoder_attentions": [layer]}
    with pytest.raises(UsageError, match="attentions and decoder_attentions are both there"):
        av.from_arrays(given, ["a"])


def rows(sums: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """[2, 3, 3] whose rows sum to that."""
    torch.manual_seed(0)
    return (torch.randn(2, 3, 3).softmax(-1) * sums).to(dtype)


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
@pytest.mark.parametrize(
    ("layer", "options"),
    [
        (rows(1), {}), (rows(1.0009), {}), (rows(0.985, torch.float16), {}),
        (rows(1.015, torch.bfloat16), {}), (rows(0.6), {"sinks": True}),
        (rows(4e-4), {"sinks": True}), (rows(1) * torch.tensor([1.0, 0, 1])[:, None], {}),
        (rows(1).double(), {}), (rows(1), {"mask": np.ones((3, 3), bool)}),
        (rows(1).tril() / rows(1).tril().sum(-1, keepdim=True), {}),
    ],
)  # fmt: skip
def test_what_is_believed_is_written_and_read_again(
    layer: torch.Tensor, options: dict[str, Any], suffix: str, tmp_path: Any
) -> None:
    found = av.from_arrays([layer, layer], ["a", "b", "c"], **options)
    path = av.write_capture(found, tmp_path / f"a.{suffix}")
    assert av.check(path).problems == ()
    again = av.read(path)
    assert again.layout == found.layout
    for site, maps in found.maps.items():
        np.testing.assert_array_equal(again.maps[site], maps)
        assert again.reach[site].sink == found.reach[site].sink
        allowed = (c.reach[site].allowed(3, 3) for c in (again, found))
        np.testing.assert_array_equal(*allowed)
    assert av.heads(again).to_dict()["heads"] == av.heads(found).to_dict()["heads"]


@pytest.mark.parametrize(
    ("layer", "says"),
    [
        (rows(4e-4), "expected a row that sums to 1 .* found 0.0004"),
        (rows(0.97, torch.float16), "within 0.02, .* found 0.96"),
        (rows(1.002), "within 0.001, .* found 1.002"),
        (rows(1) * torch.nan, "0 where all keys are masked, found nan, and 17 more"),
        (-rows(1), "expected weights after softmax, 0 or more, found"),
    ],
)
def test_what_is_refused_in_memory_is_refused_in_a_file(
    layer: torch.Tensor, says: str, tmp_path: Any
) -> None:
    with pytest.raises(InputError, match=says):
        av.from_arrays([layer], ["a", "b", "c"])
    np.savez(tmp_path / "a.npz", attentions=layer.numpy()[None], tokens=np.array(["a", "b", "c"]))
    with pytest.raises(InputError, match=says):
        av.read(tmp_path / "a.npz")
    (problem,) = av.check(tmp_path / "a.npz").problems
    with pytest.raises(InputError) as told:
        av.read(tmp_path / "a.npz")
    assert f"{problem.path}: expected {problem.expected}, found {problem.found}" in str(told.value)
