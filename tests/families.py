"""Every decoder-only family of transformers, built tiny and random: what attnviz reads of it.

    python -m tests.families [FAMILY ...] > docs/families.md

Of each family that maps to a causal LM a model is built from its configuration with every size made
small, and loaded as any model is: whether maps are those of eager attention is measured there. Then
``logits`` splits a logit over heads, one head is ablated and compared with what the model gives
when W_O's columns of that head are zero, and linear layers are looked for.
"""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch

import attnviz as av
from attnviz.core.prompt import Prompt
from attnviz.core.source import ForwardRequest, Gate, Source
from attnviz.errors import AttnvizError
from attnviz.models.hooked.recurrences import States

IDS = (5, 9, 2, 31, 17, 12, 3, 9, 2, 31, 7)
SMALL: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "n_embed", "emb_dim", "dim"), 16),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 3),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads", "multi_query_group_num"), 2),
    **dict.fromkeys(("head_dim", "d_kv", "attention_head_dim", "rotary_dim"), 4),
    **dict.fromkeys(
        ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "d_ff", "dff"), 24
    ),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 8),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "n_group", "topk_group"), 1),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"), 64),
    **dict.fromkeys(("sliding_window", "window_size"), 4),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 8),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"), 4),
    **dict.fromkeys(("linear_num_value_heads", "linear_num_key_heads", "linear_num_heads"), 4),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "linear_head_dim"), 4),
    **dict.fromkeys(("mamba_n_heads", "mamba_num_heads"), 4),
    **dict.fromkeys(("mamba_d_head", "mamba_head_dim", "mamba_d_state", "ssm_state_size"), 8),
    **dict.fromkeys(("word_embed_proj_dim", "embedding_size"), 16),
    "index_topk": 5, "index_head_dim": 8, "index_n_heads": 4,
    "mamba_n_groups": 1, "n_groups": 1, "mamba_expand": 2, "mamba_chunk_size": 4, "block_size": 4,
    "vocab_size": 41, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "query_pre_attn_scalar": 4, "first_k_dense_replace": 1, "decoder_layers": 3,
    "decoder_attention_heads": 4, "decoder_ffn_dim": 24, "vocab_size_per_layer_input": 41,
    "hidden_size_per_layer_input": 4, "num_kv_shared_layers": 0, "alibi": False,
}  # fmt: skip


MORE: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1], "attn_rotary_emb": 2},
    "falcon_h1": {"mamba_d_ssm": 32, "mamba_n_groups": 1},
    "nemotron_h": {"layers_block_type": ["mamba", "attention", "mlp"]},
    "kimi_linear": {"mlp_layer_types": ["dense"] * 3, "num_key_value_heads": 4},
    "mpt": {"expansion_ratio": 2},
    "bailing_hybrid": {"num_expert_group": 1, "num_experts_per_token": 1, "num_key_value_heads": 4,
                       "mlp_layer_types": ["dense"] * 3},
    "blenderbot": {"encoder_layers": 3},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 1e4},
             "ffn_config": {"ffn_hidden_size": 24, "moe_num_experts": 4, "moe_top_k": 1}},
    "dory": {"num_hidden_layers": 6, "n_input_layers": 2, "n_recurrent_layers": 2,
             "n_output_layers": 2,
             "layer_types": ["sliding_attention", "mlp", "full_attention", "mlp",
                             "sliding_attention", "mlp"]},
    "dots1": {"n_shared_experts": 1, "n_routed_experts": 4, "num_experts_per_tok": 1},
    "falcon_mamba": {"intermediate_size": 32, "state_size": 4, "time_step_rank": 2},
    "gpt_neo": {"attention_types": [[["global", "local"], 1], [["global"], 1]]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention", "mamba"],
                         "shared_intermediate_size": 24},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "mamba_dt_rank": 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "conv"], "num_dense_layers": 1},
    "longcat_flash": {"moe_topk": 2, "zero_expert_num": 2, "expert_ffn_hidden_size": 8,
                      "qk_head_dim": 8},
    "mamba": {"intermediate_size": 32, "state_size": 4, "time_step_rank": 2},
    "mamba2": {"num_heads": 4, "head_dim": 8, "state_size": 8, "expand": 2, "chunk_size": 4},
    "qwen4_exp_text": {"indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 4,
                       "indexer_budget": 4, "indexer_compress_ratio": 2, "hc_lowrank": 4},
    "rwkv": {"attention_hidden_size": 16, "intermediate_size": 24},
    "zamba": {"num_hidden_layers": 5, "attn_layer_period": 2, "attn_layer_offset": 1,
              "attention_hidden_size": 32, "attention_head_dim": 8, "mamba_dt_rank": 2,
              "num_key_value_heads": 4},
    "zamba2": {"num_hidden_layers": 4, "layers_block_type": ["mamba", "hybrid"] * 2,
               "hybrid_layer_ids": [1, 3], "attention_hidden_size": 32, "attention_head_dim": 8,
               "n_mamba_heads": 4, "mamba_headdim": 8, "kv_channels": 4, "num_query_groups": 4,
               "num_key_value_heads": 4, "adapter_rank": 2, "chunk_size": 4},
    "bert-generation": {"is_decoder": True},
}  # fmt: skip


def families() -> Iterator[tuple[str, Any]]:
    """Every family that maps to a causal LM and is no encoder, by name."""
    from transformers import CONFIG_MAPPING
    from transformers.models.auto import modeling_auto as auto

    causal: Any = auto.MODEL_FOR_CAUSAL_LM_MAPPING
    masked: Any = auto.MODEL_FOR_MASKED_LM_MAPPING
    for name in sorted(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        with contextlib.suppress(Exception):  # a class that this installation cannot import
            config = CONFIG_MAPPING[name]
            if config in causal and config not in masked:
                yield name, config


def built(config: Any, **more: Any) -> Any:
    """A tiny random model of a configuration's class, all of its vectors random too.

    Args:
        config: the class.
        more: further sizes, by their names.
    """
    from transformers import AutoModelForCausalLM

    sizes = sizes_of(config()) | more
    with torch.device("meta"):  # sizes of other names would fill the memory
        first = AutoModelForCausalLM.from_config(config(**sizes))
    if sum(p.numel() for p in first.parameters()) > 5_000_000:
        raise ValueError("its sizes have other names")
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config(**sizes)).eval()
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.4).add_(float(parameter.ndim < 2))
    return model.requires_grad_(False)


def sizes_of(default: Any) -> dict[str, Any]:
    """Small sizes for a configuration, and for those of its parts."""
    known = default.to_dict()
    sizes = {name: value for name, value in SMALL.items() if name in known}
    layers = known.get("layer_types")
    if isinstance(layers, list) and layers:
        kinds = list(dict.fromkeys(layers))
        sizes["layer_types"] = [*kinds[:2], kinds[0]] if len(kinds) > 1 else kinds * 3
    if "kv_lora_rank" in sizes:  # latent attention shares no keys
        sizes["num_key_value_heads"] = 4
    for name in default.sub_configs:
        part = getattr(default, name, None)
        if part is not None:
            sizes[name] = {"model_type": part.model_type} | sizes_of(part)
    return sizes | MORE.get(default.model_type, {})


def ablation(source: Source, model: Any) -> str:
    """One head ablated, and its rows of W_O set to zero: the largest difference of logits."""
    if source.no_gates:
        return "–"
    site = next(s for s in source.layout.sites if source.layout.heads[s.kind][s.layer])
    out = source.output(site)
    if out.weight is None:
        return "–"
    place = out.weight.data_ptr()  # some layers share one module
    alike = [s for s in source.layout.sites
             if (w := source.output(s).weight) is not None and w.data_ptr() == place]  # fmt: skip
    batch, share = [source.prepare(Prompt(ids=IDS))], torch.ones(len(out.weight))
    share[1] = 0
    request = ForwardRequest(gates={s: Gate(share) for s in alike}, logits=True)
    ours = source.forward(batch, (), request).logits
    if "norm" in out.held or ours is None:
        return "–"
    kept = out.weight[1].clone()
    out.weight[1] = 0  # a view of the model's own matrix
    try:
        theirs = model(torch.tensor([IDS])).logits
    finally:
        out.weight[1] = kept
    return f"{float((ours - theirs).abs().max()):.0e}"


def row(name: str, config: Any) -> list[str]:
    """What one family's line says: backend and maps, heads, logits, ablation, linear layers."""
    try:
        model = built(config)
    except Exception as error:  # of somebody else's code with sizes that it was not meant for
        return [
            name,
            f"not built: {str(error).strip().splitlines()[-1].strip()[:80]}",
            "",
            "",
            "",
            "",
        ]
    try:
        source = av.load(model)
    except AttnvizError as error:
        return [name, f"refused: {error}"[:120], "", "", "", ""]
    try:
        report = av.logits(Prompt(ids=IDS), position=-1, model=source)
        logits = report.reason or f"{abs((report.sum or 0) - report.whole):.0e}"
    except AttnvizError as error:
        logits = str(error)
    states: States | None = getattr(source, "_states", None)
    linear = "" if states is None or states.reason else f"{states.error:.0e}"
    exact = source.info.exactness.partition(";")[0].removeprefix("hooked, ")
    shown = f"{source.info.backend}: {exact}"
    return [name, shown, str(len(source.layout)), logits, ablation(source, model), linear]


def page(rows: list[list[str]], version: str) -> str:
    """The lines of all families below what they mean."""
    ran = sum(row[2] not in ("", "0") for row in rows)
    states = sum(row[2] == "0" for row in rows)
    split = sum(row[3].replace("e-", "").isdigit() for row in rows)
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    counts = {"all": len(rows), "ran": ran, "states": states, "split": split}
    return "\n".join([HEAD.format(version=version, **counts), *lines])


def main(names: list[str]) -> None:
    """Print the page."""
    import transformers

    warnings.simplefilter("ignore")
    rows = []
    for name, config in families():
        if names and name not in names:
            continue
        with contextlib.redirect_stderr(io.StringIO()):
            try:
                rows.append(row(name, config))
            except Exception as error:  # a bug of ours, which the page is to show
                said = f"**failed**: {type(error).__name__}: {error}"[:120]
                rows.append([name, said, *[""] * 4])
    print(page(rows, transformers.__version__))


HEAD = """# Families of transformers

Each family of transformers {version} that maps to a causal LM, built tiny and random from its
configuration and read like any model: `python -m tests.families` makes this page. {all} families,
of which {ran} are built and give attention; of these {split} have their logits split over heads.
{states} more have no attention, and layers with a state whose coefficients are shown. A family that
is not built has sizes under names that `tests/families.py` does not know, which says nothing about
it.

*maps*: the backend, and the largest difference of a weight from eager attention; *logits*: how far
the sum over heads, MLPs and embeddings is from the logit, or why there is none; *ablation*: a
head's output set to zero against its columns of W_O set to zero, the largest difference of logits;
*linear*: coefficients of a layer with a state times its values, against what the layer gave.

| family | maps | heads | logits | ablation | linear |
|---|---|---|---|---|---|"""


if __name__ == "__main__":
    main(sys.argv[1:])
