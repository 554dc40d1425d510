"""Tiny random models that read a text with pictures, by family, with processors made offline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.models.tiny import transformers, uneven
from tests.models.tiny_senses import GAIN, STACK

WORDS = ["<unk>", "<s>", "</s>", "what", "is", "this", "a", "house", "sun", "tree", "?", "and"]
TEXT = {**STACK, "num_key_value_heads": 2, "vocab_size": 64, "max_position_embeddings": 512}
TEXT |= {"pad_token_id": 2, "bos_token_id": 1, "eos_token_id": 2}
MROPE = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 0]}
SCALED = {
    "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
    "image_mean": [0.48, 0.45, 0.4], "image_std": [0.27, 0.26, 0.28], "do_convert_rgb": True,
}  # fmt: skip
QWEN_MARKS = ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"]
QWEN_PIXELS = {
    **SCALED, "image_processor_type": "Qwen2VLImageProcessor", "patch_size": 4, "merge_size": 2,
    "temporal_patch_size": 2, "size": {"shortest_edge": 256, "longest_edge": 64 * 64},
}  # fmt: skip
QWEN_TEMPLATE = (
    "{% for message in messages %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %} {{ part['text'] }}{% endif %}{% endfor %}{% endfor %}"
)
TILED_TEMPLATE = (
    "{% for message in messages %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}MARK{% else %} {{ part['text'] }}{% endif %}"
    "{% endfor %}{% endfor %}"
)
TILES = [f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)]


def ids_of(marks: list[str]) -> dict[str, int]:
    """The id of every word and mark."""
    return {word: number for number, word in enumerate([*WORDS, *marks])}


def save_tokenizer(folder: Path, marks: list[str], **named: str) -> None:
    """Words split at white space; marks are one token each, wherever they stand."""
    words = Tokenizer(models.WordLevel(ids_of(marks), unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.add_special_tokens(marks)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="<unk>", bos_token="<s>", eos_token="</s>",
        pad_token="</s>", extra_special_tokens=named or marks,
    ).save_pretrained(folder)  # fmt: skip


def _qwen(folder: Path, name: str, **vision: Any) -> Any:
    save_tokenizer(folder, QWEN_MARKS)
    ids = ids_of(QWEN_MARKS)
    config = getattr(transformers, f"{name}Config")(
        text_config={**TEXT, "rope_parameters": MROPE, "rope_scaling": MROPE, "head_dim": 4},
        vision_config={"depth": 2, "hidden_size": 16, "num_heads": 2, "patch_size": 4, **vision},
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
    )
    model = getattr(transformers, f"{name}ForConditionalGeneration")(config)
    return _finished(folder, model, f"{name}Processor", QWEN_PIXELS, chat_template=QWEN_TEMPLATE)


def _sees(**changes: Any) -> dict[str, Any]:
    return {**STACK, "image_size": 16, "patch_size": 4, **changes}


def qwen2_vl(folder: Path) -> Any:
    return _qwen(folder, "Qwen2VL", embed_dim=16)


def qwen2_5_vl(folder: Path) -> Any:
    return _qwen(folder, "Qwen2_5_VL", out_hidden_size=16, intermediate_size=24, window_size=16,
                 fullatt_block_indexes=[1])  # fmt: skip


def qwen3_vl(folder: Path) -> Any:
    return _qwen(folder, "Qwen3VL", out_hidden_size=16, intermediate_size=24,
                 num_position_embeddings=64, deepstack_visual_indexes=[0])  # fmt: skip


def gemma3(folder: Path) -> Any:
    marks = ["<image_soft>", "<boi>", "<eoi>"]
    save_tokenizer(folder, marks, image_token="<image_soft>", boi_token="<boi>", eoi_token="<eoi>")
    ids = ids_of(marks)
    config = transformers.Gemma3Config(
        text_config={**TEXT, "head_dim": 4, "query_pre_attn_scalar": 4, "sliding_window": 64},
        vision_config={**_sees(image_size=32), "vision_use_head": False},
        mm_tokens_per_image=16,
        boi_token_index=ids["<boi>"],
        eoi_token_index=ids["<eoi>"],
        image_token_index=ids["<image_soft>"],
    )
    pixels = {"image_processor_type": "Gemma3ImageProcessor", **SCALED,
              "size": {"height": 32, "width": 32}}  # fmt: skip
    model = transformers.Gemma3ForConditionalGeneration(config)
    torch.nn.init.normal_(model.model.multi_modal_projector.mm_input_projection_weight)
    return _finished(folder, model, "Gemma3Processor", pixels, image_seq_length=16,
                     chat_template=TILED_TEMPLATE.replace("MARK", "<boi>"))  # fmt: skip


def internvl(folder: Path) -> Any:
    marks = ["<context>", "<img>", "</img>", "<video>"]
    save_tokenizer(folder, marks, context_image_token="<context>", start_image_token="<img>",
                   end_image_token="</img>", video_token="<video>")  # fmt: skip
    config = transformers.InternVLConfig(
        text_config={**TEXT, "model_type": "llama"},
        vision_config=_sees(image_size=[16, 16], patch_size=[4, 4]),
        image_token_id=ids_of(marks)["<context>"],
        image_seq_length=4,
    )
    pixels = {"image_processor_type": "GotOcr2ImageProcessor", **SCALED, "crop_to_patches": True,
              "min_patches": 1, "max_patches": 6, "size": {"height": 16, "width": 16}}  # fmt: skip
    return _finished(folder, transformers.InternVLForConditionalGeneration(config),
                     "InternVLProcessor", pixels, image_seq_length=4,
                     chat_template=TILED_TEMPLATE.replace("MARK", "<context>\n"))  # fmt: skip


def idefics3(folder: Path, name: str = "Idefics3") -> Any:
    marks = ["<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>", *TILES]
    save_tokenizer(folder, marks)
    config = getattr(transformers, f"{name}Config")(
        text_config={**TEXT, "model_type": "llama"},
        vision_config=_sees(),
        image_token_id=ids_of(marks)["<image>"],
        scale_factor=2,
    )
    pixels = {"image_processor_type": f"{name}ImageProcessor", **SCALED, "do_image_splitting": True,
              "do_pad": True, "size": {"longest_edge": 48},
              "max_image_size": {"longest_edge": 16}}  # fmt: skip
    model = getattr(transformers, f"{name}ForConditionalGeneration")(config)
    return _finished(folder, model, f"{name}Processor", pixels, image_seq_len=4,
                     chat_template=TILED_TEMPLATE.replace("MARK", "<image>"))  # fmt: skip


def smolvlm(folder: Path) -> Any:
    return idefics3(folder, "SmolVLM")


def llava_onevision(folder: Path) -> Any:
    marks = ["<image>", "<video>"]
    save_tokenizer(folder, marks)
    pinpoints = [[16, 16], [16, 32], [32, 16], [32, 32], [48, 48], [16, 48]]
    config = transformers.LlavaOnevisionConfig(
        text_config={**TEXT, "model_type": "llama"},
        vision_config={**_sees(), "model_type": "siglip_vision_model", "vision_use_head": False},
        image_token_index=ids_of(marks)["<image>"],
        video_token_index=ids_of(marks)["<video>"],
        image_grid_pinpoints=pinpoints,
    )
    pixels = {"image_processor_type": "LlavaOnevisionImageProcessor", **SCALED,
              "size": {"height": 16, "width": 16}, "image_grid_pinpoints": pinpoints}  # fmt: skip
    return _finished(folder, transformers.LlavaOnevisionForConditionalGeneration(config),
                     "LlavaOnevisionProcessor", pixels, num_image_tokens=16,
                     vision_feature_select_strategy="full",
                     chat_template=TILED_TEMPLATE.replace("MARK", "<image>"))  # fmt: skip


def _pixtral(folder: Path, kind: str, merge: int) -> Any:
    marks = ["[IMG]", "[IMG_BREAK]", "[IMG_END]"]
    save_tokenizer(folder, marks)
    vision = {**_sees(image_size=48), "model_type": "pixtral", "head_dim": 4}
    settings: dict[str, Any] = {
        "text_config": {**TEXT, "model_type": "mistral", "head_dim": 4},
        "vision_config": vision,
        "vision_feature_layer": -1,
    }
    token = ids_of(marks)["[IMG]"]
    if kind == "Llava":
        settings |= {"image_token_id": token, "vision_feature_select_strategy": "full"}
    else:
        settings |= {"image_token_index": token, "spatial_merge_size": merge}
    model = getattr(transformers, f"{kind}ForConditionalGeneration")(
        getattr(transformers, f"{kind}Config")(**settings)
    )
    pixels = {"image_processor_type": "PixtralImageProcessor", **SCALED, "patch_size": 4,
              "size": {"longest_edge": 48}}  # fmt: skip
    return _finished(folder, model, "PixtralProcessor", pixels, patch_size=4,
                     spatial_merge_size=merge,
                     chat_template=TILED_TEMPLATE.replace("MARK", "[IMG]"))  # fmt: skip


def pixtral(folder: Path) -> Any:
    return _pixtral(folder, "Llava", 1)


def mistral3(folder: Path) -> Any:
    return _pixtral(folder, "Mistral3", 2)


def idefics2(folder: Path) -> Any:
    """What the language model gets of a picture are 16 learned queries' outputs, not patches."""
    marks = ["<image>", "<fake_token_around_image>", "<end_of_utterance>"]
    save_tokenizer(folder, marks)
    perceiver = {"resampler_n_latents": 16, "resampler_depth": 2, "resampler_n_heads": 2,
                 "resampler_head_dim": 8, "num_key_value_heads": 1, "hidden_size": 16}  # fmt: skip
    config = transformers.Idefics2Config(
        text_config={**TEXT, "model_type": "mistral", "head_dim": 4},
        vision_config=_sees(image_size=32),
        perceiver_config=perceiver,
        image_token_id=ids_of(marks)["<image>"],
    )
    pixels = {"image_processor_type": "Idefics2ImageProcessor", **SCALED, "do_pad": True,
              "do_image_splitting": False,
              "size": {"shortest_edge": 32, "longest_edge": 32}}  # fmt: skip
    model = transformers.Idefics2ForConditionalGeneration(config)
    torch.nn.init.normal_(model.model.connector.perceiver_resampler.latents)
    return _finished(folder, model, "Idefics2Processor", pixels, image_seq_len=16,
                     chat_template=TILED_TEMPLATE.replace("MARK", "<image>"))  # fmt: skip


def llava_next(folder: Path) -> Any:
    marks = ["<image>"]
    save_tokenizer(folder, marks)
    pinpoints = [[16, 32], [32, 16], [32, 32], [16, 48], [48, 16]]
    config = transformers.LlavaNextConfig(
        text_config={**TEXT, "model_type": "llama"},
        vision_config={**_sees(), "model_type": "clip_vision_model"},
        image_token_index=ids_of(marks)["<image>"],
        image_grid_pinpoints=pinpoints,
        vision_feature_layer=-1,
    )
    pixels = {"image_processor_type": "LlavaNextImageProcessor", **SCALED,
              "size": {"shortest_edge": 16}, "crop_size": {"height": 16, "width": 16},
              "image_grid_pinpoints": pinpoints}  # fmt: skip
    model = transformers.LlavaNextForConditionalGeneration(config)
    return _finished(folder, model, "LlavaNextProcessor", pixels, patch_size=4,
                     vision_feature_select_strategy="default", num_additional_image_tokens=1,
                     chat_template=TILED_TEMPLATE.replace("MARK", "<image>"))  # fmt: skip


FAMILIES = {
    "idefics2": idefics2, "llava_next": llava_next, "qwen2_vl": qwen2_vl, "qwen2_5_vl": qwen2_5_vl,
    "qwen3_vl": qwen3_vl, "gemma3": gemma3, "internvl": internvl, "idefics3": idefics3,
    "smolvlm": smolvlm, "llava_onevision": llava_onevision, "pixtral": pixtral,
    "mistral3": mistral3,
}  # fmt: skip


def build(family: str, folder: Path) -> Any:
    """Save a tiny model of a family with its tokenizer and processor; the model."""
    torch.manual_seed(0)
    return FAMILIES[family](folder)


def _finished(
    folder: Path, model: Any, processor: str, pixels: dict[str, Any], chat_template: str, **own: Any
) -> Any:
    """Draw weights far enough apart, and write model and processor."""
    uneven(model, GAIN).eval().save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(pixels))
    (folder / "processor_config.json").write_text(json.dumps({"processor_class": processor, **own}))
    (folder / "chat_template.jinja").write_text(chat_template)
    return model
