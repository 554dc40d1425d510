"""Tiny random checkpoints of many families, written by transformers itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnviz.core import arrays
from attnviz.core.capture import Capture
from attnviz.core.heads import Site, SiteKind
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.source import ForwardRequest, Output, Rows, Source
from attnviz.core.tokens import Sides, Tokens

transformers = pytest.importorskip("transformers")

VOCABULARY, LONGEST, WINDOW = 41, 32, 4
SHORT, LONG = (5, 9, 2, 31, 17, 12, 3), (7, 21, 30, 4, 18, 11, 5, 27, 33, 14, 8, 39, 26)
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}

SIZES = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24,
    "vocab_size": VOCABULARY, "max_position_embeddings": LONGEST, **SPECIAL,
}  # fmt: skip
GROUPED = {**SIZES, "num_key_value_heads": 2}
NARROW = {**GROUPED, "head_dim": 4}
TWO_STACKS = {
    "d_model": 16, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24,
    "vocab_size": VOCABULARY, "max_position_embeddings": LONGEST, "forced_eos_token_id": None,
    "decoder_start_token_id": 2, **SPECIAL,
}  # fmt: skip

HOOKED: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", SIZES),
    "roberta": ("Roberta", SIZES),
    "distilbert": (
        "DistilBert",
        {
            "dim": 16, "n_layers": 2, "n_heads": 4, "hidden_dim": 24, "vocab_size": VOCABULARY,
            "max_position_embeddings": LONGEST, "pad_token_id": 0,
        },
    ),
    "electra": ("Electra", {**SIZES, "embedding_size": 8}),
    "albert": ("Albert", {**SIZES, "num_hidden_layers": 3, "embedding_size": 8}),
    "gpt2": (
        "GPT2",
        {
            "n_embd": 16, "n_layer": 2, "n_head": 4, "vocab_size": VOCABULARY,
            "n_positions": LONGEST, **SPECIAL,
        },
    ),
    "llama": ("Llama", GROUPED),
    "qwen2": ("Qwen2", GROUPED),
    "qwen3": ("Qwen3", NARROW),
    "mistral": ("Mistral", {**NARROW, "sliding_window": WINDOW}),
    "gemma2": (
        "Gemma2",
        {
            **NARROW,
            "sliding_window": WINDOW,
            "attn_logit_softcapping": 2.0,
            "query_pre_attn_scalar": 4,
        },
    ),
    "gemma3": ("Gemma3Text", {**NARROW, "sliding_window": WINDOW, "query_pre_attn_scalar": 4}),
    "olmo2": ("Olmo2", GROUPED), "gpt_neox": ("GPTNeoX", SIZES), "phi": ("Phi", GROUPED),
    "cohere": ("Cohere", {**GROUPED, "logit_scale": 0.3}),
    "granite": ("Granite", {**GROUPED, "logits_scaling": 3.0, "residual_multiplier": 0.4}),
    "gpt_oss": (
        "GptOss",
        {**NARROW, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": WINDOW},
    ),
    "opt": ("OPT", {**SIZES, "ffn_dim": 24, "word_embed_proj_dim": 16}),
    "deepseek_v3": (
        "DeepseekV3",
        {
            **SIZES, "num_key_value_heads": 4, "q_lora_rank": 8, "kv_lora_rank": 8,
            "qk_rope_head_dim": 4, "qk_nope_head_dim": 6, "v_head_dim": 5, "n_routed_experts": 4,
            "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "moe_intermediate_size": 8,
            "first_k_dense_replace": 1,
        },
    ),
    "lfm2": ("Lfm2", {**GROUPED, "layer_types": ["conv", "full_attention"]}),
    "modernbert": (
        "ModernBert",
        {
            **SIZES, "local_attention": WINDOW, "global_attn_every_n_layers": 2, "cls_token_id": 1,
            "sep_token_id": 2,
        },
    ),
    "t5": (
        "T5",
        {
            "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_decoder_layers": 3,
            "num_heads": 4, "vocab_size": VOCABULARY, "pad_token_id": 0, "eos_token_id": 1,
            "decoder_start_token_id": 0,
        },
    ),
    "bart": ("Bart", TWO_STACKS),
    "marian": ("Marian", {**TWO_STACKS, "decoder_start_token_id": 0}),
}  # fmt: skip
EAGER: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt_neo": (
        "GPTNeo",
        {
            "hidden_size": 16, "num_layers": 2, "num_heads": 4,
            "attention_types": [[["global", "local"], 1]], "window_size": WINDOW,
            "vocab_size": VOCABULARY, "max_position_embeddings": LONGEST, **SPECIAL,
        },
    ),
    "deberta_v2": (
        "DebertaV2",
        {**SIZES, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    ),
    "bloom": (
        "Bloom",
        {"hidden_size": 16, "n_layer": 2, "n_head": 4, "vocab_size": VOCABULARY, **SPECIAL},
    ),
    "xlnet": (
        "XLNet",
        {"d_model": 16, "n_layer": 2, "n_head": 4, "d_inner": 24, "vocab_size": VOCABULARY},
    ),
    "falcon": ("Falcon", {**SIZES, "new_decoder_architecture": True, "num_kv_heads": 2}),
}  # fmt: skip
FAMILIES = {**HOOKED, **EAGER}
SEQ2SEQ = ("t5", "bart", "marian")
GAIN = {"t5": 1.0}  # weights large enough for attention to be uneven

WORDLESS = ("distilbert", "albert")
"""Who has no LM head that is built here."""
HEADS = {"bert": "MaskedLM", "modernbert": "MaskedLM", "deberta_v2": "MaskedLM"}
"""Whose LM head is not the usual one."""

Folders = Callable[..., Path]


def build(family: str, folder: Path, gain: float | None = None, *, words: bool = False) -> None:
    """Save a tiny model of a family, with its LM head or (but for two stacks) without."""
    name, sizes = FAMILIES[family]
    config = getattr(transformers, f"{name}Config")(**sizes)
    torch.manual_seed(0)
    kind = "AutoModel"
    if family in SEQ2SEQ:
        kind = "AutoModelForSeq2SeqLM"
    elif words:
        kind = f"AutoModelFor{HEADS.get(family, 'CausalLM')}"
    model = getattr(transformers, kind).from_config(config)
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            parameter.data *= gain or GAIN.get(family, 12.0)
        elif words or "sinks" in name:  # biases are zero and normalizations one otherwise
            parameter.data += torch.randn_like(parameter) / 4
    for name, buffer in model.named_buffers():
        if "final_logits_bias" in name:
            buffer.normal_()
    model.save_pretrained(folder)


def uneven(model: Any, gain: float = 8.0) -> Any:
    """Make a random model's matrices larger, so that its attention is uneven."""
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data *= gain
    return model


def hooked_only(source: Source) -> None:
    """Skip where an older transformers does not let this family be hooked."""
    if source.info.backend != "hooked":
        pytest.skip(source.info.reason)


def tiny(family: str, loaded: Callable[..., Any]) -> Any:
    """A family's model, hooked, with weights small enough for slopes and sums to be told."""
    source = loaded(family, GAIN.get(family, 3.0))
    hooked_only(source)
    return source


def inputs_of(source: Source, ids: tuple[int, ...], target: tuple[int, ...]) -> Inputs:
    """Ids as a prompt; of two stacks the decoder's as well."""
    one, other = (Tokens(tuple(map(str, row)), row) for row in (ids, target))
    if len(source.layout.kinds) == 1:
        return source.prepare(Prompt(ids=ids))
    sides = {"encoder": Sides(one, one), "decoder": Sides(other, other), "cross": Sides(other, one)}
    return Inputs(sides)


def same_maps(found: Capture, attentions: Any, kind: Any = "", within: float = 2e-6) -> None:
    """The first text's maps are those that transformers gives, [B, H, T, S] of each layer."""
    for number, weights in enumerate(attentions):
        own = found.maps[Site(kind or found.layout.kinds[0], number)]
        np.testing.assert_allclose(own, weights[0].numpy(), rtol=0, atol=within)


class Blocks:
    """Keeps the blocks of every layer."""

    def __init__(self) -> None:
        self.by_site: dict[Site, list[Rows]] = {}

    def observe(self, rows: Rows) -> None:
        rows = replace(rows, weights=rows.weights.clone())
        self.by_site.setdefault(rows.site, []).append(rows)

    def outputs(self, site: Site) -> torch.Tensor:
        """Σ α v of every head, [B, H, T, d_v]."""
        pairs = [(rows.weights, rows.values) for rows in self.by_site[site]]
        return torch.cat(
            [w @ v.repeat_interleave(w.shape[1] // v.shape[1], 1) for w, v in pairs], 2
        )


class Watcher:
    """Puts the blocks of each site together: weights and allowed keys, [B, H, T, S]."""

    def __init__(self, batch: Sequence[Any]) -> None:
        self.batch = batch
        self.weights: dict[Site, torch.Tensor] = {}
        self.allowed: dict[Site, torch.Tensor] = {}
        self.count = 0

    def observe(self, rows: Rows) -> None:
        self.count += 1
        given = arrays.to_torch(rows.weights)
        size = (*given.shape[:2], *self.longest(rows.site.kind))
        weights = self.weights.setdefault(rows.site, given.new_zeros(size))
        allowed = self.allowed.setdefault(rows.site, torch.zeros(size, dtype=torch.bool))
        queries = slice(rows.start, rows.start + given.shape[2])
        keys = slice(rows.key_start, rows.key_start + given.shape[3])
        weights[:, :, queries, keys] = given
        seen = True if rows.allowed is None else arrays.to_torch(rows.allowed)
        allowed[:, :, queries, keys] = seen

    def longest(self, kind: SiteKind) -> tuple[int, int]:
        sides = [inputs.sides[kind] for inputs in self.batch]
        return max(len(s.queries) for s in sides), max(len(s.keys) for s in sides)


def ran(source: Source, batch: Any, observers: Any = (), **asked: Any) -> Output:
    """A pass in which something is changed, or of which more is asked."""
    return source.forward(batch, observers, ForwardRequest(**asked))
