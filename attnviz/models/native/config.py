"""What ``config.json`` says about a model of the native backend."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attnviz.errors import ModelError
from attnviz.models.configs.keys import keys_of, shown
from attnviz.models.native.families import FAMILIES, GPT2, NativeFamily
from attnviz.models.native.unsupported import Unsupported

_SIZES = ("vocab", "width", "layers", "heads", "inner", "positions", "segments")
_SETTINGS = (*_SIZES, "eps", "activation", "pad")


@dataclass(frozen=True)
class Config:
    """The sizes and settings of a model.

    Attributes:
        family: which tables it follows.
        vocab: rows of the token embedding; ``positions``: of the position embedding;
            ``segments``: of the segment embedding, 0 where there is none.
        width: D; ``inner``: width of the feed-forward part.
        layers: number of layers; ``heads``: in each of them.
        eps: of the layer normalization.
        activation: its name in transformers.
        pad: the padding id.
        tied: the LM head multiplies with the token embeddings.
        scaled: scores are divided by √d; ``scaled_by_layer``: and by the layer's number from 1.
    """

    family: NativeFamily
    vocab: int
    width: int
    layers: int
    heads: int
    inner: int
    positions: int
    segments: int
    eps: float
    activation: str
    pad: int
    tied: bool
    scaled: bool
    scaled_by_layer: bool

    @property
    def max_tokens(self) -> int:
        """The longest sequence; positions that RoBERTa never uses don't count."""
        return self.positions - (self.pad + 1 if self.family.from_padding else 0)

    @property
    def settings(self) -> str:
        """What decides which arithmetic runs, in words; the sizes do not."""
        by_width = () if self.scaled else ("scores not scaled by width",)
        by_layer = ("scores scaled by layer",) if self.scaled_by_layer else ()
        return ", ".join((self.activation, *by_width, *by_layer))

    def scale(self, layer: int) -> float:
        """The factor on a layer's attention scores."""
        scale = float((self.width // self.heads) ** -0.5) if self.scaled else 1.0
        return scale / (layer + 1) if self.scaled_by_layer else scale


def read(raw: Mapping[str, Any]) -> Config:
    """Read a ``config.json``."""
    family = FAMILIES.get(raw["model_type"])
    if family is None:
        raise Unsupported(f"{raw['model_type']} is not one of {', '.join(FAMILIES)}")
    for key in ("auto_map", "quantization_config"):
        if raw.get(key):
            raise Unsupported(f"its configuration has {key}")
    for key, allowed in family.needs.items():
        if raw.get(key) not in allowed:
            raise Unsupported(f"its configuration has {key} {raw[key]!r}")
    values = dict(family.defaults)
    keys = {}
    for name, names in _keys(raw["model_type"]).items():
        given = [key for key in names if raw.get(key) is not None]
        keys[name] = (given or names or (name,))[0]
        values[name] = raw[given[0]] if given else values.get(name)
    if "segments" not in family.tensors:
        values["segments"] = 0
    if values["inner"] is None and isinstance(values["width"], int):
        values["inner"] = 4 * values["width"]
    _check(values, keys)
    own = raw if family is GPT2 else {}  # the others have no such settings
    config = Config(
        family,
        **values,
        tied=raw.get("tie_word_embeddings", True) is not False,
        scaled=own.get("scale_attn_weights", True) is not False,
        scaled_by_layer=own.get("scale_attn_by_inverse_layer_idx") is True,
    )
    if config.max_tokens < 1:
        raise ModelError(f"config.json leaves no position for a token: pad_token_id {config.pad}")
    return config


def _keys(family: str) -> Mapping[str, tuple[str, ...]]:
    """Setting -> its names in the family's ``config.json``, the one that counts most first."""
    keys = keys_of(family)
    return {name: getattr(keys, "d_model" if name == "width" else name) for name in _SETTINGS}


def _check(values: Mapping[str, Any], keys: Mapping[str, str]) -> None:
    """Refuse settings that make no sense, under the names that they have in the file."""
    for name in (*_SIZES, "pad"):
        value, least = values[name], 0 if name in ("segments", "pad") else 1
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ModelError(
                f"config.json has {keys[name]} {shown(value)}; it must be a number from {least}"
            )
    if values["width"] % values["heads"]:
        raise ModelError(
            f"config.json has {keys['width']} {values['width']}, which "
            f"{values['heads']} heads do not divide"
        )
    eps = values["eps"]
    if not isinstance(eps, (int, float)) or isinstance(eps, bool) or not 0 <= eps < math.inf:
        raise ModelError(f"config.json has {keys['eps']} {shown(eps)}; it must be a number from 0")
    if not isinstance(values["activation"], str):
        raise Unsupported(f"its activation is {values['activation']!r}")
