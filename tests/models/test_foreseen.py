"""What `models --show` promises is what loading then does, and object queries have names."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import attnviz as av
from attnviz.core.heads import Site
from attnviz.core.prompt import Prompt
from attnviz.errors import AttnvizError, ModelError
from attnviz.features.models.inspection import describe
from tests.models.tiny import same_maps, transformers
from tests.models.tiny_senses import SCALED, SEES, STACK, WHOLE

SHORTEST = {"size": {"shortest_edge": 32, "longest_edge": 48}}
TEXT = {**STACK, "vocab_size": 41, "max_position_embeddings": 64}
DETR = {
    "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None, "d_model": 16,
    "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 24,
    "decoder_attention_heads": 4, "decoder_ffn_dim": 24, "num_queries": 6,
    "backbone_config": {
        "model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1],
        "layer_type": "basic", "out_features": ["stage2"],
    },
}  # fmt: skip
SAM = {
    "vision_config": {"hidden_size": 16, "output_channels": 8, "num_hidden_layers": 2,
                      "num_pos_feats": 4,
                      "num_attention_heads": 2, "image_size": 32, "patch_size": 8, "mlp_dim": 24,
                      "window_size": 2, "global_attn_indexes": [1]},
    "prompt_encoder_config": {"hidden_size": 8, "image_size": 32, "patch_size": 8},
    "mask_decoder_config": {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
                            "mlp_dim": 16, "iou_head_hidden_dim": 8},
}  # fmt: skip
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any] | None]] = {
    "vit": ("ViTModel", SEES, {"image_processor_type": "ViTImageProcessor", **WHOLE}),
    "yolos": ("YolosForObjectDetection",
              {**STACK, "image_size": [32, 48], "patch_size": 8, "num_detection_tokens": 5},
              {"image_processor_type": "YolosImageProcessor", "do_pad": False, **SHORTEST}),
    "detr": ("DetrForObjectDetection", DETR,
             {"image_processor_type": "DetrImageProcessor", **SHORTEST}),
    "segformer": ("SegformerModel",
                  {"hidden_sizes": [8, 8, 16, 16], "num_attention_heads": [1, 1, 2, 2],
                   "depths": [1] * 4, "decoder_hidden_size": 16},
                  {"image_processor_type": "SegformerImageProcessor", **WHOLE}),
    "vit_mae": ("ViTMAEForPreTraining",
                {**SEES, "decoder_hidden_size": 16, "decoder_num_hidden_layers": 1,
                 "decoder_num_attention_heads": 2, "decoder_intermediate_size": 16},
                {"image_processor_type": "ViTImageProcessor", **WHOLE}),
    "sam": ("SamModel", SAM, {"image_processor_type": "SamImageProcessor", "do_pad": True,
                              "size": {"longest_edge": 32},
                              "pad_size": {"height": 32, "width": 32}}),
    "swin": ("SwinModel", {"image_size": 32, "patch_size": 4, "embed_dim": 8, "depths": [1, 1],
                           "num_heads": [1, 2], "window_size": 4},
             {"image_processor_type": "ViTImageProcessor", **WHOLE}),
    "patchtst": ("PatchTSTModel",
                 {"num_input_channels": 2, "context_length": 32, "patch_length": 8, "d_model": 16,
                  "patch_stride": 8,
                  "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 24}, None),
    "perceiver": ("PerceiverForMaskedLM",
                  {"num_latents": 4, "d_latents": 16, "d_model": 16, "num_blocks": 1,
                   "num_self_attends_per_block": 2, "num_self_attention_heads": 2,
                   "num_cross_attention_heads": 2, "vocab_size": 60}, None),
    "big_bird": ("BigBirdForMaskedLM", {**TEXT, "block_size": 2, "num_random_blocks": 1}, None),
    "longformer": ("LongformerModel", {**TEXT, "attention_window": 4}, None),
    "led": ("LEDModel", {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": 41,
                         "encoder_attention_heads": 4, "decoder_attention_heads": 4,
                         "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "attention_window": [4, 4],
                         "max_encoder_position_embeddings": 64}, None),
    "fnet": ("FNetModel", TEXT, None),
    "splinter": ("SplinterModel", TEXT, None),
    "mixtral": ("MixtralForCausalLM", {**TEXT, "num_key_value_heads": 2, "num_local_experts": 2},
                None),
    "qwen2": ("Qwen2ForCausalLM", {**TEXT, "num_key_value_heads": 2}, None),
    "bloom": ("BloomForCausalLM", {"hidden_size": 16, "n_layer": 2, "n_head": 4, "vocab_size": 41},
              None),
    "t5": ("T5ForConditionalGeneration",
           {"d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4, "vocab_size": 41,
            "decoder_start_token_id": 0}, None),
    "siglip": ("SiglipModel", {"text_config": {**TEXT, "projection_size": 16},
                               "vision_config": SEES}, None),
}  # fmt: skip
RUNS = {
    "vit", "yolos", "detr", "big_bird", "splinter", "mixtral", "qwen2", "bloom", "t5", "siglip",
    "led", "longformer",
}  # fmt: skip


def build(name: str, folder: Path) -> Any:
    kind, sizes, processor = CASES[name]
    torch.manual_seed(0)
    made = getattr(transformers, kind)
    model = made(made.config_class(**sizes)).eval()
    for weight in model.parameters():
        weight.data += torch.randn_like(weight) * 0.2
    model.save_pretrained(folder)
    if processor is not None:
        (folder / "preprocessor_config.json").write_text(json.dumps({**SCALED, **processor}))
    return model


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Any]]:
    """A function from a case to its folder, which nobody changes, and the model with eager maps."""

    @cache
    def case(name: str) -> tuple[Path, Any]:
        folder = tmp_path_factory.mktemp(name)
        model = build(name, folder)
        model.set_attn_implementation("eager")
        return folder, model

    return case


@pytest.mark.parametrize("name", list(CASES))
@pytest.mark.filterwarnings("ignore")
def test_what_is_promised_is_what_loading_does(name: str, built: Any) -> None:
    folder, _ = built(name)
    card = describe(str(folder))
    maps = card.abilities[0]
    assert maps.name == "maps and scores"
    if name in RUNS:
        assert maps.works is True
        assert card.backend == av.load(str(folder)).info.backend
        return
    assert maps.works is False
    with pytest.raises(AttnvizError) as raised:
        av.load(str(folder))
    assert str(raised.value).removeprefix(f"{folder}: ")[:60] == maps.why[:60]


@pytest.mark.parametrize("name", ["detr", "yolos"])
@pytest.mark.filterwarnings("ignore")
def test_object_queries_and_patches_have_names(name: str, built: Any, tmp_path: Path) -> None:
    folder, model = built(name)
    draw = np.random.default_rng(3)
    image = tmp_path / "noise.png"
    Image.fromarray(draw.integers(0, 256, (64, 96, 3), np.uint8)).save(image)
    capture = av.capture(Prompt(image=str(image)), model=str(folder))
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    features = processor(images=Image.open(image), return_tensors="pt")
    with torch.no_grad():
        output = model(**features, output_attentions=True)
    fields = {"encoder": "encoder_attentions", "decoder": "decoder_attentions",
              "cross": "cross_attentions"}  # fmt: skip
    if name == "yolos":
        fields = {"encoder": "attentions"}
    for kind, field in fields.items():
        same_maps(capture, output[field], kind, 1e-6)
    if name == "yolos":
        texts = capture.inputs.sides["encoder"].keys.texts
        assert texts[:2] == ("[CLS]", "0,0")
        assert texts[-5:] == tuple(f"[DET{n}]" for n in range(1, 6))
        return
    cross = capture.inputs.sides["cross"]
    assert cross.queries.texts == tuple(f"query {n}" for n in range(6))
    assert cross.keys.texts[:2] == ("0,0", "0,1")
    assert len(cross.keys.texts) == 4 * 6


ALONE: dict[str, tuple[dict[str, Any], dict[str, str], set[str]]] = {
    # what it is given, the fields of its output by the kind of layers, and what their queries are
    "patchtst": ({"past_values": torch.linspace(-1, 1, 64).reshape(1, 32, 2).sin()},
                 {"encoder": "attentions"}, {"0"}),
    "vit_mae": ({"pixel_values": torch.linspace(-1, 1, 3072).reshape(1, 3, 32, 32).sin()},
                {"encoder": "attentions"}, {"0"}),
    "segformer": ({"pixel_values": torch.linspace(-1, 1, 3072).reshape(1, 3, 32, 32).sin()},
                  {"": "attentions"}, {"0"}),
    "perceiver": ({"inputs": torch.arange(5, 25)[None]},
                  {"encoder": "attentions", "cross": "cross_attentions"}, {"query 0"}),
    "detr": ({"pixel_values": torch.linspace(-1, 1, 18432).reshape(1, 3, 64, 96).sin()},
             {"encoder": "encoder_attentions", "decoder": "decoder_attentions",
              "cross": "cross_attentions"}, {"0", "query 0"}),
}  # fmt: skip


@pytest.mark.parametrize("name", list(ALONE))
@pytest.mark.filterwarnings("ignore")
def test_what_no_file_is_read_for_is_watched(name: str, built: Any) -> None:
    """Every layer that the model returns, number for number; learned queries are called so."""
    (_, model), (given, fields, names) = built(name), ALONE[name]
    torch.manual_seed(1)
    with torch.no_grad(), av.watch(model) as watched:
        output = model(**given, output_attentions=True)
    assert "not read" not in repr(watched)
    called, firsts = list(watched.layers), set[str]()
    prefixes = {"encoder": "enc:", "decoder": "dec:", "cross": "cross:"}
    for kind, field in fields.items():
        own = [c for c in called if not kind or ":" not in c or c.startswith(prefixes[kind])]
        for number, weights in enumerate(w for w in output[field] if w is not None):
            capture = watched.capture(item=0, layers=[own[number]])
            (site,) = capture.maps
            np.testing.assert_allclose(capture.maps[site], weights[0].numpy(), atol=1e-6)
            firsts.add(capture.inputs.sides[site.kind].queries.texts[0])
    assert firsts == names


def test_learned_sinks_are_left_out_of_watched_maps() -> None:
    """A column of parameters takes a share of every row, meets no values, and is no key."""
    config = transformers.GptOssConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=8, intermediate_size=24, num_local_experts=4, num_experts_per_tok=1,
        vocab_size=41, sliding_window=4, attn_implementation="eager",
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.GptOssForCausalLM(config).eval()
    for layer in model.model.layers:
        layer.self_attn.sinks.data.normal_()
    ids = (5, 6, 7, 8, 9, 10)
    with torch.no_grad(), av.watch(model) as watched:
        plain = model(torch.tensor([ids]), output_attentions=True)
    capture = watched.capture()
    assert any("learned sinks" in note for note in capture.inputs.notes)
    for site, maps in capture.maps.items():
        np.testing.assert_array_equal(maps, plain.attentions[site.layer][0].numpy())
        assert float(maps.sum(-1).max()) < 1
    hooked = av.capture(Prompt(ids=ids), model=model)
    assert capture.layout.heads == hooked.layout.heads
    for site, maps in hooked.maps.items():
        np.testing.assert_allclose(capture.maps[site], maps, atol=1e-6)


def test_a_text_beyond_a_switch_names_the_way_out(tmp_path: Path) -> None:
    model = build("big_bird", tmp_path)
    short, long = tuple(range(5, 17)), tuple(range(5, 30))
    capture = av.capture(Prompt(ids=short), model=str(tmp_path))
    with torch.no_grad():
        model.base_model.set_attention_type("original_full")
        theirs = model(torch.tensor([short]), output_attentions=True).attentions
    same_maps(capture, theirs, within=1e-6)
    with pytest.raises(ModelError, match=r'set attention_type="original_full" in its config\.json'):
        av.capture(Prompt(ids=long), model=str(tmp_path))
    config = json.loads((tmp_path / "config.json").read_text())
    config["attention_type"] = "original_full"
    (tmp_path / "config.json").write_text(json.dumps(config))
    capture = av.capture(Prompt(ids=long), model=str(tmp_path))
    with torch.no_grad():
        theirs = model(torch.tensor([long]), output_attentions=True).attentions
    np.testing.assert_allclose(capture.maps[Site("encoder", 1)], theirs[1][0].numpy(), atol=1e-6)
