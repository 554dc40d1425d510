"""One attention layer on paper: its widths, what is run through it, and sizes that may be unset.

A :class:`Dim` is one axis of a tensor, an :class:`Amount` a sum of products of axes (elements,
bytes, FLOPs): ``2,097,152·T + 2,048·T²``. Both stay symbolic in the sizes that nobody set. No torch
here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from attnviz.core.settings import Settings, setting
from attnviz.errors import Setting, SizeError, UsageError

_SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


class Dim(NamedTuple):
    """One axis: how it is written in formulas, and its size where that is known.

    ``base`` is the letter that stands for the axis in an :class:`Amount` when the size is unset;
    self-attention writes S for its keys but counts them as T.
    """

    symbol: str
    size: int | None
    base: str = ""

    @property
    def letter(self) -> str:
        """The letter under which an unset size is counted."""
        return self.base or self.symbol

    def __str__(self) -> str:
        return self.letter if self.size is None else str(self.size)


Shape = tuple[Dim, ...]


class Amount:
    """A sum of terms: whole-number coefficients times products of unset sizes."""

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[tuple[str, ...], int] | int = 0) -> None:
        if isinstance(terms, int):
            terms = {(): terms}
        self.terms = {key: value for key, value in terms.items() if value}

    @property
    def value(self) -> int | None:
        """The plain number, or None while a size is unset."""
        if any(self.terms.keys() - {()}):
            return None
        return self.terms.get((), 0)

    def __add__(self, other: Amount | int) -> Amount:
        other = other if isinstance(other, Amount) else Amount(other)
        terms = dict(self.terms)
        for key, value in other.terms.items():
            terms[key] = terms.get(key, 0) + value
        return Amount(terms)

    __radd__ = __add__

    def __mul__(self, other: Dim | int) -> Amount:
        if isinstance(other, int):
            return Amount({key: value * other for key, value in self.terms.items()})
        if other.size is not None:
            return self * other.size
        return Amount(
            {tuple(sorted((*key, other.letter))): value for key, value in self.terms.items()}
        )

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            other = Amount(other)
        return isinstance(other, Amount) and self.terms == other.terms

    __hash__ = None  # type: ignore[assignment]

    def at(self, **sizes: int) -> Amount:
        """Return the amount with letters replaced by sizes, for example ``at(T=16)``."""
        total = Amount(0)
        for key, value in self.terms.items():
            term = Amount(value)
            for letter in key:
                term = term * Dim(letter, sizes.get(letter))
            total = total + term
        return total

    def written(self, number: str = ",") -> str:
        """Return the amount as text; ``number`` is the format of its coefficients."""
        if not self.terms:
            return "0"
        parts = []
        for key, value in sorted(self.terms.items(), key=lambda item: (len(item[0]), item[0])):
            counts = sorted(Counter(key).items())
            powers = [a if n == 1 else a + str(n).translate(_SUPERSCRIPT) for a, n in counts]
            coefficient = [format(value, number)] if value != 1 or not powers else []
            parts.append("·".join(coefficient + powers))
        return " + ".join(parts)

    def __str__(self) -> str:
        return self.written()

    def __repr__(self) -> str:
        return f"Amount({self.written()})"


def elements(*dims: Dim | int) -> Amount:
    """Return the product of some axes: how many numbers a tensor of that shape holds."""
    total = Amount(1)
    for dim in dims:
        total = total * dim
    return total


Kind = Literal["mha", "gqa", "mqa", "mla", "cross"]
KINDS: tuple[Kind, ...] = ("mha", "gqa", "mqa", "mla", "cross")
"""Kinds of attention layers."""

MAX_SIZE = 1 << 24
MAX_LAYERS = 10_000


def divisors(number: int) -> list[int]:
    """Every divisor, ascending."""
    small = [i for i in range(1, int(number**0.5) + 1) if number % i == 0]
    return sorted({*small, *(number // i for i in small)})


def nearest(number: int, choices: list[int]) -> list[int]:
    """Return the nearest choice below and the nearest above, where they exist."""
    below = [c for c in choices if c < number][-1:]
    return below + [c for c in choices if c > number][:1]


def check_sizes(
    d_model: int,
    heads: int,
    *,
    kind: Kind | None = None,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    latent: int | None = None,
    rope_dim: int | None = None,
) -> AttentionSpec:
    """Fill in and check the sizes of a layer; its options are not said yet."""
    named = {
        "d-model": d_model,
        "heads": heads,
        "kv-heads": kv_heads,
        "head-dim": head_dim,
        "latent": latent,
    }
    for name, value in named.items():
        if value is not None and value < 1:
            raise SizeError(f"{name} must be at least 1, got {value}")
        if value is not None and value > MAX_SIZE:
            raise SizeError(f"{name} {value:,} is beyond {MAX_SIZE:,}; no model is that wide")
    if head_dim is None:
        head_dim = _head_dim(d_model, heads)
    if kind == "mla" or (kind is None and latent is not None):
        if kv_heads is not None and kv_heads != heads:
            raise SizeError(
                f"mla rebuilds keys for all {heads} heads; leave out kv-heads {kv_heads}"
            )
        latent = 4 * head_dim if latent is None else latent
        rope_dim = head_dim // 4 * 2 if rope_dim is None else rope_dim
        if rope_dim < 0 or rope_dim % 2:
            raise SizeError(f"the rotary width must be even and not negative, got {rope_dim}")
        return AttentionSpec("mla", d_model, heads, heads, head_dim, head_dim, latent, rope_dim)
    for name, size in (("latent", latent), ("rotary width", rope_dim)):
        if size is not None:
            raise SizeError(f"{name} {size} belongs to kind mla, not {kind or 'mha'}")
    kv_heads = _kv_heads(kind, heads, kv_heads)
    return AttentionSpec(kind or "mha", d_model, heads, kv_heads, head_dim, head_dim)


def _head_dim(d_model: int, heads: int) -> int:
    if d_model % heads == 0:
        return d_model // heads
    choices = divisors(d_model)
    listing = ", ".join(map(str, choices)) if len(choices) <= 12 else f"any divisor of {d_model}"
    close = " or ".join(map(str, nearest(heads, choices)))
    raise SizeError(
        f"d-model {d_model} over {heads} heads is {d_model / heads:.2f} per head, not a whole "
        f"number; head counts that work: {listing} (nearest: {close})"
    )


def _kv_heads(kind: Kind | None, heads: int, kv_heads: int | None) -> int:
    if kv_heads is None:
        if kind == "mqa":
            return 1
        if kind == "gqa":
            return max(d for d in divisors(heads) if d <= max(1, heads // 4))
        return heads
    if heads % kv_heads:
        works = ", ".join(map(str, divisors(heads)))
        raise SizeError(
            f"{heads} heads cannot share {kv_heads} kv-heads evenly; kv-heads that work: {works}"
        )
    if kind == "mqa" and kv_heads != 1:
        raise SizeError("mqa has one key/value head, not {}; use {kind}", kv_heads, kind="gqa")
    if kind == "mha" and kv_heads != heads:
        raise SizeError(
            "mha has as many key/value heads as heads ({}), not {}; use {kind}",
            heads,
            kv_heads,
            kind="gqa",
        )
    return kv_heads


DTYPE_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
CACHE_BYTES = {**DTYPE_BYTES, "float8": 1, "int8": 1}
"""What a cache may be kept in; the scales that int8 needs are not counted."""

_DTYPE_ALIASES = {
    "fp64": "float64",
    "double": "float64",
    "fp32": "float32",
    "float": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    **dict.fromkeys(("fp8", "float8_e4m3fn", "float8_e5m2"), "float8"),
}
MAX_LENGTH = 1 << 40
"""Beyond this a length, batch or cache is taken for a slip of the finger."""


def dtype_name(name: str, dtypes: Mapping[str, int] = DTYPE_BYTES) -> str:
    """Return the full name of a dtype given by name or alias (``bf16``)."""
    full = _DTYPE_ALIASES.get(name.lower(), name.lower())
    if full not in dtypes:
        raise UsageError(f"unknown dtype {name!r}; known: {', '.join(dtypes)}")
    return full


@dataclass(frozen=True, slots=True)
class Rotary:
    """Rotary positions (Su et al. 2021, arXiv:2104.09864)."""

    width: int  # how many of a head's d numbers are turned, the first of them
    # pair i turns by base^(-2i/width) radians a position; None where nobody named it
    base: float | None = None
    # whether a pair is two neighbours (GPT-J) instead of i and i + width/2 (Llama)
    adjacent: bool = False
    # how the frequencies are changed for long texts, by its name; empty for not at all
    scaling: str = ""


@dataclass(frozen=True, slots=True)
class QKNorm:
    """Normalized queries and keys (Henry et al. 2020, arXiv:2010.04245; RMSNorm for L2)."""

    kind: Literal["RMSNorm", "LayerNorm"]  # ``RMSNorm`` or ``LayerNorm``
    # whether all heads are normalized at once (OLMo 2) instead of each by itself
    joint: bool = False
    learned: int = 1  # parameters per normalized number: 1 a weight, 2 a weight and a bias


@dataclass(frozen=True, slots=True)
class Buckets:
    """A table of biases by distance, one column a head (Raffel et al. 2020, arXiv:1910.10683)."""

    count: int  # rows of the table; half of them for later keys where attention is not causal
    reach: int  # the distance from which on all share the last row
    own: bool = False  # whether the layer holds the table; otherwise it adds the first layer's


@dataclass(frozen=True, slots=True)
class Indexer:
    """A small attention that chooses the keys which a query may see (DeepSeek Sparse Attention).

    Query i scores key j with Σ_h w_ih · relu(q_ih · k_j) over its own heads, which share one key;
    the ``keep`` keys of the highest scores stay. DeepSeek-AI 2025 (arXiv:2512.02556).
    """

    heads: int  # how many. width: of each head's query, and of the key. keep: keys that stay
    width: int
    keep: int


@dataclass(frozen=True, slots=True)
class LinearState:
    """What a linear layer keeps of everything before a token: as much at any length."""

    rule: str  # how the state is updated, by its name (``gated delta rule``)
    decay: str  # what it is multiplied by before: a number α a head, or one for each side of a key
    heads: int  # H states. key_dim, value_dim: the sides of each
    key_dim: int
    value_dim: int
    # channels, kernel: of the short convolution before it, whose last inputs are kept too
    channels: int
    kernel: int

    @property
    def elements(self) -> int:
        """Numbers of all heads' states."""
        return self.heads * self.key_dim * self.value_dim

    @property
    def inputs(self) -> int:
        """Numbers that the convolution keeps."""
        return self.channels * self.kernel


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """The sizes and options of one attention layer."""

    kind: Kind  # the kind of attention
    d_model: int  # D, width of the residual stream
    heads: int  # H query heads. kv_heads: G key/value heads; H for MHA and MLA.
    kv_heads: int
    head_dim: int  # d, width of a head's query and key (of their content part in MLA)
    value_dim: int  # width of a head's value; d nearly always
    latent: int = 0  # r of MLA, else 0. rope_dim: d_r of MLA, else 0.
    rope_dim: int = 0
    query_latent: int = 0  # the width to which MLA compresses queries first; 0 where it does not
    # which projections have one, by their names (``w_q`` ...).
    biases: frozenset[str] = frozenset()
    # parameters in the layer beyond projections: a norm's or a position table's, as (name, count)
    extras: tuple[tuple[str, int], ...] = ()
    causal: bool = False  # whether a query sees only keys up to its own position
    # how many positions a query sees, its own included (in each direction, where it is not causal);
    # None for all
    window: int | None = None
    scaled: bool = True  # whether scores are multiplied by 1/√d (T5 leaves it out)
    scale_dim: int = 0  # the number under that root where it is not d itself (Gemma 2 27B), else 0
    softcap: float | None = None  # the soft cap on scores, None for none
    # whether these are the positions of the query's own chunk instead (Llama 4)
    chunked: bool = False
    # whether softmax may put weight on a learned sink, one number a head (gpt-oss)
    sink: bool = False
    gated: bool = False  # whether the heads' outputs pass a learned gate before W_O (Qwen3-Next)
    # how positions turn queries and keys; None where they do not (MLA has ``rope_dim``)
    rotary: Rotary | None = None
    qk_norm: QKNorm | None = None  # how queries and keys are normalized, None where they are not
    # of the table of position biases added to the scores (T5), None for none
    buckets: Buckets | None = None
    # what scores are multiplied by where the config says it (Granite); None where it is the root
    multiplier: float | None = None
    # what chooses the keys that a query sees (DeepSeek-V3.2); None for all of them
    indexer: Indexer | None = None
    borrowed: bool = False  # whether keys and values are those of an earlier layer (Gemma 3n)
    # of MLA, whether the key that all heads share is rotated (Kimi Linear's is not)
    turned: bool = True

    @property
    def scale(self) -> float:
        """What scores are multiplied by before softmax."""
        if not self.scaled:
            return 1.0
        return self.multiplier or 1 / math.sqrt(self.scale_dim or self.score_dim)

    @property
    def scale_text(self) -> str:
        """The same as a formula, ``1/√64`` or ``0.0078125``; empty where nothing is done."""
        if not self.scaled:
            return ""
        if self.multiplier:
            return f"{self.multiplier:g}"
        return f"1/√{self.scale_dim or self.score_dim}"

    @property
    def score_dim(self) -> int:
        """How many numbers a query and a key are compared on: d, or d + d_r in MLA."""
        return self.head_dim + self.rope_dim

    @property
    def group(self) -> int:
        """How many query heads share a key/value head."""
        return self.heads // self.kv_heads

    @property
    def title(self) -> str:
        """``GQA, D = 512, 8 heads of 64 on 2 key/value heads``."""
        kind = "Cross-attention" if self.kind == "cross" else self.kind.upper()
        text = f"{kind}, D = {self.d_model:,}, {self.heads} heads of {self.head_dim}"
        if self.kv_heads != self.heads:
            noun = "head" if self.kv_heads == 1 else "heads"
            text += f" on {self.kv_heads} key/value {noun}"
        if self.kind == "mla":
            text += f", latent {self.latent}, "
            text += f"{'rotary' if self.turned else 'shared'} key {self.rope_dim}"
        options = [name for name, flag in (("causal", self.causal),) if flag]
        if self.window is not None:
            options.append(f"{'chunk' if self.chunked else 'window'} {self.window:,}")
        if self.indexer is not None:
            options.append(f"{self.indexer.keep:,} keys selected")
        further = (("sink", self.sink), ("gated", self.gated), ("borrowed keys", self.borrowed))
        options += [name for name, flag in further if flag]
        return ", ".join([text, *options])


PROJECTIONS = {
    "mla": ("w_q", "w_latent", "w_k", "w_v", "w_k_rope", "w_o"),
    "other": ("w_q", "w_k", "w_v", "w_o"),
}


def spec_of(
    sizes: AttentionSpec, *, bias: bool, causal: bool = False, window: int | None = None
) -> AttentionSpec:
    """Give the spec of a fresh layer of these sizes, as ``attnviz.attention.layers`` builds it."""
    if window is not None and window < 1:
        raise SizeError("{} must be at least 1 position, got {}", Setting("sliding_window"), window)
    if window is not None and window > MAX_LENGTH:
        raise SizeError(
            "{} {:,} is beyond {:,} (2^40); check the number",
            Setting("sliding_window"),
            window,
            MAX_LENGTH,
        )
    if sizes.kind == "cross" and (causal or window is not None):
        raise SizeError(
            "{} compares positions, but cross-attention's queries and keys come from two "
            "sequences; leave it out",
            Setting("causal", True) if causal else Setting("sliding_window", window),
        )
    names = PROJECTIONS["mla" if sizes.kind == "mla" else "other"]
    biases = frozenset(names) if bias else frozenset[str]()
    return replace(sizes, biases=biases, causal=causal, window=window)


RUN = "What runs through it"


@dataclass(frozen=True)
class RunSizes(Settings, panel=RUN):
    """What goes through the layer; a size of None stays a letter."""

    batch: int | None = setting(1, "Sequences.", metavar="B")
    seq: int | None = setting(None, "T queries.", metavar="T", shown="a letter", common=True)
    context_length: int | None = setting(
        None, "S keys of cross-attention.", metavar="S", shown="a letter"
    )
    cache: int | None = setting(
        None, "Decode on a cache of N: one token, or the T of {seq} (S = N + T)."
    )
    dtype: str | None = setting(
        None,
        "float64, float32, bf16 or fp16. With that of cached K and V, fp8, int8 or one of those: "
        "bf16+fp8, or +fp8 alone.",
        metavar="DTYPE",
        shown="the config's, else float32",
    )

    def check(self) -> None:
        """Name the dtypes in full; UsageError for one that there is not."""
        if self.dtype is None:
            return
        number, plus, cached = self.dtype.partition("+")
        named = dtype_name(number) if number or not plus else ""
        named += plus + (dtype_name(cached, CACHE_BYTES) if plus else "")
        object.__setattr__(self, "dtype", named)

    @property
    def new(self) -> int | None:
        """T: how many tokens are new, of a cache one unless told."""
        return (self.seq or 1) if self.cache is not None else self.seq

    @property
    def chosen(self) -> str | None:
        """The dtype of a number that somebody chose."""
        return (self.dtype or "").partition("+")[0] or None

    @property
    def cache_dtype(self) -> str | None:
        """The dtype of a cached number that somebody chose."""
        return (self.dtype or "").partition("+")[2] or None

    @property
    def number(self) -> str:
        """The dtype of a number: float32 where nobody chose one."""
        return self.chosen or "float32"

    @property
    def cached(self) -> str:
        """The dtype of a cached number."""
        return self.cache_dtype or self.number

    @property
    def width(self) -> int:
        """Bytes per number."""
        return DTYPE_BYTES[self.number]

    @property
    def cache_width(self) -> int:
        """Bytes per cached number."""
        return CACHE_BYTES[self.cached]


class LayerAxes:
    """The axes of one run through one layer, each a letter and (perhaps) a size."""

    def __init__(self, spec: AttentionSpec, run: RunSizes) -> None:
        """Check the run against the layer."""
        _check(spec, run)
        self.b = Dim("B", run.batch)
        self.t = Dim("T", run.new)
        self.d_model = Dim("D", spec.d_model)
        self.h = Dim("H", spec.heads)
        self.g = Dim("G" if spec.kv_heads != spec.heads else "H", spec.kv_heads)
        self.new = self.t  # the tokens whose keys and values are projected now
        if spec.kind == "cross":
            self.s = self.new = Dim("S", run.context_length)
        elif run.cache is not None:
            length, new = run.cache + (run.new or 1), run.new or 1
            limit = length if spec.window is None else spec.window + new - 1
            self.s = Dim("S", min(length, limit))
        else:
            self.s = Dim("S", run.seq, "T")
        self.seen = self.s  # the keys that a query is compared with
        if spec.window is not None and run.cache is None:
            limit = spec.window if spec.causal else 2 * spec.window - 1
            self.seen = Dim("w", min(limit, self.s.size or limit))
        if spec.indexer is not None:
            limit = spec.indexer.keep
            self.seen = Dim("k", min(limit, self.s.size or limit))


def _check(spec: AttentionSpec, run: RunSizes) -> None:
    named = {"batch": run.batch, "seq": run.seq, "context-length": run.context_length}
    for name, size in named.items():
        if size is not None and size < 1:
            raise SizeError(f"{name} must be at least 1, got {size}")
    if run.cache is not None and run.cache < 0:
        raise SizeError(f"cache cannot be negative, got {run.cache}")
    for name, size in {**named, "cache": run.cache}.items():
        if size is not None and size > MAX_LENGTH:
            raise SizeError(f"{name} {size:,} is beyond {MAX_LENGTH:,} (2^40); check the number")
    if spec.kind != "cross" and run.context_length is not None:
        raise UsageError(
            "{context_length} is the other sequence of cross-attention",
            remedy="add {kind}, or use {seq} for self-attention",
            context_length=run.context_length,
            kind="cross",
            seq=...,
        )
    if run.cache is not None and spec.kind == "cross":
        raise UsageError(
            "{cache} contradicts {kind}, whose keys come from the context",
            remedy="use {seq} and {context_length}",
            cache=run.cache,
            kind="cross",
            seq=1,
            context_length=...,
        )
