"""Every family of transformers that reads text, built tiny and random: what attnviz reads of it.

    python -m tests.families [FAMILY ...] > docs/families.md

Of every causal, masked and encoder-decoder family, of models without a head, of the text towers of
models such as CLIP and of models for tasks, maps are compared with eager attention on a text
without padding, on two texts in a batch and on a single token. Of each family that maps to a causal
LM, ``logits`` splits a logit over heads, one head is ablated and compared with what the model gives
when W_O's columns of that head are zero, and linear layers are looked for.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
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
    """A tiny random model of a configuration's class, all of its vectors random too."""
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
            name, f"not built: {str(error).strip().splitlines()[-1].strip()[:80]}", "", "", "", "",
        ]  # fmt: skip
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


TASKS = [
    "SplinterForQuestionAnswering", "LayoutLMForTokenClassification",
    "MarkupLMForQuestionAnswering", "BertForSequenceClassification", "BertForQuestionAnswering",
    "RobertaForTokenClassification", "DistilBertForQuestionAnswering", "ElectraForPreTraining",
    "DebertaV2ForTokenClassification", "ModernBertForTokenClassification",
    "EsmForTokenClassification", "TapasForQuestionAnswering", "LiltForTokenClassification",
    "MPNetForQuestionAnswering", "XLNetForSequenceClassification", "GPT2ForTokenClassification",
    "LlamaForTokenClassification", "Qwen3ForTokenClassification", "DPRQuestionEncoder",
    "T5EncoderModel", "UMT5EncoderModel", "CLIPTextModelWithProjection",
    "ClapTextModelWithProjection",
]  # fmt: skip
"""Models for tasks and encoders alone, by their classes."""

TEXTS = {
    "alone": ((5, 9, 12, 31, 17, 22, 33, 40, 12),),
    "padded": ((7, 21, 30, 4, 18, 11, 5, 27, 33, 14, 8), (6, 40, 13, 9)),
    "one": ((12,),),
}
"""Ids by column of the second table; the decoder reads those that follow 1."""


def text_models(names: list[str]) -> Iterator[tuple[str, str, Any]]:
    """Every model that reads text: its family, as what it was built, and how to build it."""
    import transformers
    from transformers.models.auto import modeling_auto as auto

    from attnviz.models.hooked.checkpoint import tower
    from tests.models.test_families import MAPPINGS, build, tiny
    from tests.models.tiny import uneven

    def made(kind: Any, config: Any) -> Any:
        build_one = getattr(kind, "from_config", None) or kind._from_config
        with torch.device("meta"):
            if sum(p.numel() for p in build_one(config).parameters()) > 30_000_000:
                raise ValueError("its sizes have other names")
        torch.manual_seed(0)
        return uneven(build_one(config, attn_implementation="eager").eval(), 3)

    known = set[str]()
    for kind, families in MAPPINGS.items():
        for family in sorted(families):
            known.add(family)
            if not names or family in names:
                yield family, kind, partial(build, kind, family)
    for family in sorted(auto.MODEL_MAPPING_NAMES):
        if family in known or (names and family not in names):
            continue
        with contextlib.suppress(Exception):  # a class that this installation cannot import
            config = tiny(family, transformers.CONFIG_MAPPING[family]())
            part, kind = tower(config, "text")
            if part is not config:
                yield family, "text tower", partial(made, kind or transformers.AutoModel, part)
                continue
            built = transformers.MODEL_MAPPING[type(config)]
            parameters = inspect.signature(built.forward).parameters
            if "input_ids" in parameters and not parameters.keys() & NO_TEXT:
                yield family, "model", partial(made, transformers.AutoModel, config)
    for name in TASKS:
        kind = getattr(transformers, name)
        config = kind.config_class()
        if not names or config.model_type in names:
            config = tiny(config.model_type, config)
            yield config.model_type, name, partial(made, kind, config)


NO_TEXT = {"pixel_values", "input_features", "input_values", "bbox", "past_values"}
"""Arguments of models that do not read a text alone."""


def furthest(source: Source, model: Any, items: Sequence[tuple[int, ...]]) -> str:
    """The largest difference of a map from those of eager attention on each text alone."""
    from attnviz.scoring.observe import Recorder
    from tests.models.tiny import inputs_of

    def target(ids: tuple[int, ...]) -> tuple[int, ...]:
        return (1, *ids[1:6])

    batch = [inputs_of(source, ids, target(ids)) for ids in items]
    recorder = Recorder(batch)
    source.forward(batch, [recorder])
    worst = 0.0
    for number, ids in enumerate(items):
        arguments = {"input_ids": torch.tensor([ids])}
        if model.config.is_encoder_decoder:
            arguments["decoder_input_ids"] = torch.tensor([target(ids)])
        accepted = inspect.signature(model.forward).parameters
        if "use_cache" in accepted:
            arguments["use_cache"] = False
        output = model(**arguments, output_attentions=True, return_dict=True)
        fields = {"encoder": "encoder_attentions", "decoder": "decoder_attentions",
                  "cross": "cross_attentions"}  # fmt: skip
        if not model.config.is_encoder_decoder:
            fields = dict.fromkeys(source.layout.kinds, "attentions")
        maps = recorder.maps(number)
        for kind, field in fields.items():
            ours = [maps[site] for site in sorted(maps) if site.kind == kind]
            theirs = [w[0] for w in output.get(field) or () if torch.is_tensor(w) and w.ndim == 4]
            if ours and not theirs:
                return "eager returns none"
            if kind == "encoder" and source._network.windows is not None:
                theirs = [unrolled(weights, len(ids)) for weights in theirs]
            sizes = {own.shape[1:] for own in ours}  # what layers with a state return is no map
            theirs = [weights for weights in theirs if weights.shape[1:] in sizes]
            for own, weights in zip(ours, theirs, strict=bool(ours)):
                worst = max(worst, float((torch.as_tensor(own) - weights).abs().max()))
    return f"{worst:.0e}"


def unrolled(weights: torch.Tensor, length: int) -> torch.Tensor:
    """Weights of windows around each token, [H, T, W], as a map [H, T, T]."""
    heads, _, width = weights.shape
    whole = torch.zeros(heads, length, length)
    for query in range(length):
        for key in range(length):
            if abs(key - query) <= width // 2:
                whole[:, query, key] = weights[:, query, key - query + width // 2]
    return whole


def form_row(family: str, kind: str, make: Callable[[], Any]) -> list[str]:
    """A line of the second table."""
    try:
        model = make().requires_grad_(False)
    except Exception as error:  # as above
        return [family, kind, f"not built: {str(error).strip().splitlines()[-1].strip()[:60]}",
                "", "", ""]  # fmt: skip
    try:
        source = av.load(model)
    except AttnvizError as error:
        return [family, kind, f"refused: {error}"[:150], "", "", ""]
    if not len(source.layout):
        return [family, kind, "no layer attends", "", "", ""]
    cells = []
    for items in TEXTS.values():
        try:
            cells.append(furthest(source, model, items))
        except AttnvizError as error:
            cells.append(str(error)[:80])
    return [family, kind, source.info.backend, *cells]


def forms(names: list[str]) -> list[list[str]]:
    """The lines of the second table."""
    rows = []
    for family, kind, make in text_models(names):
        with contextlib.redirect_stderr(io.StringIO()):
            try:
                rows.append(form_row(family, kind, make))
            except Exception as error:  # as above
                said = f"**failed**: {type(error).__name__}: {error}"[:120]
                rows.append([family, kind, said.replace("\n", " "), "", "", ""])
    return rows


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
    print(forms_page(forms(names)))


def forms_page(rows: list[list[str]]) -> str:
    """The second table below what it means."""
    exact = [row for row in rows if row[3]]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([FORMS.format(all=len(rows), ran=len(exact)), *lines])


FORMS = """
## Texts alone, in a batch, and of one token

Every causal, masked and encoder-decoder family, models without a head, the text towers of models
such as CLIP, and models for tasks: {all} models, of which {ran} give attention. Their maps against
those that transformers' eager attention returns of each text alone, the largest difference of a
weight: of one text (*alone*), of two texts of different length in a batch (*padded*), and of a
single token (*one*). Two families of Granite return weights as if there were no learned sinks; ours
are what the outputs are made of. AIMv2's text tower is causal only where an attention mask is
given; ours are with one, as its tokenizer gives it.

| family | model | backend | alone | padded | one |
|---|---|---|---|---|---|"""

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
