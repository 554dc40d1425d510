"""Where each model family keeps its sizes in config.json, and what counts as a size.

``families.json`` is the only table of such names: what counts attention on paper reads through it,
and what loads a model does too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from attnviz.attention.spec import MAX_LAYERS, MAX_SIZE
from attnviz.errors import ModelError, cut

Config = Mapping[str, Any]
Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Keys:
    """The names under which a family keeps its sizes; the first that a config has is taken.

    Where a family has names of its own beside the usual ones, transformers lets the usual ones win
    (its ``attribute_map`` is applied last), and so do we.
    """

    d_model: Names = ("hidden_size",)  # D. heads: H. layers: how many. kv_heads: G. head_dim: d
    heads: Names = ("num_attention_heads",)
    layers: Names = ("num_hidden_layers",)
    kv_heads: Names = ("num_key_value_heads",)
    head_dim: Names = ("head_dim",)
    # decoder_heads, decoder_layers: of the second stack, where they have names of their own
    decoder_heads: Names = ()
    decoder_layers: Names = ()
    latent: Names = ()  # latent, rope_dim, value_dim, query_latent: of multi-head latent attention
    rope_dim: Names = ()
    value_dim: Names = ()
    query_latent: Names = ()
    # index_heads, index_width, index_keep: of an indexer that selects keys
    index_heads: Names = ("index_n_heads",)
    index_width: Names = ("index_head_dim",)
    index_keep: Names = ("index_topk",)
    # width of the feed-forward part. vocab, positions, segments: rows of the embeddings
    inner: Names = ("intermediate_size",)
    vocab: Names = ("vocab_size",)
    positions: Names = ("max_position_embeddings",)
    segments: Names = ("type_vocab_size",)
    # eps, activation, pad: settings that a forward pass needs beside them
    eps: Names = ("layer_norm_eps",)
    activation: Names = ("hidden_act",)
    pad: Names = ("pad_token_id",)

    @property
    def of_decoder(self) -> Keys:
        """The names of the second stack's sizes."""
        heads, layers = self.decoder_heads or self.heads, self.decoder_layers or self.layers
        return replace(self, heads=heads, layers=layers)


USUAL = Keys()
FAMILY_TABLE: Mapping[str, Any] = json.loads(
    Path(__file__).with_name("families.json").read_text("utf-8")
)
"""``known``: families with the reader of their layers and its options, the share of a head that
turns where they have rotary positions, and names of their own; ``guess``: names to look for."""


def _keys(names: Mapping[str, Sequence[str]]) -> Keys:
    """Put names in place of some of the usual ones."""
    return replace(USUAL, **{size: tuple(listed) for size, listed in names.items()})


GUESS = _keys(FAMILY_TABLE["guess"])
"""For a family that nobody described."""

FAMILY_KEYS: Mapping[str, Keys] = {
    family: _keys(row["keys"])
    for row in FAMILY_TABLE["known"] if "keys" in row for family in row["families"]
}  # fmt: skip
"""``model_type`` -> names; a known family that is not here has the usual ones."""

LAYER_KEYS = frozenset(
    name
    for keys in (USUAL, GUESS, *FAMILY_KEYS.values())
    for name in (*keys.layers, *keys.decoder_layers)
)
"""Every name that a number of layers has in some family."""

_MEANING = {"d_model": "model width", "heads": "number of heads", "layers": "number of layers"}


def keys_of(family: str) -> Keys:
    """Return the names of a family that attnviz knows."""
    return FAMILY_KEYS.get(family, USUAL)


@cache
def defaults() -> Mapping[str, Config]:
    """Return what transformers takes for a field that a config.json leaves out, by family.

    A config inside another one is saved without the fields that have their usual value; only those
    that decide a size are listed. ``python -m docs.defaults`` writes the file.
    """
    return json.loads(Path(__file__).with_name("defaults.json").read_text("utf-8"))


def find(config: Config, keys: Keys, size: str) -> int | None:
    """Return a size under one of its names, or None."""
    for name in getattr(keys, size):
        if config.get(name) is not None:
            return whole(name, config[name], MAX_LAYERS if size == "layers" else MAX_SIZE)
    return None


def need(config: Config, keys: Keys, size: str) -> int:
    """Return a size that must be there."""
    value = find(config, keys, size)
    if value is not None:
        return value
    names = ", ".join(getattr(keys, size))
    if size in _MEANING:
        raise ModelError(f"config.json has no {_MEANING[size]} (looked for: {names})")
    raise ModelError(f"config.json has no {names}, which this family needs")


def optional(config: Config, name: str) -> int | None:
    """Return a size that may be missing, null or 0; None then."""
    value = config.get(name)
    return None if value is None or value == 0 else whole(name, value)


def whole(name: str, value: object, limit: int = MAX_SIZE) -> int:
    """Return a setting's value if it is a whole number from 1 to ``limit``."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= limit:
        raise ModelError(
            f"config.json: {name} must be a whole number from 1 to {limit:,}, got {shown(value)}"
        )
    return value


def positive(config: Config, name: str) -> float | None:
    """Return a number that may be missing, null or 0; None then."""
    value = config.get(name)
    if value is None or value == 0:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_SIZE:
        raise ModelError(
            f"config.json: {name} must be a number from 0 to {MAX_SIZE:,}, got {shown(value)}"
        )
    return float(value)


def shown(value: object) -> str:
    """Return a value for a message, cut where it is long."""
    return cut(repr(value))
