"""Low-rank adapters (LoRA, Hu et al. 2021, arXiv:2106.09685) beside their base model, without peft.

A folder with ``adapter_config.json`` and ``adapter_model.safetensors`` names its base; the base is
loaded, and ΔW = s · B A is added to every matrix that the adapter changes, so that what runs are
plain layers. A kind of adapter, or a tensor in the file, whose part in the model is not known is
refused. How large ΔW is for each head is read from the file and the base's configuration alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.core.arrays import exact
from attnviz.core.heads import Head, Layout
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

_NAMES = {"q": "query", "k": "key", "v": "value", "out": "output"}
_IN_TURN = ("gpt2", "openai-gpt")
"""Families whose fused matrix has all queries, then all keys, then all values."""


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """What an adapter adds to one matrix: ΔW = s · B A, [out, in] whichever way the base has it."""

    a: Tensor  # [r, in]
    b: Tensor  # [out, r]
    scale: float  # s
    embedding: bool  # whether the matrix is a table of embeddings, [in, out]


def base_of(folder: Path, config: Mapping[str, Any], named: str | None = None) -> str:
    """Name the model that an adapter is for: the folder beside it, or what its file says.

    ``named``: what the user says it is.
    """
    kind = config.get("peft_type")
    if kind != "LORA":
        raise ModelError(
            f"{folder} holds an adapter of kind {kind}; only LORA is read from its file: give the "
            "PeftModel in memory, or merge it into its model and save that"
        )
    key = next((name for name in _OTHER_SUMS if config.get(name)), None)
    if key is None and config.get("init_lora_weights", True) not in _STARTS:
        key = "init_lora_weights"
    if key is not None:
        raise ModelError(
            f"{folder} holds a LoRA adapter with {key}={config[key]!r}, which is more than a "
            "product added to a matrix: merge it into its model with peft and save that"
        )
    base = named or config.get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise ModelError(
            f"{folder / CONFIG} names no base_model_name_or_path; write there which model it is for"
        )
    beside = [] if named else [folder.parent / base, folder.parent / Path(base).name]
    return str(next((path for path in beside if (path / "config.json").is_file()), base))


def read(folder: Path, config: Mapping[str, Any]) -> tuple[dict[str, Product], dict[str, Tensor]]:
    """Read what an adapter adds, by module, and the tensors that stand in place of the base's."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = folder / WEIGHTS
    if not path.is_file():
        raise ModelError(f"{folder} has {CONFIG} and no {WEIGHTS}; save the adapter as safetensors")
    try:
        stored = load_file(path)
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path} is truncated or damaged ({error}); save it again") from None
    factors: dict[str, dict[str, Tensor]] = {}
    replacements: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        key = name.removeprefix("base_model.model.").replace(".base_layer.", ".")
        part, _, suffix = key.partition(".lora_")
        if suffix not in ("", "A.weight", "B.weight", "embedding_A", "embedding_B"):
            raise ModelError(f"{path}: {key} is no matrix A or B of LoRA")
        if not tensor.float().isfinite().all():
            raise ModelError(f"{path}: {key} has numbers that are not finite; train it again")
        if suffix:
            factors.setdefault(part, {})[suffix.removesuffix(".weight")] = tensor
        else:
            replacements[key] = tensor
    if not factors:
        raise ModelError(f"{path} has no matrices of LoRA")
    pairs = sorted(factors.items())
    return {part: _product(path, config, part, matrices) for part, matrices in pairs}, replacements


def _product(
    path: Path, config: Mapping[str, Any], part: str, factors: Mapping[str, Tensor]
) -> Product:
    """Put A and B of a module together, which have to be what the configuration says."""
    embedding = "embedding_A" in factors or "embedding_B" in factors
    names = ("embedding_A", "embedding_B") if embedding else ("A", "B")
    missing = [name for name in names if name not in factors]
    if missing:
        raise ModelError(f"{path}: {part} has no matrix lora_{missing[0]}; save it again")
    a, b = (factors[name] for name in names)
    if a.ndim != 2 or b.ndim != 2 or len(a) != b.shape[1]:
        sizes = f"{tuple(b.shape)} and {tuple(a.shape)}"
        raise ModelError(f"{path}: B and A of {part} are {sizes}, which have no product")
    rank = _setting(path, config, "r", "rank_pattern", part)
    alpha = _setting(path, config, "lora_alpha", "alpha_pattern", part)
    if rank != len(a):
        raise ModelError(
            f"{path}: A of {part} has {len(a)} rows, and {CONFIG} says r = {rank:g}; the two files "
            "belong to different adapters"
        )
    return Product(a, b, alpha / (math.sqrt(rank) if config.get("use_rslora") else rank), embedding)


def _setting(path: Path, config: Mapping[str, Any], name: str, patterns: str, part: str) -> float:
    """Return a number of a module, by a pattern of names or for all; 8 where nothing says it."""
    value: Any = config.get(name)
    try:
        for pattern, override in (config.get(patterns) or {}).items():
            if re.match(rf"(.*\.)?({pattern})$", part):
                value = override
                break
        number = 8.0 if value is None else float(value)
    except (re.error, TypeError, ValueError, AttributeError):
        number = math.nan
    if not math.isfinite(number):
        raise ModelError(f"{path.parent / CONFIG}: {name} of {part} ({value!r}) is no number")
    return number


def add(model: nn.Module, folder: Path, config: Mapping[str, Any], name: str) -> None:
    """Add an adapter to the weights of its base, in place."""
    import torch

    products, replacements = read(folder, config)
    parameters = dict(model.named_parameters())
    for key, value in replacements.items():
        _replace(parameters, key, value, name)
    for part, product in products.items():
        weight = _found(parameters, f"{part}.weight")
        if weight is None or not weight.is_floating_point():
            raise ModelError(f"{name}: {part} of its adapter belongs to no matrix of its base")
        change = product.scale * (product.b.float() @ product.a.float())
        if product.embedding or _turned(model, part):
            change = change.T
        if change.shape != weight.shape:
            raise ModelError(
                f"{name}: {part} is {tuple(weight.shape)} in its base and {tuple(change.shape)} in "
                "its adapter; the two belong to different models"
            )
        _refuse_on_disk(weight, part, name)
        with torch.no_grad():
            weight.copy_(weight.float() + change.to(weight.device))


def head_norms(
    folder: Path,
    config: Mapping[str, Any],
    base: Mapping[str, Any],
    place_of: Callable[[str], tuple[int, str] | None],
) -> tuple[Layout, dict[Head, dict[str, float]], tuple[str, ...]]:
    """Measure ‖ΔW‖ (Frobenius) of each head from an adapter's file alone.

    ``base``: its base's config.json; ``place_of``: of a module, its layer and part.

    Returns: the heads; by head the norms of ``query`` [D, d], ``key``, ``value`` and ``output``,
    keys and values those of the head's group; and what else the adapter changes.
    """
    from attnviz.models.configs.model import layout_of, read_config

    products, replacements = read(folder, config)
    layout, family = layout_of(base), base.get("model_type")
    if layout is None or len(layout.kinds) != 1:
        raise ModelError(
            f"{folder}: the config.json of its base ({family}) is not of one stack whose heads are "
            "known, so its file does not say which head it changes"
        )
    specs = {n: group.spec for group in read_config(base, "").groups for n in group.layers}
    norms: dict[Head, dict[str, float]] = {head: {} for head in layout}
    elsewhere = list(replacements)
    for part, product in products.items():
        layer, role = place_of(part) or (-1, "")
        spec = specs.get(layer)
        plain = spec is not None and spec.kind in ("mha", "gqa", "mqa")
        if spec is None or not plain or (role == "qkv" and family not in _IN_TURN):
            elsewhere.append(part)
            continue
        heads, groups = spec.heads, spec.kv_heads
        dims = {"q": spec.head_dim, "k": spec.head_dim, "v": spec.value_dim, "out": spec.value_dim}
        counts = {"q": heads, "k": groups, "v": groups, "out": heads}
        change = product.scale * (exact(product.b) @ exact(product.a))
        rows, roles = (change.T, ["out"]) if role == "out" else (change, list(role))
        expected = [counts[letter] * dims[letter] for letter in roles]
        if rows.shape != (sum(expected), spec.d_model):
            raise ModelError(
                f"{folder}: {part} is {tuple(rows.shape)}, and {(sum(expected), spec.d_model)} in "
                f"its base, which has {heads} heads; the two belong to different models"
            )
        for number, letter in enumerate(roles):
            first = sum(expected[:number])
            block = rows[first : first + expected[number]].reshape(counts[letter], -1)
            sizes = block.square().sum(1).sqrt().tolist()
            for head in (head for head in layout if head.layer == layer):
                if _NAMES[letter] in norms[head]:
                    raise ModelError(f"{folder} changes two matrices {_NAMES[letter]} of {layer}.*")
                norms[head][_NAMES[letter]] = sizes[head.index * counts[letter] // heads]
    if not any(norms.values()):
        raise ModelError(
            f"{folder} changes no matrix of attention whose heads are known by its name "
            f"({', '.join(elsewhere[:2])}); those of GPT-2, BERT, Llama and their kin are"
        )
    return layout, norms, tuple(elsewhere)


def _found(parameters: Mapping[str, nn.Parameter], key: str) -> nn.Parameter | None:
    """Give a parameter by its name, though one of both models may have a head around the other."""
    near = [name for name in parameters if name == key or name.endswith(f".{key}")]
    near = near or [name for name in parameters if key.endswith(f".{name}")]
    return parameters[max(near, key=len)] if near else None


def _turned(model: nn.Module, part: str) -> bool:
    """Whether a layer keeps its matrix as [in, out], as GPT-2's do."""
    from transformers.pytorch_utils import Conv1D

    return any(
        isinstance(module, Conv1D)
        for name, module in model.named_modules()
        if name and (name == part or name.endswith(f".{part}") or part.endswith(f".{name}"))
    )


def _replace(parameters: Mapping[str, nn.Parameter], key: str, value: Tensor, name: str) -> None:
    """Put a whole tensor of the adapter (a bias, a head) in the place of the base's."""
    parameter = _found(parameters, key)
    if parameter is not None and parameter.shape == value.shape:
        _refuse_on_disk(parameter, key, name)
        parameter.data.copy_(value)
    elif key.partition(".")[0] not in _HEADS:
        raise ModelError(f"{name}: {key} of its adapter has no place in its base")


def _refuse_on_disk(weight: Tensor, part: str, name: str) -> None:
    """Refuse an adapter to weights that are in memory only while their module runs."""
    if weight.is_meta:
        raise ModelError(
            f"{name}: {part} does not fit in memory, so its adapter cannot be added to it; merge "
            "the adapter into its base and save that"
        )
