"""MHA, GQA, MQA and MLA side by side: parameters, FLOPs, KV cache, and what fits in a memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from attnviz.attention.sizes import Kind, divisors
from attnviz.errors import UsageError
from attnviz.shapes.configs.model import ModelSpec
from attnviz.shapes.configs.presets import presets
from attnviz.shapes.costs.formulas import cache_elements, cached_tokens, flops, parameters
from attnviz.shapes.spec import PROJECTIONS, AttentionSpec, LayerAxes, RunSizes, cut
from attnviz.shapes.symbolic import Amount

DEFAULT_TOKENS = 4096
Stack = Sequence[tuple[AttentionSpec, int]]
"""The layers that keep a cache: each kind of layer, and how many there are of it."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One kind of attention at the sizes in question.

    Attributes:
        name: ``GQA, G = 8``. spec: one layer of it.
        parameters: of one layer. flops: of one layer for the run.
        elements: cache numbers per token and layer. token_bytes: cache per token, all layers.
        sequence_bytes: cache of one sequence. batch_bytes: cache of the batch.
        ratio: token_bytes against MHA with the same heads.
        fits_tokens: the longest sequence whose cache fits in the memory asked about; None when
            nobody asked, -1 when a window keeps the cache below it at any length.
        fits_sequences: how many sequences fit; None when nobody asked.
        used_by: published models of this kind. own: True for what was asked about.
    """

    name: str
    spec: AttentionSpec
    parameters: int
    flops: Amount
    elements: int
    token_bytes: int
    sequence_bytes: int
    batch_bytes: int
    ratio: float
    fits_tokens: int | None
    fits_sequences: int | None
    used_by: tuple[str, ...]
    own: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every kind at the same D, H and d; the cache at ``tokens`` tokens in ``layers`` layers."""

    spec: AttentionSpec
    run: RunSizes
    tokens: int
    layers: int
    memory: int | None
    variants: tuple[Variant, ...]
    subject: str


def stack_of(model: ModelSpec) -> Stack:
    """The layers of a model that keep keys and values of decoded tokens."""
    return [(group.spec, len(group.layers)) for group in model.cached_groups]


def cache_bytes(stack: Stack, tokens: int, width: int) -> int:
    """The KV cache of one sequence: every layer's tokens (a window's at most) times its numbers."""
    return sum(
        layers * cached_tokens(spec, tokens) * cache_elements(spec) * width
        for spec, layers in stack
    )


def longest(stack: Stack, width: int, memory: int) -> int:
    """The most tokens of one sequence whose cache fits; -1 when any number does."""
    if all(spec.window is not None for spec, _ in stack):
        most = max(spec.window or 0 for spec, _ in stack)
        if cache_bytes(stack, most, width) <= memory:
            return -1
    low, high = 0, memory + 1  # a token takes at least a byte
    while high - low > 1:
        middle = (low + high) // 2
        if cache_bytes(stack, middle, width) <= memory:
            low = middle
        else:
            high = middle
    return low


def compare(
    spec: AttentionSpec,
    run: RunSizes,
    *,
    layers: int = 1,
    model: ModelSpec | None = None,
    memory: int | None = None,
) -> Comparison:
    """Compare the kinds at the sizes of ``spec``.

    Args:
        spec: the layer in question; ``model``'s main layer when there is a model.
        run: batch, length and dtype; the cache is reported at its cache, context or seq length,
            or at 4,096 tokens.
        layers: how many such layers; a model brings its own.
        model: the model in question.
        memory: bytes that the cache may take.

    Raises:
        UsageError: cross-attention, whose cache does not grow with what is decoded.
    """
    if spec.kind == "cross":
        raise UsageError(
            "{compare} is about caches of decoded tokens; cross-attention has none", compare=...
        )
    stack: Stack = stack_of(model) if model else [(spec, layers)]
    tokens = run.cache or run.seq or DEFAULT_TOKENS
    batch = run.batch or 1
    axes = LayerAxes(spec, run)
    many = sum(count for _, count in stack)
    mha = _as(spec, "mha", spec.heads)
    full = many * cache_elements(mha) * run.width
    rows = []
    for name, variant in _variants(spec):
        swapped = [(_keep_window(variant, one), count) for one, count in stack]
        one = cache_bytes(swapped, tokens, run.width)
        rows.append(
            Variant(
                name=name,
                spec=variant,
                parameters=parameters(variant).total,
                flops=flops(variant, axes).total,
                elements=cache_elements(variant),
                token_bytes=many * cache_elements(variant) * run.width,
                sequence_bytes=one,
                batch_bytes=batch * one,
                ratio=many * cache_elements(variant) * run.width / full,
                fits_tokens=longest(swapped, run.width, memory) if memory else None,
                fits_sequences=memory // one if memory else None,
                used_by=_used_by(variant),
                own=_same(variant, spec),
            )
        )
    title = model.name if model else spec.title
    return Comparison(spec, run, tokens, many, memory, tuple(rows), title)


def _variants(spec: AttentionSpec) -> list[tuple[str, AttentionSpec]]:
    """MHA; GQA with 2, 4, 8 heads to a key head where that divides, and as asked; MQA; MLA."""
    heads = spec.heads
    groups = {heads // g for g in (2, 4, 8) if heads % g == 0 and heads // g > 1}
    if spec.kind != "mla":
        groups.add(spec.kv_heads)
    rows = [("MHA", _as(spec, "mha", heads))]
    rows += [
        (f"GQA, G = {g}", _as(spec, "gqa", g))
        for g in sorted(groups, reverse=True)
        if g in divisors(heads) and 1 < g < heads
    ]
    if heads > 1:
        rows.append(("MQA", _as(spec, "mqa", 1)))
    mla = spec if spec.kind == "mla" else _as(spec, "mla", heads)
    rows.append((f"MLA, r = {mla.latent}, dᵣ = {mla.rope_dim}", mla))
    return rows


def _as(spec: AttentionSpec, kind: Kind, kv_heads: int) -> AttentionSpec:
    """The same widths as another kind; MLA in DeepSeek-V2's proportions, r = 4·d, d_r = d/2."""
    latent = kind == "mla"
    names = PROJECTIONS["mla" if latent else "other"]
    return replace(
        spec,
        kind=kind,
        kv_heads=kv_heads,
        latent=4 * spec.head_dim if latent else 0,
        rope_dim=spec.head_dim // 4 * 2 if latent else 0,
        query_latent=0,
        value_dim=spec.head_dim,
        biases=frozenset(names) if spec.biases else frozenset(),
        extras=(),
        scaled=True,
        scale_dim=0,
    )


def _keep_window(variant: AttentionSpec, layer: AttentionSpec) -> AttentionSpec:
    return replace(variant, window=layer.window)


def _same(variant: AttentionSpec, spec: AttentionSpec) -> bool:
    kinds = (variant.kind == "mla") == (spec.kind == "mla")
    return kinds and variant.kv_heads == spec.kv_heads


def _used_by(spec: AttentionSpec, most: int = 3) -> tuple[str, ...]:
    """Presets whose main layer is of the same kind, and for GQA shares keys among as many heads."""
    mains = ((p.title, p.model.main.spec) for p in presets().values())
    names = [
        title
        for title, other in mains
        if other.kind == spec.kind and (spec.kind != "gqa" or other.group == spec.group)
    ]
    if len(names) <= most:
        return tuple(names)
    picked = [names[i * (len(names) - 1) // (most - 1)] for i in range(most)]
    return tuple(dict.fromkeys(picked))


_MEMORY = re.compile(r"(?i)^\s*([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([kmgtp]?)(i?)b?\s*$")
_POWERS = " kmgtp"


def parse_memory(text: str) -> int:
    """``80GB`` (10⁹), ``80GiB`` (2³⁰), ``512M``, ``1e9`` is junk.

    Raises:
        UsageError: not a size, or zero.
    """
    found = _MEMORY.match(text)
    number, letter, binary = found.groups() if found else ("", "", "i")
    if binary and not letter:
        raise UsageError("{memory} is no size; write 80GB, 80GiB or 512MB", memory=cut(text))
    power = _POWERS.index(letter.lower() or " ")
    size = int(float(number) * (1024 if binary else 1000) ** power)
    if size < 1 or size > 1 << 60:
        raise UsageError("{memory} must be at least a byte and below an exbibyte", memory=cut(text))
    return size
