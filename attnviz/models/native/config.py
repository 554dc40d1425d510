"""What ``config.json`` says about a model of the native backend."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from attnviz.core.heads import SiteKind
from attnviz.errors import ModelError
from attnviz.models.configs.keys import keys_of, shown


class Unsupported(ModelError):
    """A model that the native backend does not know; the message does not name the model.

    Private to ``models``: :func:`attnviz.models.pretrained.load` takes the hooks instead.
    """


Spelling = Literal["wordpiece", "roberta", "gpt2"]

_OFF: dict[str, tuple[Any, ...]] = {"add_cross_attention": (None, False)}
_ENCODER = {**_OFF, "is_decoder": (None, False), "position_embedding_type": (None, "absolute")}


@dataclass(frozen=True)
class NativeFamily:
    """What tells one family from another."""

    kind: SiteKind  # what its layers are
    tokenizer: Spelling  # how its vocabulary is built where there is no ``tokenizer.json``.
    defaults: Mapping[str, Any]  # of the configuration, as transformers has them
    # configuration keys and the values of them that this backend can compute
    needs: Mapping[str, tuple[Any, ...]]
    tensors: Mapping[str, str]  # part -> name in the checkpoint, with ``{}`` for the layer's number
    # part of the LM head -> its full name; ``table`` is the token embeddings unless the
    # configuration says that the two are not tied
    words: Mapping[str, str]
    buffers: re.Pattern[str]  # tensors that are stored and mean nothing
    pre_norm: bool = False  # normalization before each sublayer instead of after it
    transposed: bool = False  # matrices stored as [in, out]
    # positions count from the padding id + 1, and only tokens that are not padding
    from_padding: bool = False

    @property
    def roots(self) -> tuple[str, ...]:
        """The first parts of all tensor names of the model itself; others belong to heads on it."""
        return tuple({name.split(".")[0] + "." for name in self.tensors.values()})


def _families() -> Iterator[tuple[str, NativeFamily]]:
    """Read every family, by its ``model_type``, from the table beside this module."""
    tables = json.loads(Path(__file__).with_name("families.json").read_text("utf-8"))
    for name, table in tables.items():
        needs = _ENCODER if table["kind"] == "encoder" else _OFF
        buffers = re.compile(table.pop("buffers"))
        yield name, NativeFamily(**table, needs=needs, buffers=buffers)


FAMILIES: Mapping[str, NativeFamily] = dict(_families())
"""``model_type`` -> family."""
GPT2 = FAMILIES["gpt2"]


_SIZES = ("vocab", "width", "layers", "heads", "inner", "positions", "segments")
_SETTINGS = (*_SIZES, "eps", "activation", "pad")


@dataclass(frozen=True)
class Config:
    """The sizes and settings of a model."""

    family: NativeFamily  # which tables it follows
    # rows of the token embedding; ``positions``: of the position embedding; ``segments``: of the
    # segment embedding, 0 where there is none
    vocab: int
    width: int  # D; ``inner``: width of the feed-forward part
    layers: int  # number of layers; ``heads``: in each of them
    heads: int
    inner: int
    positions: int
    segments: int
    eps: float  # of the layer normalization
    activation: str  # its name in transformers
    pad: int  # the padding id
    tied: bool  # the LM head multiplies with the token embeddings
    scaled: bool  # scores are divided by √d; ``scaled_by_layer``: and by the layer's number from 1
    scaled_by_layer: bool

    @property
    def matrices(self) -> int:
        """Numbers of the layers' matrices, and multiplications a token."""
        return self.layers * self.width * (4 * self.width + 2 * self.inner)

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
        """Return the factor on a layer's attention scores."""
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
    family_keys = keys_of(raw["model_type"])
    for name in _SETTINGS:
        names = getattr(family_keys, "d_model" if name == "width" else name)
        present = [key for key in names if raw.get(key) is not None]
        keys[name] = (present or names or (name,))[0]
        values[name] = raw[present[0]] if present else values.get(name)
    if "segments" not in family.tensors:
        values["segments"] = 0
    if values["inner"] is None and isinstance(values["width"], int):
        values["inner"] = 4 * values["width"]
    _check(values, keys)
    gpt2 = raw if family is GPT2 else {}  # the others have no such settings
    config = Config(
        family,
        **values,
        tied=raw.get("tie_word_embeddings", True) is not False,
        scaled=gpt2.get("scale_attn_weights", True) is not False,
        scaled_by_layer=gpt2.get("scale_attn_by_inverse_layer_idx") is True,
    )
    if config.max_tokens < 1:
        raise ModelError(f"config.json leaves no position for a token: pad_token_id {config.pad}")
    return config


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
