"""Every family of text models that the installed transformers has, tiny and with random weights.

Each is built from its configuration's class: sizes that families share have the same names, and
:data:`PARTICULAR` holds the others. Whatever transformers itself runs must run here: maps equal
those that its eager attention returns, and heads and logits give a result or a reason in one line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.core.prompt import Prompt
from attnviz.errors import AttnvizError
from attnviz.models.configs.model import layout_of
from attnviz.scoring.observe import Recorder
from tests.models.tiny import inputs_of, transformers, uneven

auto = pytest.importorskip("transformers.models.auto.modeling_auto")

MAPPINGS = {
    "CausalLM": auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "MaskedLM": auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    "Seq2SeqLM": auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
}
VERSION = tuple(int(part) for part in transformers.__version__.split(".")[:2])
IDS, TARGET = (5, 9, 12, 31, 17, 22, 33, 40, 12), (1, 7, 21, 30, 4)
WIDTH, HEADS, VOCABULARY, LONGEST = 32, 4, 97, 64
LARGEST = 30_000_000
"""Numbers of a model that is built at all."""


def listed(names: str) -> frozenset[str]:
    return frozenset(names.split())


def named(size: int, names: str) -> dict[str, int]:
    return dict.fromkeys(names.split(), size)


SIZES: dict[str, int] = {
    **named(
        WIDTH,
        "hidden_size d_model n_embd dim emb_dim attention_hidden_size embedding_size embedding_dim "
        "word_embed_proj_dim input_embedding_size output_embedding_size hidden_dim lru_width "
        "pooler_hidden_size true_hidden_size intra_bottleneck_size",
    ),
    **named(
        HEADS,
        "num_attention_heads n_head n_heads num_heads encoder_attention_heads attention_heads "
        "decoder_attention_heads num_encoder_attention_heads num_decoder_attention_heads "
        "linear_num_key_heads linear_num_value_heads linear_num_heads swa_num_attention_heads "
        "index_n_heads num_experts n_routed_experts num_local_experts moe_num_experts",
    ),
    **named(2, "num_key_value_heads num_kv_heads swa_num_key_value_heads num_query_groups"),
    **named(
        WIDTH // HEADS,
        "head_dim dim_head d_kv d_head linear_key_head_dim linear_value_head_dim kv_channels "
        "swa_head_dim linear_head_dim index_head_dim v_head_dim qk_nope_head_dim "
        "sliding_window window_size local_attention sliding_window_size attention_window_size "
        "keep_window_size attention_chunk_size mamba_d_state mamba_chunk_size mamba_n_heads "
        "mamba_d_head hidden_size_per_layer_input",
    ),
    **named(4, "qk_rope_head_dim rotary_dim"),
    "qk_head_dim": WIDTH // HEADS + 4,
    **named(
        2,
        "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers "
        "num_encoder_layers num_decoder_layers num_layers_per_stack num_blocks",
    ),
    **named(
        48,
        "intermediate_size ffn_dim d_ff dim_ff dff encoder_ffn_dim decoder_ffn_dim d_inner "
        "ffn_hidden_size moe_intermediate_size shared_expert_intermediate_size feed_forward_size "
        "shared_intermediate_size intermediate_size_mlp expert_ffn_hidden_size "
        "dense_intermediate_size moe_shared_expert_intermediate_size "
        "shared_experts_intermediate_size",
    ),
    **named(
        1,
        "num_experts_per_tok num_experts_per_token moe_topk moe_k topk_group n_group "
        "num_expert_group first_k_dense_replace mamba_n_groups",
    ),
    **named(16, "kv_lora_rank q_lora_rank o_lora_rank adapter_rank"),
    **named(
        VOCABULARY,
        "vocab_size vocab_size_per_layer_input src_vocab_size tgt_vocab_size decoder_vocab_size "
        "entity_vocab_size unpadded_vocab_size",
    ),
    **named(
        LONGEST,
        "max_position_embeddings n_positions n_ctx max_seq_len max_source_positions "
        "max_target_positions max_encoder_position_embeddings max_decoder_position_embeddings "
        "context_length model_max_length mamba_d_ssm",
    ),
    **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1},
}
PARTICULAR: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_dt_rank": 4},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"]},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "esmc": {"num_key_value_heads": HEADS}, "dots3_note_text": {"num_key_value_heads": HEADS},
    **{name: {"head_dim": 8} for name in ("hunyuan_v1_dense", "hunyuan_v1_moe", "ministral")},
    "nemotron": {"head_dim": 8, "num_key_value_heads": 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "esm": {"vocab_size": VOCABULARY, "pad_token_id": 0, "mask_token_id": 4},
    "dots1": {"n_routed_experts": 4, "num_experts_per_tok": 1, "n_shared_experts": 1},
    "deepseek_v2": {"num_experts_per_tok": 1}, "gemma3n_text": {"num_kv_shared_layers": 0},
    "mamba2": {"num_heads": 8, "head_dim": 8}, "neomme": {"head_dim": 16},
    "xmod": {"default_language": "en_XX", "languages": ["en_XX"]},
    "led": {"attention_window": [8, 8]},
    "perceiver": {"d_latents": WIDTH, "d_model": WIDTH, "num_latents": 8},
}  # fmt: skip
"""Settings that no rule finds, by family."""

UNBUILT = listed(
    "blt cohere_compass_text dbrx dots3_note dots3_note_text gemma3n gemma4_assistant "
    "gemma4_unified_assistant longcat_flash musicgen musicgen_melody nemo_speechlm qwen4_exp "
    "qwen4_exp_text reformer vibevoice_asr voxtral_realtime zamba zamba2"
)
"""Families that transformers 5.23 does not run from such sizes and ids alone."""

WITHOUT_SINKS = ("granite_swa", "granitemoe_swa")
"""Families whose eager attention returns weights as if there were no learned sinks."""

QUICK = listed(
    "apertus cwm exaone4 exaone_moe gemma3_text glm glm4 hy_v3 jamba kolibri1 longt5 minimax "
    "nanochat qwen3_next"
)
"""In the ordinary suite: families whose states are not contiguous, that end a text with one of
several tokens, or whose layers partly have no attention."""


def families() -> list[Any]:
    return [
        pytest.param(kind, family, id=f"{family}-{kind}",
                     marks=() if family in QUICK else (pytest.mark.slow,))
        for kind, names in MAPPINGS.items()
        for family in sorted(names)
    ]  # fmt: skip


def tiny(family: str, default: Any) -> Any:
    """A small configuration of the class of a default one, and of its parts."""
    kind = type(default)
    changes: dict[str, Any] = {}
    for name, value in vars(default).items():
        ends = name == "eos_token_id" and isinstance(value, list)
        if name in SIZES and type(value) is int and value:
            changes[name] = SIZES[name]
        elif ends:
            changes[name] = [SIZES[name], 3]
    if "kv_lora_rank" in changes:  # multi-head latent attention
        changes |= {"num_key_value_heads": HEADS, "head_dim": SIZES["qk_rope_head_dim"]}
    layers = vars(default).get("layer_types")
    if isinstance(layers, list):
        kinds = list(dict.fromkeys(layers))
        changes["layer_types"] = (kinds * 2)[: max(2, len(kinds))]
        changes["num_hidden_layers"] = len(changes["layer_types"])
    for part in kind.sub_configs:
        inner = getattr(default, part, None)
        if inner is not None:
            changes[part] = tiny(inner.model_type, inner).to_dict()
    return kind(**changes | PARTICULAR.get(family, {}))


@cache
def build(kind: str, family: str) -> Any:
    """The model, its weights random and large enough for attention to be uneven."""
    config = tiny(family, transformers.CONFIG_MAPPING[family]())
    maker = getattr(transformers, f"AutoModelFor{kind}")
    with torch.device("meta"):
        count = sum(weight.numel() for weight in maker.from_config(config).parameters())
    if count > LARGEST:
        raise ValueError(f"{count:,} numbers: some size is not among those that are made small")
    torch.manual_seed(0)
    return uneven(maker.from_config(config, attn_implementation="eager").eval(), 3)


load = cache(av.load)


def returned(model: Any) -> Mapping[str, Any]:
    """What the model gives with its own eager attention."""
    inputs = {"input_ids": torch.tensor([IDS])}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = torch.tensor([TARGET])
    with torch.no_grad():
        output: Mapping[str, Any] = model(
            **inputs, output_attentions=True, use_cache=False, return_dict=True
        )
    return output


def refused(ask: Callable[[], object]) -> str:
    """What our error says, one line; empty where there is none, and any other one is a bug."""
    try:
        ask()
    except AttnvizError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("kind", "family"), families())
@pytest.mark.filterwarnings("ignore")
def test_maps_are_eagers_and_what_is_not_known_has_a_reason(kind: str, family: str) -> None:
    fault = ""
    try:
        model = build(kind, family)
        eager = returned(model)
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"[:200]
    if fault:
        assert family in UNBUILT or VERSION != (5, 23), fault
        pytest.skip(f"transformers itself: {fault}")
    if reason := refused(lambda: load(model)):
        assert "gives no attention weights" in reason
        assert "\n" not in reason
        return
    source = load(model)
    assert layout_of(model.config.to_dict()) in (None, source.layout)
    inputs = inputs_of(source, IDS, TARGET)
    recorder = Recorder([inputs], frozenset(source.layout))
    source.forward([inputs], [recorder])
    two = model.config.is_encoder_decoder
    for side in source.layout.kinds:
        shape = (len(inputs.sides[side].queries), len(inputs.sides[side].keys))
        whole = eager[f"{side}_attentions" if two else "attentions"]
        theirs = [w[0] for w in whole if w is not None and w.shape[2:] == shape]
        ours = [weights for site, weights in recorder.maps().items() if site.kind == side]
        assert len(ours) == len(theirs)
        for weights, native in zip(ours, theirs, strict=True):
            whole = weights.sum(-1, keepdims=True) if family in WITHOUT_SINKS else 1.0
            np.testing.assert_allclose(weights / whole, native, rtol=0, atol=1e-5)
    prompt = Prompt(ids=IDS)
    assert "\n" not in refused(lambda: av.heads(prompt, model=source))
    assert "\n" not in refused(lambda: av.logits(prompt, model=source))


@pytest.mark.parametrize(
    ("kind", "family", "left_out"),
    [
        ("CausalLM", "minimax", "layers without weights from token to token are left out"),
        (
            "Seq2SeqLM",
            "longt5",
            "encoder attention is not from token to token and left out: load the encoder alone to "
            "see it",
        ),
    ],
)
def test_layers_that_return_something_else_are_told_and_the_others_compared(
    kind: str, family: str, left_out: str
) -> None:
    """Beside one such layer no other was compared, as if eager attention returned nothing."""
    exactness = load(build(kind, family)).info.exactness
    assert exactness.startswith("hooked, max |Δ| ")
    assert exactness.endswith(left_out)


@pytest.mark.filterwarnings("ignore")
def test_the_heads_of_a_hybrid_are_ablated() -> None:
    """Its first layer has no attention, and so no fills that could stand near its outputs."""
    model = build("CausalLM", "qwen3_next")
    result = av.ablate(Prompt(ids=IDS), model=load(model), method="zero")
    assert [effect.name for effect in result.effects] == ["1.0", "1.1", "1.2", "1.3"]
    assert all(effect.first.apart == 1 for effect in result.effects)
