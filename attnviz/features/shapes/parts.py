"""What the answers of ``attnviz shapes`` are made of: sizes and costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnviz.attention.sizes import Kind

Number = Literal["float64", "float32", "bfloat16", "float16"]
CachedNumber = Literal["float64", "float32", "bfloat16", "float16", "float8", "int8"]


@dataclass(frozen=True)
class Formula:
    """An amount.

    Attributes:
        value: None while a size is unset.
        formula: a sum of products of letters and numbers.
    """

    value: int | None
    formula: str


@dataclass(frozen=True, kw_only=True)
class LayerSizes:
    """The sizes and options of one attention layer.

    Attributes:
        kind: the kind of attention.
        d_model: D. heads: H. kv_heads: G. head_dim: d. value_dim: width of a head's value.
        latent: r of MLA. rope_dim: d_r of MLA. query_latent: width of MLA's compressed queries.
        biases: which projections have one, by their names.
        causal: whether a query sees only keys up to its own position.
        sliding_window: how many positions a query sees, its own included; None for all.
        chunked: whether these are those of its own chunk.
        sink: whether softmax may put weight on a learned sink.
        gated: whether the heads' outputs pass a learned gate before W_O.
        rotary_dim: how many of a head's numbers are rotated by position, without a latent.
        qk_norm: what normalizes queries and keys before they are compared.
        position_buckets: rows of T5's table of position biases.
        selected_keys: how many keys an indexer leaves to each query. index_heads: its heads.
        index_dim: their width, and that of its key, which is cached.
        borrowed: whether keys and values are those of an earlier layer.
    """

    kind: Kind
    d_model: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    latent: int | None
    rope_dim: int | None
    query_latent: int | None
    biases: tuple[str, ...]
    causal: bool
    sliding_window: int | None
    chunked: bool
    sink: bool
    gated: bool
    rotary_dim: int | None = None
    qk_norm: Literal["RMSNorm", "LayerNorm"] | None = None
    position_buckets: int | None = None
    selected_keys: int | None = None
    index_heads: int | None = None
    index_dim: int | None = None
    borrowed: bool = False


@dataclass(frozen=True, kw_only=True)
class LayerRun:
    """What goes through the layer; a size of None stays a letter.

    Attributes:
        batch: B. seq: T. context_length: S of cross-attention.
        cache: keys already kept when one token is decoded.
        dtype: of activations and weights. cache_dtype: of cached keys and values.
    """

    batch: int | None
    seq: int | None
    context_length: int | None
    cache: int | None
    dtype: Number
    cache_dtype: CachedNumber


@dataclass(frozen=True, kw_only=True)
class StepCosts:
    """One step of the walk.

    Attributes:
        key: what the step is, for programs. name: what its result is called.
        symbols: its shape in letters. shape: in numbers, None where a size is unset.
        operation: how it came about.
        parameters: learned numbers used in it.
        flops: 2 per multiply-add of its matrix product.
        bytes: of the new tensor; None for a view, which takes no memory.
        why: its reason, where that was asked for.
    """

    key: str
    name: str
    symbols: tuple[str, ...]
    shape: tuple[int | None, ...]
    operation: str
    parameters: int
    flops: Formula
    bytes: Formula | None
    why: str | None = None


@dataclass(frozen=True, kw_only=True)
class ParameterCosts:
    """Learned numbers of a layer: matrices, biases, whatever else lives in it, and all."""

    weights: int
    biases: int
    extras: int
    total: int


@dataclass(frozen=True, kw_only=True)
class FlopCosts:
    """FLOPs of a layer: the projections, attention itself, and both."""

    projections: Formula
    attention: Formula
    total: Formula


@dataclass(frozen=True, kw_only=True)
class LayerCosts:
    """What one layer costs.

    Attributes:
        parameters: learned numbers. flops: of the run.
        weights_bytes: of all attention weights, B·H·T·S of them.
        cache_elements_per_token: numbers kept per token. cache_bytes_per_token: their memory.
        crossing_length: T at which attention costs what the projections do; None where a window
            keeps it the cheaper part.
    """

    parameters: ParameterCosts
    flops: FlopCosts
    weights_bytes: Formula
    cache_elements_per_token: int
    cache_bytes_per_token: int
    crossing_length: float | None
