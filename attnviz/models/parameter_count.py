"""Counting attention's parameters in a real model: in its weight files, or in its empty shell."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from attnviz.errors import ModelError
from attnviz.files import open_regular
from attnviz.models.external_errors import silenced

MAX_HEADER = 100_000_000
_POSITIONS = {"I64", "I32", "BOOL"}
"""Types of buffers, such as position numbers, that some files hold beside the parameters."""

_MODULE = re.compile(
    r"(?:^|\.)(?P<layer>\d+)\."
    r"(?:layer\.\d+\.)?(?P<module>"
    r"cross_attn|encoder_attn|EncDecAttention|crossattention"
    r"|self_attention|self_attn|SelfAttention|attention|attn)\.(?P<rest>.+)$"
)
_CROSS = {"cross_attn", "encoder_attn", "EncDecAttention", "crossattention"}
_NOT_ATTENTION = re.compile(
    r"(?i)(output\.layer_?norm|(^|\.)layer_?norm\.|(^|\.)ln_)|^(bias|masked_bias)$|inv_freq"
)
_TOWERS = {
    "vision": re.compile(r"(?:^|\.)(?:vision_\w+|visual|image_\w+|vit)\."),
    "audio": re.compile(r"(?:^|\.)(?:audio_\w+|speech_\w+)\."),
}
_LATENT_NORMS = re.compile(r"(q_a|kv_a|q|k)_(layer)?norm\.")
_LINEAR = re.compile(r"^(q_|k_|v_)?conv1d\.")
"""A linear layer under a name of attention (Kimi Linear): attention has no convolution."""
_SAME = {"kimi_k2": "deepseek_v3"}
"""Families that transformers builds as another one, under the name of the model's own config."""


class ParameterCount(NamedTuple):
    """Parameters found in a model: by kind and layer of attention, and in all."""

    # parameters by (stack, kind, layer); the stack is ``encoder`` or ``decoder`` where names say
    # so, else empty; the kind is ``self`` or ``cross``
    layers: Mapping[tuple[str, str, int], int]
    # the same for each tower: ``vision`` and ``audio`` by their names, else ``text``
    towers: Mapping[str, Mapping[tuple[str, str, int], int]]
    whole: int  # parameters of everything
    origin: str  # where they were counted

    @property
    def attention(self) -> int:
        """Parameters of all attention layers."""
        return sum(self.layers.values())


def count_names(sizes: Iterable[tuple[str, int]], origin: str) -> ParameterCount:
    """Sort parameters into attention and the rest by their names."""
    layers: dict[tuple[str, str, int], int] = {}
    towers: dict[str, dict[tuple[str, str, int], int]] = {}
    total, linear = 0, set()
    for name, size in sizes:
        match = _MODULE.search(name)
        if match and re.fullmatch(r"(?:bias|masked_bias|rotary_emb\.inv_freq)", match["rest"]):
            continue  # buffers that old checkpoints kept
        total += size
        if not match:
            continue
        suffix = match["rest"]
        if _NOT_ATTENTION.search(suffix) and not _LATENT_NORMS.search(suffix):
            continue
        key = _place(name, match)
        linear |= {key} if _LINEAR.match(suffix) else set()
        layers[key] = layers.get(key, 0) + size
        tower = next((t for t, named in _TOWERS.items() if named.search(name)), "text")
        tower_layers = towers.setdefault(tower, {})
        tower_layers[key] = tower_layers.get(key, 0) + size
    for key in linear:
        for numbers in (layers, *towers.values()):
            numbers.pop(key, None)
    return ParameterCount(layers, towers, total, origin)


def place_of(name: str) -> tuple[str, str, int] | None:
    """(stack, kind, layer) of a module or parameter inside a layer of attention, else None."""
    match = _MODULE.search(name)
    return None if match is None else _place(name, match)


def _place(name: str, match: re.Match[str]) -> tuple[str, str, int]:
    stack = next((s for s in ("encoder", "decoder") if f"{s}." in name[: match.start(1)]), "")
    return stack, "cross" if match["module"] in _CROSS else "self", int(match["layer"])


def count_checkpoint(folder: Path) -> ParameterCount | None:
    """Count a folder's safetensors files by their headers alone; None where there are none."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        return None
    sizes: dict[str, int] = {}
    for file in files:
        for name, entry in _header(file).items():
            if entry["dtype"] not in _POSITIONS:
                sizes[name] = math.prod(entry["shape"])
    return count_names(sizes.items(), f"{len(files)} safetensors file{'s' * (len(files) > 1)}")


def _header(file: Path) -> dict[str, Any]:
    try:
        with open_regular(file) as stream:
            length = int.from_bytes(stream.read(8), "little")
            if not 2 <= length <= MAX_HEADER:
                raise ValueError(f"a header of {length:,} bytes")
            header = json.loads(stream.read(length))
        tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
        for entry in tensors.values():
            if not all(isinstance(axis, int) for axis in entry["shape"]):
                raise ValueError("a shape that is not valid")
            str(entry["dtype"])
    except (OSError, ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(f"{file.name} is not a readable safetensors file: {error}") from error
    return tensors


def count_config(config: Mapping[str, Any], counted_as: str) -> ParameterCount:
    """Build a model from a config without memory (``meta`` device) and count it."""
    import torch
    import transformers

    fields = {name: value for name, value in config.items() if name != "model_type"}
    if fields.get("q_lora_rank") == 0:
        fields["q_lora_rank"] = None
    family = _SAME.get(config["model_type"], config["model_type"])
    with silenced(), torch.device("meta"):
        settings = transformers.AutoConfig.for_model(family, **fields)
        model = getattr(transformers, counted_as).from_config(settings)
    named = ((name, parameter.numel()) for name, parameter in model.named_parameters())
    return count_names(named, f"transformers' {type(model).__name__}, built without memory")
