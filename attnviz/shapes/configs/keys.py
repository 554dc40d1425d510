"""Sizes in a config.json: under which names they are kept, and what counts as a size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attnviz.attention.sizes import MAX_SIZE
from attnviz.errors import ModelError

Config = Mapping[str, Any]
MAX_LAYERS = 10_000


@dataclass(frozen=True, slots=True)
class Fields:
    """The names under which a family keeps its sizes; alternatives in the order of preference."""

    d_model: tuple[str, ...] = ("hidden_size",)
    heads: tuple[str, ...] = ("num_attention_heads",)
    layers: tuple[str, ...] = ("num_hidden_layers",)
    kv_heads: tuple[str, ...] = ("num_key_value_heads",)
    head_dim: tuple[str, ...] = ("head_dim",)


USUAL = Fields()
OLD_GPT = Fields(d_model=("n_embd",), heads=("n_head",), layers=("n_layer",))
GUESS = Fields(
    d_model=("hidden_size", "d_model", "n_embd", "dim", "n_embed", "embed_dim"),
    heads=("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"),
    layers=("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"),
    kv_heads=("num_key_value_heads", "num_kv_heads", "n_kv_heads"),
    head_dim=("head_dim", "d_kv"),
)
_MEANING = {
    "d_model": "model width",
    "heads": "number of heads",
    "layers": "number of layers",
}


def find(config: Config, fields: Fields, what: str) -> int | None:
    """A size under one of its names, or None.

    Raises:
        ModelError: it is there, but not a whole number above zero.
    """
    for name in getattr(fields, what):
        value = config.get(name)
        if value is None:
            continue
        return whole(name, value, MAX_LAYERS if what == "layers" else MAX_SIZE)
    return None


def whole(name: str, value: object, most: int = MAX_SIZE) -> int:
    """A field's value if it is a whole number from 1 to ``most``.

    Raises:
        ModelError: it is something else.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        shown = repr(value)[:40]
        raise ModelError(
            f"config.json: {name} must be a whole number from 1 to {most:,}, got {shown}"
        )
    return value


def optional(config: Config, name: str) -> int | None:
    """A size that may be missing, null or 0; None then.

    Raises:
        ModelError: it is there, but no size.
    """
    value = config.get(name)
    return None if value is None or value == 0 else whole(name, value)


def need(config: Config, fields: Fields, what: str) -> int:
    """A size that must be there.

    Raises:
        ModelError: it is not, with the names that were looked for.
    """
    value = find(config, fields, what)
    if value is None:
        looked = ", ".join(getattr(fields, what))
        raise ModelError(f"config.json has no {_MEANING[what]} (looked for: {looked})")
    return value


def need_named(config: Config, name: str) -> int:
    """A size under exactly this name.

    Raises:
        ModelError: it is missing.
    """
    value = find(config, Fields(d_model=(name,)), "d_model")
    if value is None:
        raise ModelError(f"config.json has no {name}, which latent attention needs")
    return value
