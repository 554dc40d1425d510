"""Low-rank adapters (LoRA, Hu et al. 2021, arXiv:2106.09685) beside their base model, without peft.

A folder with ``adapter_config.json`` and ``adapter_model.safetensors`` names its base; the base is
loaded, and ΔW = s · B A is added to every matrix that the adapter changes, so that what runs are
plain layers. A kind of adapter, or a tensor in the file, whose part in the model is not known is
refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor, nn

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"

_OTHER_SUMS = (
    "use_dora", "use_qalora", "use_bdlora", "lora_bias", "layer_replication",
    "alora_invocation_tokens", "arrow_config", "kasa_config", "monteclora_config",
    "velora_config", "trainable_token_indices", "target_parameters",
)  # fmt: skip
"""Settings of LoRA with which a layer adds something else than s · B A."""

_STARTS = (True, False, "gaussian", "eva", "orthogonal", None)
"""Ways of drawing A and B at the start that leave the base as it was."""

_HEADS = ("classifier", "score", "qa_outputs", "pre_classifier", "lm_head", "cls", "pooler")
"""Parts behind the last layer, on which no attention depends."""


def base_of(folder: Path, config: Mapping[str, Any]) -> str:
    """Name the model that an adapter is for: the folder beside it, or what its file says."""
    kind = config.get("peft_type")
    if kind != "LORA":
        raise ModelError(
            f"{folder} holds an adapter of kind {kind}; only LORA is read from its file: give the "
            "PeftModel in memory, or merge it into its model and save that"
        )
    named = next((name for name in _OTHER_SUMS if config.get(name)), None)
    if named is None and config.get("init_lora_weights", True) not in _STARTS:
        named = "init_lora_weights"
    if named is not None:
        raise ModelError(
            f"{folder} holds a LoRA adapter with {named}={config[named]!r}, which is more than a "
            "product added to a matrix: merge it into its model with peft and save that"
        )
    base = config.get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise ModelError(
            f"{folder / CONFIG} names no base_model_name_or_path; write there which model it is for"
        )
    beside = [folder.parent / base, folder.parent / Path(base).name]
    return str(next((path for path in beside if (path / "config.json").is_file()), base))


def add(model: nn.Module, folder: Path, config: Mapping[str, Any], name: str) -> int:
    """Add an adapter to the weights of its base, in place."""
    import torch
    from safetensors.torch import load_file

    path = folder / WEIGHTS
    if not path.is_file():
        raise ModelError(f"{folder} has {CONFIG} and no {WEIGHTS}; save the adapter as safetensors")
    stored = {key.removeprefix("base_model.model."): t for key, t in load_file(path).items()}
    parameters = dict(model.named_parameters())
    changed = 0
    for key in sorted(stored):
        part, _, rest = key.partition(".lora_")
        if not rest:
            _replace(parameters, key, stored[key], name)
            continue
        if rest not in ("A.weight", "B.weight", "embedding_A", "embedding_B"):
            raise ModelError(f"{name}: {key} of its adapter is no matrix A or B of LoRA")
        if "B" in rest:
            continue
        other = stored.get(key.replace("lora_A", "lora_B").replace("embedding_A", "embedding_B"))
        weight = _found(parameters, f"{part}.weight")
        if other is None or weight is None or not weight.is_floating_point():
            what = "has no B" if other is None else "belongs to no matrix of its base"
            raise ModelError(f"{name}: {key} of its adapter {what}")
        a, b = stored[key].float(), other.float()
        change = _scale(config, part, a.shape[0]) * (b @ a)
        if "embedding" in rest or _turned(model, part):
            change = change.T
        if change.shape != weight.shape:
            raise ModelError(
                f"{name}: {part} is {tuple(weight.shape)} in its base and {tuple(change.shape)} in "
                "its adapter; the two belong to different models"
            )
        with torch.no_grad():
            weight.copy_(weight.float() + change.to(weight.device))
        changed += 1
    if not changed:
        raise ModelError(f"{path} has no matrices of LoRA")
    return changed


def _scale(config: Mapping[str, Any], part: str, rank: int) -> float:
    """The factor s of a layer: alpha / r, or alpha / √r (rsLoRA)."""
    alpha = float(config.get("lora_alpha") or 8)
    for pattern, value in (config.get("alpha_pattern") or {}).items():
        if re.match(rf"(.*\.)?({pattern})$", part):
            alpha = float(value)
            break
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _found(parameters: Mapping[str, nn.Parameter], key: str) -> nn.Parameter | None:
    """A parameter by its name, though one of both models may have a head around the other."""
    near = [own for own in parameters if own == key or own.endswith(f".{key}")]
    near = near or [own for own in parameters if key.endswith(f".{own}")]
    return parameters[max(near, key=len)] if near else None


def _turned(model: nn.Module, part: str) -> bool:
    """Whether a layer keeps its matrix as [in, out], as GPT-2's do."""
    from transformers.pytorch_utils import Conv1D

    return any(
        isinstance(module, Conv1D)
        for own, module in model.named_modules()
        if own and (own == part or own.endswith(f".{part}") or part.endswith(f".{own}"))
    )


def _replace(parameters: Mapping[str, nn.Parameter], key: str, value: Tensor, name: str) -> None:
    """Put a whole tensor of the adapter (a bias, a head) in the place of the base's."""
    own = _found(parameters, key)
    if own is not None and own.shape == value.shape:
        own.data.copy_(value)
    elif key.partition(".")[0] not in _HEADS:
        raise ModelError(f"{name}: {key} of its adapter has no place in its base")
