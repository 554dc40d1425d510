"""From a model's folder to a network in memory: no code, no pickles, no made-up weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from attnviz.errors import ModelError
from attnviz.models.containers import one_line
from attnviz.models.hooked.network import Network, quiet

_BESIDES = ("pooler", "lm_head", "final_logits_bias", "logits_bias")
"""Weights that no attention depends on; a checkpoint may lack them."""


def load_network(folder: Path, name: str, device: torch.device, dtype: torch.dtype) -> Network:
    """Load a model for its attention, with eager attention switched on.

    Raises:
        ModelError: no such architecture, a damaged file, or weights that do not fit it.
    """
    with quiet():
        import transformers

        config = _config(folder, name)
        builder, seq2seq = _architecture(config)
        try:
            model, report = builder.from_pretrained(
                folder,
                config=config,
                dtype=dtype,
                attn_implementation="eager",
                use_safetensors=True,
                local_files_only=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
        except Exception as error:  # transformers raises whatever its parts raise
            raise ModelError(
                f"{name}: transformers {transformers.__version__} cannot load this "
                f"{config.model_type} model: {one_line(error)}"
            ) from error
        _check(report, name)
        missing = " ".join(report["missing_keys"])
        can_write = seq2seq and hasattr(model, "generate") and "lm_head" not in missing
        try:
            return Network(model, device, seq2seq=seq2seq, can_write=can_write)
        except (RuntimeError, torch.OutOfMemoryError) as error:
            raise ModelError(f"{name} does not fit on {device}: {one_line(error)}") from error


def _config(folder: Path, name: str) -> Any:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # as above
        raise ModelError(
            f"{name}: transformers does not know this model: {one_line(error)}"
        ) from error


def _architecture(config: Any) -> tuple[Any, bool]:
    """The class to load it with, and whether that has an encoder and a decoder."""
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING

    named = (getattr(config, "architectures", None) or [""])[0]
    if named.endswith("EncoderModel") and hasattr(transformers, named):  # T5's encoder alone
        return getattr(transformers, named), False
    if getattr(config, "is_encoder_decoder", False):
        if type(config) in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING:
            return transformers.AutoModelForSeq2SeqLM, True
        return transformers.AutoModel, True
    return transformers.AutoModel, False


def _check(report: Mapping[str, Any], name: str) -> None:
    """Refuse a model with weights that transformers had to make up."""
    for entry in report["mismatched_keys"]:
        if isinstance(entry, str):  # transformers 4 names the weight only
            raise ModelError(f"{name}: weight {entry} has another shape than its config.json says")
        key, stored, expected = entry
        raise ModelError(
            f"{name}: weight {key} has shape {tuple(stored)}, its config.json says "
            f"{tuple(expected)}; the two files belong to different models"
        )
    missing = sorted(key for key in report["missing_keys"] if not any(b in key for b in _BESIDES))
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ModelError(
            f"{name}: its weights lack {missing[0]}{more}; the checkpoint is incomplete or of "
            "another architecture"
        )
