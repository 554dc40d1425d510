"""Which layer sizes fit together, and what to say when they do not. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnviz.errors import SizeError

Kind = Literal["mha", "gqa", "mqa", "mla", "cross"]
KINDS: tuple[Kind, ...] = ("mha", "gqa", "mqa", "mla", "cross")
"""Kinds of attention layers."""

MAX_SIZE = 1 << 24
MAX_LAYERS = 10_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of one attention layer, all filled in.

    Attributes:
        d_model: D. heads: H. kv_heads: G. head_dim: d.
        latent: r of MLA, else 0. rope_dim: d_r of MLA, else 0.
    """

    kind: str
    d_model: int
    heads: int
    kv_heads: int
    head_dim: int
    latent: int = 0
    rope_dim: int = 0


def divisors(number: int) -> list[int]:
    """Every divisor, ascending."""
    small = [i for i in range(1, int(number**0.5) + 1) if number % i == 0]
    return sorted({*small, *(number // i for i in small)})


def nearest(number: int, choices: list[int]) -> list[int]:
    """The nearest choice below and the nearest above, where they exist."""
    below = [c for c in choices if c < number][-1:]
    return below + [c for c in choices if c > number][:1]


def check_sizes(
    d_model: int,
    heads: int,
    *,
    kind: str | None = None,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    latent: int | None = None,
    rope_dim: int | None = None,
) -> Sizes:
    """Fill in and check the sizes of a layer."""
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
        return Sizes("mla", d_model, heads, heads, head_dim, latent, rope_dim)
    for name, size in (("latent", latent), ("rotary width", rope_dim)):
        if size is not None:
            raise SizeError(f"{name} {size} belongs to kind mla, not {kind or 'mha'}")
    kv_heads = _kv_heads(kind, heads, kv_heads)
    return Sizes(kind or "mha", d_model, heads, kv_heads, head_dim)


def _head_dim(d_model: int, heads: int) -> int:
    if d_model % heads == 0:
        return d_model // heads
    works = divisors(d_model)
    shown = ", ".join(map(str, works)) if len(works) <= 12 else f"any divisor of {d_model}"
    close = " or ".join(map(str, nearest(heads, works)))
    raise SizeError(
        f"d-model {d_model} over {heads} heads is {d_model / heads:.2f} per head, not a whole "
        f"number; head counts that work: {shown} (nearest: {close})"
    )


def _kv_heads(kind: str | None, heads: int, kv_heads: int | None) -> int:
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
