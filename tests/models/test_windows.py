"""Models that attend inside windows: maps on both sides of their switch, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import attnviz as av
from attnviz.core.heads import Site
from attnviz.core.prompt import Prompt
from attnviz.errors import ModelError
from attnviz.models.hooked.trace import ModuleCall, calls_of
from attnviz.scoring.observe import Recorder
from tests.models.tiny import inputs_of, transformers, uneven

pytestmark = pytest.mark.filterwarnings("ignore")

WINDOW, RADIUS, BLOCK = 8, 3, 4
LONGFORMER = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24,
    "vocab_size": 41, "max_position_embeddings": 120, "attention_window": [WINDOW, WINDOW],
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "sep_token_id": 2,
}  # fmt: skip
LED = {
    "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "vocab_size": 41,
    "max_encoder_position_embeddings": 120, "attention_window": [WINDOW, WINDOW],
}  # fmt: skip
LONGT5 = {
    "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4, "vocab_size": 41,
    "local_radius": RADIUS, "global_block_size": BLOCK, "decoder_start_token_id": 0,
}  # fmt: skip
LENGTHS = (1, 3, WINDOW + 1, 45)


def built(name: str, **sizes: Any) -> Any:
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    return uneven(kind(kind.config_class(**sizes)).eval(), 3)


MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "longformer": ("LongformerModel", LONGFORMER),
    "words": ("LongformerForMaskedLM", LONGFORMER),
    "labels": ("LongformerForSequenceClassification", LONGFORMER),
    "led": ("LEDForConditionalGeneration", LED),
    "longt5": ("LongT5EncoderModel", LONGT5),
}


@pytest.fixture(scope="module")
def models() -> dict[str, tuple[Any, Any]]:
    """Each model beside what attnviz makes of it."""
    made = {name: built(kind, **sizes) for name, (kind, sizes) in MODELS.items()}
    return {name: (model, av.load(model)) for name, model in made.items()}


def ids_of(length: int) -> tuple[int, ...]:
    return tuple(3 + n * 7 % 37 for n in range(length))


def heads(x: Tensor) -> Tensor:
    return x.double().unflatten(-1, (4, 4)).transpose(0, 1)  # [H, T, 4]


def expected(model: Any, ids: tuple[int, ...], everywhere: tuple[int, ...] = ()) -> list[Tensor]:
    """Maps [H, T, T] of every layer of the encoder by whole scores and a mask, in float64."""
    parts = [
        part
        for part in model.modules()
        if type(part).__name__.endswith(("SelfAttention", "LocalAttention"))
        and hasattr(part, "query_global") | hasattr(part, "q")
    ]
    names = {
        child: (number, name)
        for number, part in enumerate(parts)
        for name, child in part.named_children()
    }
    layers: list[dict[str, Tensor]] = [{} for _ in parts]

    def keep(call: ModuleCall) -> None:
        number, name = names[call.module]
        layers[number][name] = call.output.clone()  # some divide queries in place

    arguments = {"input_ids": torch.tensor([ids])}
    if hasattr(model, "get_decoder") and model.get_decoder() is not model:
        arguments["decoder_input_ids"] = torch.tensor([[1, 5, 6]])
    with torch.no_grad(), calls_of(names, keep):
        model(**arguments)
    length = len(ids)
    apart = torch.arange(length)[:, None] - torch.arange(length)
    maps = []
    for kept in layers:
        if "q" in kept:  # LongT5's blocks: keys at a distance of the radius at most
            first = parts[0]
            bucket = first._relative_position_bucket(
                -apart, num_buckets=first.relative_attention_num_buckets,
                max_distance=first.relative_attention_max_distance,
            )  # fmt: skip
            bias = first.relative_attention_bias(bucket).detach().double().permute(2, 0, 1)
            q, k = (heads(kept[name][0]) for name in "qk")
            scores = (q @ k.mT + bias).masked_fill(apart.abs() > RADIUS, -torch.inf)
            maps.append(scores.softmax(-1))
            continue
        q, k, own, far = (
            heads(kept[name].transpose(0, 1)[0, :length])
            for name in ("query", "key", "query_global", "key_global")
        ) if everywhere else (*(heads(kept[name].transpose(0, 1)[0, :length])
                                for name in ("query", "key")), None, None)  # fmt: skip
        scores = q @ k.mT / 2
        seen = apart.abs() <= WINDOW // 2
        seen[:, list(everywhere)] = True
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        if everywhere:
            rows = list(everywhere)
            weights[:, rows] = (own[:, rows] @ far.mT / 2).softmax(-1)
        maps.append(weights)
    return maps


@pytest.mark.parametrize("name", list(MODELS))
def test_windows_are_maps_of_all_tokens(name: str, models: dict[str, tuple[Any, Any]]) -> None:
    """Texts shorter and longer than a window, a single token, and two in a batch."""
    model, source = models[name]
    assert source.info.backend == "eager"
    everywhere = (0,) if name == "labels" else ()
    batches = [[ids_of(length)] for length in LENGTHS] + [[ids_of(30), ids_of(45)[5:12]]]
    for items in batches:
        batch = [inputs_of(source, ids, (1, 5, 6)) for ids in items]
        recorder = Recorder(batch)
        source.forward(batch, [recorder])
        for number, ids in enumerate(items):
            maps = recorder.maps(number)
            for layer, weights in enumerate(expected(model, ids, everywhere)):
                own = maps[Site("encoder", layer)]
                np.testing.assert_allclose(own, weights.numpy(), rtol=0, atol=2e-6)


def test_what_a_window_leaves_out_is_not_allowed(models: dict[str, tuple[Any, Any]]) -> None:
    """Chance is that of the window; tokens that look at all, and those that all look at, are in."""
    near = np.abs(np.subtract.outer(np.arange(20), np.arange(20)))
    for name, reach in (("longformer", WINDOW // 2), ("longt5", RADIUS), ("labels", WINDOW // 2)):
        capture = av.capture(Prompt(ids=ids_of(20)), model=models[name][1])
        allowed = near <= reach
        if name == "labels":
            allowed[0] = allowed[:, 0] = True
        mask = capture.reach[Site("encoder", 1)].allowed(20, 20)
        np.testing.assert_array_equal(np.broadcast_to(mask, (4, 20, 20)), [allowed] * 4)


def test_a_note_says_which_tokens_look_at_all(models: dict[str, tuple[Any, Any]]) -> None:
    said = {name: source.info.exactness for name, (_, source) in models.items()}
    assert said["longformer"].endswith("windows of 9 keys, no token looks at all")
    assert said["labels"].endswith("tokens that look at all as its head says")
    assert said["longt5"].endswith("put together from blocks of 4 tokens")


def test_sums_of_blocks_are_refused_beyond_the_length_without_them() -> None:
    model = built("LongT5EncoderModel", **LONGT5, encoder_attention_type="transient-global")
    capture = av.capture(Prompt(ids=ids_of(BLOCK - 1)), model=model)
    with torch.no_grad():
        theirs = model(torch.tensor([ids_of(BLOCK - 1)]), output_attentions=True).attentions
    for layer, weights in enumerate(theirs):  # one block, between two of padding
        own = weights[0, 0, :, : BLOCK - 1, RADIUS + 1 : RADIUS + BLOCK]
        np.testing.assert_allclose(capture.maps[Site("encoder", layer)], own, atol=1e-7)
    with pytest.raises(ModelError, match=r"sums of 4 tokens too .* this one has 4; give a shorter"):
        av.capture(Prompt(ids=ids_of(BLOCK)), model=model)


def test_an_encoder_of_blocks_beside_a_decoder_names_the_way_out() -> None:
    model = built("LongT5ForConditionalGeneration", **LONGT5)
    source = av.load(model)
    assert source.layout.kinds == ("decoder", "cross")
    assert source.info.exactness.endswith("left out: load the encoder alone to see it")
    alone = av.load(model.get_encoder())
    capture = av.capture(Prompt(ids=ids_of(20)), model=alone)
    for layer, weights in enumerate(expected(model, ids_of(20))):
        np.testing.assert_allclose(
            capture.maps[Site("encoder", layer)], weights.numpy(), rtol=0, atol=2e-6
        )


def test_a_head_that_looks_for_separators_is_named() -> None:
    model = built("LongformerForQuestionAnswering", **LONGFORMER)
    with pytest.raises(ModelError, match="LongformerForQuestionAnswering fails on drawn ids"):
        av.load(model)


PIXELS = torch.linspace(-1, 1, 6144).reshape(2, 3, 32, 32).sin()
SEE: dict[str, tuple[str, dict[str, Any]]] = {
    "swin": ("SwinModel", {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2],
                           "num_heads": [2, 4], "window_size": 4}),
    "sam": ("SamVisionModel", {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
                               "image_size": 32, "patch_size": 4, "mlp_dim": 24, "window_size": 3,
                               "output_channels": 8, "global_attn_indexes": [1]}),
}  # fmt: skip


def test_layers_of_windows_that_differ_are_no_capture() -> None:
    """Stages of Swin with as many tokens in a window, and other windows, were laid side by side."""
    model = built(SEE["swin"][0], **SEE["swin"][1], attn_implementation="eager")
    with torch.no_grad(), av.watch(model) as watched:
        theirs = model(PIXELS, output_attentions=True).attentions
    assert [tuple(w.shape) for w in theirs] == [(32, 2, 16, 16), (8, 4, 16, 16)]
    with pytest.raises(av.AttnvizError, match="in each of 16 windows and over 16×16 in"):
        watched.capture(item=1)
    with pytest.raises(av.AttnvizError, match=r"inside 4 windows .* batch of 2 .* from 0 to 7"):
        watched.capture(layers=["2", "3"])
    capture = watched.capture(item=6, layers=["encoder.layers.1"])
    last = [maps for site, maps in capture.maps.items() if site.layer == 3]
    np.testing.assert_allclose(last[0], theirs[1][6], atol=1e-6)
    assert any("window 2 of item 1 of the batch" in note for note in capture.inputs.notes)


def test_layers_of_windows_and_of_all_patches_are_captured_apart() -> None:
    """SAM's encoder, whose scores have relative positions: what is not asked for needs no item."""
    kind, sizes = SEE["sam"]
    model = built(kind, **sizes, attn_implementation="eager")
    kept: list[torch.Tensor] = []
    for layer in model.vision_encoder.layers:
        layer.attn.register_forward_hook(lambda _, args, out: kept.append(out[1]))
    with torch.no_grad(), av.watch(model) as watched:
        model(PIXELS[:1])
    with pytest.raises(av.AttnvizError, match="9×9 in each of 9 windows and over 64×64 positions"):
        watched.capture(item=0)
    (whole,) = watched.capture(layers=["1"]).maps.values()
    np.testing.assert_allclose(whole, kept[1].reshape(4, 64, 64), atol=1e-6)
    with pytest.raises(av.AttnvizError, match="attends inside 9 windows of its tokens"):
        watched.capture(layers=["0"])
    capture = watched.capture(layers=["0"], item=8)
    (window,) = capture.maps.values()
    np.testing.assert_allclose(window, kept[0].reshape(9, 4, 9, 9)[8], atol=1e-6)
    assert any("window 8 of item 0" in note for note in capture.inputs.notes)


@pytest.mark.parametrize("length", [3, 20])
def test_blocks_of_a_text_are_no_batch_and_no_prefix(length: int) -> None:
    model = built("LongT5EncoderModel", **LONGT5)
    with torch.no_grad(), av.watch(model) as watched:
        model(torch.tensor([ids_of(length)]))
    assert "no axis counts all tokens" in repr(watched)
    with pytest.raises(av.AttnvizError, match="no axis counts all tokens"):
        watched.capture()


def test_pieces_of_a_text_are_not_read_as_cross_attention_or_a_prefix() -> None:
    """BigBird's blocks ask apart; chunks of queries do so too. Reduced keys alone are read."""
    sizes = {name: LONGFORMER[name] for name in list(LONGFORMER)[:6]}
    model = built("BigBirdModel", **sizes, block_size=4, num_random_blocks=1)
    with torch.no_grad(), av.watch(model) as watched:
        model(torch.tensor([ids_of(64)]))
    assert "4 of its tokens attend to 64 keys in and around their block" in repr(watched)
    with pytest.raises(av.AttnvizError, match="no attention was seen"):
        watched.capture()

    class Chunked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            q, k = (f(x).unflatten(-1, (2, 4)).transpose(1, 2) for f in (self.q, self.k))
            return torch.cat([(some @ k.mT).softmax(-1) @ k for some in q.chunk(3, 2)], 2)

    chunked = Chunked()
    with av.watch(chunked) as watched:
        chunked(torch.randn(1, 6, 8))
    with pytest.raises(av.AttnvizError, match="2 of them 6 keys at a time"):
        watched.capture()


def test_source_tokens_as_long_as_the_memory_name_its_keys() -> None:
    """Names of the memory alone, of it and the text, and of all keys are the same names."""

    class Remembering(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

        def forward(self, x: Tensor, past: Tensor) -> Tensor:
            q, k = (f(x).unflatten(-1, (2, 4)).transpose(1, 2) for f in (self.q, self.k))
            k = torch.cat([past, k], 2)
            return (q @ k.mT).softmax(-1) @ k

    model, words, earlier = Remembering(), ["a", "b", "c", "d"], ["x", "y"]
    with av.watch(model) as watched:
        model(torch.randn(1, 4, 8), torch.randn(1, 2, 2, 4))
    for capture in (
        watched.capture(words, source_tokens=earlier),
        watched.capture(words, source_tokens=earlier + words),
        watched.capture(source_tokens=earlier + words),
    ):
        sides = capture.inputs.sides["encoder"]
        assert sides.keys.texts == sides.queries.texts == ("x", "y", "a", "b", "c", "d")
        (maps,) = capture.maps.values()
        assert maps.shape == (2, 6, 6)
        assert not maps[:, :2].any()
    with pytest.raises(av.AttnvizError):
        watched.capture(words, source_tokens=["x", "y", "z"])
