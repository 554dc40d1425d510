"""Tiny random checkpoints of models that see or hear, written by transformers, with processors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.models.tiny import transformers, uneven

SIDE, PATCH = 32, 8
STACK = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24,
}  # fmt: skip
SEES = {**STACK, "image_size": SIDE, "patch_size": PATCH}
HEARS = {
    **STACK, "conv_dim": [8, 8], "conv_kernel": [10, 3], "conv_stride": [40, 8],
    "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2,
    "vocab_size": 12,
}  # fmt: skip
WRITES = {
    "d_model": 16, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "vocab_size": 41,
    "num_mel_bins": 8, "max_source_positions": 100, "max_target_positions": 16, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3,
}  # fmt: skip
SCALED = {
    "do_resize": True, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
    "image_mean": [0.48, 0.45, 0.4], "image_std": [0.27, 0.26, 0.28],
}  # fmt: skip
WHOLE = {**SCALED, "size": {"height": SIDE, "width": SIDE}}
CROPPED = {
    **SCALED,
    "size": {"shortest_edge": 40},
    "do_center_crop": True,
    "crop_size": {"height": SIDE, "width": SIDE},
}
RAW = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "sampling_rate": 16000}

Entry = tuple[str, dict[str, Any], dict[str, Any]]

PICTURES: dict[str, Entry] = {
    "vit": ("ViT", SEES, {"image_processor_type": "ViTImageProcessor", **WHOLE}),
    "deit": ("DeiT", SEES, {"image_processor_type": "DeiTImageProcessor", **CROPPED}),
    "dinov2": ("Dinov2", SEES, {"image_processor_type": "BitImageProcessor", **CROPPED}),
    "dinov2_with_registers": (
        "Dinov2WithRegisters",
        {**SEES, "num_register_tokens": 3},
        {"image_processor_type": "BitImageProcessor", **CROPPED},
    ),
    "beit": (
        "Beit",
        {**SEES, "use_relative_position_bias": True},
        {"image_processor_type": "BeitImageProcessor", **WHOLE},
    ),
    "clip": (
        "CLIP",
        {
            "vision_config": SEES,
            "text_config": {
                **STACK, "vocab_size": 41, "max_position_embeddings": 16, "pad_token_id": 0,
                "bos_token_id": 1, "eos_token_id": 2,
            },
        },
        {"image_processor_type": "CLIPImageProcessor", **CROPPED},
    ),
    "siglip": (
        "Siglip",
        {
            "vision_config": SEES,
            "text_config": {**STACK, "vocab_size": 41, "max_position_embeddings": 16},
        },
        {"image_processor_type": "SiglipImageProcessor", **WHOLE},
    ),
}  # fmt: skip
SOUNDS: dict[str, Entry] = {
    "wav2vec2": ("Wav2Vec2", HEARS, RAW),
    "hubert": ("Hubert", HEARS, RAW),
    "audio-spectrogram-transformer": (
        "AST",
        {
            **STACK, "patch_size": 8, "frequency_stride": 6, "time_stride": 6, "max_length": 60,
            "num_mel_bins": 20,
        },
        {
            "feature_extractor_type": "ASTFeatureExtractor",
            "sampling_rate": 16000,
            "num_mel_bins": 20,
            "max_length": 60,
        },
    ),
    "whisper": (
        "Whisper",
        WRITES,
        {
            "feature_extractor_type": "WhisperFeatureExtractor", "sampling_rate": 16000,
            "feature_size": 8, "hop_length": 160, "chunk_length": 2, "n_fft": 400,
        },
    ),
}  # fmt: skip
SENSING = {**PICTURES, **SOUNDS}
GAIN = 6.0


def build(family: str, folder: Path, **changes: Any) -> None:
    """Save a tiny model of a family with its processor; ``changes`` are of its configuration."""
    name, sizes, processor = SENSING[family]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**{**sizes, **changes})
    kind = f"{name}ForConditionalGeneration" if family == "whisper" else f"{name}Model"
    uneven(getattr(transformers, kind)(config), GAIN).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))


WORDS = ["<unk>", "<s>", "</s>", "<image>", "what", "is", "this", "a", "house", "sun", "tree", "?"]


def build_llava(folder: Path, text: str = "llama") -> Any:
    """Save a tiny vision-language model that writes as Llama or OPT do; its processor."""
    words = Tokenizer(models.WordLevel({w: n for n, w in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=["<image>"],
    )
    sizes = {**STACK, "vocab_size": 41, "max_position_embeddings": 64}
    reads: Any = (
        transformers.OPTConfig(
            **sizes, ffn_dim=24, word_embed_proj_dim=16, tie_word_embeddings=False
        )
        if text == "opt"
        else transformers.LlamaConfig(**sizes, num_key_value_heads=2)
    )
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**SEES), text_config=reads, image_token_id=3,
        image_seq_length=16, tie_word_embeddings=False, vision_feature_layer=-1,
    )  # fmt: skip
    torch.manual_seed(0)
    uneven(transformers.LlavaForConditionalGeneration(config), GAIN).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(
        json.dumps({"image_processor_type": "CLIPImageProcessor", **CROPPED})
    )
    processor = transformers.LlavaProcessor(
        image_processor=transformers.AutoImageProcessor.from_pretrained(folder),
        tokenizer=tokenizer,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        image_token="<image>",
        num_additional_image_tokens=1,
    )
    processor.save_pretrained(folder)
    return processor
