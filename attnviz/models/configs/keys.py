"""Where each model family keeps its sizes in config.json, and what counts as a size.

:data:`FAMILY_KEYS` is the only table of such names: what counts attention on paper reads through
it, and what loads a model does too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
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
OLD_GPT = Keys(
    d_model=("hidden_size", "n_embd"),
    heads=("num_attention_heads", "n_head"),
    layers=("num_hidden_layers", "n_layer"),
    inner=("n_inner",),
    positions=("max_position_embeddings", "n_positions"),
    eps=("layer_norm_epsilon",),
    activation=("activation_function",),
)
GUESS = Keys(
    d_model=("hidden_size", "d_model", "n_embd", "dim", "n_embed", "embed_dim"),
    heads=("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"),
    layers=("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"),
    kv_heads=("num_key_value_heads", "num_kv_heads", "n_kv_heads"),
    head_dim=("head_dim", "d_kv"),
    positions=("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length"),
)
"""For a family that nobody described."""

_DISTILBERT = Keys(
    d_model=("hidden_size", "dim"),
    heads=("num_attention_heads", "n_heads"),
    layers=("num_hidden_layers", "n_layers"),
    inner=("hidden_dim",),
    eps=(),
    activation=("activation",),
)
_LATENT = replace(
    USUAL,
    head_dim=("qk_nope_head_dim",),
    latent=("kv_lora_rank",),
    rope_dim=("qk_rope_head_dim",),
    value_dim=("v_head_dim",),
    query_latent=("q_lora_rank",),
)
_T5 = Keys(
    d_model=("d_model",),
    heads=("num_heads",),
    layers=("num_layers",),
    kv_heads=(),
    head_dim=("d_kv",),
    decoder_layers=("num_decoder_layers", "num_layers"),
)
_TWO_STACKS = Keys(
    d_model=("d_model",),
    heads=("encoder_attention_heads", "num_attention_heads"),
    layers=("encoder_layers", "num_hidden_layers"),
    kv_heads=(),
    head_dim=(),
    decoder_heads=("decoder_attention_heads", "num_attention_heads"),
    decoder_layers=("decoder_layers", "num_hidden_layers"),
)

FAMILY_KEYS: Mapping[str, Keys] = {
    "distilbert": _DISTILBERT,
    **dict.fromkeys(("gpt2", "gptj"), OLD_GPT),
    "bloom": replace(GUESS, d_model=("hidden_size", "n_embed"), heads=("n_head", *GUESS.heads)),
    "falcon": replace(GUESS, kv_heads=("num_kv_heads",)),
    **dict.fromkeys(
        ("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_linear"), _LATENT
    ),
    **dict.fromkeys(("t5", "mt5"), _T5),
    **dict.fromkeys(
        ("bart", "mbart", "marian", "pegasus", "m2m_100", "whisper", "transformer"), _TWO_STACKS
    ),
}
"""``model_type`` -> names; a known family that is not here has the usual ones."""

LAYER_KEYS = frozenset(
    name
    for keys in (USUAL, GUESS, *FAMILY_KEYS.values())
    for name in (*keys.layers, *keys.decoder_layers)
)
"""Every name that a number of layers has in some family."""

_MEANING = {"d_model": "model width", "heads": "number of heads", "layers": "number of layers"}


def keys_of(family: str) -> Keys:
    """The names of a family that attnviz knows."""
    return FAMILY_KEYS.get(family, USUAL)


@cache
def defaults() -> Mapping[str, Config]:
    """What transformers takes for a field that a config.json leaves out, by family.

    A config inside another one is saved without the fields that have their usual value; only those
    that decide a size are listed. ``python -m docs.defaults`` writes the file.
    """
    import json
    from importlib.resources import files

    text = files(__package__).joinpath("defaults.json").read_text(encoding="utf-8")
    return json.loads(text)


def find(config: Config, keys: Keys, what: str) -> int | None:
    """A size under one of its names, or None."""
    for name in getattr(keys, what):
        if config.get(name) is not None:
            return whole(name, config[name], MAX_LAYERS if what == "layers" else MAX_SIZE)
    return None


def need(config: Config, keys: Keys, what: str) -> int:
    """A size that must be there."""
    value = find(config, keys, what)
    if value is not None:
        return value
    names = ", ".join(getattr(keys, what))
    if what in _MEANING:
        raise ModelError(f"config.json has no {_MEANING[what]} (looked for: {names})")
    raise ModelError(f"config.json has no {names}, which this family needs")


def optional(config: Config, name: str) -> int | None:
    """A size that may be missing, null or 0; None then."""
    value = config.get(name)
    return None if value is None or value == 0 else whole(name, value)


def whole(name: str, value: object, most: int = MAX_SIZE) -> int:
    """A setting's value if it is a whole number from 1 to ``most``."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ModelError(
            f"config.json: {name} must be a whole number from 1 to {most:,}, got {shown(value)}"
        )
    return value


def positive(config: Config, name: str) -> float | None:
    """A number that may be missing, null or 0; None then."""
    value = config.get(name)
    if value is None or value == 0:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_SIZE:
        raise ModelError(
            f"config.json: {name} must be a number from 0 to {MAX_SIZE:,}, got {shown(value)}"
        )
    return float(value)


def shown(value: object) -> str:
    """A value for a message, cut where it is long."""
    return cut(repr(value))
