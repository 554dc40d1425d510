"""Folders of models with the true shapes of published ones, and random weights in them.

No hub is asked: the configurations stand here, the tokenizer is a bundled model's, with a mask
where the model needs one. Weights are written tensor by tensor, in files of about a gigabyte, so
that no model stands in memory.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from attnviz.models.demo import DEMOS

_SHARD = 1 << 30


@dataclass(frozen=True)
class Shape:
    """One published model.

    Attributes:
        name: as on its card.
        kind: the transformers class that it is, with its LM head.
        config: what its configuration says that differs from the class's own.
        dtype: in which precision it is stored.
        passes: how often the plain pass and ours are timed in turn.
        norm: what weights of normalizations are about; 0 where the model adds 1 to them.
        tokens: T of the long text of ``heads`` and ``spans``.
        lines: how many texts of 60 words ``profile`` and ``ablate`` run.
    """

    name: str
    kind: str
    config: dict[str, Any]
    dtype: str = "bfloat16"
    passes: int = 3
    norm: float = 1.0
    tokens: int = 1024
    lines: int = 8


_LLAMA3 = {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "rope_type": "llama3"}
_LLAMA3 |= {"original_max_position_embeddings": 8192, "rope_theta": 500000.0}

SHAPES = {
    shape.name: shape
    for shape in (
        Shape(
            "SmolLM2-135M",
            "LlamaForCausalLM",
            {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30}
            | {"num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152}
            | {"max_position_embeddings": 8192, "tie_word_embeddings": True}
            | {"rope_parameters": {"rope_type": "default", "rope_theta": 100000.0}},
        ),
        Shape("ModernBERT-base", "ModernBertForMaskedLM", {}, "float32"),
        Shape(
            "GPT-2 medium",
            "GPT2LMHeadModel",
            {"n_embd": 1024, "n_layer": 24, "n_head": 16, "n_positions": 1024},
            "float32",
        ),
        Shape(
            "Qwen2.5-0.5B",
            "Qwen2ForCausalLM",
            {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24}
            | {"num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936}
            | {"max_position_embeddings": 32768, "tie_word_embeddings": True}
            | {"rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}},
        ),
        Shape(
            "Gemma-3-1B",
            "Gemma3ForCausalLM",
            {"hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 26}
            | {"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256}
            | {"vocab_size": 262144, "sliding_window": 512, "query_pre_attn_scalar": 256}
            | {"max_position_embeddings": 32768, "tie_word_embeddings": True},
            passes=1,
            norm=0.0,
        ),
        Shape(
            "Llama-3.2-1B",
            "LlamaForCausalLM",
            {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16}
            | {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64}
            | {"vocab_size": 128256, "max_position_embeddings": 131072}
            | {"tie_word_embeddings": True, "rope_parameters": _LLAMA3},
            passes=1,
        ),
        Shape(
            "Llama-3.1-8B",
            "LlamaForCausalLM",
            {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32}
            | {"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256}
            | {"max_position_embeddings": 131072, "tie_word_embeddings": False}
            | {"rope_parameters": _LLAMA3 | {"factor": 8.0}},
            passes=1,
            tokens=128,
            lines=2,
        ),
    )
}
"""From the smallest to the largest; the last needs 18 GB and is measured where it is named."""


def write(shape: Shape, folder: Path) -> int:
    """Write a model's folder, unless it is there; returns the bytes of its weights."""
    if not (folder / "config.json").exists():
        _write(shape, folder)
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def _write(shape: Shape, folder: Path) -> None:
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    kind = getattr(transformers, shape.kind)
    config = kind.config_class(**shape.config)
    config.architectures, config.dtype = [shape.kind], shape.dtype
    with torch.device("meta"):
        model = kind(config)
    tied = set(model.all_tied_weights_keys) if hasattr(model, "all_tied_weights_keys") else set()
    torch.manual_seed(0)
    shard: dict[str, torch.Tensor] = {}
    where: dict[str, str] = {}
    held = number = 0
    for name, tensor in model.state_dict().items():
        if name in tied:
            continue
        shard[name] = _drawn(name, tensor.shape, shape.norm).to(getattr(torch, shape.dtype))
        held += shard[name].nbytes
        where[name] = _file(number)
        if held >= _SHARD:
            save_file(shard, folder / _file(number), {"format": "pt"})
            shard, held, number = {}, 0, number + 1
    if shard:
        save_file(shard, folder / _file(number), {"format": "pt"})
    index = {"metadata": {}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DEMOS["demo-bert" if "Masked" in shape.kind else "demo-gpt2"] / name, folder)
    config.save_pretrained(folder)


def _file(number: int) -> str:
    return f"model-{number:05d}.safetensors"


def _drawn(name: str, size: torch.Size, norm: float) -> torch.Tensor:
    """As before training: normalizations about ``norm``, biases about 0, the rest N(0, 0.02)."""
    drawn = torch.empty(size).normal_(0, 0.02)
    is_norm = len(size) == 1 and name.endswith("weight")
    return drawn + norm if is_norm else drawn
